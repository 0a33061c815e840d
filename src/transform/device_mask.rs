//! Memory of a mask that the kernel `mask` makes.

use std::ops::Range;

use crate::op::mask::{MaskFormat, MaskParams};

/// Memory of one sample's mask on its way to the device. It begins with the parameters of each
/// output; a mask that follows a view with a count has several ones. The rest holds either the
/// stored numbers and the steps of each output, or masks that were moved on the CPU.
pub struct DeviceMask<'a> {
    /// Host memory, from which `bytes` are copied to the device.
    pub bytes: &'a mut [u8],
    /// Address of the copy on the device.
    pub address: u64,
    /// Number of bytes that are in use. 0 if there is no mask.
    pub used: &'a mut usize,
    /// Number of results.
    pub outputs: usize,
    /// Format of a result.
    pub format: MaskFormat,
}

impl<'a> DeviceMask<'a> {
    /// Size of the parameters of `outputs` results, in bytes.
    pub const fn params_bytes(outputs: usize) -> usize {
        outputs * size_of::<MaskParams>()
    }

    /// Memory for masks that were moved on the CPU: [`MaskFormat::moved_bytes`] for each result.
    pub fn moved(mut self) -> &'a mut [u8] {
        let first = Self::params_bytes(self.outputs);
        let each = self.format.moved_bytes();
        for output in 0..self.outputs {
            let values = self.address + (first + output * each) as u64;
            self.put(output, &MaskParams::moved(values, &self.format));
        }
        let end = first + self.outputs * each;
        *self.used = end;
        &mut self.bytes[first..end]
    }

    /// Writes the parameters of a result.
    pub fn put(&mut self, output: usize, params: &MaskParams) {
        let range = Self::params_range(output);
        self.bytes[range].copy_from_slice(bytemuck::bytes_of(params));
    }

    fn params_range(output: usize) -> Range<usize> {
        Self::params_bytes(output)..Self::params_bytes(output + 1)
    }
}
