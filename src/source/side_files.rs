//! Fields that are stored in files of their own, whose paths follow from the path of the image.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::{PutField, file_value};
use crate::error::{DataError, Error, Reason, Redacted, Result, reserve};
use crate::field::Field;
use crate::storage::{self, Fetch, Stamp, Storage};
use template::{Part, Replace, Template};

mod template;

/// Side files of the images of a source.
#[derive(Debug, Default)]
pub struct SideFiles(Vec<SideFile>);

/// Path of an image, split at the last slash. It is relative to the root folder of its source, or
/// is an absolute path or a URL in a list.
#[derive(Clone, Copy, Debug)]
pub struct ImagePath<'a> {
    /// Root folder of the source.
    pub root: &'a Path,
    /// Folder without a slash at the end; empty if the image is in the root folder.
    pub folder: &'a [u8],
    pub name: &'a [u8],
}

#[derive(Debug)]
struct SideFile {
    /// Name of the field.
    name: String,
    /// Folder or URL to which the template is relative.
    base: PathBuf,
    template: Template,
}

/// Key of the setting.
const KEY: &str = "source.side_files";
/// Names that a loader gives to other columns.
const RESERVED: [&str; 3] = ["image", "label", "target"];
/// Number of images whose side files are compared with the image when the source is opened.
const COMPARED: u64 = 100;
/// Number of images whose side files are searched when the source is opened.
const SEARCHED: u64 = 16;

impl SideFiles {
    /// Reads the setting `side_files`: a template for each field. `root` is the root folder of the
    /// source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the key of an invalid name or template.
    pub fn new(settings: &BTreeMap<String, String>, root: &Path) -> Result<Self> {
        let file = |(name, written): (&String, &String)| {
            let wrong = |problem: String| Error::config(format!("{KEY}.{name}"), problem);
            if name.is_empty() {
                return Err(Error::config(KEY, "has an empty name; name the field"));
            }
            if RESERVED.contains(&name.as_str()) {
                let problem = "has a name that the batches use themselves; choose another name";
                return Err(wrong(problem.into()));
            }
            let (base, rest) = above(root, written).map_err(wrong)?;
            let template = Template::parse(written, rest).map_err(wrong)?;
            Ok(SideFile { name: name.clone(), base, template })
        };
        settings.iter().map(file).collect::<Result<_>>().map(Self)
    }

    /// Whether there are no side files.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this field is in side files.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|file| file.name == name)
    }

    /// Checks that no field of the source has the name of a side file.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the key of the side file.
    pub fn check_names(&self, others: &[Field]) -> Result<()> {
        match self.0.iter().find(|file| others.iter().any(|field| field.name == file.name)) {
            Some(SideFile { name, .. }) => {
                let problem = "the list has a column of this name; choose another name";
                Err(Error::config(format!("{KEY}.{name}"), problem))
            }
            None => Ok(()),
        }
    }

    /// Checks the templates with the first images of a source with `count` images. Returns warnings
    /// about templates whose files do not exist beside a few local images.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a template is the path of an image itself.
    pub fn check<'a>(
        &self,
        count: u64,
        storage: &Storage,
        image: impl Fn(u64) -> ImagePath<'a>,
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for file in &self.0 {
            let key = format!("{KEY}.{}", file.name);
            for image in (0..count.min(COMPARED)).map(&image) {
                if let Ok(Some(path)) = file.path(image, storage)
                    && image.is_at(&path)
                {
                    let (written, path) = (&file.template.written, Redacted::path(&path));
                    let problem =
                        format!("is {written:?}, which is the image itself for the image {path}");
                    return Err(Error::config(key, problem));
                }
            }
            let tried = count.min(SEARCHED);
            let spread = |it: u64| (u128::from(it) * u128::from(count) / u128::from(tried)) as u64;
            let paths = (0..tried).map(|it| file.path(image(spread(it)), storage).ok().flatten());
            let paths: Vec<Option<PathBuf>> = paths.collect();
            let exists = |path: &PathBuf| storage::is_url(path) || path.exists();
            if !paths.iter().flatten().any(exists) {
                let example = match paths.into_iter().flatten().next() {
                    Some(path) => format!("for example, {} does not exist", Redacted::path(&path)),
                    None => "no image has the text that the template replaces".into(),
                };
                warnings.push(format!(
                    "{key}: none of the {tried} images that were checked has such a file; {example}"
                ));
            }
        }
        Ok(warnings)
    }

    /// Fields in the order of their names.
    pub fn schema(&self) -> impl Iterator<Item = Field> {
        self.0.iter().map(|file| Field {
            name: file.name.clone(),
            kind: file_value::kind(&file.template.ending()),
        })
    }

    /// Returns the name of a field's files as in
    /// [`Fields::file_name`](super::Fields::file_name): the name of the field, and the extension of
    /// the files. `None` if the template does not contain the extension.
    pub fn file_name(&self, name: &str) -> Option<String> {
        let file = self.0.iter().find(|file| file.name == name)?;
        let ending = file.template.ending();
        let is_complete = name.ends_with(&format!(".{ending}"));
        (!ending.is_empty())
            .then(|| if is_complete { name.into() } else { format!("{name}.{ending}") })
    }

    /// Reads the wanted fields of an image, as
    /// [`Fields::read_fields`](super::Fields::read_fields) does. Names of other fields are ignored.
    pub fn read(
        &self,
        storage: &Storage,
        image: ImagePath<'_>,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        for (number, name) in wanted.iter().enumerate() {
            let Some(file) = self.0.iter().find(|file| file.name == *name) else { continue };
            let about = |error: DataError, path: &str| {
                let problem = format!("the field {name:?}{path}: {}", error.problem);
                error.reworded(problem)
            };
            let path = file.path(image, storage).map_err(|error| about(error, ""))?;
            let Some(path) = path else { continue };
            let failed = |error| about(error, &format!(" in {}", Redacted::path(&path)));
            if image.is_at(&path) {
                let problem = format!("{KEY}.{name} is the path of the image itself");
                return Err(failed(DataError::new(Reason::Field, problem)));
            }
            if !read(storage, (&path, None), buffer, limit).map_err(failed)? {
                continue;
            }
            let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
            put(number, file_value::value(extension, buffer))?;
        }
        Ok(())
    }
}

impl<'a> ImagePath<'a> {
    /// Splits a path at the last slash.
    pub fn new(root: &'a Path, path: &'a [u8]) -> Self {
        let (folder, name) = match path.iter().rposition(|&byte| byte == b'/') {
            // The folder of `/1.jpg` is `/`.
            Some(0) => path.split_at(1),
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        Self { root, folder, name }
    }

    /// Whether the image has this path.
    fn is_at(self, path: &Path) -> bool {
        let folder = storage::join(self.root, Path::new(OsStr::from_bytes(self.folder)));
        folder.join(OsStr::from_bytes(self.name)).components().eq(path.components())
    }

    /// Name without its last extension.
    fn stem(self) -> &'a [u8] {
        match self.name.iter().rposition(|&byte| byte == b'.') {
            None | Some(0) => self.name,
            Some(dot) => &self.name[..dot],
        }
    }

    /// Whether the folder is an absolute path or a URL.
    fn is_absolute(self) -> bool {
        self.folder.starts_with(b"/")
            || str::from_utf8(self.folder).is_ok_and(|it| storage::is_url(Path::new(it)))
    }
}

impl SideFile {
    /// Returns the path of the file that belongs to an image. Returns `None` if the image's path
    /// does not have the text that the template replaces.
    ///
    /// # Errors
    ///
    /// [`Reason::Field`] if the image's path is absolute, and the template has another folder
    /// before it. [`Reason::Unreadable`] if the path of the image leads to a file that data may not
    /// name.
    fn path(&self, image: ImagePath<'_>, storage: &Storage) -> Result<Option<PathBuf>, DataError> {
        let mut path = Vec::new();
        for part in &self.template.parts {
            match part {
                Part::Text(text) => path.extend_from_slice(text.as_bytes()),
                Part::Folder { replace, slash } => {
                    if image.is_absolute() && !path.is_empty() {
                        let problem = "{folder} is an absolute path or a URL for this image, so \
                                       the template must begin with {folder}";
                        return Err(DataError::new(Reason::Field, problem));
                    }
                    let Some(folder) = in_folders(image.folder, replace.as_ref()) else {
                        return Ok(None);
                    };
                    path.extend_from_slice(&folder);
                    if *slash && !folder.is_empty() && !folder.ends_with(b"/") {
                        path.push(b'/');
                    }
                }
                Part::Stem(replace) | Part::Name(replace) => {
                    let is_stem = matches!(part, Part::Stem(_));
                    let name = if is_stem { image.stem() } else { image.name };
                    let Some(name) = in_name(name, replace.as_ref()) else { return Ok(None) };
                    path.extend_from_slice(&name);
                }
            }
        }
        let has_dots = image.folder.split(|&byte| byte == b'/').any(|part| part == b"..");
        if has_dots || image.is_absolute() {
            // The template is a setting, which may name any file. The image's path is data.
            let named = str::from_utf8(&path).map_err(|error| error.to_string());
            let allowed = storage.settings().allowed(&self.base);
            named
                .and_then(|named| allowed.check(named))
                .map_err(|problem| DataError::new(Reason::Unreadable, problem))?;
        }
        let path = OsString::from_vec(path);
        Ok(Some(storage::join(&self.base, Path::new(&path))))
    }
}

impl SideFiles {
    /// Path of the file of a field that belongs to an image, for messages.
    pub fn not_found(&self, storage: &Storage, image: ImagePath<'_>, name: &str) -> Option<String> {
        let file = self.0.iter().find(|file| file.name == name)?;
        match file.path(image, storage) {
            Ok(Some(path)) => Some(format!("{} does not exist", Redacted::path(&path))),
            Ok(None) => {
                Some("the path of the image lacks the text that the template replaces".into())
            }
            Err(_) => None,
        }
    }
}

/// Reads a whole file. Returns false if it does not exist. With `stamp`, an object with another
/// version is an error.
pub fn read(
    storage: &Storage,
    (path, stamp): (&Path, Option<Stamp>),
    buffer: &mut Vec<u8>,
    limit: u64,
) -> Result<bool, DataError> {
    let oversized = |len: &str| {
        let problem = format!("has {len} bytes; limits.max_field_bytes is {limit}; raise it");
        DataError::new(Reason::Oversized, problem)
    };
    if storage::is_url(path) {
        let fetched = match storage.fetch(path, stamp, limit).and_then(Fetch::wait) {
            Ok(fetched) => fetched,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                return Err(oversized(&error.to_string()));
            }
            Err(error) => return Err(DataError::io(&error)),
        };
        reserve::renew(buffer, fetched.len())?;
        buffer.copy_from_slice(&fetched);
        return Ok(true);
    }
    let file = match storage.open(path) {
        Ok(file) => file,
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return match fs::symlink_metadata(path) {
                Ok(_) => {
                    let problem = "is a link to a file that does not exist";
                    Err(DataError::new(Reason::Unreadable, problem))
                }
                Err(_) => Ok(false),
            };
        }
        Err(error) => return Err(DataError::io(&error)),
    };
    let stamp = file.stamp().map_err(|error| DataError::io(&error))?;
    if stamp.len > limit {
        return Err(oversized(&stamp.len.to_string()));
    }
    reserve::renew(buffer, stamp.len as usize)?;
    let len = file.read_at(buffer, 0).map_err(|error| DataError::io(&error))?;
    if len < buffer.len() || file.stamp().map_err(|error| DataError::io(&error))? != stamp {
        return Err(DataError::new(Reason::Unreadable, "was changed while it was read"));
    }
    Ok(true)
}

/// Replaces the first folders of a path that have these names.
fn in_folders<'a>(folder: &'a [u8], replace: Option<&Replace>) -> Option<Cow<'a, [u8]>> {
    let Some(Replace { from, to }) = replace else { return Some(folder.into()) };
    let parts: Vec<&[u8]> = folder.split(|&byte| byte == b'/').collect();
    let from: Vec<&[u8]> = from.split('/').map(str::as_bytes).collect();
    let at = parts.windows(from.len()).position(|parts| parts == from)?;
    let to = Some(to.as_bytes()).filter(|to| !to.is_empty());
    let parts = parts[..at].iter().copied().chain(to).chain(parts[at + from.len()..].to_vec());
    Some(parts.collect::<Vec<_>>().join(&b'/').into())
}

/// Replaces the last occurrence of a text in a name.
fn in_name<'a>(name: &'a [u8], replace: Option<&Replace>) -> Option<Cow<'a, [u8]>> {
    let Some(Replace { from, to }) = replace else { return Some(name.into()) };
    let at = name.windows(from.len()).rposition(|part| part == from.as_bytes())?;
    Some([&name[..at], to.as_bytes(), &name[at + from.len()..]].concat().into())
}

/// Returns the folder to which a template is relative, and the template without leading `../` that
/// the folder includes. Servers do not resolve `..`, so it is resolved here if `root` is a URL.
///
/// # Errors
///
/// The error states that the template leads out of the bucket.
fn above<'a>(root: &Path, template: &'a str) -> Result<(PathBuf, &'a str), String> {
    let (Some(url), true) = (root.to_str(), storage::is_url(root)) else {
        return Ok((root.into(), template));
    };
    let (mut base, mut rest) = (url.trim_end_matches('/'), template);
    while let Some(below) = rest.strip_prefix("../") {
        let end = base.rfind('/').filter(|&end| !base[..end].ends_with('/'));
        base = match end {
            Some(end) => base[..end].trim_end_matches('/'),
            None => {
                let url = Redacted::path(root);
                return Err(format!("is {template:?}, which leads out of the bucket of {url}"));
            }
        };
        rest = below;
    }
    Ok((base.into(), rest))
}
