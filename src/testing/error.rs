//! Errors of a comparison.

use std::fmt;

use crate::error::Error;
use crate::geometry::Size;

/// Implementation of operators that is compared. All forms must produce the same bits as the
/// reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// [`ImageFormula::apply`](crate::op::custom::ImageFormula::apply).
    FastPath,
    /// CPU path of a loader, which decodes, resamples, transforms and stores row by row.
    Rows,
    /// CUDA source compiled by a C++ compiler for the host, with one thread per pixel.
    HostKernel,
    /// CUDA source compiled for the host, in tiles.
    HostTiles,
    /// CUDA source compiled for the host, with a program for each sample.
    HostProgram,
    /// CUDA source on a GPU.
    Device,
}

impl Form {
    /// Name of the form, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Form::FastPath => "the fast path",
            Form::Rows => "the row-by-row CPU path",
            Form::HostKernel => "the CUDA source, compiled for the host,",
            Form::HostTiles => "the CUDA source in tiles, compiled for the host,",
            Form::HostProgram => "the CUDA source with a program, compiled for the host,",
            Form::Device => "the CUDA source on the GPU",
        }
    }
}

/// First value that differs between a form and the reference.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Form with the wrong value.
    pub form: Form,
    /// Size of the input image.
    pub input: Size,
    /// Column of the pixel in the output.
    pub x: u32,
    /// Row of the pixel in the output.
    pub y: u32,
    /// Channel, 0 to 2.
    pub channel: usize,
    /// Value of the reference.
    pub expected: f64,
    /// Value of the form.
    pub found: f64,
    /// Description of the operators and all other inputs of the case.
    pub case: String,
}

/// Reason why a comparison fails.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ParityError {
    /// A form's values differ from the reference.
    Differs(Box<Difference>),
    /// An operator is inconsistent. For example, it demands a window beyond the image.
    Invalid {
        /// Description of the inconsistency.
        problem: String,
        /// Description of the operators and all other inputs of the case.
        case: String,
    },
    /// The CUDA source does not compile.
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// Other failure: of a plan, a loader or a compiled kernel.
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
            "{form} and the reference give different pixels for an image of {input}: pixel ({x}, \
             {y}), channel {channel}, expected {expected}, found {found}; {case}"
        )
    }
}

impl fmt::Display for ParityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(difference) => difference.fmt(f),
            Self::Invalid { problem, case } => write!(f, "{problem}; {case}"),
            Self::Compile { log } => {
                write!(f, "the CUDA source does not compile for the host:\n{log}")
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
