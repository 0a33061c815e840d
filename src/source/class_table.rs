//! Table of classes, which assigns the same numbers to classes in all data sets.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::label::{self, MOST_NAME_BYTES, alike, has_odd_ends};
use crate::error::{Error, Result, beginning};
use crate::storage::{self, Storage};

/// Largest label in `class_to_index`. It is limited because every label below it needs memory for a
/// name.
const MOST_INDEX: i64 = (1 << 20) - 1;
/// Largest size of a file of class names, in bytes.
const MOST_FILE_BYTES: u64 = 64 << 20;
/// Number of classes that a message lists.
const NAMED: usize = 10;

/// Class names with their numbers. [`Classed`](super::Classed) applies the table to a data set, so
/// that a class has the same number in every data set.
///
/// Names of classes are compared byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassTable {
    names: Vec<String>,
    numbers: HashMap<String, i64>,
}

/// Value of `classes` next to a source: class names in the order of their numbers, or the path of a
/// file with the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a list of names, or the path of a file of names")]
pub enum ClassNames {
    /// Class names in the order of their numbers. An empty name marks a number without a class.
    List(Vec<String>),
    /// File of class names: one on each line, or JSON.
    File(PathBuf),
}

impl ClassTable {
    /// Creates a table of class names in the order of their numbers, such as
    /// [`Loader::classes`](crate::Loader::classes). An empty name marks a number without a class. A
    /// name with `|` stands for several classes that share a number, as in
    /// [`of_indices`](Self::of_indices). Each of these classes gets the number too, unless another
    /// name also contains the class.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there are no names, if a name is too long, or if two names are equal.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut numbers = HashMap::new();
        for (number, name) in (0..).zip(&names).filter(|(_, name)| !name.is_empty()) {
            let at = || format!("{KEY}[{number}]");
            if name.len() > MOST_NAME_BYTES {
                let problem = format!(
                    "has {} bytes; a class name has at most {MOST_NAME_BYTES} bytes",
                    name.len()
                );
                return Err(Error::config(at(), problem));
            }
            if let Some(before) = numbers.insert(name.clone(), number) {
                let problem = format!("is {name:?}, which is already the name of class {before}");
                return Err(Error::config(at(), problem));
            }
        }
        if numbers.is_empty() {
            return Err(Error::config(KEY, "is empty; list the names of the classes"));
        }
        let mut parts: HashMap<&str, Option<i64>> = HashMap::new();
        for (number, name) in (0..).zip(&names).filter(|(_, name)| name.contains('|')) {
            for part in name.split('|').filter(|part| !part.is_empty()) {
                // A class that occurs in several of these names has no unique number, so its value
                // becomes `None`.
                parts
                    .entry(part)
                    .and_modify(|it| *it = it.filter(|&it| it == number))
                    .or_insert(Some(number));
            }
        }
        for (part, number) in parts {
            if let Some(number) = number {
                numbers.entry(part.to_owned()).or_insert(number);
            }
        }
        Ok(Self { names, numbers })
    }

    /// Creates a table from the number of each class. If several classes share a number, their
    /// names are joined by `|`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no class, or if a number is not between 0 and 1048575.
    pub fn of_indices(indices: &BTreeMap<String, i64>) -> Result<Self> {
        if indices.is_empty() {
            let problem = "is empty; list at least one class, or omit it";
            return Err(Error::config("source.class_to_index", problem));
        }
        if let Some((name, index)) = indices.iter().find(|it| !(0..=MOST_INDEX).contains(it.1)) {
            let problem = format!("must be from 0 to {MOST_INDEX}, is {index}");
            return Err(Error::config(format!("source.class_to_index.{name}"), problem));
        }
        let last = indices.values().max().copied().unwrap_or(0);
        let mut names = vec![String::new(); last as usize + 1];
        for (name, &index) in indices {
            let before = &mut names[index as usize];
            *before = if before.is_empty() { name.clone() } else { format!("{before}|{name}") };
        }
        let numbers = indices.iter().map(|(name, &index)| (name.clone(), index)).collect();
        Ok(Self { names, numbers })
    }

    /// Reads a file of class names. A `.json` file contains a list of names, an object from names
    /// to numbers (torchvision's `class_to_idx`), or an object from numbers to names (Hugging
    /// Face's `id2label`). Any other file has one name on each line.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::Config`] if it is invalid.
    pub fn read(path: &Path, storage: &Storage) -> Result<Self> {
        let io = |error: std::io::Error| Error::io(path, &error);
        let wrong = |problem: String| Error::config(KEY, format!("{}: {problem}", path.display()));
        let bytes = if storage::is_url(path) {
            storage.fetch(path, None, MOST_FILE_BYTES).and_then(|it| it.wait()).map_err(io)?
        } else {
            let file = storage.open(path).map_err(io)?;
            let len = file.stamp().map_err(io)?.len;
            if len > MOST_FILE_BYTES {
                return Err(wrong(format!(
                    "has {len} bytes; a file of class names has at most {MOST_FILE_BYTES} bytes"
                )));
            }
            let mut bytes = vec![0; len as usize];
            let len = file.read_at(&mut bytes, 0).map_err(io)?;
            bytes.truncate(len);
            bytes.into()
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| wrong(format!("is not UTF-8 at byte {}", error.valid_up_to())))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let read = match path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json")) {
            true => Self::of_json(text),
            false => Self::new(text.trim_end().lines()),
        };
        read.map_err(|error| match error {
            Error::Config(error) => wrong(format!("{} {}", error.key, error.problem)),
            error => error,
        })
    }

    fn of_json(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Names(Vec<String>),
            Numbers(BTreeMap<String, i64>),
            ByNumber(BTreeMap<String, String>),
        }
        match serde_json::from_str(text) {
            Ok(Written::Names(names)) => Self::new(names),
            Ok(Written::Numbers(indices)) => Self::of_indices(&indices),
            Ok(Written::ByNumber(names)) => {
                let mut indices = BTreeMap::new();
                for (number, name) in names {
                    let index = number.parse().map_err(|_| {
                        Error::config(
                            KEY,
                            format!(
                                "has the name {name:?} under {number:?}, which is not a number"
                            ),
                        )
                    })?;
                    if let Some(other) = indices.insert(name.clone(), index) {
                        let problem = format!(
                            "has the class {name:?} twice, with the numbers {other} and {index}"
                        );
                        return Err(Error::config(KEY, problem));
                    }
                }
                Self::of_indices(&indices)
            }
            Err(error) => {
                let problem = format!(
                    "is neither a JSON list of names nor a JSON object with names and numbers: \
                     {error}"
                );
                Err(Error::config(KEY, problem))
            }
        }
    }

    /// Class names in the order of their numbers. The name is empty for a number without a class.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of a class.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }

    /// Returns the name in the table that differs from `name` only by blanks, quotes, case or
    /// Unicode form.
    pub(super) fn alike(&self, name: &str) -> Option<&str> {
        let wanted = alike(name).to_lowercase();
        let mut names = self.numbers.keys().map(String::as_str);
        names.find(|it| alike(it).to_lowercase() == wanted)
    }
}

/// Warns of likely mistakes in the class names, which are in the order of their numbers.
pub fn warnings(names: &[String]) -> Vec<String> {
    let table = |classes: &[usize]| {
        let one = |&class: &usize| format!("{class} = {:?}", names[class]);
        listed(classes.iter().map(one))
    };
    let mut warnings = Vec::new();
    if let Some(odd) = odd_names(names) {
        warnings.push(format!(
            "some class names differ from other names only by blanks, quotes or their Unicode form, or \
             begin or end with blanks or quotes: {}. Each is a class of its own. Correct the \
             names in the data",
            table(&odd)
        ));
    }
    let numbers: Option<Vec<i64>> =
        names.iter().map(|name| label::number(name).and_then(Result::ok)).collect();
    if numbers.is_some_and(|numbers| !numbers.is_sorted()) {
        warnings.push(format!(
            "the class names are numbers, but the classes are numbered in another order: {}. In a \
             list file, the same names would be read as the numbers themselves. If this data set \
             and such a list must have the same labels, set source.class_to_index or \
             source.classes",
            table(&(0..names.len()).collect::<Vec<_>>())
        ));
    }
    warnings
}

/// Returns the classes whose names look the same, or begin or end with blanks or quotes.
fn odd_names(names: &[String]) -> Option<Vec<usize>> {
    let is_plain =
        |name: &String| name.bytes().all(|it| it.is_ascii_graphic() && it != b'"' && it != b'\'');
    if names.iter().all(is_plain) {
        return None;
    }
    let mut same: HashMap<String, Vec<usize>> = HashMap::new();
    for (class, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        same.entry(alike(name)).or_default().push(class);
    }
    // Several names that look the same are a mistake. A single name is a mistake only if it begins
    // or ends with blanks or quotes.
    let is_odd = |classes: &[usize]| classes.len() > 1 || has_odd_ends(&names[classes[0]]);
    let mut odd: Vec<usize> = same.into_values().filter(|it| is_odd(it)).flatten().collect();
    odd.sort_unstable();
    (!odd.is_empty()).then_some(odd)
}

/// Key of the table in a pipeline file.
const KEY: &str = "source.classes";

/// Lists the first ten texts for a message, and states how many more there are.
pub fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named: Vec<_> = all.take(NAMED).map(|it| beginning(&it, 100).to_string()).collect();
    match more {
        0 => named.join(", "),
        _ => format!("{} and {more} more", named.join(", ")),
    }
}
