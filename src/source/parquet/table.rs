//! What is read of a file when it is opened.

use std::path::Path;

use super::cache::Cache;
use super::column::Column;
use super::footer::{Footer, Form, Leaf};
use super::labels::Labels;
use super::{ParquetSettings, Shard, Wrong};
use crate::error::{Error, Result};

/// What is in one file.
pub struct Table {
    pub shard: Shard,
    pub pictures: Column,
    /// Of paths; without pages where every row has its picture.
    pub paths: Column,
    pub labels: Labels,
    /// Whether the labels are texts; `None` where there are none.
    textual: Option<bool>,
    classes: Vec<String>,
}

impl Table {
    pub fn read(path: &Path, settings: &ParquetSettings, cache: &Cache) -> Result<Self> {
        let shard = Shard::open(path)?;
        let footer = Footer::read(&shard).map_err(|wrong| wrong.into_error(path))?;
        let image = wanted(path, &footer, "image", &settings.image, "")?;
        let bytes = &footer.leaves[image];
        if bytes.form != Form::Bytes {
            return Err(unfit(path, "image", bytes, "is no column of bytes"));
        }
        let label = match settings.label.as_str() {
            "" => None,
            name => Some(wanted(path, &footer, "label", name, " or none (\"\")")?),
        };
        if let Some(leaf) = label.map(|label| &footer.leaves[label])
            && leaf.form == Form::Other
        {
            return Err(unfit(path, "label", leaf, "is neither a column of integers nor of texts"));
        }
        let parent = bytes.path.strip_suffix(".bytes");
        let beside = parent.and_then(|parent| {
            let path = format!("{parent}.path");
            footer.leaves.iter().position(|leaf| leaf.path == path && !leaf.repeated)
        });
        let beside = beside.filter(|place| footer.leaves[*place].form == Form::Bytes);
        let mut table = Self {
            shard,
            pictures: Column::new(0),
            paths: Column::new(1),
            labels: Labels::default(),
            textual: label.map(|label| footer.leaves[label].form == Form::Bytes),
            classes: label
                .map(|label| footer.classes(&footer.leaves[label].path))
                .unwrap_or_default(),
        };
        table.walk(&footer, image, beside, label, cache).map_err(|wrong| wrong.into_error(path))?;
        Ok(table)
    }

    fn walk(
        &mut self,
        footer: &Footer,
        image: usize,
        beside: Option<usize>,
        label: Option<usize>,
        cache: &Cache,
    ) -> Result<(), Wrong> {
        let shard = &self.shard;
        let may_be_null = |chunk: usize| {
            footer.groups.iter().any(|group| group.chunks[chunk].nulls.unwrap_or(1) > 0)
        };
        let beside = beside.filter(|_| footer.leaves[image].defined > 0 && may_be_null(image));
        let mut row = 0u64;
        for group in &footer.groups {
            let rows = row..row.saturating_add(group.rows);
            // A sample takes a byte of its file at least: no memory is taken for more.
            if rows.end > shard.stamp.len {
                let problem = format!(
                    "{} rows in a file of {} bytes: it is damaged; copy it again",
                    rows.end, shard.stamp.len
                );
                return Err(Wrong::corrupt(shard.stamp.len, problem));
            }
            let columns = [(&mut self.pictures, Some(image)), (&mut self.paths, beside)];
            for (column, leaf) in columns {
                if let Some(leaf) = leaf {
                    let defined = footer.leaves[leaf].defined;
                    column.walk(shard, &group.chunks[leaf], defined, rows.clone(), cache)?;
                }
            }
            match label {
                Some(label) => {
                    let (leaf, chunk) = (&footer.leaves[label], &group.chunks[label]);
                    self.labels.read(shard, leaf, chunk, group.rows, cache)?;
                }
                None => self.labels.numbers.resize(rows.end as usize, -1),
            }
            row = rows.end;
        }
        Ok(())
    }
}

/// The names of the classes of all files. Labels that are texts become places in them.
pub fn name_classes(tables: &mut [Table]) -> Result<Vec<String>> {
    let Some((first, others)) = tables.split_first() else { return Ok(Vec::new()) };
    for other in others {
        let problem = |what: &str| {
            let (one, two) = (first.shard.path.display(), other.shard.path.display());
            let problem = format!("{two} has {what} than {one}; name files of one set");
            Error::config("source.parquet", problem)
        };
        if other.textual != first.textual {
            return Err(problem("labels of another type"));
        }
        if other.classes != first.classes {
            return Err(problem("other names of classes"));
        }
    }
    if first.textual != Some(true) {
        return Ok(first.classes.clone());
    }
    let mut classes: Vec<String> =
        tables.iter().flat_map(|table| table.labels.texts.iter().cloned()).collect();
    classes.sort_unstable();
    classes.dedup();
    for table in tables {
        let place = |text| classes.binary_search(text).expect("all texts are classes") as i64;
        let places: Vec<i64> = table.labels.texts.iter().map(place).collect();
        for label in &mut table.labels.numbers {
            *label = usize::try_from(*label).map_or(-1, |place| places[place]);
        }
    }
    Ok(classes)
}

/// The leaf that a setting names.
fn wanted(path: &Path, footer: &Footer, setting: &str, name: &str, more: &str) -> Result<usize> {
    let Some(leaf) = footer.leaf(name) else {
        let problem = format!(
            "{} has no column {name:?}; name another one{more}, there are {}",
            path.display(),
            footer.paths()
        );
        return Err(Error::config(format!("source.{setting}"), problem));
    };
    match &footer.leaves[leaf] {
        repeated if repeated.repeated => {
            Err(unfit(path, setting, repeated, "has several values in a row"))
        }
        _ => Ok(leaf),
    }
}

fn unfit(path: &Path, setting: &str, leaf: &Leaf, what: &str) -> Error {
    let problem = format!("{:?} in {} {what}; name another column", leaf.path, path.display());
    Error::config(format!("source.{setting}"), problem)
}
