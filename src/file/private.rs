//! Folders for data that a program trusts when it reads the data again.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

/// Permissions of new folders.
const MODE: u32 = 0o700;
/// Permission bits that let other users write.
const WRITABLE: u32 = 0o022;

/// Creates a folder and its missing parents with access for this user only (mode 0700), unless the
/// folder exists.
///
/// # Errors
///
/// Returns the errors of the system, and [`ErrorKind::PermissionDenied`] if another user except
/// root owns the folder, or if the group or others can write in it. Files in such a folder cannot
/// be trusted.
pub fn private_folder(path: &Path) -> io::Result<()> {
    create_private_folder(path)?;
    check_private_folder(path)
}

/// Creates a folder as `private_folder` does, but without its checks.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(path)
}

/// Performs the checks of [`private_folder`]. A folder that does not exist passes.
pub fn check_private_folder(path: &Path) -> io::Result<()> {
    let facts = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        facts => facts?,
    };
    let (user, owner, mode) = (geteuid().as_raw(), facts.uid(), facts.mode() & 0o7777);
    let problem = if owner != user && owner != 0 {
        format!(
            "this folder belongs to user {owner}, but the process runs as user {user}; name a \
             folder of your own"
        )
    } else if mode & WRITABLE != 0 {
        format!(
            "other users can write to this folder (its mode is {mode:o}); run chmod go-w on it, \
             or name another folder"
        )
    } else {
        return Ok(());
    };
    let path = path.display();
    let problem = format!(
        "the cache folder {path} is not used: {problem} (FEEDWATER_CACHE names the folder)"
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn new_folders_are_for_this_user_and_those_that_others_can_write_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        private_folder(&folder).unwrap();
        for path in [&folder, &root.path().join("a")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        for (mode, trusted) in [(0o755, true), (0o775, false), (0o702, false), (0o1777, false)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let result = private_folder(&folder);
            assert_eq!(result.is_ok(), trusted, "{mode:o} {result:?}");
            if let Err(error) = result {
                let words = error.to_string();
                assert!(words.contains(&format!("{mode:o}")) && words.contains("a/b"), "{words}");
            }
        }
    }
}
