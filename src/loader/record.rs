//! What is known of each sample in a batch.

use crate::error::Tolerated;
use crate::geometry::{Orientation, Roi, Size, View};
use crate::op::Trace;
use crate::plan::Route;

/// What happened at one place of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleRecord {
    /// Index in the source of the sample that stands here.
    pub index: u64,
    /// Its label; `None` where it has none.
    pub label: Option<i64>,
    /// Size of the upright image.
    pub size: Size,
    /// How the stored image was turned.
    pub orientation: Orientation,
    /// What the chain did to it.
    pub trace: Trace,
    /// How its pixels came about.
    pub outcome: Outcome,
    /// Why all its operators ran on the CPU although the plan has some on the device, where that is so: no route took
    /// it, or it did not fit into a page. The bits are those that the CPU makes without a device.
    pub cpu_fallback: Option<&'static str>,
    /// The damage that `decode.strict = false` passed over; of several sorts one. Damage outside of the decoded window may go
    /// unseen.
    pub tolerated: Option<Tolerated>,
    /// Index of the sample that should stand here and could not be used.
    pub replaces: Option<u64>,
    /// It only fills up the last batch and must not be counted again.
    pub padding: bool,
}

impl SampleRecord {
    /// Zeros, of no sample yet.
    pub(super) const SUBSTITUTED: Self = Self {
        index: 0,
        label: None,
        size: Size { width: 0, height: 0 },
        orientation: Orientation::UPRIGHT,
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
        replaces: None,
        padding: false,
    };
}

/// How the pixels of a sample came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Decoded by this route. Without a device that is [`Route::Cpu`].
    Decoded(Route),
    /// The sample could not be used; zeros stand here.
    Substituted,
}

impl Outcome {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Route::ALL.into_iter().map(Outcome::Decoded).chain([Outcome::Substituted])
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Decoded(route) => route.name(),
            Outcome::Substituted => "substituted",
        }
    }
}
