//! Batches for other libraries, without a copy and without a wait on the host.
//!
//! | to                                   | by                                             | owned by            |
//! |--------------------------------------|------------------------------------------------|---------------------|
//! | PyTorch, JAX, NumPy, CuPy, TVM       | [`dlpack::export`], [`dlpack::export_legacy`]  | the exported tensor |
//! | Numba, CuPy, PyTorch                 | [`CudaArrayInterface`]                         | the [`Batch`]       |
//! | kernels that are launched by cudarc  | [`CudaTensor`]                                 | the [`CudaTensor`]  |
//! | anything else                        | `device_ptr`, `stream`, `ready`, `on` of a [`Batch`] | the [`Batch`] |
//!
//! On a device two guarantees hold for each of them, with tests in `tests/handoff/`:
//!
//! * Work that the other library puts into its stream after the hand-over runs after the batch is filled: its stream
//!   waits for an event, the host does not wait.
//! * When the owner drops the batch, on any thread, the slot is refilled only after the work that is in the other
//!   library's stream at that time. So it may drop the batch while its kernels still run, as frameworks do.
//!
//! All of it may outlive the loader.

pub use array_interface::CudaArrayInterface;
pub use tensor::CudaTensor;

#[cfg(doc)]
use crate::loader::Batch;

mod array_interface;
pub mod dlpack;
mod tensor;
