//! The records of each sample and of each pair in a batch.

use crate::annotation::Objects;
use crate::decode::JpegBy;
use crate::error::Tolerated;
use crate::geometry::{BoundingBox, Orientation, Roi, Size, View};
use crate::op::{Blend, Blends, Trace};
use crate::plan::Route;
use crate::source::Source;

/// Record of one sample of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleRecord {
    /// Index in the source of this sample.
    pub index: u64,
    /// Label of the sample; `None` if it has none.
    pub label: Option<i64>,
    /// Size of the upright image, in pixels.
    pub size: Size,
    /// How the stored image was rotated and mirrored.
    pub orientation: Orientation,
    /// Factor by which the decoder reduced both sides: 1, or up to 8 with `decode.prescale`. The sides are rounded up.
    pub reduction: u32,
    /// What the operators did to the image.
    pub trace: Trace,
    /// How the pixels were made.
    pub outcome: Outcome,
    /// Why all operators ran on the CPU although the plan has some on the device: no route supported the image, or it
    /// did not fit into a page. The pixels are the same as without a device. `None` if there was no fallback.
    pub cpu_fallback: Option<&'static str>,
    /// Damage that `decode.strict = false` accepted; one kind if there are several. Damage outside of the decoded window
    /// may go undetected.
    pub tolerated: Option<Tolerated>,
    /// What decoded it on the CPU, if it is a JPEG and was not in a cache of decoded images.
    pub jpeg: Option<JpegBy>,
    /// Number of earlier places of the epoch, over all shards, that have the same sample, from 0 to `loader.repeats - 1`.
    pub repeat: u32,
    /// Index of the sample that failed and that this one replaces.
    pub replaces: Option<u64>,
    /// Whether the sample only pads the last batch and must not be counted again.
    pub padding: bool,
}

impl SampleRecord {
    /// A record before its sample is filled in.
    pub(in crate::loader) const SUBSTITUTED: Self = Self {
        index: 0,
        label: None,
        size: Size { width: 0, height: 0 },
        orientation: Orientation::UPRIGHT,
        reduction: 1,
        trace: Trace {
            roi: Roi { x: 0, y: 0, width: 0, height: 0 },
            cropping: false,
            flipped_horizontally: false,
            flipped_vertically: false,
            view: View::NOTHING,
        },
        outcome: Outcome::Substituted,
        cpu_fallback: None,
        tolerated: None,
        jpeg: None,
        repeat: 0,
        replaces: None,
        padding: false,
    };

    /// Boxes of all annotated objects of the sample of `source`, the loader's, in its upright image.
    #[doc(hidden)]
    pub fn upright_boxes(&self, source: &dyn Source) -> Vec<BoundingBox> {
        let (objects, frame) = (source.objects(self.index), source.canvas(self.index).frame);
        Objects::upright_boxes(&objects, frame, (self.size, self.orientation)).collect()
    }

    /// Annotated objects of `source`, the loader's, that are visible in the tensor: see [`Batch::objects`](crate::loader::Batch::objects).
    pub fn objects(&self, source: &dyn Source) -> Objects {
        if !self.outcome.has_image() {
            return Objects::default();
        }
        let (objects, frame) = (source.objects(self.index), source.canvas(self.index).frame);
        Objects::place(objects, frame, (self.size, self.orientation), self.trace.view)
    }
}

/// How the pixels of a sample were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Decoded by this route. Without a device that is [`Route::Cpu`].
    Decoded(Route),
    /// The sample failed and was replaced with zeros.
    Substituted,
    /// The sample failed and was left out of its batch. Only counts have it.
    Dropped,
}

impl Outcome {
    /// All outcomes.
    pub fn all() -> impl Iterator<Item = Self> {
        Route::ALL.into_iter().map(Outcome::Decoded).chain([Outcome::Substituted, Outcome::Dropped])
    }

    /// Whether there are pixels of an image.
    pub(in crate::loader) const fn has_image(self) -> bool {
        matches!(self, Outcome::Decoded(_))
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Decoded(route) => route.name(),
            Outcome::Substituted => "substituted",
            Outcome::Dropped => "dropped",
        }
    }
}

/// What the batch stage did to the two samples at the places 2k and 2k + 1 of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub(in crate::loader) outcome: PairOutcome,
    pub(in crate::loader) blends: Blends,
}

/// Whether the samples of a pair were mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PairOutcome {
    /// The batch operators drew at least one blend.
    Mixed,
    /// The batch operators drew nothing.
    Unmixed,
    /// There is only one sample to mix, or none: the other one is missing at the end of the epoch, only pads the last
    /// batch, or was replaced with zeros.
    Alone,
}

impl Pair {
    pub(in crate::loader) const UNFINISHED: Self =
        Self { outcome: PairOutcome::Alone, blends: Blends::NONE };

    /// Whether the samples were mixed.
    pub fn outcome(&self) -> PairOutcome {
        self.outcome
    }

    /// The blends that replaced both samples, in order.
    pub fn blends(&self) -> &[Blend] {
        &self.blends
    }
}
