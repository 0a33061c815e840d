//! Error types, grouped by who can fix the problem.
//!
//! Messages are lower case, without a final full stop. Each names the item, its value and a remedy. Messages that
//! quote a file are bounded in length: the middle of a long one is cut. Displayed errors are one line, except for a
//! compiler's log and the rows of a footprint: control characters and direction marks, which file names and other data may contain, are escaped.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

pub use cause::IoCause;
pub use config::ConfigError;
pub(crate) use feedwater_insight::text::{escaped, escaped_lines};
pub use location::Location;
pub use main_error::MainError;
pub(crate) use redacted::Redacted;
#[cfg(feature = "remote")]
pub(crate) use redacted::permits;
pub(crate) use shorten::{beginning, shortened};

pub(crate) mod reserve;

mod cause;
mod config;
mod location;
mod main_error;
pub(crate) mod redacted;
pub(crate) mod shorten;

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error that ends a run, grouped by who can fix it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// Invalid setting.
    Config(ConfigError),
    /// Unusable sample, where `on_error` is `error`.
    Sample(SampleError),
    /// File or directory outside the data that cannot be read or written.
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Message of the operating system.
        problem: String,
        /// Operating-system error, for callers that match its kind; `None` where feedwater found the problem itself.
        source: Option<IoCause>,
    },
    /// Hardware or library missing on this machine: no GPU, a library that is not installed.
    Unavailable {
        /// Name of the missing thing.
        what: &'static str,
        /// Where feedwater searched for it, and how to get it.
        reason: String,
        /// Setting that requires it; `None` where no setting does.
        asked: Option<Box<Asked>>,
    },
    /// Byte limit too small for one row of the footprint.
    Budget {
        /// Name of the row.
        row: String,
        /// Size of the row, in bytes.
        needed: u64,
        /// Bytes left by the limit.
        limit: u64,
    },
    /// Too little host memory: on this machine, in its cgroup or under a limit of the process.
    Memory {
        /// Needed bytes.
        needed: u64,
        /// Available bytes; `None` where the system refused an allocation of `needed` bytes.
        available: Option<u64>,
        /// Message that names what needs the memory, with a remedy.
        problem: String,
    },
    /// Loader used in a forked child process: `fork` copies no threads.
    Forked {
        /// ID of the process that built the loader.
        built_in: u32,
    },
    /// Call that the device or its driver refused.
    Device {
        /// Name of the call.
        call: &'static str,
        /// Message of the library.
        problem: String,
    },
    /// Error in an operator's CUDA code: the kernel does not compile.
    Compile {
        /// Log of the compiler.
        log: String,
    },
    /// Loader stopped by [`Stopper`](crate::loader::Stopper).
    Stopped,
    /// Unexpected end of a loader thread: a bug in this crate or in a user's operator.
    Internal {
        /// Description of what happened.
        problem: String,
    },
}

/// Setting that requires something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct Asked {
    /// Key, as in TOML: `chain[2].placement`.
    pub key: String,
    /// Location in the pipeline file; `None` where the setting is not from a file.
    pub at: Option<Location>,
}

/// Error of one sample, with its index and location.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleError {
    /// Index of the sample in its source.
    pub index: u64,
    /// Path, URL or other name of the sample.
    pub location: String,
    /// Error category, for counting.
    pub reason: Reason,
    /// Message that describes the error.
    pub problem: String,
    /// Operating-system error that caused it, if any.
    pub source: Option<IoCause>,
}

impl SampleError {
    /// Attaches a sample's index and location (path or name) to a data error.
    pub fn new(index: u64, location: impl Into<String>, error: DataError) -> Self {
        let DataError { reason, problem, source } = error;
        Self { index, location: location.into(), reason, problem, source }
    }
}

/// Error categories of samples, which are the keys of the counts in `Stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The file cannot be opened or read.
    Unreadable,
    /// The file has no bytes.
    Empty,
    /// The file ends before the image does.
    Truncated,
    /// The bytes contradict the format.
    Corrupt,
    /// No decoder supports the format, or this variant of it.
    Unsupported,
    /// The image exceeds `limits.max_pixels` or `limits.max_file_bytes`.
    Oversized,
    /// An allocation for the sample failed.
    OutOfMemory,
    /// The sample's label is not below `targets.classes`, or there is none.
    Label,
}

impl Reason {
    /// All categories.
    pub const ALL: [Reason; 8] = [
        Reason::Unreadable,
        Reason::Empty,
        Reason::Truncated,
        Reason::Corrupt,
        Reason::Unsupported,
        Reason::Oversized,
        Reason::OutOfMemory,
        Reason::Label,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Unreadable => "unreadable",
            Reason::Empty => "empty",
            Reason::Truncated => "truncated",
            Reason::Corrupt => "corrupt",
            Reason::Unsupported => "unsupported",
            Reason::Oversized => "oversized",
            Reason::OutOfMemory => "out_of_memory",
            Reason::Label => "label",
        }
    }
}

/// Kinds of damage that `decode.strict = false` tolerates, as Pillow does; the keys of the counts in `Stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tolerated {
    /// libjpeg warned of damaged data in a JPEG; a part of the image may be gray or smeared.
    JpegData,
    /// A JPEG has no end-of-image marker.
    JpegEnd,
    /// A PNG has a wrong checksum over its pixels, or damage after their data; all pixels can be decompressed.
    PngChecksum,
    /// A PNG ends after its pixels without an IEND chunk, or within the checksum of its pixels.
    PngEnd,
    /// A pixel of a PNG refers to a color outside the palette; it becomes black.
    PngPalette,
    /// A PNG has fewer rows than its header says (in an interlaced PNG: fewer rows of a pass). Missing pixels are
    /// black, or the palette's first color.
    PngRows,
}

impl Tolerated {
    /// All kinds.
    pub const ALL: [Tolerated; 6] = [
        Tolerated::JpegData,
        Tolerated::JpegEnd,
        Tolerated::PngChecksum,
        Tolerated::PngEnd,
        Tolerated::PngPalette,
        Tolerated::PngRows,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Tolerated::JpegData => "jpeg-data",
            Tolerated::JpegEnd => "jpeg-end",
            Tolerated::PngChecksum => "png-checksum",
            Tolerated::PngEnd => "png-end",
            Tolerated::PngPalette => "png-palette",
            Tolerated::PngRows => "png-rows",
        }
    }
}

/// Error in the bytes of one image, without the sample's index and location.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataError {
    /// Error category.
    pub reason: Reason,
    /// Message that describes the error.
    pub problem: String,
    /// Operating-system error that caused it, if any.
    pub source: Option<IoCause>,
}

impl DataError {
    /// Creates an error from a category and a message.
    pub fn new(reason: Reason, problem: impl Into<String>) -> Self {
        Self { reason, problem: shown(problem), source: None }
    }

    /// Converts a read error: [`Reason::OutOfMemory`] or [`Reason::Unreadable`], by the kind of `error`.
    pub fn io(error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::OutOfMemory => Reason::OutOfMemory,
            _ => Reason::Unreadable,
        };
        let source = Some(IoCause::new(error));
        Self { source, ..Self::new(reason, error.to_string()) }
    }

    /// Replaces the message.
    pub fn reworded(self, problem: impl Into<String>) -> Self {
        Self { problem: shown(problem), ..self }
    }
}

impl Error {
    /// Creates an [`Error::Config`] for an invalid setting.
    pub fn config(key: impl Into<String>, problem: impl Into<String>) -> Self {
        ConfigError::new(key, problem).into()
    }

    /// Creates an [`Error::Unavailable`] that no setting caused.
    pub(crate) fn unavailable(what: &'static str, reason: impl Into<String>) -> Self {
        Error::Unavailable { what, reason: reason.into(), asked: None }
    }

    /// Location in the pipeline file of the setting that caused the error. `None` for other errors, and where the
    /// setting is not from a file.
    pub fn location(&self) -> Option<&Location> {
        match self {
            Error::Config(error) => error.at.as_deref(),
            Error::Unavailable { asked, .. } => asked.as_ref()?.at.as_ref(),
            _ => None,
        }
    }

    /// Creates an [`Error::Io`] for a file or directory.
    pub fn io(path: impl Into<PathBuf>, source: &io::Error) -> Self {
        let path = path.into();
        // A path that is not Unicode is not a URL.
        let path = path.to_str().map(|it| Redacted::new(it).into_string().into()).unwrap_or(path);
        Error::Io { path, problem: shown(source.to_string()), source: Some(IoCause::new(source)) }
    }
}

/// Returns the text without secrets and with a bounded length.
fn shown(text: impl Into<String>) -> String {
    let text = Redacted::new(text).into_string();
    match shortened(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(short) => short,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(error) => error.fmt(f),
            Error::Sample(error) => {
                write!(
                    f,
                    "{error}; to continue without unusable samples, set loader.on_error to skip, "
                )?;
                f.write_str("substitute or drop; feedwater probe lists them all")
            }
            Error::Io { path, problem, .. } => {
                let path = Redacted::path(path).to_string();
                let problem = Redacted::new(problem).into_string();
                write!(f, "{}: {}", escaped(&shortened(&path)), escaped(&problem))
            }
            Error::Unavailable { what, reason, .. } => {
                if let Some(at) = self.location() {
                    write!(f, "{at}: ")?;
                }
                write!(f, "{what} is not available: {}", escaped(reason))
            }
            Error::Budget { row, needed, limit } => {
                let row = escaped(row);
                write!(f, "{row} needs {needed} bytes, the limit leaves {limit} bytes")
            }
            // With the rows of the footprint.
            Error::Memory { problem, .. } => f.write_str(&escaped_lines(problem)),
            Error::Forked { built_in } => write!(
                f,
                "this loader was built in process {built_in}, and fork copies no threads; build loaders in the \
                 child, after fork"
            ),
            Error::Device { call, problem } => write!(f, "{call} failed: {}", escaped(problem)),
            Error::Compile { log } => {
                write!(f, "the kernel does not compile:\n{}", escaped_lines(log))
            }
            Error::Stopped => f.write_str("the loader was stopped"),
            Error::Internal { problem } => f.write_str(&escaped(problem)),
        }
    }
}

/// [`source`](std::error::Error::source) is the [`io::Error`] behind an error of the environment or of a sample, if any.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => of(source),
            // The message of this error already contains that of the sample error.
            Error::Sample(error) => error.source(),
            _ => None,
        }
    }
}

fn of(source: &Option<IoCause>) -> Option<&(dyn std::error::Error + 'static)> {
    source.as_deref().map(|error| error as _)
}

impl From<feedwater_insight::Error> for Error {
    fn from(feedwater_insight::Error { key, problem }: feedwater_insight::Error) -> Self {
        Error::config(key, problem)
    }
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, location, reason, problem, .. } = self;
        let [location, problem] = [location, problem].map(|it| Redacted::new(it).into_string());
        let (location, problem) = (shortened(&location), escaped(&problem));
        write!(f, "{}: {} (sample {index}): {problem}", escaped(&location), reason.name())
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = Redacted::new(&self.problem).into_string();
        write!(f, "{}: {}", self.reason.name(), escaped(&problem))
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        of(&self.source)
    }
}

impl std::error::Error for SampleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        of(&self.source)
    }
}

#[cfg(test)]
mod tests;
