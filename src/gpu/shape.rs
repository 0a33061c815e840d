//! Grids and blocks of kernel launches.

/// Number of threads per block, as columns and rows of the output. A warp covers 32 columns, so
/// neighbouring threads write neighbouring addresses.
pub const BLOCK: (u32, u32) = (32, 8);

/// Number of threads per block of the kernel `program`.
pub const PROGRAM_THREADS: u32 = 256;

/// GPU properties on which the launch of a tiled kernel depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// Number of multiprocessors.
    pub count: u32,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_bytes: u32,
}

/// Grid and block of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of blocks: columns, rows, samples.
    pub grid: (u32, u32, u32),
    /// Number of threads per block: columns, rows.
    pub block: (u32, u32),
    /// Shared memory per block, in bytes.
    pub shared_bytes: u32,
}

/// Optimization goal for the size of the tiles of a launch. Both goals give the same result, bit
/// for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchGoal {
    /// The launch ends as soon as possible. Tiles have few rows, so there are enough blocks to
    /// occupy the whole device.
    Latency,
    /// The launch leaves most of the device to other work. Tiles have the maximum number of rows,
    /// because these tiles need the fewest instructions.
    Throughput,
}

impl Shape {
    /// Returns a launch with one thread per pixel of the output.
    pub fn pixels(count: u32, width: u32, height: u32) -> Self {
        let grid = (width.div_ceil(BLOCK.0), height.div_ceil(BLOCK.1), count);
        Self { grid, block: BLOCK, shared_bytes: 0 }
    }

    /// Returns a launch of the program kernel with `blocks` blocks for each of `count` samples.
    pub fn program(blocks: u32, count: u32) -> Self {
        Self { grid: (blocks, 1, count), block: (PROGRAM_THREADS, 1), shared_bytes: 0 }
    }

    /// Returns a launch with one block per tile.
    ///
    /// With 64 registers per thread, a multiprocessor can hold four blocks, which hide each other's
    /// latency. So the shared memory per block is a quarter of a multiprocessor's, but at least 32
    /// KiB and at most 56 KiB. With less shared memory, tiles become strips of few columns. 56 KiB
    /// suffice for a tile of a photograph.
    ///
    /// A tile is at most 112 columns wide: each warp computes 16 columns, the width of its matrix
    /// products. A tile is 16 to 112 rows high, in steps of 16 rows, the height of a product.
    /// Higher tiles need less work per sample, because two neighbouring tiles both sum the source
    /// rows at their common edge. For [`LaunchGoal::Latency`], tiles are as high as possible while
    /// the launch has at least 1.5 times as many blocks as the GPU runs at the same time.
    pub fn tiles(
        on: Multiprocessors,
        goal: LaunchGoal,
        count: u32,
        width: u32,
        height: u32,
    ) -> Self {
        let share = (on.shared_bytes / BLOCKS).saturating_sub(RESERVED_SHARED);
        let shared_bytes = (share / 1024 * 1024).clamp(32 << 10, MOST_SHARED);
        let columns = width.div_ceil(width.div_ceil(112).max(1)).next_multiple_of(16).max(16);
        let across = width.div_ceil(columns).max(1);
        let threads = 32 * (columns / 16).clamp(4, 8);
        let wanted = match goal {
            LaunchGoal::Latency => {
                (3 * BLOCKS / 2 * on.count.max(1)).div_ceil(count.max(1) * across)
            }
            LaunchGoal::Throughput => 1,
        };
        let rows = height.div_ceil(wanted).next_multiple_of(16).clamp(16, 112);
        let grid = (across, height.div_ceil(rows), count);
        Self { grid, block: (threads, 1), shared_bytes }
    }

    /// Returns the launch for an output of one pixel. Its shared memory per block is the same as
    /// that of all other tiled launches.
    pub(super) fn smallest(on: Multiprocessors) -> Self {
        Self::tiles(on, LaunchGoal::Latency, 1, 1, 1)
    }

    /// Returns the share of a multiprocessor's memory that the blocks of a tiled kernel need as
    /// shared memory, in percent. Each multiprocessor divides its memory into L1 cache and shared
    /// memory. With the driver's default division, a multiprocessor may hold fewer blocks than the
    /// registers allow.
    pub(super) fn carveout(on: Multiprocessors) -> u32 {
        let block = Self::smallest(on).shared_bytes + RESERVED_SHARED;
        let blocks = (on.shared_bytes / block).clamp(1, BLOCKS);
        (100 * blocks * block).div_ceil(on.shared_bytes.max(1)).min(100)
    }
}

/// Number of blocks of a tiled kernel that a multiprocessor holds at the same time.
const BLOCKS: u32 = 4;

/// Shared memory that CUDA reserves per block, in bytes.
const RESERVED_SHARED: u32 = 1 << 10;

/// Maximum shared memory per block of a tiled kernel, in bytes. More than 48 KiB must be requested
/// from the driver. Devices on which four blocks of this size fit into a multiprocessor accept the
/// request, because they allow 227 KiB per block (CUDA programming guide, "Compute Capabilities").
const MOST_SHARED: u32 = 56 << 10;

#[cfg(test)]
mod tests {
    use super::LaunchGoal::{Latency, Throughput};
    use super::*;

    const H200: Multiprocessors = Multiprocessors { count: 132, shared_bytes: 228 << 10 };

    #[test]
    fn for_latency_tiles_are_as_high_as_the_number_of_blocks_allows() {
        let rows = |count| Shape::tiles(H200, Latency, count, 224, 224).grid.1;
        assert_eq!([rows(1), rows(8), rows(64), rows(256), rows(10_000)], [14, 14, 7, 2, 2]);
    }

    #[test]
    fn for_throughput_tiles_have_at_most_112_rows_whatever_the_number_of_samples() {
        let rows = |count, height| Shape::tiles(H200, Throughput, count, 224, height).grid.1;
        assert_eq!([rows(1, 224), rows(16, 224), rows(10_000, 224)], [2, 2, 2]);
        assert_eq!([1, 112, 113, 336, 337].map(|height| rows(16, height)), [1, 1, 2, 3, 4]);
    }

    /// The goal must not change shared memory or threads per block, because a kernel is set up once
    /// for all its launches.
    #[test]
    fn the_goal_changes_only_the_number_of_rows_of_tiles() {
        for (count, width, height) in [(1, 1, 1), (16, 224, 224), (16, 1000, 30)] {
            let [low, high] =
                [Latency, Throughput].map(|goal| Shape::tiles(H200, goal, count, width, height));
            let grid = (high.grid.0, low.grid.1, high.grid.2);
            assert_eq!(low, Shape { grid, ..high });
            assert!(low.grid.1 >= high.grid.1);
        }
    }

    #[test]
    fn a_warp_has_sixteen_columns_of_a_tile() {
        for (width, across, threads) in [
            (1, 1, 128),
            (112, 1, 224),
            (224, 2, 224),
            (256, 3, 192),
            (299, 3, 224),
            (384, 4, 192),
            (1000, 9, 224),
        ] {
            let shape = Shape::tiles(H200, Latency, 256, width, 224);
            assert_eq!((shape.grid.0, shape.block), (across, (threads, 1)), "{width}");
        }
    }

    #[test]
    fn shared_memory_is_within_every_devices_limit() {
        let shared = |kib: u32| {
            let on = Multiprocessors { count: 40, shared_bytes: kib << 10 };
            Shape::tiles(on, Latency, 8, 224, 224).shared_bytes >> 10
        };
        assert_eq!([shared(0), shared(64), shared(164), shared(228)], [32, 32, 40, 56]);
    }

    /// Tests Turing, Ada, A100, Hopper, and a device with more shared memory than four blocks need.
    #[test]
    fn the_carveout_holds_as_many_blocks_as_fit() {
        let carveout =
            |kib: u32| Shape::carveout(Multiprocessors { count: 40, shared_bytes: kib << 10 });
        assert_eq!([64, 100, 164, 228, 456].map(carveout), [52, 99, 100, 100, 50]);
        assert_eq!(carveout(0), 100);
    }
}
