//! Error types, grouped by who can fix the problem.
//!
//! Messages are lower case, without a final full stop. Each names the item, its value and a remedy.
//! Messages that quote a file have a bounded length: the middle of a long message is cut. Displayed
//! errors are one line, except for a compiler's log and the entries of a footprint. File names and
//! other data may contain control characters and text direction marks, which are escaped.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

pub use cause::IoCause;
pub use config::ConfigError;
pub(crate) use feedwater_insight::text::{escaped, escaped_lines};
pub use location::Location;
pub use main_error::MainError;
pub(crate) use nearest::nearest;
pub(crate) use redacted::Redacted;
#[cfg(feature = "remote")]
pub(crate) use redacted::permits;
pub(crate) use shorten::{beginning, shortened};

pub(crate) mod reserve;

mod cause;
mod config;
mod location;
mod main_error;
mod nearest;
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
    /// Unusable sample that ends the run because `on_error` is `error`.
    Sample(SampleError),
    /// File or directory that cannot be read or written and is not a sample's data.
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Message of the operating system or of feedwater.
        problem: String,
        /// Operating-system error, so callers can match its kind. `None` if feedwater detected the
        /// problem itself.
        source: Option<IoCause>,
    },
    /// Missing hardware or library on this machine: no GPU, or a library that is not installed.
    Unavailable {
        /// Name of the missing hardware or library.
        what: &'static str,
        /// Where feedwater searched, and how to get the missing hardware or library.
        reason: String,
        /// Setting that requires the hardware or library; `None` if no setting does.
        asked: Option<Box<Asked>>,
    },
    /// Memory limit that is too small for one entry of the footprint.
    Budget {
        /// Name of the entry.
        row: String,
        /// Size of the entry, in bytes.
        needed: u64,
        /// Bytes that the limit leaves for the entry.
        limit: u64,
    },
    /// Not enough host memory on this machine, in its cgroup or within a limit of the process.
    Memory {
        /// Required memory in bytes.
        needed: u64,
        /// Available memory in bytes. `None` if the system refused an allocation of `needed` bytes.
        available: Option<u64>,
        /// Message that names the part that needs the memory, and a remedy.
        problem: String,
    },
    /// Loader that is used in a forked child process. It cannot run there, because `fork` copies no
    /// threads.
    Forked {
        /// ID of the process that built the loader.
        built_in: u32,
    },
    /// Call of CUDA, nvJPEG or another device library that failed.
    Device {
        /// Name of the call.
        call: &'static str,
        /// Error message of the library.
        problem: String,
    },
    /// CUDA code of an operator that does not compile.
    Compile {
        /// Log of the CUDA compiler.
        log: String,
    },
    /// Loader that a [`StopHandle`](crate::loader::StopHandle) stopped.
    Stopped,
    /// Unexpected end of a loader thread, which is a bug in this crate or in a user's operator.
    Internal {
        /// Description of what happened.
        problem: String,
    },
}

/// Setting that requires missing hardware or a missing library.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct Asked {
    /// Key of the setting as in TOML, such as `chain[2].placement`.
    pub key: String,
    /// Location of the setting in the pipeline file; `None` if it is not from a file.
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
    /// Operating-system error that caused this error, if any.
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
    /// The file is 0 bytes long.
    Empty,
    /// The file ends before the image does.
    Truncated,
    /// The bytes contradict the format.
    Corrupt,
    /// No decoder supports the format or this variant of the format.
    Unsupported,
    /// The image exceeds `limits.max_pixels` or `limits.max_file_bytes`.
    Oversized,
    /// An allocation for the sample failed.
    OutOfMemory,
    /// The sample has no label, or its label is not below `targets.classes`.
    Label,
    /// A field of the sample is missing, or does not fit its column.
    Field,
    /// The value of a field is longer than its column's `max_len`.
    TooLong,
}

impl Reason {
    /// All categories.
    pub const ALL: [Reason; 10] = [
        Reason::Unreadable,
        Reason::Empty,
        Reason::Truncated,
        Reason::Corrupt,
        Reason::Unsupported,
        Reason::Oversized,
        Reason::OutOfMemory,
        Reason::Label,
        Reason::Field,
        Reason::TooLong,
    ];

    /// Name of the category in reports.
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
            Reason::Field => "field",
            Reason::TooLong => "too_long",
        }
    }
}

/// Kinds of damage that `decode.strict = false` tolerates, as Pillow does. They are the keys of the
/// counts in `Stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tolerated {
    /// libjpeg reports damaged data in a JPEG. A part of the image may be gray or smeared.
    JpegData,
    /// A JPEG has no end-of-image marker.
    JpegEnd,
    /// A PNG has a wrong checksum of its pixel data, or damage after this data. All pixels can be
    /// decompressed.
    PngChecksum,
    /// A PNG ends after its pixel data without an IEND chunk, or within the checksum of its pixel
    /// data.
    PngEnd,
    /// A pixel of a PNG refers to a color outside the palette. The pixel becomes black.
    PngPalette,
    /// A PNG has fewer rows than its header states, or an interlaced PNG has fewer rows in a pass.
    /// Missing pixels are black or have the palette's first color.
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

    /// Name of the kind of damage in reports.
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
    /// Operating-system error that caused this error, if any.
    pub source: Option<IoCause>,
}

impl DataError {
    /// Creates an error from a category and a message.
    pub fn new(reason: Reason, problem: impl Into<String>) -> Self {
        Self { reason, problem: shown(problem), source: None }
    }

    /// Converts a read error. The reason is [`Reason::OutOfMemory`] or [`Reason::Unreadable`],
    /// depending on the kind of `error`.
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

    /// Creates an [`Error::Unavailable`] for hardware or a library that no setting requires.
    pub(crate) fn unavailable(what: &'static str, reason: impl Into<String>) -> Self {
        Error::Unavailable { what, reason: reason.into(), asked: None }
    }

    /// Returns where the pipeline file contains the setting that caused the error. Returns `None`
    /// for errors that no setting caused, and for settings that are not from a file.
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
        // A path that is not Unicode is not a URL, so it contains no secrets to redact.
        let path = path.to_str().map(|it| Redacted::new(it).into_string().into()).unwrap_or(path);
        Error::Io { path, problem: shown(source.to_string()), source: Some(IoCause::new(source)) }
    }
}

/// Returns the text with secrets redacted and with a bounded length.
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
                f.write_str("substitute or drop")?;
                // The command does not read fields.
                match error.reason {
                    Reason::Field | Reason::TooLong => Ok(()),
                    _ => f.write_str("; feedwater probe lists them all"),
                }
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
                write!(
                    f,
                    "{row} needs {needed} bytes, but the memory limit leaves only {limit} bytes"
                )
            }
            // `problem` contains the footprint, one entry per line.
            Error::Memory { problem, .. } => f.write_str(&escaped_lines(problem)),
            Error::Forked { built_in } => write!(
                f,
                "this loader was built in process {built_in}, and its threads do not exist in a \
                 forked process; build loaders in the child process, after fork"
            ),
            Error::Device { call, problem } => write!(f, "{call} failed: {}", escaped(problem)),
            Error::Compile { log } => {
                write!(f, "the kernel does not compile:\n{}", escaped_lines(log))
            }
            Error::Stopped => {
                f.write_str("the loader was stopped or closed, so it delivers nothing more")
            }
            Error::Internal { problem } => f.write_str(&escaped(problem)),
        }
    }
}

/// [`source`](std::error::Error::source) returns the [`io::Error`] that caused the error, if any.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => of(source),
            // The message of this error already contains the sample error's message, so the sample
            // error is not returned as the source.
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
