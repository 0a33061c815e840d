//! Kinds of actions: how the steps of a chain are executed.
//!
//! Two words have one meaning each in `op`:
//!
//! * A **kind** is how an action is executed. Plan, CPU transform and kernels execute kinds and know no operators.
//! * A **formula** is the arithmetic of an operator: pure functions in Rust, and in CUDA text if they run on the device.
//!   The kinds `Pixel`, `Statistics`, `Stencil` and `Image` compute by a formula that the operator provides, so most
//!   operators need no kind of their own.
//!
//! To add a kind, add a file here and one line in `kinds!`. The file has
//!
//! * `FACTS`: what plan and kernel texts must know of the kind before anything is drawn ([`Facts`]);
//! * `Params`: the parameters of an action, which implement [`ActionKind`]. Its [`executor`](ActionKind::executor) is one
//!   of the ways in which the CPU can execute an action ([`Executor`]). Operators draw it with `Draw::push`.
//!
//! `transform/`, `plan/` and `op/program/` match on [`Executor`] and [`Execution`], never on a kind. They change only if
//! a kind is executed in a way that is not there yet.

use std::any::TypeId;
use std::fmt::Debug;

use serde_json::Value;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image, PixelType};
use crate::tensor::CHANNELS;

use super::{Trace, Wanted};

pub use cuda::{Cases, Codes, Cuda, ProgramRole, Tiling};
pub use image::{ImageFormula, ImageKind};
pub use kinds::Kinds;
pub use param_bytes::ParamBytes;
pub use pixel::{Channel, ColourFormula, PixelKind, PositionFormula, RowPosition};
pub use statistics::{StatisticsFormula, StatisticsKind};
pub use stencil::{StencilFormula, StencilKind};

mod cuda;
mod kinds;
mod param_bytes;

/// List of the kinds: the name, the field with the formula if the kind has one, and the file.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $(($formula:ident: $data:ident))? in $module:ident,)+) => {
        $(pub mod $module;)+

        /// How an action is executed.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $kind $((&'static $data))?,)+
        }

        /// Parameters of one action, by kind.
        #[derive(Clone, Debug)]
        pub enum ActionParams {
            $(#[doc = concat!("[`Kind::", stringify!($kind), "`].")] $kind($module::Params),)+
        }

        impl Kind {
            /// What is known of the kind before anything is drawn.
            pub(crate) fn facts(self) -> &'static Facts {
                match self {
                    $(Kind::$kind $(($formula))? => kinds!(@facts $module $($formula)?),)+
                }
            }
        }

        impl ActionParams {
            /// Kind of the action.
            pub fn kind(&self) -> Kind {
                match self {
                    $(kinds!(@pattern $kind params $($formula)?) => {
                        Kind::$kind $((params.$formula))?
                    })+
                }
            }

            fn get(&self) -> &dyn ActionKind {
                match self {
                    $(ActionParams::$kind(params) => params,)+
                }
            }

            fn get_mut(&mut self) -> &mut dyn ActionKind {
                match self {
                    $(ActionParams::$kind(params) => params,)+
                }
            }
        }

        $(impl From<$module::Params> for ActionParams {
            fn from(params: $module::Params) -> Self {
                ActionParams::$kind(params)
            }
        })+
    };
    (@facts $module:ident) => { &$module::FACTS };
    (@facts $module:ident $formula:ident) => { &$formula.facts };
    (@pattern $kind:ident $params:ident) => { ActionParams::$kind(_) };
    (@pattern $kind:ident $params:ident $formula:ident) => { ActionParams::$kind($params) };
}

kinds! {
    /// A window of the image, with a fill outside of it.
    Crop in crop,
    /// Columns, rows or both in reverse order.
    Flip in flip,
    /// Separable resampling by a table of coefficients.
    Resample in resample,
    /// Maps each byte of a channel to a byte. Neighbouring tables become one.
    Table in table,
    /// Maps each byte of a channel to a float.
    FloatTable in float_table,
    /// A function of a pixel's value, or of its value and position.
    Pixel(formula: PixelKind) in pixel,
    /// A table made from the histograms of the whole image.
    Statistics(formula: StatisticsKind) in statistics,
    /// A function of a pixel and its eight neighbours.
    Stencil(formula: StencilKind) in stencil,
    /// Each pixel is read at a position of the input that a map gives.
    Warp in warp,
    /// A place of a weighted sum of several chains' results.
    Mix in mix,
    /// Any function from an image to an image.
    Image(formula: ImageKind) in image,
}

/// What is known of a kind before anything is drawn.
#[derive(Debug)]
pub struct Facts {
    /// Identifies the kind, and its formula if it has one.
    pub(crate) id: fn() -> TypeId,
    /// How the CPU executes its actions.
    pub(crate) execution: Execution,
    /// Output pixel type for an input pixel type. `None` if the input is not accepted.
    pub(crate) pixels: fn(PixelType) -> Option<PixelType>,
    /// CUDA implementation. `None` if actions of this kind run only on the CPU.
    pub(crate) cuda: Option<Cuda>,
    /// Size of an action's parameters for a kernel, in bytes.
    pub(crate) params_bytes: usize,
    /// Whether the CUDA type wraps the image below it, so that a fused kernel can have it.
    pub(crate) nests: bool,
    /// Maximum number of table entries (of 32 bits) of an action, except for coefficients.
    pub(crate) entries: usize,
    /// Role in the program kernel.
    pub(crate) program: ProgramRole,
}

impl Facts {
    /// Facts of a kind that `T` identifies. It maps bytes to bytes, has no table, and runs only on the CPU.
    pub(crate) const fn new<T: 'static>(execution: Execution) -> Self {
        Self {
            id: TypeId::of::<T>,
            execution,
            pixels: only_bytes,
            cuda: None,
            params_bytes: 0,
            nests: false,
            entries: 0,
            program: ProgramRole::BUILT_IN,
        }
    }
}

/// Pixel types of a kind that maps bytes to bytes.
fn only_bytes(input: PixelType) -> Option<PixelType> {
    (input == PixelType::U8).then_some(PixelType::U8)
}

/// How the CPU executes the actions of a kind, and which images it stores for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// On a row that is in the cache: a pixel of the output depends on one pixel of the input, and on nothing else of it.
    Pointwise,
    /// By resampling rows as they come, of an image that need not be stored.
    Resample,
    /// Row by row of the output, from a stored image.
    Rows,
    /// By a table that is made from a stored image, and is then looked up as a pointwise action.
    Statistics,
    /// On the whole of a stored image.
    Whole,
    /// As a place of a mix, which keeps images of its own.
    Mix,
}

/// What executes an action on the CPU. Each is an [`Execution`] with what it needs.
#[derive(Clone, Copy, Debug)]
pub enum Executor<'a> {
    /// [`Execution::Pointwise`].
    Pointwise(Pointwise<'a>),
    /// [`Execution::Resample`].
    Resample(&'a resample::Params),
    /// [`Execution::Rows`].
    Rows(&'a dyn MakeRow),
    /// [`Execution::Statistics`].
    Statistics(&'a dyn MakeTable),
    /// [`Execution::Whole`].
    Whole(&'a dyn MakeImage),
    /// [`Execution::Mix`].
    Mix(&'a mix::Mix),
}

/// What a pointwise action does. Kernels do the same with it.
#[derive(Clone, Copy, Debug)]
pub struct Pointwise<'a> {
    /// Where pixels move.
    pub moves: Move,
    /// What becomes of their values.
    pub change: Change<'a>,
}

/// Where a pointwise action moves pixels.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// They stay where they are.
    None,
    /// A window begins at this column and row of the input.
    Window {
        /// Column and row.
        position: (i64, i64),
        /// Whether the whole window is inside of the input.
        is_inside: bool,
    },
    /// An image is mirrored.
    Mirror {
        /// Left to right.
        horizontal: bool,
        /// Top to bottom.
        vertical: bool,
        /// Width and height of the image.
        input: (i64, i64),
    },
}

/// What a pointwise action does to values.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Nothing.
    None,
    /// Fills the pixels outside of the input.
    Fill {
        /// Width and height of the input.
        input: (i64, i64),
        /// Red, green and blue.
        fill: [f32; CHANNELS],
    },
    /// Looks up bytes in the action's table.
    Table,
    /// Looks up floats in the action's table.
    FloatTable,
    /// Computes a formula.
    Pixel(&'static PixelKind, &'a ParamBytes),
}

/// Makes rows of an image from a stored one.
pub trait MakeRow: Debug {
    /// Makes the pixels of `out`, which begin at this column and row. `src` holds at least the action's input. `table` is
    /// the action's part of the table.
    fn row(&self, table: &[i32], src: &Image<u8>, at: (u32, u32), out: &mut [[u8; CHANNELS]]);
}

/// Makes a table from a stored image.
pub trait MakeTable: Debug {
    /// Makes the table. `image` is the whole image, of bytes.
    fn table(&self, image: &HostImage) -> statistics::Made;
}

/// Makes an image from a stored one.
pub trait MakeImage: Debug {
    /// Makes `out`, whose pixel type and window are set. `src` holds at least the action's input.
    fn image(&self, src: &HostImage, out: &mut HostImage);
}

/// Parameters of an action of one kind, and what the action does by them.
pub trait ActionKind {
    /// Returns the input window that an output window needs. Appends whatever depends on the window to `table`, where
    /// the action's part begins at `start`. Default: the same window.
    fn demand(&mut self, wanted: Wanted, table: &mut Vec<i32>, start: usize) -> Roi {
        let _ = (table, start);
        wanted.output
    }

    /// Records how the pixels move. `output` is the size of the whole output. Default: they stay where they are.
    fn trace(&self, output: Size, trace: &mut Trace) {
        let _ = (output, trace);
    }

    /// What executes the action on the CPU.
    fn executor(&self) -> Executor<'_>;

    /// Reference implementation. `out` has its pixel type and window set, `src` holds at least the action's input.
    /// `table` is the action's part of the table. `mixer` is the same for all actions of a sample.
    fn reference(
        &self,
        table: &[i32],
        src: &HostImage,
        out: &mut HostImage,
        mixer: &mut mix::Mixer,
    );

    /// Parameters for a kernel. `table_address` is the address of the action's part of the table.
    fn bytes(&self, table_address: u64) -> ParamBytes;

    /// Name of the kind, and the parameters by name if they are known without the formula, as `feedwater dump` writes
    /// them.
    fn named(&self) -> (&'static str, Option<Value>);

    /// Entries of the action's table by channel, for `feedwater dump`. Default: null, because the parameters say all.
    fn named_table(&self, table: &[i32]) -> Value {
        let _ = table;
        Value::Null
    }
}

impl Kind {
    /// Output pixel type for an input pixel type. `None` if the kind does not accept it.
    pub fn pixels(self, input: PixelType) -> Option<PixelType> {
        (self.facts().pixels)(input)
    }

    /// CUDA implementation. `None` if actions of this kind run only on the CPU.
    pub fn cuda(self) -> Option<Cuda> {
        self.facts().cuda
    }

    /// Whether this is the kind `other`.
    pub fn is(self, other: Kind) -> bool {
        (self.facts().id)() == (other.facts().id)()
    }

    /// Whether a pixel of the output depends on one pixel of the input, and on nothing else of it.
    pub fn is_pointwise(self) -> bool {
        self.is_executed(Execution::Pointwise)
    }

    /// Whether actions of this kind are executed in this way.
    pub(crate) fn is_executed(self, how: Execution) -> bool {
        self.facts().execution == how
    }

    /// Size of an action's parameters for a kernel, in bytes.
    pub fn params_bytes(self) -> usize {
        self.facts().params_bytes
    }
}

impl ActionParams {
    /// [`ActionKind::demand`].
    pub(in crate::op) fn demand(
        &mut self,
        wanted: Wanted,
        table: &mut Vec<i32>,
        start: usize,
    ) -> Roi {
        self.get_mut().demand(wanted, table, start)
    }

    /// [`ActionKind::trace`].
    pub(in crate::op) fn trace(&self, output: Size, trace: &mut Trace) {
        self.get().trace(output, trace);
    }

    /// [`ActionKind::executor`].
    pub fn executor(&self) -> Executor<'_> {
        self.get().executor()
    }

    /// [`ActionKind::reference`].
    pub fn reference(
        &self,
        table: &[i32],
        src: &HostImage,
        out: &mut HostImage,
        mixer: &mut mix::Mixer,
    ) {
        self.get().reference(table, src, out, mixer);
    }

    /// [`ActionKind::bytes`].
    pub fn bytes(&self, table_address: u64) -> ParamBytes {
        self.get().bytes(table_address)
    }

    /// [`ActionKind::named`].
    pub(in crate::op) fn named(&self) -> (&'static str, Option<Value>) {
        self.get().named()
    }

    /// [`ActionKind::named_table`].
    pub(in crate::op) fn named_table(&self, table: &[i32]) -> Value {
        self.get().named_table(table)
    }
}

impl Executor<'_> {
    /// Position of a window inside of the image, if the action only takes one. Such an action only says which pixels are
    /// needed.
    pub fn inside_window(&self) -> Option<(u32, u32)> {
        match *self {
            Executor::Pointwise(Pointwise {
                moves: Move::Window { position: (x, y), is_inside: true },
                ..
            }) => Some((x as u32, y as u32)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{self, Actions};
    use crate::random::SampleKey;

    #[test]
    fn actions_are_executed_as_the_facts_of_their_kind_say() {
        let mut compared = 0;
        for operator in op::list_of_operators::examples() {
            let actions = Actions::of([&*operator], SampleKey::default(), Size::new(120, 40));
            for action in &actions.list {
                let execution = match action.params.executor() {
                    Executor::Pointwise(_) => Execution::Pointwise,
                    Executor::Resample(_) => Execution::Resample,
                    Executor::Rows(_) => Execution::Rows,
                    Executor::Statistics(_) => Execution::Statistics,
                    Executor::Whole(_) => Execution::Whole,
                    Executor::Mix(_) => Execution::Mix,
                };
                let kind = action.params.kind();
                assert!(kind.is_executed(execution), "{kind:?} {execution:?}");
                if let Some(cuda) = kind.cuda() {
                    let bytes = action.params.bytes(0).as_bytes().len();
                    assert_eq!(bytes, kind.params_bytes(), "{}", cuda.type_name);
                }
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared}");
    }
}
