//! Handoff of batches to other libraries, without a copy. The host does not wait.
//!
//! | library | interface | owner of the batch |
//! |---|---|---|
//! | PyTorch, JAX, NumPy, CuPy, TVM | [`dlpack::export`], [`dlpack::export_legacy`] | the exported tensor owns the batch |
//! | Numba, CuPy, PyTorch | [`CudaArrayInterface`] | the caller owns and keeps the [`Batch`] |
//! | kernels that are launched by cudarc | [`CudaTensor`] | the [`CudaTensor`] owns the batch |
//! | any other library | `device_ptr`, `stream`, `ready`, `wait_in` of a [`Batch`] | the caller owns and keeps the [`Batch`] |
//!
//! On a device, each of these interfaces gives two guarantees, with tests in `tests/gpu/handoff/`:
//!
//! * Work that the other library enqueues in its stream after the handoff runs after the batch is
//!   filled. The stream waits for an event, the host does not wait.
//! * When the owner drops the batch, on any thread, the slot is filled again only after the work
//!   has ended that the other library's stream contains at that time. So the owner may drop the
//!   batch while its kernels still run, as frameworks do.
//!
//! Exported batches may outlive the loader.

pub use array_interface::CudaArrayInterface;
pub use tensor::CudaTensor;

#[cfg(doc)]
use crate::loader::Batch;

mod array_interface;
pub mod dlpack;
mod tensor;
