//! What a comparison finds.

use std::fmt;

use crate::error::Error;
use crate::geometry::Size;

/// A way to run operators. All of them must give the bits of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// [`FastPath::apply`](crate::op::FastPath::apply), on the window that was demanded.
    FastPath,
    /// The same on the whole image.
    WholeImage,
    /// The CPU's path of a loader, which fuses operators, and decodes, resamples and stores row by row.
    Rows,
    /// The CUDA text compiled by a C++ compiler for the host: a thread for each pixel.
    HostKernel,
    /// The same in tiles.
    HostTiles,
    /// The CUDA text on a GPU.
    Device,
}

impl Form {
    /// The form in words.
    pub const fn name(self) -> &'static str {
        match self {
            Form::FastPath => "the fast path",
            Form::WholeImage => "the fast path on the whole image",
            Form::Rows => "the path of rows",
            Form::HostKernel => "the CUDA text, compiled for the host,",
            Form::HostTiles => "the CUDA text in tiles, compiled for the host,",
            Form::Device => "the CUDA text on the GPU",
        }
    }
}

/// The first value in which a form and the reference differ.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The form that is wrong.
    pub form: Form,
    /// Size of the image that entered.
    pub input: Size,
    /// Column of the pixel in what leaves.
    pub x: u32,
    /// Row of the pixel.
    pub y: u32,
    /// Channel, 0 to 2.
    pub channel: usize,
    /// The reference's value.
    pub expected: f64,
    /// The form's value.
    pub found: f64,
    /// The operators and everything else that the case depends on.
    pub case: String,
}

/// Why operators do not pass.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ParityError {
    /// A form gives other values than the reference.
    Differs(Box<Difference>),
    /// An operator contradicts itself, as by demanding a window beyond the image.
    Invalid {
        /// What is wrong.
        problem: String,
        /// The operators and everything else that the case depends on.
        case: String,
    },
    /// The CUDA text does not compile.
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// Something else does not run: a plan, a loader, a compiled kernel.
    Run(Error),
}

impl From<Error> for ParityError {
    fn from(error: Error) -> Self {
        Self::Run(error)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, input, x, y, channel, expected, found, case } = self;
        let form = form.name();
        write!(
            f,
            "{form} and the reference differ on an image of {input}: pixel ({x}, {y}), channel {channel}, expected \
             {expected}, found {found}; {case}"
        )
    }
}

impl fmt::Display for ParityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(difference) => difference.fmt(f),
            Self::Invalid { problem, case } => write!(f, "{problem}; {case}"),
            Self::Compile { log } => {
                write!(f, "the CUDA text does not compile for the host:\n{log}")
            }
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParityError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Run(error) => Some(error),
            _ => None,
        }
    }
}
