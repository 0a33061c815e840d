//! File access: atomic replacement of files, private folders, and reads of bounded size.
//!
//! * [`AtomicFile`] writes to a hidden temporary file beside its target, and finally renames it
//!   (`file/atomic.rs`). Readers see the old file or the new one, never a partial one. If an error
//!   occurs, the disk is full or the `AtomicFile` is dropped, the old file is unchanged.
//! * A symbolic link is replaced and never followed: a downloaded folder may contain links to any
//!   file of the user.
//! * A new file has the permissions that the umask allows. A replaced file keeps its permissions.
//! * Targets that are not regular files (a pipe, `/dev/null`), and file descriptors of this process
//!   (`/dev/stdout`), are written directly.
//! * Temporary files of killed programs are removed by the next program that writes in the folder
//!   (`file/leftover.rs`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

pub use atomic::{AtomicFile, discard_pending, write};
#[doc(hidden)]
pub use private::create_private_folder;
pub(crate) use private::{check_private_folder, private_folder};

mod atomic;
mod leftover;
mod private;

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
///
/// Returns the errors of the system and of [`regular`], and [`ErrorKind::FileTooLarge`] if the file
/// is larger.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("has more than {most} bytes, which is the limit for this file");
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Opens a regular file for reading.
///
/// # Errors
///
/// Returns the errors of the system and of [`regular`].
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // `O_NONBLOCK`: otherwise opening a pipe without a writer would block forever.
    regular(path, File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path))
}

/// Checks that a file that was opened by `path` is a regular file. Returns the file.
///
/// # Errors
///
/// Returns the error of opening the file. If the path is a folder, a pipe, a socket or a device,
/// the error names this type. Such files are rejected because reading them may never end.
pub fn regular(path: &Path, opened: io::Result<File>) -> io::Result<File> {
    // Opening a socket fails with `ENXIO`, whose message mentions a device, so the type is
    // determined from the path.
    let kind = match &opened {
        Ok(file) => file.metadata()?.file_type(),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => fs::metadata(path)?.file_type(),
        Err(_) => return opened,
    };
    if kind.is_file() {
        return opened;
    }
    Err(io::Error::other(format!("not a regular file but {}", type_name(kind))))
}

/// Name of the type of a file that is not regular.
fn type_name(kind: fs::FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Reads the text of a file of at most `most` bytes.
///
/// # Errors
///
/// Returns the errors of [`read`], and [`ErrorKind::InvalidData`] if the text is not UTF-8.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("is not UTF-8 at byte {at}"))
    })
}

/// Opens a regular file in a folder that other users or programs may have written to. A symbolic
/// link is an error. Pipes and devices are not opened.
///
/// # Errors
///
/// Returns the errors of the system and of [`regular`].
pub fn open_unfollowed(path: &Path) -> io::Result<File> {
    unfollowed(path, File::options().read(true))
}

/// Opens a file of this program for reading and writing, or creates it. The folder may have been
/// written to by other users or programs. The contents of the file are kept.
///
/// # Errors
///
/// Returns the errors of the system. A symbolic link, a pipe, a device, or a file with a second
/// name (hard link) is an error.
pub fn open_own(path: &Path) -> io::Result<File> {
    let file =
        unfollowed(path, File::options().read(true).write(true).create(true).truncate(false))?;
    match file.metadata()?.nlink() {
        0 | 1 => Ok(file),
        _ => Err(io::Error::other("is a file that has another name too; remove this name")),
    }
}

/// Opens a regular file with these options, which may create the file. Symbolic links, pipes and
/// devices are errors.
fn unfollowed(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // The type is checked before opening, because opening a pipe or a device may have side effects.
    // `regular` checks the type again, because the file may be replaced in between.
    match fs::symlink_metadata(path).map(|it| it.file_type()) {
        Ok(kind) if kind.is_symlink() => {
            return Err(io::Error::other("is a symbolic link, which is not followed here"));
        }
        Ok(kind) if !kind.is_file() => {
            return Err(io::Error::other(format!("not a regular file but {}", type_name(kind))));
        }
        // `open` below returns the error or creates the file.
        _ => {}
    }
    regular(path, options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn reads_are_bounded_and_of_regular_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let device = read("/dev/zero", 1 << 16).unwrap_err();
        assert_eq!(device.kind(), ErrorKind::Other);
        assert!(device.to_string().contains("device"), "{device}");
        write(&path, b"ab\xff").unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn links_pipes_and_devices_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        assert!(open_unfollowed(&at("file")).is_ok());
        symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for (path, word) in
            [(at("link"), "link"), (at("pipe"), "pipe"), ("/dev/zero".into(), "device")]
        {
            let error = open_unfollowed(&path).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
