//! Execution of a plan: operators on the CPU and kernels on a GPU. Also decodes whole images for
//! caches and packing.

mod alpha;
#[doc(hidden)]
pub mod blend_pair;
mod chain_kernels;
mod device_mask;
mod full_decoder;
mod host;
mod images;
mod masks;
mod outlines;
mod pass;
mod points;
mod resampling;
mod run;
mod upright;
mod views;

pub use chain_kernels::ChainKernels;
pub use device_mask::DeviceMask;
pub use full_decoder::FullDecoder;
pub use host::{HostTransform, PlannedImage};
pub use masks::{MaskOutputs, Masks, OneHot};
pub use outlines::Outlines;
pub use points::Followed;
pub use views::Views;
