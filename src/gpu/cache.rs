//! Compiled kernels on disk, so that a chain is compiled once per machine and not once per process.
//!
//! One file per kernel, in the cache's directory (`storage/cache_dir.rs`). The file name is the hash of everything
//! that the compiler's result depends on except the compiler. The file itself records the compiler by its library's
//! path, length and time, because opening a 100 MB library only to query its version would take longer than everything
//! else. If the library has changed or is gone, the kernel is compiled again. A file is written under a temporary name
//! and then renamed, so a reader sees all of it or nothing, and concurrent writers do not interfere. It contains a
//! hash of its content, so a damaged file is detected and replaced. A directory that cannot be written costs the
//! compilation each time and is not an error.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::file::AtomicFile;

const MAGIC: &[u8; 16] = b"feedwater cubin2";
const HASH_BYTES: usize = 32;

/// Identity of a compiler library's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiler(String);

impl Compiler {
    /// Identity of the current file. `None` if its metadata cannot be read.
    pub fn at(path: &Path) -> Option<Self> {
        let facts = fs::metadata(path).ok()?;
        let time = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Self(format!("{} {} {}", facts.len(), time.as_nanos(), path.to_str()?)))
    }

    /// Whether the file is unchanged.
    fn is_there(text: &[u8]) -> bool {
        str::from_utf8(text).is_ok_and(|text| {
            let path = text.splitn(3, ' ').nth(2);
            path.and_then(|path| Self::at(Path::new(path))).is_some_and(|now| now.0 == text)
        })
    }
}

/// File name for all inputs that a compiler's result depends on.
pub(super) fn key(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps ["ab", "c"] and ["a", "bc"] apart.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}.cubin")
}

/// Content stored under this name. `None` if there is none, it is damaged, or the compiler that made it has changed.
pub(super) fn read(directory: &Path, key: &str) -> Option<Vec<u8>> {
    let mut file = fs::read(directory.join(key)).ok()?;
    let content = file.strip_prefix(MAGIC)?;
    let (expected, content) = content.split_at_checked(HASH_BYTES)?;
    if Sha256::digest(content).as_slice() != expected {
        return None;
    }
    let (len, content) = content.split_first_chunk()?;
    let (compiler, _) = content.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    if !Compiler::is_there(compiler) {
        return None;
    }
    let start = MAGIC.len() + HASH_BYTES + len.len() + compiler.len();
    Some(file.split_off(start))
}

/// Stores a compiler's output under this name. Errors are ignored.
pub(super) fn write(directory: &Path, key: &str, Compiler(compiler): &Compiler, made: &[u8]) {
    let content = [&(compiler.len() as u32).to_le_bytes(), compiler.as_bytes(), made].concat();
    let _ = fs::create_dir_all(directory).and_then(|()| {
        let mut file = AtomicFile::create(directory.join(key))?;
        file.write_all(MAGIC)?;
        file.write_all(&Sha256::digest(&content))?;
        file.write_all(&content)?;
        file.commit_unsynced()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A file that stands in for a compiler.
    fn compiler() -> (tempfile::NamedTempFile, Compiler) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let compiler = Compiler::at(file.path()).unwrap();
        (file, compiler)
    }

    #[test]
    fn written_content_is_read_and_the_name_depends_on_every_part() {
        let directory = tempfile::tempdir().unwrap();
        let (_file, by) = compiler();
        let name = key(&[b"source", b"sm_90"]);
        assert_eq!(read(directory.path(), &name), None);
        write(directory.path(), &name, &by, b"cubin");
        assert_eq!(read(directory.path(), &name).as_deref(), Some(&b"cubin"[..]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
    }

    #[test]
    fn a_file_with_any_byte_changed_or_cut_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (_file, by) = compiler();
        let name = key(&[b"k"]);
        write(directory.path(), &name, &by, b"some machine code");
        let path = directory.path().join(&name);
        let whole = fs::read(&path).unwrap();
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(read(directory.path(), &name), None, "byte {position} changed");
            fs::write(&path, &whole[..position]).unwrap();
            assert_eq!(read(directory.path(), &name), None, "cut to {position} bytes");
        }
        fs::write(&path, &whole).unwrap();
        assert!(read(directory.path(), &name).is_some());
    }

    #[test]
    fn concurrent_writers_and_readers_see_only_whole_files() {
        let directory = tempfile::tempdir().unwrap();
        let (_file, by) = compiler();
        let name = key(&[b"k"]);
        let content: Vec<u8> = (0..200_000u32).map(|it| it as u8).collect();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..50).for_each(|_| write(directory.path(), &name, &by, &content)));
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    let path = directory.path().join(&name);
                    if path.exists() {
                        assert_eq!(read(directory.path(), &name).as_ref(), Some(&content));
                    }
                }
            });
        });
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "temporary files are left");
    }

    #[test]
    fn output_of_another_compiler_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, by) = compiler();
        let name = key(&[b"k"]);
        write(directory.path(), &name, &by, b"cubin");
        assert!(read(directory.path(), &name).is_some());
        file.write_all(b"a newer release").unwrap();
        assert_eq!(read(directory.path(), &name), None, "another length");
        write(directory.path(), &name, &Compiler::at(file.path()).unwrap(), b"cubin");
        assert!(read(directory.path(), &name).is_some());
        file.as_file().set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(read(directory.path(), &name), None, "another time");
        write(directory.path(), &name, &Compiler::at(file.path()).unwrap(), b"cubin");
        file.close().unwrap();
        assert_eq!(read(directory.path(), &name), None, "gone");
    }

    #[test]
    fn an_unwritable_directory_is_not_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let below_a_file = file.path().join("cache");
        write(&below_a_file, "k", &compiler().1, b"cubin");
        assert_eq!(read(&below_a_file, "k"), None);
    }
}
