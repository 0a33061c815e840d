//! Order for `loader.shuffle_window`: shuffles the files, and the samples within blocks of
//! consecutive positions.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::random::{Permutation, SampleKey, SampleRng};

/// Purpose numbers of the random generators for the order. They differ from the numbers of a
/// chain's operators and of the generator that chooses replacements.
const FILES: u16 = u16::MAX - 1;
const FIRST_PASS: u16 = u16::MAX - 2;
const SECOND_PASS: u16 = u16::MAX - 3;

/// Files of a source, and `loader.shuffle_window`, the number of samples in a block.
#[derive(Debug)]
pub struct Files {
    /// Index after the last sample of each file that has samples.
    ends: Vec<u64>,
    window: u64,
}

/// Order of one epoch.
///
/// The files are concatenated in a random order. Blocks of `window` samples are permuted. Then
/// blocks that are displaced by half a window are permuted, so samples cross the borders between
/// blocks.
#[derive(Clone, Debug)]
pub struct Windows {
    /// For each file, in the epoch's order: its end position in the epoch, and the index of its
    /// first sample.
    files: Arc<[(u64, u64)]>,
    first: Blocks,
    second: Blocks,
}

/// Blocks of consecutive positions. Each block is permuted independently.
#[derive(Clone, Debug)]
struct Blocks {
    permutation: Permutation,
    /// Number of samples in the first block; 0 if the first block is as long as the others.
    begin: u64,
    window: u64,
    samples: u64,
}

impl Files {
    /// Creates the files of a source from their ends.
    pub fn new(samples: u64, file_ends: &[u64], window: u64) -> Result<Self> {
        let mut ends = file_ends.to_vec();
        let rising = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        if !rising || ends.last() != Some(&samples) {
            let problem = format!(
                "the source has {samples} samples, but the numbers that its file_ends() returns \
                 do not rise to {samples}; correct file_ends() of the source"
            );
            return Err(Error::Internal { problem });
        }
        ends.dedup();
        ends.retain(|&end| end > 0);
        Ok(Self { ends, window })
    }

    /// CRC-32C of the file ends. The checksum changes if the files change.
    pub fn checksum(&self) -> u32 {
        self.ends.iter().fold(0, |crc, end| crc32c::crc32c_append(crc, &end.to_le_bytes()))
    }

    /// Order of one epoch. Time and memory depend on the number of files, not on the number of
    /// samples.
    pub fn epoch(&self, seed: u64, epoch: u32) -> Windows {
        let permutation = |purpose: u16, len: u64| {
            let mut rng = SampleRng::new(SampleKey { seed, epoch, index: 0 }, purpose);
            let seed = u64::from(rng.bits()) << 32 | u64::from(rng.bits());
            Permutation::new(seed, epoch, len)
        };
        let count = self.ends.len() as u64;
        let order = permutation(FILES, count);
        let mut end = 0;
        let files = (0..count).map(|place| {
            let number = order.at(place) as usize;
            let begin = if number == 0 { 0 } else { self.ends[number - 1] };
            end += self.ends[number] - begin;
            (end, begin)
        });
        let files = files.collect();
        let samples = self.ends.last().copied().unwrap_or(0);
        let blocks = |purpose, begin| Blocks {
            permutation: permutation(purpose, self.window),
            begin,
            window: self.window,
            samples,
        };
        let (first, second) = (blocks(FIRST_PASS, 0), blocks(SECOND_PASS, self.window / 2));
        Windows { files, first, second }
    }
}

impl Windows {
    /// Index of the sample at `position`, found by a binary search among the files.
    pub fn at(&self, position: u64) -> u64 {
        let place = self.first.at(self.second.at(position));
        let number = self.files.partition_point(|&(end, _)| end <= place);
        let (_, sample) = self.files[number];
        let begin = if number == 0 { 0 } else { self.files[number - 1].0 };
        sample + (place - begin)
    }
}

impl Blocks {
    fn at(&self, position: u64) -> u64 {
        let (number, begin, len) = match position.checked_sub(self.begin) {
            None => (0, 0, self.begin),
            Some(beyond) => {
                let number = beyond / self.window;
                (number + 1, self.begin + number * self.window, self.window)
            }
        };
        let len = len.min(self.samples - begin);
        begin + self.permutation.block(number, len).at(position - begin)
    }
}
