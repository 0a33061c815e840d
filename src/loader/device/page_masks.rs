//! Masks of a sample on their way to the device, and the cell that workers fill.

use super::HostCell;
use crate::error::Result;
use crate::gpu::{Event, Staged};
use crate::loader::sample::fields::Cell;
use crate::plan::{DevicePlan, MaskPlan};
use crate::transform::DeviceMask;

/// Memory of a page for masks: that of all columns of masks, one after another.
pub(in crate::loader) struct PageMasks {
    pub staged: Staged,
    /// Number of used bytes in the part of each column. 0 if a sample has no mask.
    pub used: Vec<usize>,
    /// Event that is reached when the kernel has read the masks.
    pub read: Event,
}

impl PageMasks {
    /// Creates memory of [`MaskPlan::page_bytes`] bytes.
    pub fn new(staged: Staged, device: &DevicePlan) -> Result<Self> {
        let read = Event::new(staged.device().device())?;
        Ok(Self { staged, used: vec![0; device.masks.len()], read })
    }

    /// Returns the host memory for the next sample, its address on the device, and the used bytes
    /// of each column, which are 0. Waits until the last upload has read the memory.
    fn begin(&mut self) -> Result<(&mut [u8], u64, &mut [usize])> {
        self.used.fill(0);
        let address = self.staged.device().address();
        Ok((self.staged.bytes()?, address, &mut self.used))
    }
}

/// Memory of one sample, with that for its masks in a page.
pub(super) struct PageCell<'a> {
    host: &'a mut HostCell,
    /// Number of columns in host memory.
    columns: usize,
    plans: &'a [MaskPlan],
    /// Memory for masks, its address on the device, and the number of bytes in use of each part.
    masks: (&'a mut [u8], u64, &'a mut [usize]),
}

impl<'a> PageCell<'a> {
    /// The cell of a sample. `masks` is the memory of the sample's page.
    pub fn new(
        host: &'a mut HostCell,
        device: Option<&'a DevicePlan>,
        masks: Option<&'a mut PageMasks>,
    ) -> Result<Self> {
        let masks = match masks {
            Some(masks) => masks.begin()?,
            None => Default::default(),
        };
        let plans = device.map_or(&[][..], |device| &device.masks);
        Ok(Self { columns: host.columns(), host, plans, masks })
    }
}

impl Cell for PageCell<'_> {
    fn part(&mut self, column: usize) -> &mut [u8] {
        if column < self.columns {
            return self.host.part(column);
        }
        self.device_mask(column).map_or(&mut [], DeviceMask::moved)
    }

    fn device_mask(&mut self, column: usize) -> Option<DeviceMask<'_>> {
        let number = column.checked_sub(self.columns)?;
        let MaskPlan { outputs, format, offset, bytes, .. } = *self.plans.get(number)?;
        let (memory, address, used) = &mut self.masks;
        Some(DeviceMask {
            bytes: memory.get_mut(offset..offset + bytes)?,
            address: *address + offset as u64,
            used: used.get_mut(number)?,
            outputs,
            format,
        })
    }

    fn set_len(&mut self, number: usize, len: usize) {
        self.host.set_len(number, len);
    }
}
