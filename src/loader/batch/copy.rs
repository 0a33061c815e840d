//! Copies of batches in host memory. They occupy no slot of the ring.

use super::{Batch, BatchMemory};
use crate::error::Result;
use crate::loader::host::HostSlot;
use crate::ring::Using;

impl Batch {
    /// Copies the batch to host memory that belongs to no ring.
    pub(in crate::loader) fn copied_to_host(&self) -> Result<Self> {
        let tensor = match self.host() {
            Some(bytes) => HostSlot::copy_of(self.info(), bytes, self.target_bytes()),
            None => {
                let targets = self.soft_targets_to_host()?;
                HostSlot::copy_of(self.info(), &self.to_host()?, bytemuck::cast_slice(&targets))
            }
        };
        let slot = BatchMemory::Host(Using::of_no_ring(tensor?));
        Ok(Self::new(slot, self.source.clone(), self.plan.clone(), self.process))
    }

    /// The soft targets in host memory.
    fn target_bytes(&self) -> &[u8] {
        self.soft_targets().map_or(&[], bytemuck::cast_slice)
    }
}
