//! Reads fields directly from a source.

use std::fs;
use std::path::Path;

use feedwater::error::DataError;
use feedwater::source::Source;

/// Limit for tests that do not test it, in bytes.
const LIMIT: u64 = 1 << 20;

/// Content of a golden file.
pub fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)).unwrap()
}

/// Names of the fields of a source.
pub fn names(source: &dyn Source) -> Vec<String> {
    source.fields().unwrap().schema().into_iter().map(|field| field.name).collect()
}

/// Values of fields of a sample, as `name: value`, in the order in which they are read.
pub fn values(source: &dyn Source, index: u64, wanted: &[&str]) -> Result<Vec<String>, DataError> {
    values_up_to(source, index, wanted, LIMIT)
}

/// Values of fields of at most `limit` bytes.
pub fn values_up_to(
    source: &dyn Source,
    index: u64,
    wanted: &[&str],
    limit: u64,
) -> Result<Vec<String>, DataError> {
    let (mut found, mut buffer) = (Vec::new(), Vec::new());
    source.fields().unwrap().read_fields(
        index,
        wanted,
        &mut buffer,
        limit,
        &mut |number, it| {
            found.push(format!("{}: {it:?}", wanted[number]));
            Ok(())
        },
    )?;
    Ok(found)
}

/// The value of a field of a sample. `None` if it is missing.
pub fn value(source: &dyn Source, index: u64, name: &str) -> Option<String> {
    let mut found = values(source, index, &[name]).unwrap();
    assert!(found.len() < 2, "{found:?}");
    found.pop().map(|it| it[name.len() + 2..].to_string())
}
