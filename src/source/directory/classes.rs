//! Which files of a directory are images, and which number each of its classes has.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, beginning};

/// torchvision's `IMG_EXTENSIONS`.
const EXTENSIONS: [&str; 9] =
    ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];
/// The largest label of `class_to_index`: every label below it takes memory for a name.
const MOST_INDEX: i64 = (1 << 20) - 1;
/// Classes that a message names.
const NAMED: usize = 10;
/// What the parts of a set are called, in which the classes lie one level below.
const PARTS: [&str; 9] =
    ["train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"];

/// What stands beside `directory`, by the names and with the defaults of torchvision's `ImageFolder`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectorySettings {
    /// How the names of images end, in upper or lower case; `"*"` is any name. Other files are left out and counted.
    /// Default: `jpg`, `jpeg`, `png`, `ppm`, `bmp`, `pgm`, `tif`, `tiff`, `webp`.
    pub extensions: Vec<String>,
    /// Whether a class may have no image; it keeps its number. Default false: it is an error.
    pub allow_empty: bool,
    /// The label of each class, from 0 to 1048575; several classes may have one label. Folders that it does not name are left
    /// out and counted. Default: the classes are numbered in the byte order of their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_to_index: Option<BTreeMap<String, i64>>,
}

impl Default for DirectorySettings {
    fn default() -> Self {
        let extensions = EXTENSIONS.map(String::from).into();
        Self { extensions, allow_empty: false, class_to_index: None }
    }
}

impl DirectorySettings {
    /// Refuses what no directory could be read with.
    pub fn check(&self) -> Result<()> {
        if self.extensions.iter().all(|it| it.trim_start_matches('.').is_empty()) {
            return Err(Error::config("source.extensions", "names none; write \"*\" for any file"));
        }
        let Some(indices) = &self.class_to_index else { return Ok(()) };
        if indices.is_empty() {
            let problem = "names no class; name at least one, or leave it out";
            return Err(Error::config("source.class_to_index", problem));
        }
        match indices.iter().find(|(_, index)| !(0..=MOST_INDEX).contains(*index)) {
            None => Ok(()),
            Some((name, index)) => {
                let problem = format!("must be from 0 to {MOST_INDEX}, is {index}");
                Err(Error::config(format!("source.class_to_index.{name}"), problem))
            }
        }
    }

    /// Whether a file of this name is taken for an image.
    pub fn is_image(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        self.extensions.iter().any(|extension| {
            let extension = extension.trim_start_matches('.').as_bytes();
            let Some(start) = name.len().checked_sub(extension.len()) else { return false };
            let ends = name[start..].eq_ignore_ascii_case(extension);
            extension == b"*" || (ends && start > 0 && name[start - 1] == b'.')
        })
    }

    /// The label of the class of this name, which is the class of this number in the order of names; `None` where its folder
    /// is no class.
    pub fn label(&self, number: usize, name: &str) -> Option<i64> {
        match &self.class_to_index {
            None => Some(number as i64),
            Some(indices) => indices.get(name).copied(),
        }
    }
}

/// The classes whose folders were met, in the order of their names.
#[derive(Default)]
pub struct Classes(Vec<Class>);

struct Class {
    name: String,
    /// Images in the folder of the class, and in folders below it.
    direct: u64,
    below: u64,
}

impl Classes {
    /// A class whose images come next.
    pub fn begin(&mut self, name: &str) {
        self.0.push(Class { name: name.into(), direct: 0, below: 0 });
    }

    /// Counts images of the class that was begun last.
    pub fn add(&mut self, images: u64, below: bool) {
        if let Some(class) = self.0.last_mut() {
            *(if below { &mut class.below } else { &mut class.direct }) += images;
        }
    }

    /// The names of the classes in the order of their labels. Classes with one label stand together, with `|` between
    /// them; a label without a class has an empty name.
    ///
    /// # Errors
    ///
    /// Where a class has no image, and that is not allowed.
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
                "the classes {} of {} have no image, by its extension ({}); remove them, or write allow_empty = true",
                listed(empty.iter().map(ToString::to_string)),
                root.display(),
                settings.extensions.join(", ")
            );
            return Err(Error::config("source.directory", problem));
        }
        let Some(indices) = &settings.class_to_index else {
            return Ok(all.into_iter().map(String::from).collect());
        };
        let last = indices.values().max().copied().unwrap_or(0);
        let mut names = vec![String::new(); last as usize + 1];
        for (name, &index) in indices {
            let before = &mut names[index as usize];
            *before = if before.is_empty() { name.clone() } else { format!("{before}|{name}") };
        }
        Ok(names)
    }

    /// What looks as if the classes were one level below.
    pub fn warning(&self, root: &Path) -> Option<String> {
        let part = |class: &&Class| PARTS.contains(&class.name.to_lowercase().as_str());
        let above = self.0.iter().all(|class| class.direct == 0);
        let why = match above {
            true => "hold images only in their sub-folders",
            false => "have the names of parts of a set",
        };
        let first = self.0.iter().find(|class| class.images() > 0)?;
        (above || self.0.iter().filter(part).count() > 1).then(|| {
            let table = self.0.iter().map(|it| format!("{} ({} images)", it.name, it.images()));
            format!(
                "the class folders {} of {} {why}; where the classes are in them, write directory = {:?}",
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

/// The first few, and how many more there are.
fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named: Vec<_> = all.take(NAMED).map(|it| beginning(&it, 100).to_string()).collect();
    match more {
        0 => named.join(", "),
        _ => format!("{} and {more} more", named.join(", ")),
    }
}
