//! Copies of batches in host memory. They occupy no slot of the ring.

use super::{Batch, BatchMemory};
use crate::error::Result;
use crate::loader::host::HostSlot;
use crate::loader::slot::column::HostColumns;
use crate::plan::ColumnPlan;
use crate::ring::Using;

impl Batch {
    /// Copies the batch to host memory that belongs to no ring.
    pub(in crate::loader) fn copied_to_host(&self) -> Result<Self> {
        let columns = ColumnPlan::on_host(&self.columns);
        let copy = |number, to: &mut [u8]| self.column_at(number).copy_to(to);
        let sources = self
            .columns()
            .map(|column| (column.len_bytes(), [column.offsets(), column.text_offsets()]));
        let filled = HostColumns::filled(&columns, sources, copy)?;
        let slot = BatchMemory::Host(Using::of_no_ring(HostSlot::filled(self.info(), filled)));
        let mut copy = Self::new(slot, self.source.clone(), self.plan.clone(), self.process);
        copy.columns = columns.into();
        Ok(copy)
    }
}
