//! Images: any function from an image to an image, for operators that no other kind describes.

use std::any::TypeId;

use bytemuck::Pod;
use serde::Serialize;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, PixelType};
use crate::op::{Cuda, ParamBytes, Trace, Wanted};

/// A function from an image to an image. The kind [`Image`](super::Kind::Image).
///
/// It takes part in everything, but the frame knows nothing about it: the input is stored, and the output too.
pub trait ImageFormula: 'static {
    /// Parameters of one sample as plain bytes, identical on CPU and GPU. At most
    /// [`MAX_PARAMS_BYTES`](crate::op::custom::MAX_PARAMS_BYTES) bytes, a multiple of 8. `feedwater dump` writes them as
    /// serde gives them.
    type Params: Pod + Serialize;
    /// CUDA implementation. `None`, the default, means that the operator runs only on the CPU.
    const CUDA: Option<Cuda> = None;

    /// Reference implementation: short and simple. The CUDA text and [`apply`](Self::apply) are compared with it.
    ///
    /// `out` has its pixel type and window set. `src` holds at least the window that [`demand`](Self::demand) returned.
    fn reference(params: &Self::Params, src: &HostImage, out: &mut HostImage);

    /// Faster CPU implementation with the same bits. Default: the reference.
    fn apply(params: &Self::Params, src: &HostImage, out: &mut HostImage) {
        Self::reference(params, src, out);
    }

    /// Output pixel type for an input pixel type. `None` if the input is not accepted. Default: the input's.
    fn pixels(input: PixelType) -> Option<PixelType> {
        Some(input)
    }

    /// Window of the input that a window of the output needs. Default: the same window.
    fn demand(params: &mut Self::Params, wanted: Wanted) -> Roi {
        let _ = params;
        wanted.output
    }

    /// Records how the pixels move, which boxes, masks and keypoints follow. `output` is the size of the whole output.
    /// Default: they stay where they are.
    fn trace(params: &Self::Params, output: Size, trace: &mut Trace) {
        let _ = (params, output, trace);
    }
}

/// An [`ImageFormula`] as data.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImageForm {
    /// Identifies the formula.
    pub(super) formula: fn() -> TypeId,
    pub(super) cuda: Option<Cuda>,
    pub(crate) params_bytes: usize,
    pub(super) pixels: fn(PixelType) -> Option<PixelType>,
    pub(crate) demand: fn(&mut ParamBytes, Wanted) -> Roi,
    pub(crate) trace: fn(&ParamBytes, Size, &mut Trace),
    pub(crate) reference: fn(&ParamBytes, &HostImage, &mut HostImage),
    pub(crate) apply: fn(&ParamBytes, &HostImage, &mut HostImage),
}

impl ImageForm {
    /// The formula `F`.
    pub const fn of<F: ImageFormula>() -> &'static Self {
        const {
            &Self {
                formula: TypeId::of::<F>,
                cuda: F::CUDA,
                params_bytes: size_of::<F::Params>(),
                pixels: F::pixels,
                demand: |params, wanted| F::demand(params.get_mut(), wanted),
                trace: |params, output, trace| F::trace(params.get(), output, trace),
                reference: |params, src, out| F::reference(params.get(), src, out),
                apply: |params, src, out| F::apply(params.get(), src, out),
            }
        }
    }
}
