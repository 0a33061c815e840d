//! Batches for other libraries, without a copy and without a wait on the host.
//!
//! | to                                   | by                                             | owned by            |
//! |--------------------------------------|------------------------------------------------|---------------------|
//! | PyTorch, JAX, NumPy, CuPy, TVM       | [`dlpack::export`], [`dlpack::export_legacy`]  | the exported tensor |
//! | Numba, CuPy, PyTorch                 | [`CudaArrayInterface`]                         | the [`Batch`]       |
//! | kernels that are launched by cudarc  | [`CudaTensor`]                                 | the [`CudaTensor`]  |
//! | anything else                        | `device_ptr`, `stream`, `ready`, `on` of a [`Batch`] | the [`Batch`] |
//!
//! Whichever it is, two things hold on a device, and each has a test in `tests/handoff.rs`:
//!
//! * What the other puts into its stream after the hand-over finds the batch filled: its stream waits for
//!   an event, the host does not.
//! * When the owner lets go of the batch, on whatever thread, the slot is filled again only behind what is in the
//!   other's stream then. So it may let go while its kernels still run, as frameworks do.
//!
//! All of it may outlive the loader.

pub use array_interface::CudaArrayInterface;
pub use tensor::CudaTensor;

#[cfg(doc)]
use crate::loader::Batch;

mod array_interface;
pub mod dlpack;
mod tensor;
