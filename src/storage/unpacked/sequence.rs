//! Whether files are read one after another, and what will be needed next if they are.

use super::Key;

/// Blocks one after another before what follows is taken for needed.
const STEADY: u32 = 4;
/// Blocks that a read may be before the farthest one: as many threads are not in step.
const FORWARD: u64 = 8;
/// Blocks that it may be behind it.
const BACK: u64 = 32;
/// Files that it may be before or behind it, where they are small.
const NEAR: usize = 4;
/// Files after the one that is read that are ever looked at.
const FILES: usize = 64;

/// How far reads have come in the files.
pub struct Sequence {
    /// Files there are, one after another; after the last one comes the first.
    files: usize,
    /// The farthest block that was asked for.
    front: Key,
    /// Blocks that the front went on by, one after another.
    steps: u32,
}

impl Sequence {
    /// Of this many files, none of which was read yet; 0 where nothing is known of others than the one that is read.
    pub fn new(files: usize) -> Self {
        Self { files, front: (0, 0), steps: 0 }
    }

    /// A block is asked for. Gives whether the front has moved.
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
            // A thread that still is at the end of a file before.
            return false;
        } else {
            false
        };
        self.steps = if on { self.steps.saturating_add(1) } else { 0 };
        self.front = key;
        true
    }

    /// Whether this is the farthest block that was asked for.
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

    /// Where what will be needed soon begins: after the front, and in each of the next files.
    pub fn next(&self) -> impl Iterator<Item = Key> + use<> {
        let ((file, last), files) = (self.front, self.files);
        let others = (1..=self.reach()).map(move |step| ((file + step) % files, 0));
        std::iter::once((file, last + 1)).chain(others)
    }

    /// Half of all files at most: the others have just been read.
    fn reach(&self) -> usize {
        (self.files / 2).min(FILES)
    }

    /// Files from one to another.
    fn distance(&self, from: usize, to: usize) -> Option<usize> {
        (from < self.files && to < self.files).then(|| (to + self.files - from) % self.files)
    }
}
