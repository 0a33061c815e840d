//! Cache of compiled kernels on disk. A chain is compiled once per machine, not once per process.
//!
//! Each kernel has one file in the cache's directory (`storage/cache_dir.rs`). The file name is the
//! hash of everything that the compiler's result depends on, except the compiler. The file itself
//! records the compiler by its library's path, length and modification time, because opening a 100
//! MB library only to query its version would take longer than the rest of loading a cached kernel.
//! If the library has changed or is gone, the kernel is compiled again. A file is written under a
//! temporary name and then renamed. Readers therefore see a complete file or none, and concurrent
//! writers do not interfere.
//!
//! A kernel is code that this program runs, so only files of this user are read. The directory and
//! the file must belong to this user, and nobody else may be able to write to the directory. The
//! file contains a digest (HMAC-SHA256) with a key that only this user can read. The digest also
//! detects damage. An unusable directory is not an error: kernels are then compiled in every
//! process, and a loader warns about it.
//!
//! The results of `nvjpeg/windows.rs` are cached in the same way, with nvJPEG in place of the
//! compiler.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::file::{AtomicFile, check_private_folder, open_unfollowed, private_folder};

const MAGIC: &[u8; 16] = b"feedwater cubin3";
const HASH_BYTES: usize = 32;
/// Name of the file that contains the secret key of the digests.
const KEY: &str = "cubin.key";
/// Maximum size of a file that is read, in bytes. A compiled kernel has about 100 KiB.
const MOST_BYTES: u64 = 256 << 20;
/// Block size of SHA-256 in bytes.
const BLOCK: usize = 64;

/// Identity of a compiler library: its file's path, length and modification time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiler(String);

impl Compiler {
    /// Returns the identity of the file that is now at `path`, or `None` if its metadata cannot be
    /// read.
    pub fn at(path: &Path) -> Option<Self> {
        let facts = fs::metadata(path).ok()?;
        let time = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Self(format!("{} {} {}", facts.len(), time.as_nanos(), path.to_str()?)))
    }

    /// Whether the compiler library still has the identity `text`.
    fn is_there(text: &[u8]) -> bool {
        str::from_utf8(text).is_ok_and(|text| {
            let path = text.splitn(3, ' ').nth(2);
            path.and_then(|path| Self::at(Path::new(path))).is_some_and(|now| now.0 == text)
        })
    }
}

/// Returns the file name of a cached result: the hash of `parts`, which are all inputs that the
/// result depends on, except the compiler.
pub(super) fn key(parts: &[&[u8]]) -> String {
    format!("{}.cubin", digits(parts))
}

/// Returns the hexadecimal hash of all parts.
pub(super) fn digits(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length distinguishes ["ab", "c"] from ["a", "bc"].
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the content stored under the name `key`. Returns `None` if there is no such file, if the
/// file is damaged, or if the compiler has changed since the file was written.
pub(super) fn read(directory: &Path, key: &str) -> Option<Vec<u8>> {
    check_private_folder(directory).ok()?;
    let secret = secret(directory).ok()?;
    let mut file = own(&directory.join(key), MOST_BYTES).ok()?;
    let content = file.strip_prefix(MAGIC)?;
    let (expected, content) = content.split_at_checked(HASH_BYTES)?;
    if digest(&secret, content) != expected {
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

/// Stores the output `made` of a compiler under the file name `key`. Errors are ignored.
pub(super) fn write(directory: &Path, key: &str, Compiler(compiler): &Compiler, made: &[u8]) {
    let content = [&(compiler.len() as u32).to_le_bytes(), compiler.as_bytes(), made].concat();
    let _ = private_folder(directory).and_then(|()| {
        let secret = secret(directory).or_else(|_| make_secret(directory))?;
        let mut file = AtomicFile::replace_private(directory.join(key))?;
        file.write_all(MAGIC)?;
        file.write_all(&digest(&secret, &content))?;
        file.write_all(&content)?;
        file.commit_unsynced()
    });
}

/// Reads this user's secret key. Fails if the key does not exist, or if other users can read it.
fn secret(directory: &Path) -> io::Result<[u8; HASH_BYTES]> {
    let path = directory.join(KEY);
    let secret = own(&path, HASH_BYTES as u64)?;
    if fs::symlink_metadata(&path)?.mode() & 0o077 != 0 {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "others can read the key"));
    }
    secret.try_into().map_err(|_| ErrorKind::InvalidData.into())
}

/// Creates this user's secret key, unless another process has created the key in the meantime.
fn make_secret(directory: &Path) -> io::Result<[u8; HASH_BYTES]> {
    let mut bytes = [0; HASH_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut file = AtomicFile::replace_private(directory.join(KEY))?;
    file.write_all(&bytes)?;
    file.commit_if_absent()?;
    secret(directory)
}

/// Reads a file that belongs to this user and has at most `most` bytes.
fn own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_unfollowed(path)?;
    let facts = file.metadata()?;
    if facts.uid() != rustix::process::geteuid().as_raw() || facts.len() > most {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// HMAC-SHA256 (RFC 2104) with a key of 32 bytes.
fn digest(secret: &[u8; HASH_BYTES], content: &[u8]) -> [u8; HASH_BYTES] {
    let padded = |with: u8| {
        let mut block = [with; BLOCK];
        block.iter_mut().zip(secret).for_each(|(to, key)| *to ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(content).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Creates a file that stands in for a compiler.
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

    /// The expected value was computed with Python's `hmac`, because no test vector of RFC 4231 has
    /// a key of 32 bytes.
    #[test]
    fn the_digest_is_hmac_sha256() {
        let digits: String =
            digest(&[7; 32], b"some machine code").iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(digits, "5bde08d30d2f9eb0d4b30b3d8fcbb400445c6e89f6bcc35aeeaa84657612a59e");
    }

    /// A file is not read if its digest was computed without the secret key, or if other users can
    /// write to the directory or read the key.
    #[test]
    fn what_others_may_have_written_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().unwrap();
        let (_file, by) = compiler();
        let name = key(&[b"k"]);
        write(directory.path(), &name, &by, b"cubin");
        let (path, secret) = (directory.path().join(&name), directory.path().join(KEY));
        let whole = fs::read(&path).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let modes = [&path, &secret].map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o600; 2]);
        for (path, bad, good) in
            [(directory.path(), 0o770, 0o700), (secret.as_path(), 0o640, 0o600)]
        {
            set(path, bad);
            assert_eq!(read(directory.path(), &name), None);
            set(path, good);
            assert!(read(directory.path(), &name).is_some());
        }
        let content = &whole[MAGIC.len() + HASH_BYTES..];
        let plain = [&MAGIC[..], Sha256::digest(content).as_slice(), content].concat();
        fs::write(&path, plain).unwrap();
        assert_eq!(read(directory.path(), &name), None);
        let other = directory.path().join("other");
        fs::write(&other, &whole).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(read(directory.path(), &name), None);
        // Nothing is stored in a directory that others can write to.
        fs::remove_file(&path).unwrap();
        set(directory.path(), 0o777);
        write(directory.path(), &name, &by, b"cubin");
        assert!(!path.exists());
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
        // Only the files of the kernel and of the key are left in the directory.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "temporary files are left");
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
