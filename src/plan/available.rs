//! Comparison of the plan's memory with the available memory.

use std::fmt;

use crate::error::{Error, Result};
use crate::footprint::{self, Available, Footprint, Memory};

use super::memory::SOURCE;
use super::{ColumnPlan, Plan};

/// A slot beyond the plan is allocated only if this much host memory remains available afterwards,
/// in bytes.
const KEPT_FREE: u64 = 128 << 20;

impl Plan {
    /// Host memory that building and running the loader takes, in bytes: all rows of the footprint
    /// for host and page-locked memory, with caches at their limits. The row of the source is
    /// excluded, because the source is already open and its memory is already in use.
    pub fn host_bytes_to_take(&self) -> u64 {
        let rows = &self.footprint;
        let all = rows.total_bytes(Memory::Host).saturating_add(rows.total_bytes(Memory::Pinned));
        all.saturating_sub(rows.row(SOURCE).map_or(0, |row| row.total_bytes()))
    }

    /// Checks that enough host memory is available: on the machine without swapping, in every
    /// cgroup of this process, and under the process's limits (`ulimit -v`, `ulimit -d`). Always
    /// succeeds if the available memory is unknown or if `limits.overcommit` is set.
    ///
    /// # Errors
    /// [`Error::Memory`] with all rows of the footprint, if less than
    /// [`host_bytes_to_take`](Self::host_bytes_to_take) is available.
    pub fn check_memory(&self) -> Result<()> {
        let Some(Available { bytes: available, limit }) = &self.available else { return Ok(()) };
        let needed = self.host_bytes_to_take();
        if needed <= *available || self.settings.limits.overcommit {
            return Ok(());
        }
        let on_host = self.footprint.rows.iter().filter(|row| row.memory != Memory::Device);
        let rows = Footprint { rows: on_host.cloned().collect() };
        let views = if self.views.is_empty() { "" } else { "the sizes or counts of views, " };
        let problem = format!(
            "the plan needs {} of host memory, but only {} are available ({limit}); lower \
             loader.batch_size, loader.prefetch, loader.num_workers, {views}or the caches, or set \
             limits.overcommit = true to start anyway. The memory is needed for\n{rows}",
            footprint::bytes(needed),
            footprint::bytes(*available),
        );
        let problem = problem.trim_end().to_string();
        Err(Error::Memory { needed, available: Some(*available), problem })
    }

    /// Checks that one more slot may be allocated while the consumer holds all others. `added`
    /// counts the slots beyond the plan, this one included.
    ///
    /// # Errors
    /// [`Error::Memory`] if the slot would exceed `limits.host_memory` (`limits.device_memory` for
    /// batches on a device), or if too little host memory is available and `limits.overcommit` is
    /// not set.
    pub(crate) fn check_slot(&self, added: usize) -> Result<()> {
        let (memory, records) = match self.uses_gpu() {
            true => (Memory::Device, 0),
            false => (Memory::Host, self.record_bytes()),
        };
        let columns = self.columns_in(memory).map(|column| column.slot_bytes(self.shape.batch));
        let copies = ColumnPlan::copies_bytes(&self.columns, self.shape.batch) as u64;
        let each = columns.fold(records.saturating_add(copies), u64::saturating_add);
        let held = self.slots() + added - 1;
        let refused = |available: u64, limit: &str| {
            let problem = format!(
                "all {held} batches are held, and memory for one more batch ({}) is not \
                 available: {} are left ({limit}); clone data that you keep longer and drop the \
                 batches, or use smaller batches. This loader has stopped: build it again (in \
                 Python, loader.load_state_dict(loader.state_dict()) continues)",
                footprint::bytes(each),
                footprint::bytes(available),
            );
            Error::Memory { needed: each, available: Some(available), problem }
        };
        let limits = &self.settings.limits;
        let total = |memory| self.footprint.total_bytes(memory);
        let (planned, limit, name) = match self.uses_gpu() {
            true => (total(Memory::Device), limits.device_memory, "limits.device_memory"),
            false => {
                let planned = total(Memory::Host).saturating_add(total(Memory::Pinned));
                (planned, limits.host_memory, "limits.host_memory")
            }
        };
        let used = planned.saturating_add(each.saturating_mul(added as u64 - 1));
        if let Some(limit) = limit
            && used.saturating_add(each) > limit
        {
            return Err(refused(limit.saturating_sub(used), name));
        }
        match Available::of_process() {
            Some(Available { bytes, limit }) if !self.uses_gpu() && !limits.overcommit => {
                let left = bytes.saturating_sub(KEPT_FREE);
                if each <= left { Ok(()) } else { Err(refused(left, &limit)) }
            }
            _ => Ok(()),
        }
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
