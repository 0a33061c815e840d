//! Statistics and metrics of a loader.

use super::Loader;
use crate::loader::stats::Stats;
use crate::loader::watching::metrics::Observed;

impl Loader {
    /// Metrics since the loader was built, in Prometheus's text format, version 0.0.4. A program
    /// serves the text with a server of its own (`docs/insight.md`).
    pub fn metrics(&self) -> String {
        match self.check_process() {
            Ok(()) => self.observed().metrics(),
            Err(_) => String::new(),
        }
    }

    fn observed(&self) -> Observed {
        Observed {
            plan: self.plan.clone(),
            meters: self.meters.clone(),
            counters: self.counters.clone(),
            caches: self.caches.clone(),
            engine: self.engine.clone(),
            controls: self.controls.clone(),
            storages: self.storages.clone(),
        }
    }

    /// Statistics since the loader was built.
    pub fn stats(&self) -> Stats {
        match self.check_process() {
            Ok(()) => Stats {
                excluded: self.source.excluded(),
                batches_added: self.held.added(),
                ..self.observed().stats()
            },
            Err(_) => Stats::default(),
        }
    }
}
