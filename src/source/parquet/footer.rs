//! Parses the footer of a file (`parquet.thrift` of parquet-format): columns, row groups, and the
//! writer's key-value metadata.

use super::codec::Codec;
use super::thrift::{Kind, Malformed, Thrift};
use super::{FileError, Shard};
use crate::footprint::counted;

/// Longest footer, in bytes.
const MOST_BYTES: u64 = 256 << 20;
/// Deepest nesting of column groups.
pub const DEPTH: usize = 32;
/// Largest total size of the paths of all columns, in bytes. A path includes the names of all
/// groups that contain the column.
const MOST_NAME_BYTES: usize = 16 << 20;
/// Last bytes of the file, directly after the length of the footer.
const MAGIC: &[u8; 4] = b"PAR1";
const ENCRYPTED: &[u8; 4] = b"PARE";

/// Contents of the footer.
pub struct Footer {
    pub leaves: Vec<Leaf>,
    pub groups: Vec<Group>,
    /// JSON text that the metadata contains under the key `huggingface`.
    pub features: Option<String>,
}

/// Column that has values: a leaf of the tree of columns.
pub struct Leaf {
    /// Path of the column: the names from the root of the tree, joined by dots.
    pub path: String,
    pub form: PhysicalType,
    /// Whether the integers of the column are unsigned.
    pub unsigned: bool,
    /// Whether the bytes of the column are declared as text.
    pub text: bool,
    /// Definition level of a non-null value.
    pub defined: u32,
    /// Whether a row may have several values.
    pub repeated: bool,
}

/// Physical type. Types that neither images nor labels have are `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysicalType {
    Bool,
    Int32,
    Int64,
    Float,
    Double,
    Bytes,
    Other,
}

/// Row group: rows whose columns are stored together.
pub struct Group {
    pub rows: u64,
    /// One chunk per leaf.
    pub chunks: Vec<Chunk>,
}

/// Values of one column in a row group.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub codec: Codec,
    /// Start and end of the chunk's bytes in the file.
    pub start: u64,
    pub end: u64,
    /// Number of values including nulls, if the file states it.
    pub values: Option<u64>,
    /// Number of null values, if the file states it.
    pub nulls: Option<u64>,
}

impl Footer {
    /// Reads the footer at the end of a file.
    pub fn read(shard: &Shard) -> Result<Self, FileError> {
        let (bytes, start) = Self::bytes(shard)?;
        Self::parse(&bytes, start)
    }

    /// Reads the bytes of the footer. Also returns their offset in the file.
    pub fn bytes(shard: &Shard) -> Result<(Vec<u8>, u64), FileError> {
        let len = shard.stamp.len;
        let not = |what: &str| {
            FileError::corrupt(len.saturating_sub(8), format!("{what}; copy it again"))
        };
        if len < 12 {
            return Err(not(&format!(
                "the file has only {len} bytes: it is not a Parquet file, or is truncated"
            )));
        }
        let mut tail = [0; 8];
        shard.read(&mut tail, len - 8)?;
        let (size, magic) = tail.split_at(4);
        if magic == ENCRYPTED {
            let problem = "the file is encrypted; write it without encryption";
            return Err(FileError::unsupported(len - 4, problem));
        }
        if magic != MAGIC {
            return Err(not(
                "the file does not end with PAR1: it is not a Parquet file, or is truncated",
            ));
        }
        let size = u64::from(u32::from_le_bytes(size.try_into().expect("4 bytes")));
        if size > len - 12 {
            return Err(not(&format!(
                "the length of the metadata is {size} bytes, which is more than the file has: \
                 the file is damaged"
            )));
        }
        if size > MOST_BYTES {
            let problem = format!(
                "the metadata has {size} bytes; the maximum is {MOST_BYTES} bytes; write fewer \
                 rows or columns per file"
            );
            return Err(FileError::unsupported(len - 8, problem));
        }
        let start = len - 8 - size;
        let mut bytes = vec![0; size as usize];
        shard.read(&mut bytes, start)?;
        Ok((bytes, start))
    }

    /// Parses a footer whose first byte is at offset `start` of the file.
    pub fn parse(bytes: &[u8], start: u64) -> Result<Self, FileError> {
        parse(bytes, start)
    }

    /// Returns the leaf with this path, or with the field `bytes` of this path.
    pub fn leaf(&self, path: &str) -> Option<usize> {
        let find = |path: &str| self.leaves.iter().position(|leaf| leaf.path == path);
        find(path).or_else(|| find(&format!("{path}.bytes")))
    }

    /// Lists the columns that a setting can name, for messages.
    pub fn paths(&self, fits: impl Fn(&Leaf) -> bool) -> String {
        let fitting = self.leaves.iter().filter(|leaf| fits(leaf) && !leaf.repeated);
        let paths: Vec<_> = fitting.take(32).map(|leaf| leaf.path.as_str()).collect();
        if paths.is_empty() { "the file has none that fits".into() } else { paths.join(", ") }
    }

    /// Class names of a column, if it has Hugging Face's type `ClassLabel`.
    pub fn classes(&self, column: &str) -> Vec<String> {
        let names = || -> Option<Vec<String>> {
            let json: serde_json::Value = serde_json::from_str(self.features.as_deref()?).ok()?;
            let feature = json.get("info")?.get("features")?.get(column)?;
            let names = feature.get("names")?.as_array()?;
            names.iter().map(|name| name.as_str().map(String::from)).collect()
        };
        names().unwrap_or_default()
    }
}

fn parse(bytes: &[u8], start: u64) -> Result<Footer, FileError> {
    let malformed = |bad: Malformed| {
        let problem = "the metadata cannot be read here: the file is damaged; copy it again";
        FileError::corrupt(start + bad.at as u64, problem)
    };
    let mut footer = Footer { leaves: Vec::new(), groups: Vec::new(), features: None };
    // The schema usually precedes the row groups, but this is not guaranteed. Row groups cannot be
    // parsed without it, so a first pass parses the schema only.
    let mut leaves = None;
    Thrift::new(bytes)
        .fields(|thrift, id, kind| match (id, kind) {
            (2, Kind::List) => schema(thrift).map(|it| leaves = Some(it)).map(|()| true),
            (5, Kind::List) => features(thrift, &mut footer.features).map(|()| true),
            _ => Ok(false),
        })
        .map_err(malformed)?;
    footer.leaves = leaves.unwrap_or_default();
    let mut wrong = None;
    Thrift::new(bytes)
        .fields(|thrift, id, kind| {
            if (id, kind) != (4, Kind::List) {
                return Ok(false);
            }
            let (kind, len) = thrift.list()?;
            for _ in 0..len {
                let at = thrift.at();
                let group = group(thrift, kind, footer.leaves.len())?;
                match group.and_then(|group| group.check(start)) {
                    Ok(group) => footer.groups.push(group),
                    Err(problem) => {
                        wrong = Some((at, problem));
                        return Err(Malformed { at, cut: false });
                    }
                }
            }
            Ok(true)
        })
        .map_err(|bad| match wrong {
            Some((at, problem)) => FileError::corrupt(start + at as u64, problem),
            None => malformed(bad),
        })?;
    Ok(footer)
}

/// Parses the tree of columns, which is stored depth first, and returns its leaves.
fn schema(thrift: &mut Thrift) -> Result<Vec<Leaf>, Malformed> {
    struct Open {
        path: String,
        left: u64,
        defined: u32,
        repeated: bool,
    }
    let (element, len) = thrift.list()?;
    let (mut leaves, mut open, mut name_bytes) = (Vec::new(), Vec::<Open>::new(), 0);
    for number in 0..len {
        let bad = Malformed { at: thrift.at(), cut: false };
        let (mut form, mut repetition, mut name, mut children) =
            (PhysicalType::Other, 0, &b""[..], 0);
        let (mut unsigned, mut text) = (false, false);
        if element != Kind::Struct {
            return Err(bad);
        }
        thrift.fields(|thrift, id, kind| {
            match (id, kind) {
                (1, Kind::Integer) => form = PhysicalType::of(thrift.integer()?),
                (3, Kind::Integer) => repetition = thrift.integer()?,
                (4, Kind::Binary) => name = thrift.binary()?,
                (5, Kind::Integer) => children = thrift.integer()?,
                // `UINT_8` to `UINT_64` are legacy converted types. Newer writers may only set the
                // logical type.
                (6, Kind::Integer) => {
                    let converted = thrift.integer()?;
                    unsigned |= matches!(converted, 11..=14);
                    text |= converted == 0;
                }
                (10, Kind::Struct) => {
                    let logical = logical_type(thrift)?;
                    unsigned |= logical.0;
                    text |= logical.1;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let children = u64::try_from(children).map_err(|_| bad)?;
        if number == 0 {
            open.push(Open { path: String::new(), left: children, defined: 0, repeated: false });
            continue;
        }
        while open.last().is_some_and(|group| group.left == 0) {
            open.pop();
        }
        let group = open.last_mut().ok_or(bad)?;
        group.left -= 1;
        name_bytes += group.path.len() + name.len();
        if name_bytes > MOST_NAME_BYTES {
            return Err(bad);
        }
        let name = String::from_utf8_lossy(name);
        let path =
            if group.path.is_empty() { name.into() } else { format!("{}.{name}", group.path) };
        let defined = group.defined + u32::from(repetition != 0);
        let repeated = group.repeated || repetition == 2;
        if children == 0 {
            leaves.push(Leaf { path, form, unsigned, text, defined, repeated });
        } else if open.len() == DEPTH {
            return Err(bad);
        } else {
            open.push(Open { path, left: children, defined, repeated });
        }
    }
    Ok(leaves)
}

impl PhysicalType {
    fn of(number: i64) -> Self {
        match number {
            0 => Self::Bool,
            1 => Self::Int32,
            2 => Self::Int64,
            4 => Self::Float,
            5 => Self::Double,
            6 => Self::Bytes,
            _ => Self::Other,
        }
    }
}

/// Returns whether a logical type is an unsigned integer, and whether it is text.
fn logical_type(thrift: &mut Thrift) -> Result<(bool, bool), Malformed> {
    let (mut unsigned, mut text) = (false, false);
    thrift.fields(|thrift, id, kind| {
        text |= (id, kind) == (1, Kind::Struct);
        if (id, kind) != (10, Kind::Struct) {
            return Ok(false);
        }
        thrift.fields(|_, id, kind| {
            unsigned |= (id, kind) == (2, Kind::Bool(false));
            Ok(false)
        })?;
        Ok(true)
    })?;
    Ok((unsigned, text))
}

/// Parses the value of the metadata key `huggingface`.
fn features(thrift: &mut Thrift, found: &mut Option<String>) -> Result<(), Malformed> {
    let (element, len) = thrift.list()?;
    for _ in 0..len {
        let (mut key, mut value) = (&b""[..], None);
        if element != Kind::Struct {
            return Err(Malformed { at: thrift.at(), cut: false });
        }
        thrift.fields(|thrift, id, kind| {
            match (id, kind) {
                (1, Kind::Binary) => key = thrift.binary()?,
                (2, Kind::Binary) => value = Some(thrift.binary()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if key == b"huggingface" {
            *found = value.map(|text| String::from_utf8_lossy(text).into_owned());
        }
    }
    Ok(())
}

/// Parses a row group. The outer error means that the bytes are malformed, the inner error that
/// their contents are invalid.
fn group(
    thrift: &mut Thrift,
    kind: Kind,
    leaves: usize,
) -> Result<Result<Group, String>, Malformed> {
    let (mut rows, mut chunks) = (-1, Vec::new());
    let mut problem = None;
    if kind != Kind::Struct {
        return Err(Malformed { at: thrift.at(), cut: false });
    }
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (1, Kind::List) => {
                let (kind, len) = thrift.list()?;
                for _ in 0..len {
                    if kind != Kind::Struct {
                        return Err(Malformed { at: thrift.at(), cut: false });
                    }
                    match chunk(thrift)? {
                        Ok(chunk) => chunks.push(chunk),
                        Err(words) => problem = Some(words),
                    }
                }
            }
            (3, Kind::Integer) => rows = thrift.integer()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if let Some(problem) = problem {
        return Ok(Err(problem));
    }
    let Ok(rows) = u64::try_from(rows) else {
        return Ok(Err("a row group without a number of rows: the file is damaged".into()));
    };
    if chunks.len() != leaves {
        let problem = format!(
            "a row group has {}, but the schema has {leaves} columns: the file is damaged",
            counted(chunks.len(), "column")
        );
        return Ok(Err(problem));
    }
    Ok(Ok(Group { rows, chunks }))
}

impl Group {
    /// Checks that all chunks of the group end before offset `end`.
    fn check(self, end: u64) -> Result<Self, String> {
        match self.chunks.iter().find(|chunk| chunk.start > chunk.end || chunk.end > end) {
            None => Ok(self),
            Some(Chunk { start, end: last, .. }) => Err(format!(
                "a column lies in bytes {start} to {last}, but the metadata begins at byte {end}: \
                 the file is damaged"
            )),
        }
    }
}

fn chunk(thrift: &mut Thrift) -> Result<Result<Chunk, String>, Malformed> {
    let mut elsewhere = false;
    let mut meta = None;
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (1, Kind::Binary) => elsewhere = !thrift.binary()?.is_empty(),
            (3, Kind::Struct) => meta = Some(chunk_meta(thrift)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(match meta {
        _ if elsewhere => Err("the column is in another file; write whole files".into()),
        None => Err("a column without metadata: it is encrypted, or the file is damaged".into()),
        Some(meta) => meta,
    })
}

fn chunk_meta(thrift: &mut Thrift) -> Result<Result<Chunk, String>, Malformed> {
    let (mut codec, mut bytes, mut data, mut dictionary) = (-1, -1, -1, 0);
    let (mut values, mut nulls) = (None, None);
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (4, Kind::Integer) => codec = thrift.integer()?,
            (5, Kind::Integer) => values = u64::try_from(thrift.integer()?).ok(),
            (7, Kind::Integer) => bytes = thrift.integer()?,
            (9, Kind::Integer) => data = thrift.integer()?,
            (11, Kind::Integer) => dictionary = thrift.integer()?,
            (12, Kind::Struct) => thrift.fields(|thrift, id, kind| {
                if (id, kind) != (3, Kind::Integer) {
                    return Ok(false);
                }
                nulls = u64::try_from(thrift.integer()?).ok();
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Some writers store the dictionary offset 0 if there is no dictionary.
    let start = if dictionary > 0 { data.min(dictionary) } else { data };
    let place = || {
        let start = u64::try_from(start).ok()?;
        Some((start, start.checked_add(u64::try_from(bytes).ok()?)?))
    };
    Ok(match place() {
        None => Err("a column without an offset: the file is damaged".into()),
        Some((start, end)) => Ok(Chunk { codec: Codec::of(codec), start, end, values, nulls }),
    })
}
