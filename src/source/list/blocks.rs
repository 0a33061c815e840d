//! Reads the text of a list in blocks of whole lines.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::str;

use memchr::memrchr;

use crate::error::{Error, Result};
use crate::storage::{self, File, Stamp, Storage};

/// Number of bytes per read. A block stays in a core's cache until its lines are parsed.
pub const BLOCK: usize = 1 << 20;

/// Longest line, in bytes.
pub const MOST_LINE_BYTES: usize = 4 << 20;

/// Byte-order mark. Some tools write it to mark a list as UTF-8.
pub const MARK: &[u8] = "\u{feff}".as_bytes();

/// Text of a list.
#[derive(Debug)]
pub struct Text {
    /// Bytes of the list, without the byte-order mark.
    pub bytes: Range<u64>,
    /// All bytes of a list that was fetched from a URL.
    pub fetched: Option<Vec<u8>>,
    /// Version of a local list when it was opened.
    pub stamp: Option<Stamp>,
}

/// Sequential reader of a list that skips the byte-order mark.
///
/// * Each call returns all whole lines that end within the next block of the file. A line that is
///   longer than a block is buffered completely, up to [`MOST_LINE_BYTES`].
/// * If the file cannot be read or is not UTF-8, the text ends and [`Blocks::finish`] returns the
///   error.
/// * If the file shrinks while it is read, only the remaining bytes are read. If the file grows,
///   only its old size is read.
pub struct Blocks<'a> {
    list: &'a Path,
    place: ListData,
    /// Size of the list, in bytes.
    len: u64,
    /// The first `filled` bytes of the buffer are the text of the list from byte `offset` on. The
    /// first `given` bytes of the buffer have been returned as lines.
    buffer: Vec<u8>,
    offset: u64,
    filled: usize,
    given: usize,
    /// Lines that [`Blocks::first_line`] has read but not consumed.
    waiting: Option<Range<usize>>,
    /// Lines that [`Read::read`] has not returned yet.
    unread: Range<usize>,
    failure: Option<Error>,
    /// Size of the byte-order mark, in bytes.
    mark: u64,
    /// Version of a local list when it was opened.
    stamp: Option<Stamp>,
}

enum ListData {
    File(File),
    /// Text of a list at a URL. The whole list is fetched with one request, which every server
    /// supports.
    Memory(Vec<u8>),
}

impl<'a> Blocks<'a> {
    /// Opens a list for reading in blocks of `block` bytes.
    pub fn open(storage: &Storage, list: &'a Path, block: usize) -> Result<Self> {
        let wrong = |error| Error::io(list, &error);
        if storage::is_url(list) {
            let bytes = storage.read(list).map_err(wrong)?;
            return Ok(Self::new(list, bytes.len() as u64, ListData::Memory(bytes), block));
        }
        let file = storage.open(list).map_err(wrong)?;
        let stamp = file.stamp().map_err(wrong)?;
        let this = Self::new(list, stamp.len, ListData::File(file), block);
        Ok(Self { stamp: Some(stamp), ..this })
    }

    fn new(list: &'a Path, len: u64, place: ListData, block: usize) -> Self {
        Self {
            list,
            place,
            len,
            buffer: vec![0; block],
            offset: 0,
            filled: 0,
            given: 0,
            waiting: None,
            unread: 0..0,
            failure: None,
            mark: 0,
            stamp: None,
        }
    }

    /// Returns one or more lines with their line ends. Only the last line of the list may lack a
    /// line end. Returns `None` at the end.
    pub fn lines(&mut self) -> Option<&str> {
        let lines = match self.waiting.take() {
            Some(lines) => lines,
            None => self.advance()?,
        };
        match str::from_utf8(&self.buffer[lines.clone()]) {
            Ok(text) => Some(text),
            Err(error) => {
                let place = self.offset + (lines.start + error.valid_up_to()) as u64;
                let problem = format!("{} is not UTF-8 at byte {place}", self.list.display());
                self.failure = Some(Error::config("source.list", problem));
                None
            }
        }
    }

    /// Returns the first line without consuming it.
    pub fn first_line(&mut self) -> &str {
        if self.waiting.is_none() {
            self.waiting = self.advance();
        }
        let lines = self.waiting.clone().map_or(&[][..], |lines| &self.buffer[lines]);
        str::from_utf8(lines).ok().and_then(|text| text.lines().next()).unwrap_or_default()
    }

    /// Ratio of the size of the list to the number of bytes returned so far.
    pub fn whole(&self) -> f64 {
        self.len as f64 / (self.offset + self.given as u64).max(1) as f64
    }

    /// Reads to the end of the list in order to detect errors. Returns where its text is.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the list cannot be read, [`Error::Config`] with the byte offset if it is
    /// not UTF-8.
    pub fn finish(mut self) -> Result<Text> {
        while self.lines().is_some() {}
        let fetched = match (self.failure, self.place) {
            (Some(error), _) => return Err(error),
            (None, ListData::Memory(text)) => Some(text),
            (None, ListData::File(_)) => None,
        };
        Ok(Text { bytes: self.mark..self.len, fetched, stamp: self.stamp })
    }

    /// Reads until at least one line is complete. Returns the range of all complete lines.
    fn advance(&mut self) -> Option<Range<usize>> {
        if self.failure.is_some() {
            return None;
        }
        self.buffer.copy_within(self.given..self.filled, 0);
        self.offset += self.given as u64;
        self.filled -= self.given;
        self.given = 0;
        loop {
            // The buffer doubles each time, so a long line is not read in small pieces.
            if self.filled > self.buffer.len() / 2 {
                let len = self.buffer.len();
                self.buffer.resize((len * 2).min(MOST_LINE_BYTES + 1).max(len), 0);
            }
            let begin = self.filled;
            let (count, over) = match self.fill() {
                Ok(read) => read,
                Err(error) => {
                    self.failure = Some(Error::io(self.list, &error));
                    return None;
                }
            };
            self.filled += count;
            let end = memrchr(b'\n', &self.buffer[begin..self.filled]).map(|at| begin + at + 1);
            self.given = match end {
                Some(end) => end,
                None if self.filled > MOST_LINE_BYTES => {
                    let (list, begin) = (self.list.display(), self.offset);
                    let problem = format!(
                        "{list} has a line of more than {MOST_LINE_BYTES} bytes at byte {begin}, \
                         so it is not a list"
                    );
                    self.failure = Some(Error::config("source.list", problem));
                    return None;
                }
                None if over => self.filled,
                None => continue,
            };
            let mark = self.offset == 0 && self.buffer[..self.given].starts_with(MARK);
            let start = if mark { MARK.len() } else { 0 };
            self.mark += start as u64;
            return (self.given > 0).then_some(start..self.given);
        }
    }

    /// Fills the rest of the buffer. Returns the number of bytes read, and whether the list has
    /// ended.
    fn fill(&mut self) -> io::Result<(usize, bool)> {
        let at = self.offset + self.filled as u64;
        let rest = self.len - at;
        let space = &mut self.buffer[self.filled..];
        let wanted = usize::try_from(rest).map_or(space.len(), |rest| rest.min(space.len()));
        let space = &mut space[..wanted];
        let count = match &self.place {
            ListData::File(file) => file.read_at(space, at)?,
            ListData::Memory(bytes) => {
                space.copy_from_slice(&bytes[at as usize..][..wanted]);
                wanted
            }
        };
        Ok((count, count < wanted || count as u64 == rest))
    }
}

/// Reads the text of the list as a stream of bytes instead of lines.
impl Read for Blocks<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            let len = self.lines().map_or(0, str::len);
            self.unread = self.given - len..self.given;
        }
        let count = out.len().min(self.unread.len());
        let end = self.unread.start + count;
        out[..count].copy_from_slice(&self.buffer[self.unread.start..end]);
        self.unread.start = end;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::{FileList, FileListSettings, ListFormat};
    use super::*;
    use crate::source::label::LabelSort;

    /// Creates a file in a temporary folder.
    fn file(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("list");
        fs::write(&path, bytes).unwrap();
        (root, path)
    }

    /// Opens a list. Returns its debug output or the error message.
    fn opened(path: &Path, format: ListFormat, labels: LabelSort, block: usize) -> String {
        let settings = FileListSettings { format, labels, ..Default::default() };
        match FileList::by_blocks(path, &settings, &Storage::default(), block, false) {
            Ok(list) => format!("{list:?}"),
            Err(error) => error.to_string(),
        }
    }

    /// Whether a message states that the text is not UTF-8 at this byte.
    fn is_invalid_at(text: &str, byte: usize) -> bool {
        let mut words = text.split(|it: char| !it.is_ascii_alphanumeric());
        text.contains("UTF-8") && words.any(|word| word == byte.to_string())
    }

    /// Reads `bytes` as a list with every block size from one byte to more than the list. Lines and
    /// results must be the same for all sizes. Invalid UTF-8 must be detected at the same byte as
    /// by the standard library.
    fn check(bytes: &[u8]) {
        let (_root, path) = file(bytes);
        let whole = str::from_utf8(bytes);
        let file = |block| Blocks::open(&Storage::default(), &path, block).unwrap();
        let memory =
            |block| Blocks::new(&path, bytes.len() as u64, ListData::Memory(bytes.to_vec()), block);
        for block in 1..=bytes.len() + 1 {
            let mut again = String::new();
            file(block).read_to_string(&mut again).unwrap();
            for mut blocks in [file(block), memory(block)] {
                let (mut text, mut begun) = (String::new(), false);
                while let Some(lines) = blocks.lines() {
                    assert!(!begun, "a line follows one without an end");
                    begun = !lines.ends_with('\n');
                    text += lines;
                }
                assert_eq!(text, again);
                match (whole, blocks.finish()) {
                    (Ok(whole), Ok(_)) => {
                        assert_eq!(text, whole.strip_prefix('\u{feff}').unwrap_or(whole));
                    }
                    (Err(error), Err(found)) => {
                        assert!(is_invalid_at(&found.to_string(), error.valid_up_to()), "{found}");
                    }
                    (whole, found) => panic!("blocks of {block}: {found:?} for {whole:?}"),
                }
            }
        }
        for format in [ListFormat::Text, ListFormat::Csv, ListFormat::Tsv, ListFormat::Jsonl] {
            for labels in [LabelSort::Auto, LabelSort::Text] {
                let expected = opened(&path, format, labels, bytes.len() + 1);
                if let Err(error) = whole {
                    assert!(is_invalid_at(&expected, error.valid_up_to()), "{expected}");
                }
                for block in 1..=bytes.len() {
                    let found = opened(&path, format, labels, block);
                    assert_eq!(found, expected, "{format:?} by blocks of {block}");
                }
            }
        }
    }

    #[test]
    fn the_block_size_does_not_change_the_list() {
        for text in [
            "",
            "\u{feff}",
            "\u{feff}\n",
            "a\n\u{feff}b\n\u{feff}",
            "\n\r\n \n",
            "a.jpg\t1\nb.jpg\t2",
            "\u{feff}tür.jpg\t12\r\n\r\n日本/写真 1.jpg\t-3\r\n😀 7\r\nalone.jpg\r",
            "a.jpg\t1\nb.jpg\tcat\nc.jpg\t3\n",
            "a\t1\r\n\n\nb 9223372036854775807\nc 9223372036854775808\n\td\n",
            "path,label\r\n\"ü, \"\"b\"\"\r\n.jpg\",katze\r\nc.jpg,日\r\n",
            "\u{feff}\u{feff}path\tlabel\n\"a\nb\"\t1\nc\t2\t3\n",
            "{\"path\": \"日\", \"label\": \"x\"}\r\n\r\n{\"path\": \"b\", \"label\": \"é\"}",
            "{\"path\": \"a\"}\n{\"path\": \r",
        ] {
            check(text.as_bytes());
        }
    }

    #[test]
    fn invalid_utf8_is_reported_with_its_byte_before_errors_in_other_lines() {
        for bytes in [
            &b"\xff"[..],
            b"\xef\xbb\xbfa.jpg\t1\nb\xff.jpg\t2\n",
            b"a\xe2\x82\nb\t1\n",
            b"a.jpg\tcat\nb.jpg\t1\nc.jpg\t2\n\xf0\x9f\x98",
            b"{\n\n\xc3",
            b"path\npath,label\n\xed\xa0\x80\n",
        ] {
            assert!(str::from_utf8(bytes).is_err());
            check(bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]
        #[test]
        fn random_lists_are_the_same_whichever_blocks_they_are_read_by(
            parts in prop::collection::vec(prop::sample::select(PARTS), 0..24),
        ) {
            check(&parts.concat());
        }
    }

    /// Fragments from which the test builds random lists. Some are not UTF-8.
    const PARTS: &[&[u8]] = &[
        b"a.jpg",
        b"b",
        b" ",
        b"\t",
        b"\t7",
        b"\t-3",
        b" 12",
        b"\tcat",
        b"\n",
        b"\n",
        b"\n",
        b"\r\n",
        b"\r\n",
        b"\r",
        b"\"",
        b",",
        b"path,label\n",
        b"path\tlabel\r\n",
        b"a,1\n",
        b"{\"path\": \"c\"}\n",
        MARK,
        "é".as_bytes(),
        "日本".as_bytes(),
        "😀".as_bytes(),
        "\u{85}".as_bytes(),
        b"\xff",
        b"\xe2\x82",
    ];

    #[test]
    fn memory_is_bounded_by_the_block_and_the_longest_line() {
        let long = "l".repeat(1000);
        for (text, most) in [("a\t1\n".repeat(1000), 64), (format!("a\n{long}\nb\n"), 4096)] {
            let (_root, path) = file(text.as_bytes());
            let mut blocks = Blocks::open(&Storage::default(), &path, 64).unwrap();
            while blocks.lines().is_some() {}
            assert!(blocks.buffer.len() <= most, "{} bytes", blocks.buffer.len());
        }
    }

    #[test]
    fn a_file_that_shrinks_ends_early_and_one_that_grows_keeps_its_size() {
        for (len, expected) in [(4, "a\nb\n"), (5, "a\nb\nc"), (9, "a\nb\nc\n")] {
            for block in 1..9 {
                let (_root, path) = file(b"a\nb\nc\n");
                let mut blocks = Blocks::open(&Storage::default(), &path, block).unwrap();
                fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
                let mut text = String::new();
                while let Some(lines) = blocks.lines() {
                    text += lines;
                }
                assert_eq!(text, expected);
                blocks.finish().unwrap();
            }
        }
    }
}
