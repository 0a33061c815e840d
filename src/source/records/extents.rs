//! Parts of a file in which samples lie with their fields. They are stored for files that must not
//! be scanned again for fields: compressed files and files at URLs.

use std::ops::Range;

use super::Entry;
use crate::error::{DataError, Reason};

/// Stands for a sample that begins 4 GiB or more before its image.
const FAR: u32 = u32::MAX;

/// Start and end of each sample of a file. If the samples are in the order of the file, only the
/// end of the last one is stored, and each other sample ends where the next one begins.
#[derive(Debug, Default, PartialEq)]
pub struct Extents {
    /// Number of bytes from the start of each sample to its image, or [`FAR`]. For samples in
    /// another order, the number of bytes from the end of each image to the end of its sample
    /// follows. Empty if extents are not stored.
    around: Box<[u32]>,
    end: u64,
}

/// [`Extents`] to which samples are added.
#[derive(Debug, Default)]
pub struct ExtentList {
    before: Vec<u32>,
    /// Empty if the samples are in the order of the file.
    after: Vec<u32>,
    end: u64,
}

impl ExtentList {
    /// Adds a sample that lies in this range of the file with its fields, behind all samples
    /// before.
    pub fn push(&mut self, sample: Range<u64>, image: Entry) {
        let before = image.offset.saturating_sub(sample.start);
        self.before.push(u32::try_from(before).unwrap_or(FAR));
        self.end = self.end.max(sample.end);
    }

    /// Adds a sample of a file whose samples are in any order. It lies in this range, which ends
    /// less than 4 GiB after the image.
    pub fn push_unordered(&mut self, sample: Range<u64>, image: Entry) {
        self.after.push(u32::try_from(sample.end - image.end()).unwrap_or(0));
        self.push(sample, image);
    }

    /// Returns the extents of all samples that were added.
    pub fn finish(mut self) -> Extents {
        self.before.append(&mut self.after);
        Extents { around: self.before.into(), end: self.end }
    }
}

impl Extents {
    /// Creates the extents from stored values: none, or one or two for each entry. Returns `None`
    /// if a sample begins before the file.
    pub fn read(around: Box<[u32]>, end: u64, entries: &[Entry]) -> Option<Self> {
        let mut pairs = entries.iter().zip(&around);
        let lie_within = pairs.all(|(entry, &it)| it == FAR || u64::from(it) <= entry.offset);
        lie_within.then_some(Self { around, end })
    }

    /// Values that [`read`](Self::read) takes.
    pub fn stored(&self) -> (&[u32], u64) {
        (&self.around, self.end)
    }

    /// Returns the range in which a sample lies with its fields.
    ///
    /// # Errors
    ///
    /// An error if the sample begins too far before its image.
    pub fn get(&self, entries: &[Entry], number: usize) -> Result<Range<u64>, DataError> {
        let (all, after) = self.around.split_at(entries.len());
        let (before, entry) = (all[number], entries[number]);
        if before == FAR {
            let problem = format!(
                "the fields cannot be read, because the sample begins 4 GiB or more before its image at byte {}; \
                 write the image first",
                entry.offset
            );
            return Err(DataError::new(Reason::Unsupported, problem));
        }
        let end = match (all.get(number + 1), entries.get(number + 1)) {
            _ if !after.is_empty() => entry.end() + u64::from(after[number]),
            (Some(&before), Some(next)) if before != FAR => next.offset - u64::from(before),
            (Some(_), Some(next)) => next.offset,
            _ => self.end,
        };
        Ok(entry.offset - u64::from(before)..end.max(entry.end()))
    }

    /// Returns the allocated memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.around)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, len: u32) -> Entry {
        Entry { offset, label: 0, len, crc: 0 }
    }

    #[test]
    fn a_sample_ends_where_the_next_one_begins() {
        let far = u64::from(FAR) + 1000;
        let samples = [
            (0..100, entry(20, 30)),
            (160..200, entry(160, 40)),
            (200..far + 10, entry(far, 5)),
            (far + 10..far + 50, entry(far + 30, 10)),
        ];
        let entries = samples.clone().map(|(_, entry)| entry);
        let mut list = ExtentList::default();
        samples.into_iter().for_each(|(sample, entry)| list.push(sample, entry));
        let extents = list.finish();
        let (stored, end) = extents.stored();
        let extents = Extents::read(stored.into(), end, &entries).unwrap();
        assert_eq!(extents.get(&entries, 0).unwrap(), 0..160);
        assert_eq!(extents.get(&entries, 1).unwrap(), 160..far);
        assert_eq!(extents.get(&entries, 2).unwrap_err().reason, Reason::Unsupported);
        assert_eq!(extents.get(&entries, 3).unwrap(), far + 10..far + 50);
        assert_eq!(Extents::read([21].into(), 100, &entries), None, "before the file");
    }

    #[test]
    fn samples_in_any_order_have_their_own_ends() {
        let samples = [
            (500..600, entry(520, 30)),
            (100..300, entry(290, 10)),
            (600..640, entry(600, 40)),
            (0..20, entry(0, 5)),
        ];
        let entries = samples.clone().map(|(_, entry)| entry);
        let mut list = ExtentList::default();
        samples.iter().for_each(|(sample, entry)| list.push_unordered(sample.clone(), *entry));
        let extents = list.finish();
        let (stored, end) = extents.stored();
        assert_eq!(stored.len(), 2 * samples.len());
        let read = Extents::read(stored.into(), end, &entries).unwrap();
        for (number, (sample, _)) in samples.iter().enumerate() {
            assert_eq!(read.get(&entries, number).unwrap(), *sample);
        }
    }
}
