//! Parses the header of a `.npy` file: type and shape of its array, and the offset of its elements.
//!
//! NumPy documents the format in numpy/lib/format.py: a magic number of six bytes, the version in
//! two bytes, the length of the header (two bytes in version 1.0, four in 2.0 and 3.0,
//! little-endian), and a Python dictionary literal with `descr`, `fortran_order` and `shape`. This
//! module parses the literal itself and evaluates nothing.

use super::item::Item;

/// Longest header in bytes. NumPy writes 118 bytes, more for structures, and rejects headers of
/// more than 10000 bytes.
const MOST_HEADER_BYTES: u32 = 1 << 16;
/// Largest number of dimensions in NumPy.
const MOST_DIMENSIONS: usize = 64;
/// First bytes of a file.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Array in a `.npy` file.
#[derive(Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of the elements.
    pub item: Item,
    /// Number of elements along each axis, slowest first.
    pub shape: Vec<u64>,
    /// Offset of the first element. The elements fill the rest of the file.
    pub start: u64,
}

/// Error in a `.npy` file.
#[derive(Debug, PartialEq, Eq)]
pub struct ArrayError {
    /// Offset in the file.
    pub offset: u64,
    /// Error message with a remedy.
    pub problem: String,
}

/// Fixed part of a `.npy` file before its header, with the position of the header.
pub struct Start {
    /// Offset of the header.
    pub begin: u64,
    /// Length of the header in bytes.
    pub len: u32,
    file_len: u64,
}

impl Array {
    /// Parses a file in memory. Returns the array, and the bytes of its elements.
    ///
    /// # Errors
    /// The errors of [`Start::read`] and [`Start::array`].
    pub fn parse(file: &[u8]) -> Result<(Self, &[u8]), ArrayError> {
        let start = Start::read(&file[..file.len().min(Start::BYTES)], file.len() as u64)?;
        let (begin, end) = (start.begin as usize, start.begin as usize + start.len as usize);
        let array = start.array(&file[begin..end])?;
        Ok((array, &file[end..]))
    }
}

impl Start {
    /// Number of bytes of the start. Every valid file is longer.
    pub const BYTES: usize = 12;

    /// Parses `fixed`: the first [`BYTES`](Self::BYTES) bytes of a file of `file_len` bytes, or the
    /// whole file if it is shorter.
    ///
    /// # Errors
    /// If the file is not a `.npy`, or has an unknown version, or its header is longer than the
    /// file or 64 KiB.
    pub fn read(fixed: &[u8], file_len: u64) -> Result<Self, ArrayError> {
        if !fixed.starts_with(MAGIC) {
            return Err(ArrayError::new(0, not_an_array(fixed)));
        }
        let cut = |at, count| ArrayError::cut(at, count, file_len);
        let &[major, minor] =
            fixed.get(6..8).and_then(|it| it.first_chunk()).ok_or_else(|| cut(6, 2))?;
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
                let problem = format!(
                    "the file has version {major}.{minor} of .npy; only 1.0, 2.0 and 3.0 are \
                     supported"
                );
                return Err(ArrayError::new(6, problem));
            }
        };
        if len > MOST_HEADER_BYTES {
            let problem =
                format!("the header has {len} bytes; the maximum is {MOST_HEADER_BYTES} bytes");
            return Err(ArrayError::new(8, problem));
        }
        match begin + u64::from(len) > file_len {
            true => Err(cut(begin, len.into())),
            false => Ok(Self { begin, len, file_len }),
        }
    }

    /// Parses the header, whose bytes are `header`.
    ///
    /// # Errors
    /// If the header is invalid, if the elements are not in C order, or if their length does not
    /// match the file.
    pub fn array(&self, header: &[u8]) -> Result<Array, ArrayError> {
        let (file_len, start) = (self.file_len, self.begin + u64::from(self.len));
        let (item, shape) = Literal { text: header, at: 0 }
            .read()
            .map_err(|wrong| ArrayError::new(self.begin + wrong.offset, wrong.problem))?;
        let bytes = shape.iter().try_fold(item.bytes, |bytes, &side| bytes.checked_mul(side));
        let end = bytes.and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if end == file_len => Ok(Array { item, shape, start }),
            Some(end) if end < file_len => {
                let problem = format!(
                    "{} bytes follow an array of shape {}, but only one array per file is \
                     supported; write the other arrays to separate files",
                    file_len - end,
                    words(&shape)
                );
                Err(ArrayError::new(end, problem))
            }
            _ => {
                let cut = ArrayError::cut(start, bytes.unwrap_or(u64::MAX), file_len);
                let problem = format!("the array has the shape {}: {}", words(&shape), cut.problem);
                Err(ArrayError::new(start, problem))
            }
        }
    }
}

impl ArrayError {
    fn new(offset: u64, problem: impl Into<String>) -> Self {
        Self { offset, problem: problem.into() }
    }

    /// Error for a file of `file_len` bytes that has fewer than `count` bytes from `at` on.
    fn cut(at: u64, count: u64, file_len: u64) -> Self {
        let problem = format!(
            "expected {count} bytes here, but the file ends at byte {file_len}: the file is \
             truncated or damaged; copy it again"
        );
        Self::new(at, problem)
    }
}

/// Start and header of a `.npy` file (version 1.0) with an array of this type and shape, in C
/// order. The elements follow.
pub fn head(item: Item, shape: &[u64]) -> Vec<u8> {
    const ALIGNED: usize = 64;
    let (descr, shape) = (item.words(), words(shape));
    let literal = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let len = (10 + literal.len() + 1).next_multiple_of(ALIGNED) - 10;
    let mut head = [&MAGIC[..], &[1, 0], &(len as u16).to_le_bytes()].concat();
    head.extend(format!("{literal:<width$}\n", width = len - 1).bytes());
    head
}

/// Formats a shape like Python, such as `(3,)`.
pub fn words(shape: &[u64]) -> String {
    let sides: Vec<String> = shape.iter().map(u64::to_string).collect();
    match &sides[..] {
        [one] => format!("({one},)"),
        _ => format!("({})", sides.join(", ")),
    }
}

fn not_an_array(start: &[u8]) -> String {
    if start.starts_with(b"PK\x03\x04") {
        return "the file is an .npz archive: write its arrays with np.save, one per file".into();
    }
    "the file is not a .npy: it does not begin with the magic number; write it with np.save".into()
}

/// Parser of the Python literal in a header.
struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literal<'a> {
    fn read(mut self) -> Result<(Item, Vec<u64>), ArrayError> {
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
                _ => return Err(self.wrong(place, "an unknown key")),
            };
            if twice {
                return Err(self.wrong(place, "a duplicate key"));
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
            return Err(self.wrong(0, "a dictionary with descr, fortran_order or shape missing"));
        };
        // An array with at most one axis longer than 1 has the same layout in C order and in
        // Fortran order, so it is accepted.
        if fortran && shape.iter().filter(|&&side| side > 1).count() > 1 {
            let problem = "the array is in Fortran order; convert it with np.ascontiguousarray";
            return Err(ArrayError::new(0, problem));
        }
        Ok((item, shape))
    }

    fn descr(&mut self) -> Result<Item, ArrayError> {
        self.skip_blanks();
        let place = self.at;
        if self.text.get(place) == Some(&b'[') {
            let problem =
                "the elements are structures; write one of their fields as a separate array";
            return Err(ArrayError::new(place as u64, problem));
        }
        let descr = self.string()?;
        Item::parse(descr).ok_or_else(|| match descr {
            [b'<' | b'>' | b'|' | b'=', b'M' | b'm' | b'O' | b'S' | b'U' | b'V' | b'c', ..] => {
                let name = String::from_utf8_lossy(descr);
                let problem = format!(
                    "the elements have the type {name}, but must be booleans, integers or floats; \
                     convert the array with astype before np.save"
                );
                ArrayError::new(place as u64, problem)
            }
            _ => self.wrong(place, "an unknown type"),
        })
    }

    fn boolean(&mut self) -> Result<bool, ArrayError> {
        self.skip_blanks();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong(self.at, "neither True nor False"))
    }

    /// Parses integers in parentheses. Python requires a comma after a single integer; this is not
    /// checked.
    fn tuple(&mut self) -> Result<Vec<u64>, ArrayError> {
        let mut sides = Vec::new();
        self.expect(b'(')?;
        while !self.takes(b')') {
            if sides.len() == MOST_DIMENSIONS {
                return Err(self.wrong(self.at, "too many axes"));
            }
            sides.push(self.integer()?);
            if !self.takes(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(sides)
    }

    fn integer(&mut self) -> Result<u64, ArrayError> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|it| !it.is_ascii_digit()).unwrap_or(rest.len());
        let digits = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        let value = digits.parse().map_err(|_| self.wrong(self.at, "an invalid axis length"))?;
        self.at += len;
        // Python 2 appended the letter L to long integers.
        self.at += usize::from(self.text.get(self.at) == Some(&b'L'));
        Ok(value)
    }

    /// Parses a quoted string. Backslashes are not treated as escapes, because no valid header
    /// contains one.
    fn string(&mut self) -> Result<&'a [u8], ArrayError> {
        self.skip_blanks();
        let quote = self.text.get(self.at).filter(|it| b"'\"".contains(it));
        let Some(&quote) = quote else { return Err(self.wrong(self.at, "no string")) };
        let rest = &self.text[self.at + 1..];
        let len = memchr::memchr(quote, rest);
        let len = len.ok_or_else(|| self.wrong(self.at, "a string without an end"))?;
        self.at += len + 2;
        Ok(&rest[..len])
    }

    fn expect(&mut self, byte: u8) -> Result<(), ArrayError> {
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

    fn wrong(&self, at: usize, what: &str) -> ArrayError {
        let problem = format!(
            "{what} in the header, which describes the array: the file is damaged; write it again \
             with np.save"
        );
        ArrayError::new(at as u64, problem)
    }
}
