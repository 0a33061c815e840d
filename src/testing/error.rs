//! Errors of a comparison.

use std::fmt;

use crate::error::Error;
use crate::geometry::Size;

/// Implementation of operators that is compared with the reference. All implementations must
/// produce the same bits as the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Implementation {
    /// Fast CPU implementation of an action:
    /// [`ImageFormula::apply`](crate::op::custom::ImageFormula::apply).
    FastPath,
    /// CPU path of a loader, which decodes, resamples, transforms and stores row by row.
    Rows,
    /// CUDA source compiled by a C++ compiler for the host, with one thread per pixel.
    HostKernel,
    /// CUDA source compiled for the host, whose threads compute the output in tiles.
    HostTiles,
    /// CUDA source of the program kernel, compiled for the host. Each sample has its own program,
    /// which is its list of actions.
    HostProgram,
    /// CUDA source on a GPU.
    Device,
}

impl Implementation {
    /// Name of the implementation in messages, such as "the fast path".
    pub const fn name(self) -> &'static str {
        match self {
            Implementation::FastPath => "the fast path",
            Implementation::Rows => "the row-by-row CPU path",
            Implementation::HostKernel => "the CUDA source, compiled for the host,",
            Implementation::HostTiles => "the CUDA source in tiles, compiled for the host,",
            Implementation::HostProgram => "the CUDA source with a program, compiled for the host,",
            Implementation::Device => "the CUDA source on the GPU",
        }
    }
}

/// First value that differs between an implementation and the reference.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Implementation that computed the wrong value.
    pub form: Implementation,
    /// Size of the input image.
    pub input: Size,
    /// Column of the pixel in the output.
    pub x: u32,
    /// Row of the pixel in the output.
    pub y: u32,
    /// Channel, 0 to 2.
    pub channel: usize,
    /// Value that the reference computed.
    pub expected: f64,
    /// Value that the implementation computed.
    pub found: f64,
    /// Description of the operators and all other inputs of the case.
    pub case: String,
}

/// Reason why a comparison fails.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ParityError {
    /// An implementation computed another value than the reference.
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
    /// Any other failure, for example of a plan, a loader or a compiled kernel.
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
