//! Images: any function from an image to an image, for operators that no other kind describes.

use bytemuck::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, PixelType};
use crate::op::{Trace, Wanted};

use super::mix::Mixer;
use super::{
    ActionKind, Cases, Codes, Cuda, Execution, Executor, Facts, Kind, MakeImage, ParamBytes,
    ProgramRole,
};

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

/// The kind of images that one [`ImageFormula`] computes.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImageKind {
    pub(super) facts: Facts,
    demand: fn(&mut ParamBytes, Wanted) -> Roi,
    trace: fn(&ParamBytes, Size, &mut Trace),
    reference: fn(&ParamBytes, &HostImage, &mut HostImage),
    apply: fn(&ParamBytes, &HostImage, &mut HostImage),
}

impl ImageKind {
    /// The kind with the formula `F`.
    pub const fn of<F: ImageFormula>() -> &'static Self {
        const {
            &Self {
                facts: Facts {
                    pixels: F::pixels,
                    cuda: F::CUDA,
                    params_bytes: size_of::<F::Params>(),
                    nests: F::CUDA.is_some(),
                    program: ProgramRole::added(cases),
                    ..Facts::new::<(Params, F)>(Execution::Whole)
                },
                demand: |params, wanted| F::demand(params.get_mut(), wanted),
                trace: |params, output, trace| F::trace(params.get(), output, trace),
                reference: |params, src, out| F::reference(params.get(), src, out),
                apply: |params, src, out| F::apply(params.get(), src, out),
            }
        }
    }
}

impl Kind {
    /// The kind of images computed by the formula `F`.
    pub const fn image<F: ImageFormula>() -> Self {
        Kind::Image(ImageKind::of::<F>())
    }
}

/// Parameters of one sample.
#[derive(Clone, Debug)]
pub struct Params {
    /// The kind.
    pub formula: &'static ImageKind,
    /// Parameters of the formula.
    pub params: ParamBytes,
}

impl ActionKind for Params {
    fn demand(&mut self, wanted: Wanted, _: &mut Vec<i32>, _: usize) -> Roi {
        (self.formula.demand)(&mut self.params, wanted)
    }

    fn trace(&self, output: Size, trace: &mut Trace) {
        (self.formula.trace)(&self.params, output, trace);
    }

    fn executor(&self) -> Executor<'_> {
        Executor::Whole(self)
    }

    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        (self.formula.reference)(&self.params, src, out);
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        self.params
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        ("image", None)
    }
}

impl MakeImage for Params {
    fn image(&self, src: &HostImage, out: &mut HostImage) {
        (self.formula.apply)(&self.params, src, out);
    }
}

/// The type wraps what it reads: bytes of a [`Roi`], or floats.
fn cases(codes: &Codes, cases: &mut Cases) {
    let name = codes.type_name;
    for (code, leaf) in [(codes.bytes, "Roi"), (codes.floats, "Floats")] {
        if let Some(code) = code {
            let call = format!("pass.as<{name}<{leaf}>>().at(x, y)");
            cases.reads.push_str(&format!("    case {code}: value.set({call}); break;\n"));
        }
    }
}
