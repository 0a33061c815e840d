//! Route `feedwater`: feedwater's own decoder in kernels. Its pixels are those of the CPU decoder.

use super::{AssumedCost, DecoderMemory, RouteSpec};
use crate::decode::{DeviceImage, DeviceRefusal, DeviceRoom, JpegParams};

/// A call has room for one image of the largest size, and for others of a quarter of it on average.
/// Most images are smaller than the largest one, and a crop needs memory for its part only.
const MEAN_DIVISOR: usize = 4;

/// Bytes of an image's problem.
pub const PROBLEM_BYTES: usize = 16;

pub(super) const SPEC: &RouteSpec = &RouteSpec {
    name: "feedwater",
    former_name: None,
    row: "feedwater decoder",
    is_own: true,
    on_device: true,
    batches: true,
    uses_worker_cpu: false,
    reduces: true,
    accepts: |header, reduction| {
        DeviceImage::check(header, reduction).map_err(DeviceRefusal::reason)
    },
    memory: |sizes| {
        let call = FeedwaterCall::new(sizes.pixels, sizes.encoded_bytes, sizes.group);
        DecoderMemory {
            device_bytes: call.tables_bytes + call.arrays_bytes,
            pinned_bytes: call.tables_bytes + call.problems_bytes + call.made_bytes,
        }
    },
    // An image of 500x375 executes about 300,000 issue cycles of one of the GPU's multiprocessors,
    // of which many decode at the same time.
    cost: AssumedCost { image: 50e-6, byte: 1e-9, pixel: 0.5e-9, window_pixel: 0.5e-9 },
};

/// Host memory for the description of an image, from the worker that makes it to the end of the
/// image's call, in bytes. The host keeps the starts of rows in 24 bytes, which are 16 in the
/// tables, and the restart markers twice.
pub(crate) const fn description_bytes(pixels: usize, encoded_bytes: usize) -> usize {
    2 * DeviceRoom::of(pixels, encoded_bytes).tables
}

/// Memory of a call of the decoder for a group of images. All sizes are multiples of 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedwaterCall {
    /// Room for the largest image.
    pub room: DeviceRoom,
    /// Offset of the images' problems in the tables. The parameters of the images precede them.
    pub problems: usize,
    /// Size of the images' problems.
    pub problems_bytes: usize,
    /// Size of the row indexes that the host reads.
    pub made_bytes: usize,
    /// Offset of the images' own tables in the tables.
    pub own_tables: usize,
    /// Size of everything that the host writes, apart from files.
    pub tables_bytes: usize,
    /// Size of the other arrays of all images, which share it.
    pub arrays_bytes: usize,
}

impl FeedwaterCall {
    /// Memory for `group` images of at most `pixels` pixels, in files of at most `encoded_bytes`.
    pub fn new(pixels: usize, encoded_bytes: usize, group: usize) -> Self {
        let room = DeviceRoom::of(pixels, encoded_bytes);
        let problems = (group * size_of::<JpegParams>()).next_multiple_of(256);
        let problems_bytes = (group * PROBLEM_BYTES).next_multiple_of(256);
        let own_tables = problems + problems_bytes;
        Self {
            room,
            problems,
            problems_bytes,
            // The index of an image is a part of its tables.
            made_bytes: group * room.tables,
            own_tables,
            tables_bytes: own_tables + group * room.tables,
            arrays_bytes: room.arrays
                + (group.saturating_sub(1) * room.arrays / MEAN_DIVISOR).next_multiple_of(256),
        }
    }
}
