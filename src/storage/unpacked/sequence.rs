//! Detects sequential reads, and the blocks that they will need next.

use super::Key;

/// Number of consecutive steps of the front (the farthest block requested so far) after which reads
/// count as sequential.
const STEADY: u32 = 4;
/// Number of blocks by which a read may be ahead of the front (the farthest block requested so
/// far), because threads do not progress equally.
const FORWARD: u64 = 8;
/// Number of blocks by which a read may be behind the front (the farthest block requested so far).
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
    /// Farthest block that was requested so far, called the front.
    front: Key,
    /// Number of consecutive requests that advanced the front.
    steps: u32,
}

impl Sequence {
    /// Creates the progress for `files` unread files. `files` is 0 if only the file that is being
    /// read is known.
    pub fn new(files: usize) -> Self {
        Self { files, front: (0, 0), steps: 0 }
    }

    /// Records a request for a block. Returns whether the front (the farthest block requested so
    /// far) has moved.
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

    /// Whether `key` is the front, the farthest block requested so far.
    #[cfg(test)]
    pub fn is_front(&self, key: Key) -> bool {
        self.front == key
    }

    /// Whether reads are sequential and will soon need a block.
    pub fn is_ahead(&self, (number, block): Key) -> bool {
        let (file, last) = self.front;
        self.steps >= STEADY
            && match number == file {
                true => block > last,
                false => self.distance(file, number).is_some_and(|it| it <= self.reach()),
            }
    }

    /// Returns the blocks from which data will be needed soon: the block after the farthest
    /// requested block, and the first block of each of the next files.
    pub fn next(&self) -> impl Iterator<Item = Key> + use<> {
        let ((file, last), files) = (self.front, self.files);
        let others = (1..=self.reach()).map(move |step| ((file + step) % files, 0));
        std::iter::once((file, last + 1)).chain(others)
    }

    /// Number of next files that will be needed soon. It is at most half of all files, because
    /// reads are cyclic and the other half has just been read.
    fn reach(&self) -> usize {
        (self.files / 2).min(FILES)
    }

    /// Number of files by which `to` is after `from` in the cyclic sequence.
    fn distance(&self, from: usize, to: usize) -> Option<usize> {
        (from < self.files && to < self.files).then(|| (to + self.files - from) % self.files)
    }
}
