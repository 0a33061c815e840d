//! Source text of the program kernel: its own text, the texts of the formulas, and functions that
//! call one of the formulas by its code.

use crate::image::PixelType;
use crate::op::kernel_text::{Text, order_type, out_type};
use crate::op::kind::{Cases, Codes, Execution};
use crate::op::{Kind, Kinds, MAX_PARAMS_BYTES};
use crate::tensor::TensorShape;

use super::data::{FORMULAS, LEAF_BYTES, Pass, Program, STATISTICS_BYTES, Step};
use super::launches::{COUNTED_PIXELS, TILE_PIXELS};
use super::passes::Passes;

/// Text of a program kernel, and the memory that the data of a sample needs.
#[derive(Clone, Debug)]
pub struct ProgramText {
    /// Complete source text. The kernel `program(const Program* programs, int count, int number,
    /// int stage)` must be launched as [`Extent::launches`](super::Extent::launches) describes.
    pub source: String,
    /// Name with the formulas, element type and layout, such as `program of Contrast, Hue, Warp f16
    /// nchw`.
    pub name: String,
    formulas: Vec<Kind>,
    passes: usize,
    steps: usize,
    /// Size of a sample's histograms and tables, in bytes.
    statistics_bytes: usize,
}

impl ProgramText {
    /// Creates the text for operators that draw these kinds of actions. The last operator outputs
    /// pixels of type `pixels`.
    pub fn new<'a>(
        operators: impl IntoIterator<Item = &'a Kinds>,
        pixels: PixelType,
        shape: TensorShape,
    ) -> Self {
        let (mut formulas, mut passes, mut steps) = (Vec::<Kind>::new(), 1, 0);
        for kinds in operators {
            let each = kinds.list().iter().map(|&kind| Passes::most(kind));
            passes += match kinds.is_exact() {
                true => each.sum(),
                false => kinds.most() * each.max().unwrap_or(0),
            };
            steps += kinds.most();
            for &kind in kinds.list() {
                if formulas.iter().all(|it| !it.is(kind)) {
                    formulas.push(kind);
                }
            }
        }
        let source = source(&formulas, pixels, shape);
        let names: Vec<_> =
            formulas.iter().filter_map(|kind| Some(kind.cuda()?.type_name)).collect();
        let order = order_type(shape).to_lowercase();
        let name = format!("program of {} {} {order}", names.join(", "), shape.dtype);
        let has_statistics = formulas.iter().any(|kind| kind.is_executed(Execution::Statistics));
        let statistics_bytes = if has_statistics { STATISTICS_BYTES } else { 0 };
        Self { source, name, formulas, passes, steps, statistics_bytes }
    }

    /// Size of a sample's entry in the kernel's array `programs`, in bytes.
    pub const fn sample_bytes(&self) -> usize {
        size_of::<Program>()
    }

    /// Maximum size of a sample's passes, steps and statistics, in bytes.
    pub const fn passes_bytes(&self) -> usize {
        self.statistics_at() + self.statistics_bytes
    }

    /// Offset of the statistics in bytes. They follow all passes and steps.
    pub(super) const fn statistics_at(&self) -> usize {
        self.passes * size_of::<Pass>() + self.steps * size_of::<Step>()
    }

    /// Maximum number of passes and of steps.
    pub(super) const fn room(&self) -> (usize, usize) {
        (self.passes, self.steps)
    }

    /// Whether the kernel can execute this kind of action.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.formulas.iter().any(|it| it.is(kind))
    }

    /// Code of the formula of `kind` for pixels of type `pixels`.
    pub(super) fn code(&self, kind: Kind, pixels: PixelType) -> i32 {
        let place = self.formulas.iter().position(|it| it.is(kind));
        code(
            place.expect(
                "the plan was checked before: every kind of action has its place in the program",
            ),
            pixels,
        )
    }
}

fn code(place: usize, pixels: PixelType) -> i32 {
    FORMULAS + 2 * place as i32 + i32::from(pixels == PixelType::F32)
}

fn source(formulas: &[Kind], pixels: PixelType, shape: TensorShape) -> String {
    let mut text = Text::default();
    text.add("image", include_str!("../../../kernels/image.cu"));
    text.add("colour", include_str!("../../../kernels/colour.cu"));
    text.add("resample", include_str!("../../../kernels/resample.cu"));
    for kind in formulas {
        if let Some(cuda) = kind.cuda().filter(|_| !kind.facts().program.is_built_in) {
            text.add_once(&cuda.type_name.to_lowercase(), cuda.text);
        }
    }
    text.add("store", include_str!("../../../kernels/store.cu"));
    let floats = i32::from(pixels == PixelType::F32);
    let types = format!(
        "typedef {} Out;\ntypedef {} Order;\n#define FLOATS {floats}\n#define MAX_PARAMS_BYTES {MAX_PARAMS_BYTES}\n\
         #define LEAF_BYTES {LEAF_BYTES}\n#define STATISTICS_BYTES {STATISTICS_BYTES}\n#define TILE_PIXELS {TILE_PIXELS}\n\
         #define COUNTED_PIXELS {COUNTED_PIXELS}",
        out_type(shape.dtype),
        order_type(shape),
    );
    text.add("chain", &types);
    text.add("steps", include_str!("../../../kernels/steps.cu"));
    text.add("formulas", &functions(formulas));
    text.add("program", include_str!("../../../kernels/program.cu"));
    text.source
}

/// CUDA functions that call one of the formulas by its code.
fn functions(formulas: &[Kind]) -> String {
    let mut cases = Cases::default();
    for (place, kind) in formulas.iter().enumerate() {
        let Some(cuda) = kind.cuda() else { continue };
        let code = |pixels| kind.pixels(pixels).map(|_| code(place, pixels));
        let [bytes, floats] = [PixelType::U8, PixelType::F32].map(code);
        let codes = Codes { type_name: cuda.type_name, bytes, floats };
        (kind.facts().program.cases)(&codes, &mut cases);
    }
    let Cases { reads, changes, entries } = cases;
    format!(
        "template <class Leaf> static __device__ void read_formula(const Pass& pass, int x, int y, Value& value) {{\n    (void)x, (void)y, (void)value;\n    \
         switch (pass.reader) {{\n{reads}    default: break;\n    }}\n}}\n\
         static __device__ void change(const Step& step, int x, int y, Value& value) {{\n    (void)x, (void)y, (void)value;\n    \
         switch (step.code) {{\n{changes}    default: break;\n    }}\n}}\n\
         static __device__ float entry(int formula, const Step& step, const Histograms& h, int channel, int byte) {{\n    \
         (void)step, (void)h, (void)channel, (void)byte;\n    switch (formula) {{\n{entries}    default: return 0.0f;\n    }}\n}}"
    )
}
