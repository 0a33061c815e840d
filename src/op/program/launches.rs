//! Launches of the program kernel for a group of samples.

use crate::geometry::Size;

/// Number of pixels in the tile that a thread block computes.
pub const TILE_PIXELS: u32 = 1024;

/// Number of pixels that a thread block counts for the histograms. It is larger than a tile,
/// because each block adds its whole histograms to those of the sample, which costs as much for few
/// pixels as for many.
pub const COUNTED_PIXELS: u32 = 8 * TILE_PIXELS;

/// Number of thread blocks that compute a table: one per channel.
const TABLE_BLOCKS: u32 = 3;

/// What a launch does with a pass. Twin of `Stage` in `kernels/program.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Stage {
    /// Computes the histograms of the image that the pass reads.
    Count,
    /// Computes the table of the pass's first step from the histograms.
    Table,
    /// Computes the output of the pass: an image or the tensor.
    Make,
}

/// One launch of the program kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLaunch {
    /// Number of the pass.
    pub pass: u32,
    /// What the launch does with the pass.
    pub stage: Stage,
    /// Number of thread blocks per sample.
    pub blocks: u32,
}

/// Sizes of the launches for a group of samples. Each size is the largest of all samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Size of the output of the fused kernel, which runs before the program kernel.
    pub fused: Size,
    /// For each pass: number of pixels of its output, and number of pixels that are counted for the
    /// histograms.
    passes: Vec<[u64; 2]>,
}

impl Extent {
    /// Removes all samples.
    pub fn clear(&mut self) {
        self.fused = Size::default();
        self.passes.clear();
    }

    /// Adds the samples of another group.
    pub fn add(&mut self, other: &Self) {
        self.add_fused(other.fused);
        for (number, &[pixels, counted]) in other.passes.iter().enumerate() {
            self.add_pass(number, pixels, counted);
        }
    }

    /// Adds the size of one sample's output of the fused kernel.
    pub(in crate::op) fn add_fused(&mut self, Size { width, height }: Size) {
        let largest = &mut self.fused;
        *largest = Size::new(largest.width.max(width), largest.height.max(height));
    }

    /// Adds one sample's pass: number of pixels of its output, and number of pixels that are
    /// counted for the histograms.
    pub(super) fn add_pass(&mut self, number: usize, pixels: u64, counted: u64) {
        if self.passes.len() <= number {
            self.passes.resize(number + 1, [0; 2]);
        }
        let [most_pixels, most_counted] = &mut self.passes[number];
        *most_pixels = pixels.max(*most_pixels);
        *most_counted = counted.max(*most_counted);
    }

    /// Launches of the program kernel, in order. Each launch needs the results of all thread blocks
    /// of the launch before it.
    pub fn launches(&self) -> impl Iterator<Item = ProgramLaunch> {
        let blocks = |pixels: u64, each: u32| pixels.div_ceil(each.into()) as u32;
        self.passes.iter().zip(0..).flat_map(move |(&[pixels, counted], pass)| {
            let tables = if counted > 0 { TABLE_BLOCKS } else { 0 };
            let stages = [
                (Stage::Count, blocks(counted, COUNTED_PIXELS)),
                (Stage::Table, tables),
                (Stage::Make, blocks(pixels, TILE_PIXELS)),
            ];
            let stages = stages.into_iter().filter(|&(_, blocks)| blocks > 0);
            stages.map(move |(stage, blocks)| ProgramLaunch { pass, stage, blocks })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_the_blocks_that_the_largest_sample_needs() {
        let mut extent = Extent::default();
        extent.add_pass(0, 1, 0);
        extent.add_pass(0, 1025, 0);
        let mut other = Extent::default();
        other.add_fused(Size::new(3, 9));
        other.add_pass(0, 1024, 0);
        other.add_pass(1, 7, 8193);
        extent.add(&other);
        let launch = |pass, stage, blocks| ProgramLaunch { pass, stage, blocks };
        let expected = [
            launch(0, Stage::Make, 2),
            launch(1, Stage::Count, 2),
            launch(1, Stage::Table, 3),
            launch(1, Stage::Make, 1),
        ];
        assert_eq!(extent.launches().collect::<Vec<_>>(), expected);
        extent.add_fused(Size::new(4, 2));
        assert_eq!(extent.fused, Size::new(4, 9));
        extent.clear();
        assert_eq!(extent, Extent::default());
        assert_eq!(extent.launches().count(), 0);
    }
}
