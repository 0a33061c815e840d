//! Settings of a list of files.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::source::label::LabelSort;

/// Settings of the source `list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileListSettings {
    /// Format of the file. Default: determined by the file name extension.
    pub format: ListFormat,
    /// Column (or JSON key) of the path. Default: the first of `path`, `image`, `file`, `filename`,
    /// `file_name`, `filepath` and `image_path` that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Column (or JSON key) of the label; empty for no labels. Default: `label`, if it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Type of the labels. Default: detected from the labels.
    pub labels: LabelSort,
    /// Column separator of a table, an ASCII character. Default: a comma in CSV, a tab in TSV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Files beside each image that are fields of its sample, besides the columns: a path for each
    /// field, relative to the folder of the list. `{folder}` is the folder of the image as the list
    /// names it, `{stem}` its name without extension, and `{name}` its name. `{stem:_rgb=_depth}`
    /// replaces a part of the name, `{folder:images=masks}` a folder. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub side_files: BTreeMap<String, String>,
}

/// Format of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ListFormat {
    /// Determined by the file name extension.
    #[default]
    Auto,
    /// Lines with a path and a label.
    Text,
    /// Table with commas as separators.
    Csv,
    /// Table with tabs as separators.
    Tsv,
    /// One JSON object per line.
    Jsonl,
}

/// Names of the path column that are tried by default.
pub(super) const PATHS: [&str; 7] =
    ["path", "image", "file", "filename", "file_name", "filepath", "image_path"];

/// Default name of the label column.
const LABEL: &str = "label";

/// Beginning of the warning about a list without a column of labels.
pub const NO_LABEL_COLUMN: &str = "no column is named \"label\"";

/// Usual names of the label column. A warning suggests a column that has one of these names.
const USUAL: [&str; 12] = [
    "label",
    "labels",
    "class",
    "classes",
    "class_name",
    "classname",
    "category",
    "target",
    "class_id",
    "label_id",
    "category_id",
    "y",
];

impl FileListSettings {
    /// Returns the name of a configured setting that the format `text` does not support, if there
    /// is one.
    pub(super) fn of_a_table(&self) -> Option<&'static str> {
        let separator = self.separator.map(|_| "separator");
        let label = self.label.as_ref().map(|_| "label");
        self.image.as_ref().map(|_| "image").or(label).or(separator)
    }

    /// Returns an error for a setting that the format does not support, or for an invalid
    /// separator.
    pub(super) fn check(&self, list: &Path, format: ListFormat) -> Result<()> {
        let unused = match format {
            ListFormat::Text | ListFormat::Auto => self.of_a_table(),
            ListFormat::Jsonl => self.separator.map(|_| "separator"),
            ListFormat::Csv | ListFormat::Tsv => None,
        };
        if let Some(key) = unused {
            let (list, sort) =
                (list.display(), if format == ListFormat::Jsonl { "JSON lines" } else { "text" });
            let problem = format!(
                "has no effect on {list}, which is read as {sort}; remove this setting, or set \
                 source.format"
            );
            return Err(Error::config(format!("source.{key}"), problem));
        }
        match self.separator {
            Some(it) if !it.is_ascii() || "\"\r\n".contains(it) => {
                let problem = format!(
                    "must be one ASCII character other than a quote or a line end, is {it:?}"
                );
                Err(Error::config("source.separator", problem))
            }
            _ => Ok(()),
        }
    }

    /// Whether a table whose images are not read needs the column of paths.
    pub(super) fn needs_path(&self) -> bool {
        self.image.is_some() || !self.side_files.is_empty()
    }

    /// Returns the accepted names of the path column.
    pub(super) fn images(&self) -> Vec<&str> {
        self.image.as_ref().map_or(PATHS.to_vec(), |name| vec![name])
    }

    /// Returns a warning if no column has the default name of labels, although there are other
    /// columns than the path.
    pub(super) fn unlabelled<'a>(&self, columns: impl Iterator<Item = &'a str>) -> Option<String> {
        let columns: Vec<&str> = columns.collect();
        if self.label.is_some() || columns.len() < 2 {
            return None;
        }
        let usual = |name: &&&str| USUAL.contains(&name.to_lowercase().as_str());
        let example = columns.iter().find(usual).map_or("…", |name| *name);
        Some(format!(
            "{NO_LABEL_COLUMN}, so no sample has a label (all are -1); the columns are {}: write label = {example:?} \
             under [source], or label = \"\" if there are no labels",
            columns.join(", ")
        ))
    }

    /// Returns the name of the label column, and whether the column is required.
    pub(super) fn label(&self) -> Option<(&str, bool)> {
        match self.label.as_deref() {
            None => Some((LABEL, false)),
            Some("") => None,
            Some(name) => Some((name, true)),
        }
    }
}
