//! Selects the image files of a directory, and numbers its classes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::header::EXTENSIONS;
use crate::source::class_table::{ClassTable, listed};

/// Usual names of dataset splits. If all folders in the directory have such names, the class
/// folders probably are one level below them.
const PARTS: [&str; 9] =
    ["train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"];

/// Settings of the source `directory`. Names and defaults are those of torchvision's `ImageFolder`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectorySettings {
    /// Extensions of image files, in upper or lower case. `"*"` matches every name. Other files are
    /// skipped and counted. Default: `jpg`, `jpeg`, `png`, `ppm`, `bmp`, `pgm`, `tif`, `tiff`,
    /// `webp`.
    pub extensions: Vec<String>,
    /// Whether a class may have no images. Such a class keeps its number. With false, the default,
    /// a class without images is an error.
    pub allow_empty: bool,
    /// Label of each class, from 0 to 1048575. Several classes may share a label. Folders that are
    /// not listed here are skipped and counted. Default: classes are numbered in the byte order of
    /// their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_to_index: Option<BTreeMap<String, i64>>,
    /// Files beside each image that are fields of its sample: a path for each field, relative to
    /// the directory. `{folder}` is the folder of the image in the directory, `{stem}` its name
    /// without extension, and `{name}` its name. `{stem:_rgb=_depth}` replaces a part of the name,
    /// `{folder:images=masks}` a folder. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub side_files: BTreeMap<String, String>,
}

impl Default for DirectorySettings {
    fn default() -> Self {
        let extensions = EXTENSIONS.map(String::from).into();
        Self { extensions, allow_empty: false, class_to_index: None, side_files: BTreeMap::new() }
    }
}

impl DirectorySettings {
    /// Returns an error if a setting is invalid.
    pub fn check(&self) -> Result<()> {
        if self.extensions.iter().all(|it| it.trim_start_matches('.').is_empty()) {
            return Err(Error::config("source.extensions", "is empty; write \"*\" for any file"));
        }
        self.class_to_index.as_ref().map_or(Ok(()), |it| ClassTable::of_indices(it).map(drop))
    }

    /// The settings for a source whose fields are read, but not its images. Without side files, the
    /// default extensions become those of all files, because there may be no images.
    pub fn for_fields(&self) -> Self {
        let mut settings = Self { allow_empty: true, ..self.clone() };
        if self.side_files.is_empty() && self.extensions == Self::default().extensions {
            settings.extensions = vec!["*".into()];
        }
        settings
    }

    /// Whether the file name has the extension of an image.
    pub fn is_image(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        self.extensions.iter().any(|extension| {
            let extension = extension.trim_start_matches('.').as_bytes();
            let Some(start) = name.len().checked_sub(extension.len()) else { return false };
            let ends = name[start..].eq_ignore_ascii_case(extension);
            extension == b"*" || (ends && start > 0 && name[start - 1] == b'.')
        })
    }

    /// Returns the label of the class `name`, which is at position `number` in the order of names.
    /// Returns `None` if its folder is not a class.
    pub fn label(&self, number: usize, name: &str) -> Option<i64> {
        match &self.class_to_index {
            None => Some(number as i64),
            Some(indices) => indices.get(name).copied(),
        }
    }
}

/// Classes that have a folder, in the order of their names.
#[derive(Default)]
pub struct Classes(Vec<Class>);

struct Class {
    name: String,
    /// Number of images directly in the class folder. `below` is the number of images in its
    /// sub-folders.
    direct: u64,
    below: u64,
}

impl Classes {
    /// Starts counting for the next class.
    pub fn begin(&mut self, name: &str) {
        self.0.push(Class { name: name.into(), direct: 0, below: 0 });
    }

    /// Adds a number of images to the current class.
    pub fn add(&mut self, images: u64, below: bool) {
        if let Some(class) = self.0.last_mut() {
            *(if below { &mut class.below } else { &mut class.direct }) += images;
        }
    }

    /// Returns the names of the classes in label order. The names of classes with the same label
    /// are joined by `|`. A label without a class has an empty name.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a class has no image and `allow_empty` is false.
    pub fn names(&self, root: &Path, settings: &DirectorySettings) -> Result<Vec<String>> {
        let empty = |name: &&str| !self.0.iter().any(|it| it.name == *name && it.images() > 0);
        let all: Vec<&str> = match &settings.class_to_index {
            None => self.0.iter().map(|class| class.name.as_str()).collect(),
            Some(indices) => indices.keys().map(String::as_str).collect(),
        };
        let empty: Vec<&str> = match settings.allow_empty {
            true => Vec::new(),
            false => all.iter().copied().filter(empty).collect(),
        };
        if !empty.is_empty() {
            let problem = format!(
                "the classes {} of {} have no image with one of the extensions {}; remove these \
                 classes, or set source.allow_empty = true",
                listed(empty.iter().map(ToString::to_string)),
                root.display(),
                settings.extensions.join(", ")
            );
            return Err(Error::config("source.directory", problem));
        }
        match &settings.class_to_index {
            None => Ok(all.into_iter().map(String::from).collect()),
            Some(indices) => Ok(ClassTable::of_indices(indices)?.names().to_vec()),
        }
    }

    /// Returns a warning if the class folders seem to be one level below the folders that became
    /// classes.
    pub fn warning(&self, root: &Path) -> Option<String> {
        let part = |class: &&Class| PARTS.contains(&class.name.to_lowercase().as_str());
        let above = self.0.iter().all(|class| class.direct == 0);
        let why = match above {
            true => "have images only in sub-folders",
            false => "are named like dataset splits",
        };
        let first = self.0.iter().find(|class| class.images() > 0)?;
        (above || self.0.iter().filter(part).count() > 1).then(|| {
            let table =
                self.0.iter().map(|it| format!("{} ({})", it.name, counted(it.images(), "image")));
            format!(
                "the class folders {} of {} {why}; if the folders inside of them are the classes, \
                 write directory = {:?}",
                listed(table),
                root.display(),
                root.join(&first.name)
            )
        })
    }
}

impl Class {
    fn images(&self) -> u64 {
        self.direct + self.below
    }
}
