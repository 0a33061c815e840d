//! Facts about the source and the machine that a plan depends on, besides chain and settings.

use crate::decode::DecodeMemory;
use crate::footprint::Available;
use crate::geometry::Size;
use crate::header::Header;

use super::{DeviceFacts, DevicePick, Environment};

/// Facts about the source and the machine that a plan depends on.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Size of the largest sample, in bytes.
    pub largest_bytes: u64,
    /// Size of the largest sample with its fields, in bytes, if the fields are prefetched with it.
    pub largest_with_fields: Option<u64>,
    /// Size of the largest image among the scanned samples.
    pub image: Size,
    /// Scanned samples. If empty, every sample is assumed to be an already decoded image of size
    /// `image`.
    pub scanned: Vec<ScannedSample>,
    /// Whether `scanned` contains all usable samples of the source.
    pub scanned_all: bool,
    /// Number of spans stored per thread for a trace. 0 without a trace.
    pub trace_spans: u64,
    /// Host memory that the source itself holds, in bytes.
    pub source_bytes: u64,
    /// Number of samples in the source.
    pub samples: u64,
    /// Number of files that hold samples. 0 if the order does not depend on files.
    pub files: u64,
    /// Number of classes that the source has names for, or 0.
    pub classes: usize,
    /// Cores that this process may use. 0 means the number that the system reports.
    pub cores: usize,
    /// Environment variables of launchers.
    pub environment: Environment,
    /// Host memory available to this process. `None` if unknown.
    pub available: Option<Available>,
    /// Whether samples are read over a network and are prefetched.
    pub remote: bool,
    /// The GPU, or why there is none.
    pub device: DeviceFacts,
    /// Chosen device, with the reason.
    pub pick: DevicePick,
}

impl Facts {
    /// Mean bytes of a file and mean rows of an image of the scanned samples. `None` if there are
    /// none.
    pub(super) fn mean_file(&self) -> Option<[f64; 2]> {
        let count = self.scanned.len() as f64;
        let bytes: f64 = self.scanned.iter().map(|it| it.file_bytes as f64).sum();
        let rows: f64 = self.scanned.iter().map(|it| f64::from(it.header.size.height)).sum();
        (count > 0.0).then(|| [bytes / count, rows / count])
    }
}

/// Sample that was scanned before the plan was made.
#[derive(Clone, Debug)]
pub struct ScannedSample {
    /// Header of the image.
    pub header: Header,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Memory for decoding the image.
    pub decode: DecodeMemory,
}
