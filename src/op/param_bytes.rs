//! Parameters of actions as bytes, for kinds that do not know the type of their formula's
//! parameters.

use std::fmt;

use bytemuck::Pod;

use crate::op::MAX_PARAMS_BYTES;

/// Parameters of an action, as bytes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct ParamBytes {
    bytes: [u8; MAX_PARAMS_BYTES],
    len: usize,
}

impl ParamBytes {
    /// Copies `params` as bytes.
    pub fn new<P: Pod>(params: &P) -> Self {
        const {
            assert!(size_of::<P>() <= MAX_PARAMS_BYTES && size_of::<P>().is_multiple_of(8));
            assert!(align_of::<P>() <= 16);
        }
        let mut bytes = [0; MAX_PARAMS_BYTES];
        bytes[..size_of::<P>()].copy_from_slice(bytemuck::bytes_of(params));
        Self { bytes, len: size_of::<P>() }
    }

    /// Copies `params`, which has at most [`MAX_PARAMS_BYTES`] bytes.
    pub(in crate::op) fn copied(params: &[u8]) -> Self {
        let mut bytes = [0; MAX_PARAMS_BYTES];
        bytes[..params.len()].copy_from_slice(params);
        Self { bytes, len: params.len() }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(in crate::op) fn get<P: Pod>(&self) -> &P {
        bytemuck::from_bytes(self.as_bytes())
    }

    pub(in crate::op) fn get_mut<P: Pod>(&mut self) -> &mut P {
        bytemuck::from_bytes_mut(&mut self.bytes[..self.len])
    }
}

impl fmt::Debug for ParamBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParamBytes({})", self.len)
    }
}
