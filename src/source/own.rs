//! Custom sources that a program provides for a pipeline file (`own = "name"`).

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;

use toml::Table;

use super::settings::{Any, Given};
use super::{Source, SourceSettings};
use crate::error::{Error, Result};
use crate::storage::Storage;

/// Key of a custom source in a pipeline file.
pub(crate) const OWN: &str = "own";

/// A custom source that the program provides.
struct Own {
    name: String,
    /// The source; `None` until the program provides it.
    source: Option<Arc<dyn Source>>,
}

impl SourceSettings {
    /// Settings for a custom source that the program provides under a name: `own = "name"`.
    /// [`give`](Self::give) provides the source.
    pub fn own(name: impl Into<String>) -> Self {
        Self(Arc::new(Own { name: name.into(), source: None }))
    }

    /// Returns the settings with this source in every place that contains `own = "name"`. The
    /// source replaces any source that was given under this name before.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the settings do not contain this name.
    pub fn give(&self, name: &str, source: Arc<dyn Source>) -> Result<Self> {
        let mut names = BTreeSet::new();
        let given = self.given(&mut |own| {
            names.insert(own.to_string());
            (own == name).then(|| source.clone())
        });
        if names.contains(name) {
            return Ok(given);
        }
        let problem = match names.is_empty() {
            true => format!(
                "has no own = \"…\", but the program provides the source {name:?}; write \
                 source.own = {name:?}, or do not provide the source"
            ),
            false => format!(
                "has no own = {name:?}, but the program provides a source of this name; it has \
                 {names:?}"
            ),
        };
        Err(Error::config("source", problem))
    }
}

impl Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, source } = self;
        f.debug_struct(OWN).field("name", name).field("is_given", &source.is_some()).finish()
    }
}

impl Any for Own {
    fn key(&self) -> &'static str {
        OWN
    }

    fn paths(&self) -> &[PathBuf] {
        &[]
    }

    fn table(&self) -> Result<Table> {
        Ok(Table::from_iter([(OWN.to_string(), self.name.as_str().into())]))
    }

    fn open(&self, _: &Storage) -> Result<Arc<dyn Source>> {
        self.source.clone().ok_or_else(|| {
            let problem = format!(
                "is {:?}, which names a source that the program must give, but the program gave \
                 none (Pipeline::give in Rust, own of Loader.from_toml in Python)",
                self.name
            );
            Error::config(format!("source.{OWN}"), problem)
        })
    }

    fn give(&self, given: &mut Given<'_>) -> Option<Arc<dyn Any>> {
        let source = given(&self.name)?;
        Some(Arc::new(Self { name: self.name.clone(), source: Some(source) }))
    }
}
