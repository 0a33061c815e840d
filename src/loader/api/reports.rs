//! Statistics and metrics of a loader.

use std::net::SocketAddr;

use super::Loader;
use crate::error::Result;
use crate::loader::stats::Stats;
use crate::loader::watching::metrics::Observed;

impl Loader {
    /// Metrics since the loader was built, in Prometheus's text format.
    pub fn metrics(&self) -> String {
        match self.check_process() {
            Ok(()) => self.observed().metrics(),
            Err(_) => String::new(),
        }
    }

    /// Serves [`metrics`](Self::metrics) at `http://ADDRESS/metrics` until the loader is dropped. Returns the address,
    /// with the actual port if `address` has port 0. Each point has a test in `crates/cli/tests/cli/metrics/`:
    ///
    /// * Only loopback addresses (127.0.0.0/8, ::1) are allowed: there is no authentication.
    /// * `GET /metrics` returns the text. Another path is 404, another method 405, a request that is not HTTP/1 400, and
    ///   a request of more than 8 KiB 431.
    /// * One thread serves up to 64 connections, each for at most two seconds. A further connection
    ///   replaces the one that has been waiting longest for a complete request. So a client that is
    ///   slow or silent delays neither other clients nor the end of the loader.
    pub fn serve_metrics(&self, address: SocketAddr) -> Result<SocketAddr> {
        self.check_process()?;
        self.served.start(address, self.observed())
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
