//! Image actions: any function from an image to an image, for operators that no other kind can
//! express.

use std::ops::Range;

use bytemuck::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, PixelType};
use crate::op::{OriginMap, Trace, Wanted};

use super::mix::Mixer;
use super::{
    ActionKind, Cases, Codes, Cuda, Execution, Executor, Facts, Kind, MakeImage, ParamBytes,
    ProgramRole,
};

/// A function from an image to an image. Its actions have the kind [`Image`](super::Kind::Image).
///
/// An operator with an image formula can be combined with all other operators. The input and the
/// output of the function are both stored as images, because the library cannot know which pixels
/// the function reads.
pub trait ImageFormula: 'static {
    /// Parameters of one sample as plain bytes, identical on CPU and GPU. Their size is a multiple
    /// of 8 and at most [`MAX_PARAMS_BYTES`](crate::op::custom::MAX_PARAMS_BYTES) bytes.
    /// `feedwater dump` writes the fields that serde serializes.
    type Params: Pod + Serialize;
    /// CUDA implementation. `None`, the default, means that the operator runs only on the CPU.
    const CUDA: Option<Cuda> = None;

    /// Whether the formula also supports decoded floats
    /// ([`PixelFormat`](crate::PixelFormat)): it moves pixels, and does not change them.
    #[doc(hidden)]
    const TAKES_DECODED_FLOATS: bool = false;

    /// How the formula moves pixels. Default: in any way. The kernel that moves masks cannot
    /// follow such a formula.
    #[doc(hidden)]
    const MOVEMENT: Movement = Movement::Any;

    /// Reference implementation, which should be short and simple. Tests compare the CUDA text and
    /// [`apply`](Self::apply) with it.
    ///
    /// The caller has set the pixel type and the window of `out`. `src` holds at least the window
    /// that [`demand`](Self::demand) returned.
    fn reference(params: &Self::Params, src: &HostImage, out: &mut HostImage);

    /// Faster CPU implementation that writes the same pixels. Default: calls the reference
    /// implementation.
    fn apply(params: &Self::Params, src: &HostImage, out: &mut HostImage) {
        Self::reference(params, src, out);
    }

    /// Output pixel type for an input pixel type. `None` if the formula does not accept the input.
    /// Default: the type of the input.
    fn pixels(input: PixelType) -> Option<PixelType> {
        Some(input)
    }

    /// Window of the input that the formula reads to compute the output window in `wanted`.
    /// Default: the same window.
    fn demand(params: &mut Self::Params, wanted: Wanted) -> Roi {
        let _ = params;
        wanted.output
    }

    /// Records how the pixels move, because boxes, masks and keypoints must move with them.
    /// `output` is the size of the whole output. Default: pixels stay where they are.
    fn trace(params: &Self::Params, output: Size, trace: &mut Trace) {
        let _ = (params, output, trace);
    }

    /// Column and row of the input pixel that a mask shows at column `x` and row `y` of the output.
    /// `None` fills the pixel of the mask. Formulas that implement [`trace`](Self::trace) implement
    /// this method too. Default: pixels stay where they are.
    fn origin(params: &Self::Params, x: u32, y: u32) -> Option<(u32, u32)> {
        let _ = params;
        Some((x, y))
    }
}

/// How an [`ImageFormula`] moves pixels.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// Pixels stay where they are.
    Nothing,
    /// The columns and rows of [`ImageFormula::origin`] are independent of each other.
    Axes,
    /// By any function.
    Any,
}

/// Kind of the actions that one [`ImageFormula`] executes.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImageKind {
    pub(super) facts: Facts,
    demand: fn(&mut ParamBytes, Wanted) -> Roi,
    trace: fn(&ParamBytes, Size, &mut Trace),
    follow: fn(&ParamBytes, Size, &mut OriginMap),
    reference: fn(&ParamBytes, &HostImage, &mut HostImage),
    apply: fn(&ParamBytes, &HostImage, &mut HostImage),
}

impl ImageKind {
    /// Kind of the actions that the formula `F` executes.
    pub const fn of<F: ImageFormula>() -> &'static Self {
        const {
            &Self {
                facts: Facts {
                    takes_decoded_floats: F::TAKES_DECODED_FLOATS,
                    pixels: F::pixels,
                    cuda: F::CUDA,
                    params_bytes: size_of::<F::Params>(),
                    nests: F::CUDA.is_some(),
                    program: ProgramRole::added(cases),
                    ..Facts::new::<(Params, F)>(Execution::Whole)
                },
                demand: |params, wanted| F::demand(params.get_mut(), wanted),
                trace: |params, output, trace| F::trace(params.get(), output, trace),
                follow: |params, output, origins| match F::MOVEMENT {
                    Movement::Nothing => {}
                    Movement::Axes => {
                        let at = |x, y| F::origin(params.get(), x, y);
                        let columns = (0..output.width).map(|x| Some(at(x, 0)?.0 as i32));
                        let rows = (0..output.height).map(|y| Some(at(0, y)?.1 as i32));
                        origins.add_axes(columns, rows);
                    }
                    Movement::Any => {
                        origins.add_formula(|params, x, y| F::origin(params.get(), x, y), *params)
                    }
                },
                reference: |params, src, out| F::reference(params.get(), src, out),
                apply: |params, src, out| F::apply(params.get(), src, out),
            }
        }
    }
}

impl Kind {
    /// Kind of the actions that the image formula `F` executes.
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

    fn follow(&self, _: Range<usize>, output: Size, origins: &mut OriginMap) {
        (self.formula.follow)(&self.params, output, origins);
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

/// Adds calls of the type's function `at`. The type is a C++ template over the image that it reads:
/// `Leaf` for bytes (a type of window in `kernels/image.cu`), `Floats` for floats.
fn cases(codes: &Codes, cases: &mut Cases) {
    let name = codes.type_name;
    for (code, leaf) in [(codes.bytes, "Leaf"), (codes.floats, "Floats")] {
        if let Some(code) = code {
            let call = format!("pass.as<{name}<{leaf}>>().at(x, y)");
            cases.reads.push_str(&format!("    case {code}: value.set({call}); break;\n"));
        }
    }
}
