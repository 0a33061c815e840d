//! Errors, sorted by who must act. Texts are lower case without a full stop and carry the noun, the value
//! and the way out. A text that quotes a file is bounded: what is in the middle of a long one is left out.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

pub use cause::IoCause;
pub use config::ConfigError;
pub use location::Location;
#[doc(hidden)]
pub use redacted::Redacted;
#[cfg(feature = "remote")]
pub(crate) use redacted::permits;

#[doc(hidden)]
pub mod reserve;

mod cause;
mod config;
mod location;
mod redacted;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by who must act.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The user wrote a setting that cannot be.
    Config(ConfigError),
    /// One sample cannot be used; obeys `on_error`.
    Sample(SampleError),
    /// The environment: a file or directory that is not part of the data.
    Io {
        /// What was being done with which file.
        path: PathBuf,
        /// The system's words.
        problem: String,
        /// The system's error, whose kind callers can match; `None` where the problem is feedwater's own.
        source: Option<IoCause>,
    },
    /// Something this machine does not have: no GPU, a library that is not installed.
    Unavailable {
        /// What is missing.
        what: &'static str,
        /// Where it was looked for, and how to get it.
        reason: String,
        /// The setting that asks for it; `None` where no setting does.
        asked: Option<Box<Asked>>,
    },
    /// A limit in bytes does not leave room for a row of the footprint.
    Budget {
        /// The row.
        row: String,
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that there are.
        limit: u64,
    },
    /// This machine, its cgroup or a limit of the process has less host memory than is needed.
    Memory {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are available; `None` where the system has refused an allocation of `needed` bytes.
        available: Option<u64>,
        /// What needs them, and the way out.
        problem: String,
    },
    /// A child process uses a loader of its parent: `fork` copies no threads.
    Forked {
        /// The process that built the loader.
        built_in: u32,
    },
    /// The device or its driver refused a call.
    Device {
        /// The call.
        call: &'static str,
        /// The library's words.
        problem: String,
    },
    /// The kernel text does not compile: a fault of an operator's CUDA text.
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// The loader was ended from outside, by [`Stopper`](crate::loader::Stopper).
    Stopped,
    /// A thread of the loader ended unexpectedly: a fault of this crate or of a user's operator.
    Internal {
        /// What happened.
        problem: String,
    },
}

/// A setting that asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct Asked {
    /// The key, as in TOML: `chain[2].placement`.
    pub key: String,
    /// Where the pipeline file says so; `None` where the setting is not from a file.
    pub at: Option<Location>,
}

/// Why one sample cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleError {
    /// Index of the sample in its source.
    pub index: u64,
    /// Path, or what stands for it.
    pub location: String,
    /// The sort of failure, for counting.
    pub reason: Reason,
    /// What is wrong, in words.
    pub problem: String,
    /// The system's error behind it, where there is one.
    pub source: Option<IoCause>,
}

impl SampleError {
    /// The fault of the sample of this index, whose path or name is `location`.
    pub fn new(index: u64, location: impl Into<String>, fault: DataError) -> Self {
        let DataError { reason, problem, source } = fault;
        Self { index, location: location.into(), reason, problem, source }
    }
}

/// The sorts of failure that a sample can have; the keys under which `Stats` counts them.
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
    /// A format, or a variant of one, that no decoder takes.
    Unsupported,
    /// Over `limits.max_pixels` or `limits.max_file_bytes`.
    Oversized,
    /// Memory that the sample needs cannot be allocated.
    OutOfMemory,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 7] = [
        Reason::Unreadable,
        Reason::Empty,
        Reason::Truncated,
        Reason::Corrupt,
        Reason::Unsupported,
        Reason::Oversized,
        Reason::OutOfMemory,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Unreadable => "unreadable",
            Reason::Empty => "empty",
            Reason::Truncated => "truncated",
            Reason::Corrupt => "corrupt",
            Reason::Unsupported => "unsupported",
            Reason::Oversized => "oversized",
            Reason::OutOfMemory => "out_of_memory",
        }
    }
}

/// The sorts of damage that `decode.strict = false` passes over, as Pillow does; the keys under which `Stats` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tolerated {
    /// libjpeg warned of damaged data in a JPEG, where a part of the image may be gray or smeared.
    JpegData,
    /// A JPEG has no end-of-image marker.
    JpegEnd,
    /// The checksum of a PNG's pixels is wrong, or what follows their data is damaged, though all pixels can be unpacked.
    PngChecksum,
    /// A PNG ends behind its pixels without an IEND chunk, or in the checksum of its pixels.
    PngEnd,
    /// A pixel of a PNG has a color beyond the palette: it becomes black.
    PngPalette,
    /// A PNG has fewer rows than its header says, or fewer rows of its passes where it is interlaced: the rest is black, or the
    /// palette's first color.
    PngRows,
}

impl Tolerated {
    /// Every sort.
    pub const ALL: [Tolerated; 6] = [
        Tolerated::JpegData,
        Tolerated::JpegEnd,
        Tolerated::PngChecksum,
        Tolerated::PngEnd,
        Tolerated::PngPalette,
        Tolerated::PngRows,
    ];

    /// The name in reports.
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

/// What is wrong with the bytes of one image, before it is known which sample it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataError {
    /// The sort of failure.
    pub reason: Reason,
    /// What is wrong, in words.
    pub problem: String,
    /// The system's error behind it, where there is one.
    pub source: Option<IoCause>,
}

impl DataError {
    /// A fault with its words.
    pub fn new(reason: Reason, problem: impl Into<String>) -> Self {
        Self { reason, problem: shown(problem), source: None }
    }

    /// A sample that the system cannot read: [`Reason::OutOfMemory`] or [`Reason::Unreadable`], by the kind of `error`.
    pub fn io(error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::OutOfMemory => Reason::OutOfMemory,
            _ => Reason::Unreadable,
        };
        let source = Some(IoCause::new(error));
        Self { source, ..Self::new(reason, error.to_string()) }
    }

    /// The same fault in other words.
    pub fn reworded(self, problem: impl Into<String>) -> Self {
        Self { problem: shown(problem), ..self }
    }
}

impl Error {
    /// A setting that cannot be.
    pub fn config(key: impl Into<String>, problem: impl Into<String>) -> Self {
        ConfigError::new(key, problem).into()
    }

    /// Something that this machine does not have and that no setting asks for.
    pub(crate) fn unavailable(what: &'static str, reason: impl Into<String>) -> Self {
        Error::Unavailable { what, reason: reason.into(), asked: None }
    }

    /// Where the pipeline file says what cannot be, or asks for what is not there; `None` where the error is of another kind
    /// or the setting is not from a file.
    pub fn location(&self) -> Option<&Location> {
        match self {
            Error::Config(error) => error.at.as_deref(),
            Error::Unavailable { asked, .. } => asked.as_ref()?.at.as_ref(),
            _ => None,
        }
    }

    /// A file or directory that cannot be used.
    pub fn io(path: impl Into<PathBuf>, source: &io::Error) -> Self {
        let path = path.into();
        // A path that is not Unicode is no URL.
        let path = path.to_str().map(|it| Redacted::new(it).into_string().into()).unwrap_or(path);
        Error::Io { path, problem: shown(source.to_string()), source: Some(IoCause::new(source)) }
    }
}

/// Most bytes of a text in an error, and how many of a longer one's first and last are kept: the noun stands in front,
/// the way out at the end.
const MOST_BYTES: usize = 4096;
const FIRST_BYTES: usize = 1024;
const LAST_BYTES: usize = 1024;

/// The text, or of a long one its beginning and its end.
#[doc(hidden)]
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_BYTES {
        return text.into();
    }
    let (first, rest) = (beginning(text, FIRST_BYTES), beginning(text, text.len() - LAST_BYTES));
    format!("{first} … ({} bytes in all) … {}", text.len(), &text[rest.len()..]).into()
}

/// The first characters of a text that take at most so many bytes.
#[doc(hidden)]
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The text of an error as it may be shown: without secrets, and of a bounded length.
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
                    "{error}; to go on without such samples set loader.on_error to skip or "
                )?;
                f.write_str("substitute; feedwater probe names all of them")
            }
            Error::Io { path, problem, .. } => {
                let path = Redacted::path(path).to_string();
                write!(f, "{}: {}", shortened(&path), Redacted::new(problem))
            }
            Error::Unavailable { what, reason, .. } => {
                if let Some(at) = self.location() {
                    write!(f, "{at}: ")?;
                }
                write!(f, "{what} is not available: {reason}")
            }
            Error::Budget { row, needed, limit } => {
                write!(f, "{row} needs {needed} bytes, the limit leaves {limit} bytes")
            }
            Error::Memory { problem, .. } => f.write_str(problem),
            Error::Forked { built_in } => write!(
                f,
                "this loader was built in process {built_in}, and fork copies none of its threads; build loaders in the \
                 child, after fork"
            ),
            Error::Device { call, problem } => write!(f, "{call} failed: {problem}"),
            Error::Compile { log } => write!(f, "the kernel does not compile:\n{log}"),
            Error::Stopped => f.write_str("the loader was stopped"),
            Error::Internal { problem } => f.write_str(problem),
        }
    }
}

/// [`source`](std::error::Error::source) is the [`io::Error`] behind an error of the environment or of a sample, where there is one.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => of(source),
            // Its own text has that of the sample's error already.
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
        let (location, problem) = (Redacted::new(location).into_string(), Redacted::new(problem));
        let location = shortened(&location);
        write!(f, "{location}: {} (sample {index}): {problem}", reason.name())
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.name(), Redacted::new(&self.problem))
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
mod tests {
    use super::*;

    #[test]
    fn texts_carry_the_noun_and_the_value() {
        let error = Error::config("chain[2].std[1]", "must be greater than 0, is 0");
        assert_eq!(error.to_string(), "chain[2].std[1]: must be greater than 0, is 0");
        let Error::Config(config) = error.clone() else { panic!("{error:?}") };
        assert_eq!(
            (config.key.as_str(), config.to_string()),
            ("chain[2].std[1]", error.to_string())
        );
        let fault = DataError::new(Reason::Truncated, "no end-of-image marker");
        let error = Error::Sample(SampleError::new(7, "data/7.jpg", fault));
        let text = error.to_string();
        assert!(
            text.starts_with("data/7.jpg: truncated (sample 7): no end-of-image marker; "),
            "{text}"
        );
    }

    #[test]
    fn an_error_that_stops_a_run_names_the_setting_and_the_command_that_help() {
        let sample = SampleError::new(0, "a.jpg", DataError::new(Reason::Empty, "no bytes"));
        let counted = sample.to_string();
        let stops = Error::Sample(sample).to_string();
        for words in ["loader.on_error", "feedwater probe"] {
            assert!(stops.contains(words) && !counted.contains(words), "{stops}");
        }
    }

    #[test]
    fn the_systems_error_is_the_source_and_has_no_secrets() {
        use std::error::Error as _;
        let kind = |error: &dyn std::error::Error| {
            error.source().unwrap().downcast_ref::<io::Error>().unwrap().kind()
        };
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        let error = Error::io("a/b", &missing);
        assert_eq!(kind(&error), io::ErrorKind::NotFound);
        assert!(
            matches!(&error, Error::Io { source: Some(it), .. } if it.raw_os_error() == Some(2))
        );
        let denied = io::Error::new(io::ErrorKind::PermissionDenied, "http://user:word@host/a");
        let fault = DataError::io(&denied);
        assert_eq!((fault.reason, kind(&fault)), (Reason::Unreadable, denied.kind()));
        let sample = SampleError::new(1, "a", fault.clone().reworded("the row names it"));
        assert_eq!((kind(&sample), sample.problem.as_str()), (denied.kind(), "the row names it"));
        let error = Error::Sample(sample);
        assert_eq!(kind(&error), denied.kind());
        assert_eq!(error.source().unwrap().to_string(), "http://***@host/a");
        assert_eq!(fault, DataError::io(&denied));
        assert_ne!(fault.source, DataError::io(&missing).source);
        let fault = DataError::io(&io::ErrorKind::OutOfMemory.into());
        assert_eq!(fault.reason, Reason::OutOfMemory);
        assert!(Error::config("a", "b").source().is_none());
        assert!(DataError::new(Reason::Empty, "no bytes").source().is_none());
    }

    #[test]
    fn a_long_text_is_kept_to_its_beginning_and_its_end() {
        let name = format!("begins {} ends", "日本".repeat(1 << 20));
        let texts = [
            Error::config("source.coco", name.clone()).to_string(),
            Error::config(name.clone(), "is wrong").to_string(),
            Error::io(&name, &io::Error::other(name.clone())).to_string(),
            DataError::new(Reason::Corrupt, name.clone()).to_string(),
        ];
        for text in texts {
            assert!(text.len() < 3 * MOST_BYTES, "{} bytes", text.len());
            assert!(text.contains("begins 日") && text.contains("本 ends"), "{text}");
        }
        assert_eq!(shortened("short"), "short");
    }
}
