//! Reads a JSON file as a stream.

use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read};
use std::marker::PhantomData;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};

use super::bounds::Tokens;
use crate::error::{Error, Result};
use crate::storage::{File, Stamp, Storage};

/// Parses a JSON file that contains one object. `key` is the setting that names the file. Returns
/// the version of the file.
///
/// # Errors
///
/// [`Error::Io`] if the file cannot be read, [`Error::Config`] if it is invalid.
pub fn parse<'de>(
    key: &str,
    json: &Path,
    storage: &Storage,
    document: impl Visitor<'de, Value = ()>,
) -> Result<Stamp> {
    let io = |error: io::Error| Error::io(json, &error);
    let file = storage.open(json).map_err(io)?;
    let stamp = file.stamp().map_err(io)?;
    let cursor = Cursor { file, at: 0, tokens: Tokens::default() };
    let reader = BufReader::with_capacity(1 << 20, cursor);
    let mut stream = serde_json::Deserializer::from_reader(reader);
    stream.deserialize_map(document).and_then(|()| stream.end()).map_err(|error| {
        match error.io_error_kind() {
            Some(ErrorKind::InvalidData) | None => wrong(key, json, error),
            Some(_) => io(error.into()),
        }
    })?;
    Ok(stamp)
}

/// Error in the content of a JSON file.
pub fn wrong(key: &str, json: &Path, problem: impl fmt::Display) -> Error {
    Error::config(key, format!("{}: {problem}", json.display()))
}

/// Byte-order mark. Some tools write it to mark the file as UTF-8.
pub const MARK: &[u8] = "\u{feff}".as_bytes();

/// Sequential reader of a file that skips the byte-order mark.
struct Cursor {
    file: File,
    at: u64,
    tokens: Tokens,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut len = self.file.read_at(buffer, self.at)?;
        let is_marked = self.at == 0 && buffer[..len].starts_with(MARK);
        self.at += len as u64;
        if is_marked {
            buffer.copy_within(MARK.len()..len, 0);
            len -= MARK.len();
        }
        self.tokens.pass(&buffer[..len])?;
        Ok(len)
    }
}

/// Calls a function with each element of a list while the list is parsed.
pub struct Each<T, F>(F, PhantomData<T>);

pub fn each<T, F: FnMut(T) -> Result<(), String>>(give: F) -> Each<T, F> {
    Each(give, PhantomData)
}

impl<'de, T, F> DeserializeSeed<'de> for Each<T, F>
where
    T: Deserialize<'de>,
    F: FnMut(T) -> Result<(), String>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T, F> Visitor<'de> for Each<T, F>
where
    T: Deserialize<'de>,
    F: FnMut(T) -> Result<(), String>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element()? {
            (self.0)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
