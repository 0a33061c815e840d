//! Kinds of actions: how the steps of a chain are executed.
//!
//! Two terms have a fixed meaning in `op`:
//!
//! * A **kind** is the way in which an action is executed, such as a crop or a look-up table. The
//!   plan, the CPU transform and the kernels handle kinds. They contain no code for single
//!   operators.
//! * A **formula** is the arithmetic of an operator: a pure function in Rust, and the same function
//!   in CUDA if the operator runs on the GPU. The kinds `Pixel`, `Statistics`, `Stencil` and
//!   `Image` call a formula that the operator provides, so most operators need no kind of their
//!   own.
//!
//! To add a kind, add a file here and one line in `kinds!`. The file contains:
//!
//! * `FACTS`: what the plan and the texts of the kernels must know about the kind before actions
//!   are drawn ([`Facts`]).
//! * `Params`: the parameters of an action. They implement [`ActionKind`], whose
//!   [`executor`](ActionKind::executor) returns one of the ways in which the CPU can execute an
//!   action ([`Executor`]). Operators add the action with `Draw::push`.
//!
//! `transform/`, `plan/` and `op/program/` match on [`Executor`] and [`Execution`], never on a
//! kind. A new kind changes them only if it needs a new way of execution.

use std::any::TypeId;
use std::fmt::Debug;
use std::ops::Range;

use serde_json::Value;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image, PixelType};
use crate::tensor::CHANNELS;

use super::{OriginMap, Trace, Wanted};

pub use super::param_bytes::ParamBytes;
pub use cuda::{Cases, Codes, Cuda, ProgramRole, Tiling};
pub use image::{ImageFormula, ImageKind, Movement};
pub use kinds::Kinds;
pub use pixel::{Channel, ColourFormula, PixelKind, PositionFormula, RowPosition};
pub use statistics::{StatisticsFormula, StatisticsKind};
pub use stencil::{StencilFormula, StencilKind};

mod cuda;
mod kinds;

/// List of the kinds: the name, the field with the formula if the kind has one, and the file.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $(($formula:ident: $data:ident))? in $module:ident,)+) => {
        $(pub mod $module;)+

        /// Kind of an action, which determines how the action is executed.
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
            /// Facts about the kind that are known before actions are drawn.
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
    /// Takes a window of the image. Pixels outside the image are filled.
    Crop in crop,
    /// Reverses the order of columns, rows or both.
    Flip in flip,
    /// Resamples rows and columns with a table of coefficients.
    Resample in resample,
    /// Maps each byte of a channel to a byte. Consecutive tables are merged into one.
    Table in table,
    /// Maps each byte of a channel to a float.
    FloatTable in float_table,
    /// Computes each pixel from its value, or from its value and position.
    Pixel(formula: PixelKind) in pixel,
    /// Maps each byte by a table that is computed from the histograms of the whole image.
    Statistics(formula: StatisticsKind) in statistics,
    /// Computes each pixel from itself and its eight neighbours.
    Stencil(formula: StencilKind) in stencil,
    /// Reads each pixel at a position of the input that a map gives.
    Warp in warp,
    /// Begins a weighted sum of the results of several branches, or adds a result to the sum.
    Mix in mix,
    /// Computes the image by any function of the input image.
    Image(formula: ImageKind) in image,
}

/// Facts about a kind that are known before actions are drawn.
#[derive(Debug)]
pub struct Facts {
    /// Identifies the kind, and its formula if it has one.
    pub(crate) id: fn() -> TypeId,
    /// How the CPU executes actions of the kind.
    pub(crate) execution: Execution,
    /// Output pixel type for an input pixel type. `None` if the kind does not accept the input.
    pub(crate) pixels: fn(PixelType) -> Option<PixelType>,
    /// Whether the CPU also executes the kind on decoded floats
    /// ([`PixelFormat`](crate::image::PixelFormat)). No CUDA kernel reads them.
    pub(crate) takes_decoded_floats: bool,
    /// CUDA implementation. `None` if actions of this kind run only on the CPU.
    pub(crate) cuda: Option<Cuda>,
    /// Size of an action's parameters for a kernel, in bytes.
    pub(crate) params_bytes: usize,
    /// Whether the CUDA type is a template whose argument is the type of the image that the action
    /// reads. A fused kernel consists of such nested types.
    pub(crate) nests: bool,
    /// Maximum number of 32-bit entries in an action's table, without those that
    /// `Operator::coefficients` counts.
    pub(crate) entries: usize,
    /// Role of the kind in the program kernel.
    pub(crate) program: ProgramRole,
}

impl Facts {
    /// Facts about a kind that the type `T` identifies. Unless other facts replace them, the kind
    /// maps bytes to bytes, has no table, and runs only on the CPU.
    pub(crate) const fn new<T: 'static>(execution: Execution) -> Self {
        Self {
            id: TypeId::of::<T>,
            execution,
            pixels: only_bytes,
            takes_decoded_floats: false,
            cuda: None,
            params_bytes: 0,
            nests: false,
            entries: 0,
            program: ProgramRole::BUILT_IN,
        }
    }
}

/// Output pixel type of a kind that maps bytes to bytes and accepts nothing else.
fn only_bytes(input: PixelType) -> Option<PixelType> {
    (input == PixelType::U8).then_some(PixelType::U8)
}

/// How the CPU executes the actions of a kind, and which images it stores for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The CPU executes the action on one row of pixels at a time, while the row is in the cache.
    /// Each pixel of the output depends on only one pixel of the input.
    Pointwise,
    /// The CPU resamples rows of the input in the order in which they are produced. The input image
    /// need not be stored.
    Resample,
    /// The CPU computes one row of the output at a time from a stored input image.
    Rows,
    /// The CPU computes a look-up table from a stored image. It then looks bytes up in this table
    /// as for a pointwise action.
    Statistics,
    /// The CPU executes the action on a whole stored image at once.
    Whole,
    /// The action belongs to a mix, which stores images of its own.
    Mix,
}

/// Executor of an action on the CPU: an [`Execution`] with the data that it needs.
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

/// What a pointwise action does to pixels. The CPU and the kernels read the same description.
#[derive(Clone, Copy, Debug)]
pub struct Pointwise<'a> {
    /// How pixels move.
    pub moves: Move,
    /// How the values of pixels change.
    pub change: Change<'a>,
}

/// How a pointwise action moves pixels.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// Pixels stay where they are.
    None,
    /// The output is a window of the input, whose first pixel moves to the origin.
    Window {
        /// Column and row of the input at which the window begins.
        position: (i64, i64),
        /// Whether the whole window is inside of the input.
        is_inside: bool,
    },
    /// The image is mirrored.
    Mirror {
        /// Whether the image is mirrored left to right.
        horizontal: bool,
        /// Whether the image is mirrored top to bottom.
        vertical: bool,
        /// Width and height of the image.
        input: (i64, i64),
    },
}

/// How a pointwise action changes the values of pixels.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Nothing.
    None,
    /// Fills the pixels outside the input.
    Fill {
        /// Width and height of the input.
        input: (i64, i64),
        /// Red, green and blue of the filled pixels.
        fill: [f32; CHANNELS],
    },
    /// Replaces each byte by a byte of the action's table.
    Table,
    /// Replaces each byte by a float of the action's table.
    FloatTable,
    /// Computes each pixel by a formula with these parameters.
    Pixel(&'static PixelKind, &'a ParamBytes),
}

/// Computes rows of an image from a stored image.
pub trait MakeRow: Debug {
    /// Computes the pixels of `out`, which begin at the column and row `at` of the output. `src`
    /// holds at least the input window of the action. `table` is the table of the action.
    fn row(&self, table: &[i32], src: &Image<u8>, at: (u32, u32), out: &mut [[u8; CHANNELS]]);

    /// Computes all pixels of `out` from decoded floats. Implemented if the facts of the kind say
    /// that it takes them.
    fn floats(&self, table: &[i32], src: &Image<f32>, out: &mut Image<f32>) {
        let _ = (table, src, out);
        unreachable!("the plan refuses this kind in a chain for images of floats")
    }
}

/// Computes a look-up table from a stored image.
pub trait MakeTable: Debug {
    /// Computes the table. `image` is the whole image and has bytes.
    fn table(&self, image: &HostImage) -> statistics::Made;
}

/// Computes an image from a stored image.
pub trait MakeImage: Debug {
    /// Computes the pixels of `out`, whose pixel type and window are set. `src` holds at least the
    /// input window of the action.
    fn image(&self, src: &HostImage, out: &mut HostImage);
}

/// Behaviour of the actions of one kind. The type that holds the parameters of an action implements
/// this trait.
pub trait ActionKind {
    /// Returns the window of the input that the action reads for an output window. Appends the
    /// entries that depend on the window to `table`, where the entries of this action begin at
    /// `start`. Default: the same window, and no entries.
    fn demand(&mut self, wanted: Wanted, table: &mut Vec<i32>, start: usize) -> Roi {
        let _ = (table, start);
        wanted.output
    }

    /// Maximum number of 32-bit entries that [`demand`](Self::demand) needs for any window of the
    /// output: those that it appends, and its scratch memory. Default: 0.
    fn most_entries(&self) -> usize {
        0
    }

    /// Records how the pixels move. `output` is the size of the whole output. Default: pixels stay
    /// where they are.
    fn trace(&self, output: Size, trace: &mut Trace) {
        let _ = (output, trace);
    }

    /// Adds the step from pixels of the output to the pixels of the input that they show with
    /// nearest interpolation, whatever the interpolation of the action is. `output` is the size of
    /// the whole output, and `table` is the range of the action's table. Default: pixels stay where
    /// they are.
    fn follow(&self, table: Range<usize>, output: Size, origins: &mut OriginMap) {
        let _ = (table, output, origins);
    }

    /// Executor of the action on the CPU.
    fn executor(&self) -> Executor<'_>;

    /// Reference implementation. The pixel type and the window of `out` are set. `src` holds at
    /// least the input window of the action. `table` is the table of the action. All actions of a
    /// sample share one `mixer`.
    fn reference(
        &self,
        table: &[i32],
        src: &HostImage,
        out: &mut HostImage,
        mixer: &mut mix::Mixer,
    );

    /// Parameters as a kernel reads them. `table_address` is the address of the action's table.
    fn bytes(&self, table_address: u64) -> ParamBytes;

    /// Name of the kind, and the parameters by name, for `feedwater dump`. The parameters are
    /// `None` if only the formula knows their names.
    fn named(&self) -> (&'static str, Option<Value>);

    /// Table of the action by channel, for `feedwater dump`. Default: null. This is for actions
    /// that are completely described by their parameters.
    fn named_table(&self, table: &[i32]) -> Value {
        let _ = table;
        Value::Null
    }
}

impl Kind {
    /// Output pixel type for an input pixel type. `None` if the kind does not accept the input.
    pub fn pixels(self, input: PixelType) -> Option<PixelType> {
        (self.facts().pixels)(input)
    }

    /// CUDA implementation. `None` if actions of this kind run only on the CPU.
    pub fn cuda(self) -> Option<Cuda> {
        self.facts().cuda
    }

    /// Whether this is the kind `other`, with the same formula.
    pub fn is(self, other: Kind) -> bool {
        (self.facts().id)() == (other.facts().id)()
    }

    /// Whether each pixel of the output depends on only one pixel of the input.
    pub fn is_pointwise(self) -> bool {
        self.is_executed(Execution::Pointwise)
    }

    /// Whether the CPU executes actions of this kind in the way `how`.
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

    /// [`ActionKind::most_entries`].
    pub(in crate::op) fn most_entries(&self) -> usize {
        self.get().most_entries()
    }

    /// [`ActionKind::trace`].
    pub(in crate::op) fn trace(&self, output: Size, trace: &mut Trace) {
        self.get().trace(output, trace);
    }

    /// [`ActionKind::follow`].
    pub(in crate::op) fn follow(&self, table: Range<usize>, output: Size, origins: &mut OriginMap) {
        self.get().follow(table, output, origins);
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

    /// Calls [`ActionKind::named_table`].
    pub(in crate::op) fn named_table(&self, table: &[i32]) -> Value {
        self.get().named_table(table)
    }
}

impl Executor<'_> {
    /// Position of the window if the action is a crop whose window is inside the image. Such a crop
    /// changes no values, and only determines which pixels are needed.
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
