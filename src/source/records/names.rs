//! Names or keys of samples. They are stored for files from which a single name cannot be read
//! quickly: compressed files and files at URLs.

use std::ops::Range;

use super::extents::ExtentList;
use super::{Entry, StoredField, StoredFields};

/// List of names that stores common beginnings once, because neighbouring names usually differ only
/// in a few digits. Names are grouped into blocks. The first name of a block is stored completely,
/// each other name as its difference to the previous name.
#[derive(Debug, Default, PartialEq)]
pub struct Names {
    /// For each name: the number of bytes at its start that it shares with the previous name, the
    /// number of its other bytes, and these other bytes.
    text: Vec<u8>,
    /// Start of each block in the text.
    blocks: Vec<u32>,
    count: usize,
    /// The name that was added last.
    last: Vec<u8>,
}

/// Samples that a scan has found in a file.
#[derive(Debug)]
pub struct Entries {
    pub(super) list: Vec<Entry>,
    pub(super) names: Names,
    pub(super) extents: ExtentList,
    /// Names under which the samples store fields, if the format lists them.
    pub(super) fields: StoredFields,
    /// Whether several samples may have their image at the same position.
    pub(super) has_hard_links: bool,
    /// Whether the names and the extents of the samples are stored.
    keeps_names: bool,
    /// Whether samples need no image and no label.
    for_fields: bool,
}

/// Number of names per block.
const BLOCK: usize = 32;
/// Number of bytes of a name that are stored. The rest of a longer name is cut off.
const LONGEST: usize = u8::MAX as usize;
/// Largest number of bytes that a name takes in the encoded text.
pub const MOST_BYTES: usize = 2 + LONGEST;

impl Names {
    /// Adds the name of the next sample.
    fn push(&mut self, name: &[u8]) {
        let name = &name[..name.len().min(LONGEST)];
        let shared = match self.count % BLOCK {
            0 => {
                // A block begins at an offset that must fit in a `u32`. So names beyond 4 GiB of
                // text are not stored.
                let Ok(start) = u32::try_from(self.text.len()) else { return };
                self.blocks.push(start);
                0
            }
            _ => self.last.iter().zip(name).take_while(|(a, b)| a == b).count(),
        };
        // `shared` and the remaining length are at most 255, because names are cut to 255 bytes.
        self.text.extend([shared as u8, (name.len() - shared) as u8]);
        self.text.extend_from_slice(&name[shared..]);
        self.last.truncate(shared);
        self.last.extend_from_slice(&name[shared..]);
        self.count += 1;
    }

    /// Parses the result of [`bytes`](Self::bytes). Returns `None` if it is not a valid text of at
    /// most `count` names.
    pub fn read(text: Vec<u8>, count: usize) -> Option<Self> {
        let mut this = Self::default();
        let (mut rest, mut len) = (&text[..], 0);
        while !rest.is_empty() {
            if this.count % BLOCK == 0 {
                this.blocks.push(u32::try_from(text.len() - rest.len()).ok()?);
                len = 0;
            }
            let (shared, own, behind) = next(rest)?;
            if shared > len {
                return None;
            }
            len = shared + own.len();
            rest = behind;
            this.count += 1;
        }
        (this.count <= count).then_some(Self { text, ..this })
    }

    /// Frees the memory that is only needed while names are added.
    pub fn finish(&mut self) {
        self.last = Vec::new();
        self.text.shrink_to_fit();
        self.blocks.shrink_to_fit();
    }

    /// Returns the encoded names, in the form in which tables on disk contain them.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Returns the name of a sample. A name that was cut ends in an ellipsis.
    pub fn get(&self, index: usize) -> Option<String> {
        let name = self.stored(index)?;
        let end = if name.len() == LONGEST { "…" } else { "" };
        Some(format!("{}{end}", String::from_utf8_lossy(&name)))
    }

    /// Returns the name of a sample if it was not cut.
    pub fn whole(&self, index: usize) -> Option<Vec<u8>> {
        self.stored(index).filter(|name| name.len() < LONGEST)
    }

    /// Returns the bytes of a name that are stored.
    fn stored(&self, index: usize) -> Option<Vec<u8>> {
        let start = *self.blocks.get(index / BLOCK)?;
        let mut rest = self.text.get(start as usize..)?;
        let mut name = Vec::new();
        for _ in 0..=index % BLOCK {
            let (shared, own, behind) = next(rest)?;
            name.truncate(shared);
            name.extend_from_slice(own);
            rest = behind;
        }
        Some(name)
    }

    /// Returns the allocated memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.text.capacity()
            + size_of::<u32>() * self.blocks.capacity()
            + self.last.capacity()
    }
}

/// Splits the encoded text after its first name. Returns the number of bytes that the name shares
/// with the previous name, the other bytes of the name, and the rest of the text.
fn next(text: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let (&[shared, own], rest) = text.split_first_chunk()?;
    let (own, behind) = rest.split_at_checked(own.into())?;
    Some((shared.into(), own, behind))
}

impl Entries {
    /// Creates an empty list.
    pub(super) fn new(keeps_names: bool, for_fields: bool) -> Self {
        Self {
            list: Vec::new(),
            names: Names::default(),
            extents: ExtentList::default(),
            fields: StoredFields::default(),
            has_hard_links: false,
            keeps_names,
            for_fields,
        }
    }

    /// Whether only the fields of the samples will be read, so samples need no image and no label.
    pub fn is_for_fields(&self) -> bool {
        self.for_fields
    }

    /// Whether the names and the extents of the samples are stored.
    pub fn keeps_names(&self) -> bool {
        self.keeps_names
    }

    /// Adds a sample without a name and an extent, for formats whose samples have none.
    pub fn push(&mut self, entry: Entry) {
        self.list.push(entry);
    }

    /// Adds a sample that lies in the range `extent` with its fields. Samples are added in the
    /// order of the file. Either all samples of a file have names or none, which is an empty name.
    pub fn push_whole(&mut self, extent: Range<u64>, entry: Entry, name: &[u8]) {
        self.list.push(entry);
        if self.keeps_names {
            self.extents.push(extent, entry);
            if !name.is_empty() {
                self.names.push(name);
            }
        }
    }

    /// Adds a sample of a file whose samples are in any order. `extent` is the range in which the
    /// sample lies with its fields.
    pub fn push_unordered(&mut self, extent: Range<u64>, entry: Entry, name: &[u8]) {
        self.list.push(entry);
        if self.keeps_names {
            self.extents.push_unordered(extent, entry);
            self.names.push(name);
        }
    }

    /// Whether a field of a sample need not be added.
    pub fn has_field(&self, name: &str) -> bool {
        self.fields.has(name)
    }

    /// Adds a field of a sample.
    pub fn add_field(&mut self, field: StoredField) {
        self.fields.add(field);
    }

    /// Records that several samples may have their image at the same position. Their fields cannot
    /// be read then.
    pub fn set_hard_links(&mut self) {
        self.has_hard_links = true;
    }

    /// Removes all samples.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.keeps_names, self.for_fields);
    }
}

impl std::ops::Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.list
    }
}

impl std::ops::DerefMut for Entries {
    fn deref_mut(&mut self) -> &mut [Entry] {
        &mut self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_were_added() {
        let mut names = Names::default();
        let long = format!("a/{}", "long".repeat(100));
        let mut expected: Vec<String> =
            (0..100).map(|it| format!("train/{:06}.jpg", it * 7)).collect();
        expected.extend(["".into(), "b".into(), "bé".into(), "".into()]);
        expected.iter().for_each(|name| names.push(name.as_bytes()));
        names.push(long.as_bytes());
        let read = Names::read(names.bytes().to_vec(), expected.len() + 1).unwrap();
        for names in [&names, &read] {
            for (index, name) in expected.iter().enumerate() {
                assert_eq!(names.get(index).as_ref(), Some(name));
            }
            assert_eq!(names.get(expected.len()), Some(format!("{}…", &long[..LONGEST])));
            assert_eq!(names.get(expected.len() + 1), None);
        }
        // Names that differ in three digits take at most two thirds of their full length.
        let of_equal = names.bytes().len() - (2 + LONGEST) - 4 * 2 - "bbé".len();
        assert!(3 * of_equal < 2 * 100 * "train/000000.jpg".len(), "{of_equal}");
    }

    #[test]
    fn a_damaged_text_is_rejected() {
        let mut names = Names::default();
        ["abc", "abd", "b"].iter().for_each(|name| names.push(name.as_bytes()));
        let text = names.bytes().to_vec();
        assert!(Names::read(text.clone(), 3).is_some());
        assert_eq!(Names::read(text.clone(), 2), None);
        assert_eq!(Names::read(text[..text.len() - 1].to_vec(), 3), None);
        assert_eq!(
            Names::read(vec![1, 1, b'a'], 1),
            None,
            "the first name of a block shares nothing"
        );
        assert_eq!(Names::read(Vec::new(), 3).unwrap().get(0), None);
    }
}
