//! Reads the metadata, columns and labels of a Parquet file when the file is opened.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::cache::Cache;
use super::column::Column;
use super::footer::{Footer, Leaf, PhysicalType};
use super::labels::Labels;
use super::{FileError, ParquetSettings, Shard};
use crate::error::{Error, Result};
use crate::source::label;
use crate::source::settings::LabelSort;
use crate::storage::Storage;

/// Metadata, columns and labels of one Parquet file.
pub struct Table {
    pub shard: Shard,
    pub images: Column,
    /// Column of paths, which has no pages if every row has an image.
    pub paths: Column,
    pub labels: Labels,
    /// Whether the labels are texts; `None` if the file has no labels.
    textual: Option<bool>,
    classes: Vec<String>,
}

impl Table {
    pub fn read(
        storage: &Storage,
        path: &Path,
        settings: &ParquetSettings,
        cache: &Cache,
        for_fields: bool,
    ) -> Result<Self> {
        let shard = Shard::open(storage, path)?;
        let footer = Footer::read(&shard).map_err(|wrong| wrong.into_error(path))?;
        let image = match for_fields {
            true => None,
            false => Some(wanted(path, &footer, &IMAGE, &settings.image)?),
        };
        let label = match settings.label.as_str() {
            "" => None,
            name => Some(wanted(path, &footer, &LABEL, name)?),
        };
        let parent = image.and_then(|image| footer.leaves[image].path.strip_suffix(".bytes"));
        let beside = parent.and_then(|parent| {
            let path = format!("{parent}.path");
            footer.leaves.iter().position(|leaf| leaf.path == path && !leaf.repeated)
        });
        if let Some(leaf) = label.map(|label| &footer.leaves[label])
            && leaf.form != PhysicalType::Bytes
            && settings.labels == LabelSort::Text
        {
            let problem = format!(
                "is text, but the column {:?} in {} has numbers",
                leaf.path,
                path.display()
            );
            return Err(Error::config("source.labels", problem));
        }
        let beside = beside.filter(|place| footer.leaves[*place].form == PhysicalType::Bytes);
        let mut table = Self {
            shard,
            images: Column::new(0),
            paths: Column::new(1),
            labels: Labels::default(),
            textual: label.map(|label| footer.leaves[label].form == PhysicalType::Bytes),
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
        image: Option<usize>,
        beside: Option<usize>,
        label: Option<usize>,
        cache: &Cache,
    ) -> Result<(), FileError> {
        let shard = &self.shard;
        let may_be_null = |chunk: usize| {
            footer.groups.iter().any(|group| group.chunks[chunk].nulls.unwrap_or(1) > 0)
        };
        let beside = beside.filter(|_| {
            image.is_some_and(|image| footer.leaves[image].defined > 0 && may_be_null(image))
        });
        let mut row = 0u64;
        for group in &footer.groups {
            let rows = row..row.saturating_add(group.rows);
            // A sample takes at least one byte of its file. More rows than bytes are therefore
            // rejected before memory is allocated for them.
            if rows.end > shard.stamp.len {
                let problem = format!(
                    "the file has {} rows but only {} bytes: it is damaged; copy it again",
                    rows.end, shard.stamp.len
                );
                return Err(FileError::corrupt(shard.stamp.len, problem));
            }
            let columns = [(&mut self.images, image), (&mut self.paths, beside)];
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

/// Collects the class names of all files. Text labels become indices of these names. If all texts
/// are whole numbers, labels become these numbers and there are no class names.
pub fn name_classes(tables: &mut [Table], sort: LabelSort) -> Result<Vec<String>> {
    let Some((first, others)) = tables.split_first() else { return Ok(Vec::new()) };
    for other in others {
        let problem = |what: &str| {
            let (one, two) = (first.shard.path.display(), other.shard.path.display());
            let problem = format!("{two} has {what} than {one}; choose files of one dataset");
            Error::config("source.parquet", problem)
        };
        if other.textual != first.textual {
            return Err(problem("labels of another type"));
        }
        if other.classes != first.classes {
            return Err(problem("other class names"));
        }
    }
    if first.textual != Some(true) {
        return Ok(first.classes.clone());
    }
    if sort != LabelSort::Text && hold_numbers(tables, sort)? {
        for table in tables {
            let number = |text: &String| label::number(text).and_then(Result::ok).unwrap_or(-1);
            let numbers: Vec<i64> = table.labels.texts.iter().map(number).collect();
            table.labels.rename(&numbers);
        }
        return Ok(Vec::new());
    }
    let texts: HashSet<&String> = tables.iter().flat_map(|table| &table.labels.texts).collect();
    let mut classes: Vec<String> = texts.into_iter().cloned().collect();
    label::sort_names(&mut classes);
    let places: HashMap<&String, i64> = classes.iter().zip(0..).collect();
    for table in tables {
        let places: Vec<i64> = table.labels.texts.iter().map(|text| places[text]).collect();
        table.labels.rename(&places);
    }
    Ok(classes)
}

/// Whether all texts are whole numbers.
///
/// # Errors
///
/// Returns an error if a number has a fraction or is out of range, or if some texts are numbers and
/// others are names.
fn hold_numbers(tables: &[Table], sort: LabelSort) -> Result<bool> {
    let (mut number, mut name) = (None, None);
    let all = tables
        .iter()
        .flat_map(|table| table.labels.texts.iter().zip(0..).map(move |it| (table, it)));
    let place = |table: &Table, text: i64| {
        let row = table.labels.numbers.iter().position(|it| *it == text).unwrap_or(0);
        format!("row {row} of {}", table.shard.path.display())
    };
    let wrong = |problem: String| {
        let problem = format!(
            "{problem}; make all labels numbers or all names, or write labels = \"text\" if all \
             are names"
        );
        Err(Error::config("source.parquet", problem))
    };
    for (table, (text, at)) in all {
        match label::number(text) {
            Some(Ok(_)) => _ = number.get_or_insert((table, text, at)),
            Some(Err(why)) => {
                return wrong(format!("the label {text:?} in {} {why}", place(table, at)));
            }
            None => _ = name.get_or_insert((table, text, at)),
        }
    }
    match (number, name) {
        (Some((table, text, at)), Some((other, word, after))) => wrong(format!(
            "the label in {} is the number {text}, but the label in {} is the name {word:?}",
            place(table, at),
            place(other, after)
        )),
        (None, Some((table, word, at))) if sort == LabelSort::Integer => {
            let problem = format!(
                "the label in {} is {word:?}, which is not a whole number",
                place(table, at)
            );
            Err(Error::config("source.labels", problem))
        }
        (number, _) => Ok(number.is_some()),
    }
}

/// Requirements of a setting that names a column.
struct Wanted {
    key: &'static str,
    /// Whether the setting accepts a column of this type.
    is_fit: fn(&Leaf) -> bool,
    unfit: &'static str,
    /// Whether error messages should suggest the column.
    is_likely: fn(&Leaf) -> bool,
    /// End of the advice "choose another column" in error messages: what the setting accepts
    /// instead of a column.
    more: &'static str,
}

const IMAGE: Wanted = Wanted {
    key: "image",
    is_fit: |leaf| leaf.form == PhysicalType::Bytes,
    unfit: "is no column of bytes",
    is_likely: |leaf| leaf.form == PhysicalType::Bytes && !leaf.text,
    more: "",
};

const LABEL: Wanted = Wanted {
    key: "label",
    is_fit: |leaf| leaf.form != PhysicalType::Other,
    unfit: "is neither a column of numbers nor of texts",
    is_likely: |leaf| {
        leaf.form != PhysicalType::Other && (leaf.form != PhysicalType::Bytes || leaf.text)
    },
    more: " or none (\"\")",
};

/// Returns the leaf that a setting names, or an error that suggests other columns.
fn wanted(path: &Path, footer: &Footer, wanted: &Wanted, name: &str) -> Result<usize> {
    let problem = match footer.leaf(name).map(|leaf| (leaf, &footer.leaves[leaf])) {
        Some((place, leaf)) if !leaf.repeated && (wanted.is_fit)(leaf) => return Ok(place),
        Some((_, leaf)) => {
            let what = if leaf.repeated { "has several values in a row" } else { wanted.unfit };
            format!("{:?} in {} {what}", leaf.path, path.display())
        }
        None => format!("{} has no column {name:?}", path.display()),
    };
    let others = footer.paths(wanted.is_likely);
    let problem = format!("{problem}; choose another column{}: {others}", wanted.more);
    Err(Error::config(format!("source.{}", wanted.key), problem))
}
