//! Comparison of the plan with the available memory.

use std::fmt;

use crate::error::{Error, Result};
use crate::footprint::{self, Available, Footprint, Memory};

use super::Plan;
use super::memory::SOURCE;

impl Plan {
    /// Host memory, in bytes, that building and running the loader takes: all rows of host and page-locked memory,
    /// with caches at their limits. Excludes the source's row, because the source is already open.
    pub fn host_bytes_to_take(&self) -> u64 {
        let rows = &self.footprint;
        let all = rows.total_bytes(Memory::Host).saturating_add(rows.total_bytes(Memory::Pinned));
        all.saturating_sub(rows.row(SOURCE).map_or(0, |row| row.total_bytes()))
    }

    /// Checks that enough host memory is available: on the machine without swapping, in every cgroup of this process,
    /// and under its own limits (`ulimit -v`, `ulimit -d`). Passes if that is unknown, and with `limits.overcommit`.
    ///
    /// # Errors
    /// [`Error::Memory`] with the rows, if less than [`host_bytes_to_take`](Self::host_bytes_to_take) is available.
    pub fn check_memory(&self) -> Result<()> {
        let Some(Available { bytes: available, limit }) = &self.available else { return Ok(()) };
        let needed = self.host_bytes_to_take();
        if needed <= *available || self.settings.limits.overcommit {
            return Ok(());
        }
        let on_host = self.footprint.rows.iter().filter(|row| row.memory != Memory::Device);
        let rows = Footprint { rows: on_host.cloned().collect() };
        let problem = format!(
            "the plan needs {} of host memory, {} are available ({limit}); lower loader.batch, loader.prefetch, loader.workers or \
             the caches, or set limits.overcommit = true to go on, for\n{rows}",
            footprint::bytes(needed),
            footprint::bytes(*available),
        );
        let problem = problem.trim_end().to_string();
        Err(Error::Memory { needed, available: Some(*available), problem })
    }

    /// Writes the line that compares the plan with the available memory.
    pub(super) fn fmt_available(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Available { bytes: available, limit }) = &self.available else { return Ok(()) };
        let needed = self.host_bytes_to_take();
        let verdict = match (needed <= *available, self.settings.limits.overcommit) {
            (true, _) => "",
            (false, true) => ": more than available, allowed by limits.overcommit",
            (false, false) => ": more than available, so building a loader will fail",
        };
        let [needed, available] = [needed, *available].map(footprint::bytes);
        writeln!(f, "{:<8}{needed} to take, {available} available ({limit}){verdict}", "host")
    }
}
