//! The header of a `.npy` file: what the array in it is, and where its bytes begin.
//!
//! By NumPy's own description (numpy/lib/format.py): a magic of 6 bytes, the version in two, the length of the header
//! (two bytes in version 1.0, four in 2.0 and 3.0, little endian), and a Python literal: a dictionary with `descr`,
//! `fortran_order` and `shape`. It is read here by hand; nothing in it is evaluated.

use crate::source::records::FileError;
use crate::storage::File;

/// What NumPy writes has 118 bytes, for structures some more; it refuses more than 10000 itself.
const MOST_HEADER_BYTES: u32 = 1 << 16;
/// NumPy's own limit.
const MOST_DIMENSIONS: usize = 64;
const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// An array in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Array {
    pub item: Item,
    /// Elements along each axis, the first axis being the slowest.
    pub shape: Vec<u64>,
    /// The first byte of the elements, which reach up to the end of the file.
    pub start: u64,
}

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// NumPy's letter: `u`, `i`, `f`, `b`, ...
    pub kind: u8,
    pub bytes: u64,
    /// Not of single bytes, which have no order.
    pub big_endian: bool,
}

impl Array {
    /// Reads the header. Fails where it is none, the elements are not in C's order, or the file is not as long as they.
    pub fn read(file: &File, file_len: u64) -> Result<Self, FileError> {
        let mut fixed = [0; 12];
        let unreadable = |at| move |error: std::io::Error| FileError::new(at, error.to_string());
        let held = file.read_at(&mut fixed, 0).map_err(unreadable(0))?;
        let fixed = &fixed[..held];
        if !fixed.starts_with(MAGIC) {
            return Err(FileError::new(0, not_an_array(fixed)));
        }
        let cut = |at, count: u64| {
            let problem = format!(
                "{count} bytes should be here, the file ends at {file_len}: it is cut or damaged; copy it again"
            );
            FileError::new(at, problem)
        };
        let &[major, minor] = fixed.get(6..8).and_then(|it| it.first_chunk()).ok_or_else(|| cut(6, 2))?;
        let (begin, len) = match (major, minor) {
            (1, 0) => {
                let len = fixed.get(8..10).and_then(|it| it.first_chunk());
                (10, u16::from_le_bytes(*len.ok_or_else(|| cut(8, 2))?).into())
            }
            (2 | 3, 0) => {
                let len = fixed.get(8..12).and_then(|it| it.first_chunk());
                (12, u32::from_le_bytes(*len.ok_or_else(|| cut(8, 4))?))
            }
            _ => {
                let problem = format!("version {major}.{minor} of .npy; read are 1.0, 2.0 and 3.0");
                return Err(FileError::new(6, problem));
            }
        };
        if len > MOST_HEADER_BYTES {
            let problem = format!("a header of {len} bytes, at most {MOST_HEADER_BYTES} are read");
            return Err(FileError::new(8, problem));
        }
        let start = begin + u64::from(len);
        if start > file_len {
            return Err(cut(begin, len.into()));
        }
        let mut header = vec![0; len as usize];
        file.read_exact_at(&mut header, begin).map_err(unreadable(begin))?;
        let (item, shape) = Literal { text: &header, at: 0 }.read().map_err(|wrong| {
            FileError::new(begin + wrong.offset, wrong.problem)
        })?;
        let bytes = shape.iter().try_fold(item.bytes, |bytes, &side| bytes.checked_mul(side));
        let end = bytes.and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if end == file_len => Ok(Self { item, shape, start }),
            Some(end) if end < file_len => {
                let problem = format!(
                    "{} bytes behind an array of shape {}: one array a file is read, write the others to files of \
                     their own",
                    file_len - end,
                    words(&shape)
                );
                Err(FileError::new(end, problem))
            }
            _ => {
                let FileError { problem, .. } = cut(start, bytes.unwrap_or(u64::MAX));
                Err(FileError::new(start, format!("an array of shape {}: {problem}", words(&shape))))
            }
        }
    }
}

impl Item {
    /// As NumPy writes it.
    pub fn words(self) -> String {
        let order = match (self.bytes, self.big_endian) {
            (0 | 1, _) => '|',
            (_, true) => '>',
            _ => '<',
        };
        format!("{order}{}{}", char::from(self.kind), self.bytes)
    }

    fn parse(descr: &[u8]) -> Option<Self> {
        let (order, rest) = descr.split_first()?;
        let (&kind, digits) = rest.split_first()?;
        let big_endian = match order {
            b'<' | b'|' => false,
            b'>' => true,
            _ => return None,
        };
        let digits = std::str::from_utf8(digits).ok()?;
        let plain = kind.is_ascii_alphabetic() && digits.bytes().all(|it| it.is_ascii_digit());
        let bytes = digits.parse::<u32>().ok()?.into();
        plain.then_some(Self { kind, bytes, big_endian: big_endian && bytes > 1 })
    }
}

/// A shape as Python writes it.
pub fn words(shape: &[u64]) -> String {
    let sides: Vec<String> = shape.iter().map(u64::to_string).collect();
    match &sides[..] {
        [one] => format!("({one},)"),
        _ => format!("({})", sides.join(", ")),
    }
}

fn not_an_array(start: &[u8]) -> String {
    if start.starts_with(b"PK\x03\x04") {
        return "the file is an .npz archive: write its arrays with np.save, one a file".into();
    }
    "the file is no .npy: it does not begin with its magic; write it with np.save".into()
}

/// The text of a header, up to a byte of it.
struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literal<'a> {
    fn read(mut self) -> Result<(Item, Vec<u64>), FileError> {
        let (mut item, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.takes(b'}') {
            let place = self.at;
            let twice = match self.string()? {
                b"descr" => {
                    self.expect(b':')?;
                    item.replace(self.descr()?).is_some()
                }
                b"fortran_order" => {
                    self.expect(b':')?;
                    fortran.replace(self.boolean()?).is_some()
                }
                b"shape" => {
                    self.expect(b':')?;
                    shape.replace(self.tuple()?).is_some()
                }
                _ => return Err(self.wrong(place, "a key that no array has")),
            };
            if twice {
                return Err(self.wrong(place, "a key for the second time"));
            }
            if !self.takes(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_blanks();
        if self.at < self.text.len() {
            return Err(self.wrong(self.at, "more than one dictionary"));
        }
        let (Some(item), Some(fortran), Some(shape)) = (item, fortran, shape) else {
            return Err(self.wrong(0, "a dictionary without descr, fortran_order or shape"));
        };
        // The order of an array with one axis, or with none longer than 1, is both.
        if fortran && shape.iter().filter(|&&side| side > 1).count() > 1 {
            let problem = "the array is in Fortran's order; write np.ascontiguousarray of it";
            return Err(FileError::new(0, problem));
        }
        Ok((item, shape))
    }

    fn descr(&mut self) -> Result<Item, FileError> {
        self.skip_blanks();
        let place = self.at;
        if self.text.get(place) == Some(&b'[') {
            let problem = "the elements are structures; write one field of them as an array of its own";
            return Err(FileError::new(place as u64, problem));
        }
        let descr = self.string()?;
        Item::parse(descr).ok_or_else(|| self.wrong(place, "a type that is not known"))
    }

    fn boolean(&mut self) -> Result<bool, FileError> {
        self.skip_blanks();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong(self.at, "neither True nor False"))
    }

    /// Integers in parentheses; the last comma counts only where there is one integer, which is not checked.
    fn tuple(&mut self) -> Result<Vec<u64>, FileError> {
        let mut sides = Vec::new();
        self.expect(b'(')?;
        while !self.takes(b')') {
            if sides.len() == MOST_DIMENSIONS {
                return Err(self.wrong(self.at, "more axes than an array has"));
            }
            sides.push(self.integer()?);
            if !self.takes(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(sides)
    }

    fn integer(&mut self) -> Result<u64, FileError> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|it| !it.is_ascii_digit()).unwrap_or(rest.len());
        let digits = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        let value = digits.parse().map_err(|_| self.wrong(self.at, "no length of an axis"))?;
        self.at += len;
        // Python 2 wrote long integers with a letter.
        self.at += usize::from(self.text.get(self.at) == Some(&b'L'));
        Ok(value)
    }

    /// What stands between quotes; a backslash is nothing special here, since no valid header has one.
    fn string(&mut self) -> Result<&'a [u8], FileError> {
        self.skip_blanks();
        let quote = self.text.get(self.at).filter(|it| b"'\"".contains(it));
        let Some(&quote) = quote else { return Err(self.wrong(self.at, "no string")) };
        let rest = &self.text[self.at + 1..];
        let len = memchr::memchr(quote, rest);
        let len = len.ok_or_else(|| self.wrong(self.at, "a string without an end"))?;
        self.at += len + 2;
        Ok(&rest[..len])
    }

    fn expect(&mut self, byte: u8) -> Result<(), FileError> {
        match self.takes(byte) {
            true => Ok(()),
            false => Err(self.wrong(self.at, &format!("no {:?}", char::from(byte)))),
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|it| it.is_ascii_whitespace()).count();
    }

    fn wrong(&self, at: usize, what: &str) -> FileError {
        let problem = format!(
            "{what} where the header describes the array: it is damaged; write it again with np.save"
        );
        FileError::new(at as u64, problem)
    }
}
