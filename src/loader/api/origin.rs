//! File positions of settings, for errors about settings.

use super::builder::{LoaderBuilder, Locate};
use crate::error::Error;

impl LoaderBuilder {
    /// Sets the function that adds file positions to errors about settings.
    pub(crate) fn locate_errors(mut self, locate: Locate) -> Self {
        self.locate = Some(locate);
        self
    }

    /// Returns a function that adds the file position to an error. Without a file, it returns
    /// errors unchanged.
    pub(in crate::loader) fn locator(&self) -> impl Fn(Error) -> Error + use<> {
        let (locate, settings) = (self.locate.clone(), self.settings.clone());
        move |error| match &locate {
            Some(locate) => locate(error, &settings),
            None => error,
        }
    }
}
