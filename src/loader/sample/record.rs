//! Records of the samples and pairs of a batch.

use crate::annotation::Objects;
use crate::decode::JpegBy;
use crate::error::Tolerated;
use crate::geometry::{BoundingBox, Mapping, Orientation, Roi, Size};
use crate::op::{Blend, Blends, Trace};
use crate::plan::{Plan, Route};
use crate::source::Source;

/// Record of one sample of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleRecord {
    /// Index of the sample in its source.
    pub index: u64,
    /// Label of the sample; `None` if it has none.
    pub label: Option<i64>,
    /// Size of the upright image, in pixels.
    pub size: Size,
    /// Rotation and mirroring of the stored image.
    pub orientation: Orientation,
    /// Factor by which the decoder reduced both sides: 1, or up to 8 with `decode.prescale`. The
    /// sides are rounded up.
    pub reduction: u32,
    /// Record of the geometric actions on the sample, such as its crop and flip.
    pub trace: Trace,
    /// Origin of the pixels: a decode route, or zeros.
    pub outcome: Outcome,
    /// Reason why the sample was processed on the CPU although the plan has operators on the
    /// device. For example, no route supported the image, or it did not fit into a page. The
    /// pixels are the same as without a device. `None` if there was no fallback.
    pub cpu_fallback: Option<&'static str>,
    /// Damage that was accepted because of `decode.strict = false`. If an image has several kinds
    /// of damage, this is one of them. Damage outside of the decoded window may not be detected.
    pub tolerated: Option<Tolerated>,
    /// Whether gray values of 16 bits were clipped to 255, because the image was decoded to a pixel
    /// format of 8 bits.
    pub clipped: bool,
    /// Decoder on the CPU, if the image is a JPEG and was not in a cache of decoded images.
    pub jpeg: Option<JpegBy>,
    /// Number of earlier places of the epoch, over all shards, that have the same sample, from 0 to
    /// `loader.repeats - 1`.
    pub repeat: u32,
    /// Index of the failed sample that this sample replaces.
    pub replaces: Option<u64>,
    /// Whether the sample is padding of the last batch and must not be counted again.
    pub padding: bool,
    /// Set of the columns whose value was cut, because it was longer than `max_len`: bit `n` stands
    /// for entry `n` of [`Settings::columns`](crate::plan::Settings::columns).
    pub truncated: u64,
    /// Set of the columns that have their default, because the sample lacks the field, like
    /// `truncated`.
    pub defaulted: u64,
}

impl SampleRecord {
    /// Record of a sample that zeros replace. This is also the initial value of every record.
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
            mapping: Mapping::NOTHING,
        },
        outcome: Outcome::Substituted,
        cpu_fallback: None,
        tolerated: None,
        clipped: false,
        jpeg: None,
        repeat: 0,
        replaces: None,
        padding: false,
        truncated: 0,
        defaulted: 0,
    };

    /// Boxes of all annotated objects of the sample, in its upright image. `source` must be the
    /// loader's source.
    #[doc(hidden)]
    pub fn upright_boxes(&self, source: &dyn Source) -> Vec<BoundingBox> {
        let (objects, frame) = (source.objects(self.index), source.canvas(self.index).frame);
        Objects::upright_boxes(&objects, frame, (self.size, self.orientation)).collect()
    }

    /// Annotated objects that are visible in the tensor, see
    /// [`Batch::objects`](crate::loader::Batch::objects). `source` and `plan` must be those of the
    /// loader, and `epoch` that of the batch.
    pub fn objects(&self, source: &dyn Source, plan: &Plan, epoch: u32) -> Objects {
        if !self.outcome.has_image() {
            return Objects::default();
        }
        let (objects, frame) = (source.objects(self.index), source.canvas(self.index).frame);
        let turned = (self.size, self.orientation);
        let boxes = || Objects::upright_boxes(&objects, frame, turned).collect();
        let drawn = (epoch, self.index, self.repeat);
        let map = plan.point_map(drawn, self.size, boxes, self.trace.mapping);
        Objects::place_by(objects, frame, turned, map)
    }
}

/// Origin of a sample's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The image was decoded by this route. Without a device, the route is [`Route::Cpu`].
    Decoded(Route),
    /// The sample failed and was replaced by zeros.
    Substituted,
    /// The sample failed and was removed from its batch. This outcome occurs only in counts,
    /// because a removed sample has no record.
    Dropped,
}

impl Outcome {
    /// All outcomes.
    pub fn all() -> impl Iterator<Item = Self> {
        Route::ALL.into_iter().map(Outcome::Decoded).chain([Outcome::Substituted, Outcome::Dropped])
    }

    /// Whether the sample has the pixels of an image, and was not replaced by zeros or dropped.
    pub(in crate::loader) const fn has_image(self) -> bool {
        matches!(self, Outcome::Decoded(_))
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Decoded(route) => route.name(),
            Outcome::Substituted => "substituted",
            Outcome::Dropped => "dropped",
        }
    }
}

/// Result of the batch operators for the two samples at the places 2k and 2k + 1 of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub(in crate::loader) outcome: PairOutcome,
    pub(in crate::loader) blends: Blends,
}

/// Whether the samples of a pair were mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PairOutcome {
    /// The batch operators drew at least one blend for this pair.
    Mixed,
    /// The batch operators drew no blend for this pair.
    Unmixed,
    /// Fewer than two samples can be mixed: one is missing at the end of the epoch, is padding of
    /// the last batch, or was replaced by zeros.
    Alone,
}

impl Pair {
    pub(in crate::loader) const UNFINISHED: Self =
        Self { outcome: PairOutcome::Alone, blends: Blends::NONE };

    /// Whether the samples were mixed.
    pub fn outcome(&self) -> PairOutcome {
        self.outcome
    }

    /// Blends that were applied to both samples of the pair, in order.
    pub fn blends(&self) -> &[Blend] {
        &self.blends
    }
}
