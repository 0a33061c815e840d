//! Detects sequential reads, and the blocks that they will need next.

use super::Key;

/// Number of consecutive steps of the front (the farthest block requested so far) after which reads
/// count as sequential.
const STEADY: u32 = 4;
/// Number of blocks by which a read may be ahead of the front, because threads do not progress
/// equally.
const FORWARD: u64 = 8;
/// Number of blocks by which a read may be behind the front.
const BACK: u64 = 32;
/// Number of files by which a read may be ahead of or behind the front. Small files have few
/// blocks, so concurrent threads may read different files.
const NEAR: usize = 4;
/// Largest number of files after the front's file from which blocks are decompressed before they
/// are read.
const FILES: usize = 64;

/// Progress of the reads through the files.
pub struct Sequence {
    /// Number of files in the sequence. The last file is followed by the first.
    files: usize,
    /// The front: the farthest block that was requested so far.
    front: Key,
    /// Number of consecutive blocks by which the front has advanced.
    steps: u32,
}

impl Sequence {
    /// Creates the progress for `files` unread files. `files` is 0 if only the file that is being
    /// read is known.
    pub fn new(files: usize) -> Self {
        Self { files, front: (0, 0), steps: 0 }
    }

    /// Records a request for a block. Returns whether the front has moved.
    pub fn follow(&mut self, key: Key) -> bool {
        let ((number, block), (file, last)) = (key, self.front);
        let near = |it: Option<usize>| it.is_some_and(|it| it <= NEAR.min(self.reach()));
        let on = if number == file {
            if block <= last && last - block <= BACK {
                return false;
            }
            block > last && block - last <= FORWARD
        } else if near(self.distance(file, number)) && block <= FORWARD {
            true
        } else if near(self.distance(number, file)) && last <= FORWARD {
            // The request is from a thread that is still at the end of a previous file.
            return false;
        } else {
            false
        };
        self.steps = if on { self.steps.saturating_add(1) } else { 0 };
        self.front = key;
        true
    }

    /// Whether `key` is the front.
    #[cfg(test)]
    pub fn is_front(&self, key: Key) -> bool {
        self.front == key
    }

    /// Whether a block will be needed soon.
    pub fn is_ahead(&self, (number, block): Key) -> bool {
        let (file, last) = self.front;
        self.steps >= STEADY
            && match number == file {
                true => block > last,
                false => self.distance(file, number).is_some_and(|it| it <= self.reach()),
            }
    }

    /// Returns the starts of data that will be needed soon: the block after the front, and the
    /// first block of each of the next files.
    pub fn next(&self) -> impl Iterator<Item = Key> + use<> {
        let ((file, last), files) = (self.front, self.files);
        let others = (1..=self.reach()).map(move |step| ((file + step) % files, 0));
        std::iter::once((file, last + 1)).chain(others)
    }

    /// Number of next files that will be needed soon. It is at most half of all files, because the
    /// others have just been read.
    fn reach(&self) -> usize {
        (self.files / 2).min(FILES)
    }

    /// Number of steps in the sequence from one file to another.
    fn distance(&self, from: usize, to: usize) -> Option<usize> {
        (from < self.files && to < self.files).then(|| (to + self.files - from) % self.files)
    }
}
