//! Tuned configuration of a loader, and changes by the user.

use super::Loader;
use crate::error::Result;
use crate::loader::engine::tuning::{Tuning, space};
use crate::loader::sample::prefetcher::PrefetcherReport;
use crate::tune::{Choice, Decision};

impl Loader {
    /// Current configuration: number of active workers, number of prefetched batches, and which
    /// part of the work runs on the device.
    pub fn choice(&self) -> Choice {
        self.own_tuning().map_or(self.fixed, Tuning::choice)
    }

    /// Tuning decisions so far, with their reasons, in order. Empty if nothing is tuned. At most
    /// the latest 100 decisions are stored. Of the choices by the user, only the last one is
    /// stored.
    pub fn decisions(&self) -> Vec<Decision> {
        self.own_tuning().map(Tuning::decisions).unwrap_or_default()
    }

    /// The loader's tuning, if it is on and this process built the loader.
    fn own_tuning(&self) -> Option<&Tuning> {
        self.check_process().ok()?;
        self.tuning.as_ref()
    }

    /// Current number of samples to prefetch from a network, with the reason. `None` if the source
    /// is not remote. The maximum, for which memory is allocated, follows from `storage.read_ahead`
    /// and `storage.connections`. Fewer samples are prefetched if that is as fast
    /// ([`PrefetchDepth`](crate::tune::PrefetchDepth)), unless `loader.tune` is false.
    pub fn read_ahead(&self) -> Option<PrefetcherReport> {
        self.check_process().ok()?;
        self.prefetcher.as_ref().map(|it| it.report())
    }

    /// Whether tuning has ended or is off.
    pub fn is_settled(&self) -> bool {
        self.tuning.is_none() || self.decisions().last().is_some_and(|it| it.settled)
    }

    /// Sets the configuration while the loader runs, and ends tuning. The bytes of batches do not
    /// change. Batches that have begun keep their configuration. Any thread may call this at any
    /// time.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if the plan has no threads, memory or kernel for the
    /// choice, or if the choice changes a value that the settings fix.
    pub fn choose(&self, choice: Choice) -> Result<()> {
        self.check_process()?;
        match &self.tuning {
            Some(tuning) => tuning.choose(choice, &self.engine.apply()),
            None => space(&self.plan).check(choice),
        }
    }
}
