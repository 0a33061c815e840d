//! Where the settings of a loader come from, for errors about them.

use super::builder::{LoaderBuilder, Locate};
use crate::error::Error;

impl LoaderBuilder {
    /// How errors about settings get their place in the file that they were read from.
    pub(crate) fn locate_errors(mut self, locate: Locate) -> Self {
        self.locate = Some(locate);
        self
    }

    /// Adds the place to an error; of settings that are not from a file it leaves errors as they are.
    pub(super) fn locator(&self) -> impl Fn(Error) -> Error + use<> {
        let (locate, settings) = (self.locate.clone(), self.settings.clone());
        move |error| match &locate {
            Some(locate) => locate(error, &settings),
            None => error,
        }
    }
}
