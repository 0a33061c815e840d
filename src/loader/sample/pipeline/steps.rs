//! Steps of a sample on its way through the pipeline.

use crate::decode::DeviceFile;
use crate::header::Header;
use crate::loader::sample::reader::{Content, Sample};
use crate::random::SampleKey;

/// Sample whose bytes are in memory. Each step takes the result of the previous step, so no step
/// can be left out. Reading returns a `Read`, [`plan`](super::SamplePipeline::plan) a [`Planned`],
/// and [`admit`](super::SamplePipeline::admit) an [`Admitted`], which decoding requires.
pub(in crate::loader) struct Read<'a> {
    pub(super) key: SampleKey,
    pub(super) sample: &'a Sample,
    pub(super) bytes: &'a [u8],
}

/// Sample with its plan: window to decode and actions to run. Memory is reserved for its file and
/// tables.
pub(in crate::loader) struct Planned<'a>(pub(super) Read<'a>);

/// Planned sample whose memory is reserved.
pub(in crate::loader) struct Admitted<'a>(pub(super) &'a Planned<'a>);

/// Memory that is reserved before a sample is planned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Reserve {
    /// All memory that the CPU needs to decode the sample.
    All,
    /// Memory of the file, the tables and the masks only, because the device may decode the sample.
    Tables,
}

impl Planned<'_> {
    pub fn header(&self) -> &Header {
        &self.0.sample.header
    }

    /// Encoded bytes, or pixels if the image was decoded whole, or the segments before the coded
    /// data if the file is [on the device](Self::on_device).
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes
    }

    /// The file, if its coded data is in device memory. Then the CPU cannot decode it.
    pub fn on_device(&self) -> Option<&DeviceFile> {
        match &self.0.sample.content {
            Content::OnDevice(file) => Some(file),
            _ => None,
        }
    }

    /// Size of the encoded file or of the pixels, in bytes.
    pub fn len(&self) -> usize {
        self.on_device().map_or(self.0.bytes.len(), |file| file.file_bytes)
    }
}
