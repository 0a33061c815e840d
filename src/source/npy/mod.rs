//! Source for arrays of images in NumPy's `.npy` files.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::largest::largest;
use super::records::{FileError, expand};
use super::{
    BadShards, Configured, Fields, Hints, Identity, Page, Sealed, Source, VALUE, settings,
    without_images,
};
use crate::error::{DataError, Error, Reason, Redacted, Result};
use crate::footprint::counted;
use crate::geometry::Size;
use crate::header::PnmHead;
use crate::storage::{self, File, Stamp, Storage};
use crate::tensor::CHANNELS;

use fields::FieldArrays;
use labels::Labels;
use layout::{Channels, Head, Samples, images};

mod array;
mod fields;
mod labels;
mod layout;

/// Images in `.npy` files with many images each, as written by `np.save` (format versions 1.0, 2.0
/// and 3.0).
///
/// * A path is a file, a directory (its visible files whose names end in `.npy`, except the files
///   of labels and fields), or a pattern such as `train-*.npy` (`*` and `?` in the last part).
///   Samples are ordered by path, then file name, then index on the first axis.
/// * The elements are `uint8`, `uint16` or `float32`, in C order. Arrays of 16 bits and of floats
///   need another pixel format than `u8x3` (`decode.pixels`). The shape is (samples, height, width,
///   3) for RGB, (samples, height, width, 4) for RGB with alpha, and (samples, height, width) or
///   (samples, height, width, 1) for gray. With channels first, it is (samples, 3, height, width),
///   (samples, 4, height, width) or (samples, 1, height, width). Ambiguous shapes are read as
///   channels last. An array of three axes is an error if its last axis has at most 4 elements,
///   because it may be a single image. Errors for other shapes and types suggest a supported form.
/// * An image of bytes without alpha is returned as PNM: a header of up to 32 bytes, then the
///   pixels. Other images are returned as `.npy` files with one image. An image takes one
///   positioned read. If an image of bytes with three channels first has more than 16384 pixels, it
///   takes three reads per 16384 pixels.
/// * Samples are copied from a memory mapping of the file (`storage.map`). If the file is truncated
///   while it is used, the sample is an error.
/// * The source keeps no table of samples, because the shape of an array determines the offsets of
///   its images. Labels have the same size in memory as in their file.
/// * The fields of a sample are the values of the arrays in the setting `fields`. Elements are
///   booleans, integers, floats of 16, 32 or 64 bits, or texts (`U`, `S`), in any byte order. The
///   first axis of an array has the samples. An array of texts has no other axis. In the second
///   source of a join, no files of images are needed: arrays that are not in `fields` are the field
///   `value`.
/// * Opening fails with the byte offset if the length of a file does not match its shape. If the
///   file changes after opening, its samples are errors. The format has no checksums, so this
///   source does not detect damaged pixels.
pub struct Npy {
    storage: Storage,
    /// Files of images. Empty if the source was opened for its fields.
    stacks: Vec<Stack>,
    labels: Option<Labels>,
    fields: Vec<FieldArrays>,
}

/// Settings of the source `npy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NpySettings {
    /// File with one integer label per sample: a `.npy` of any integer type and byte order. A
    /// pattern can name several such files, whose labels are concatenated. The path is absolute or
    /// relative to the folder of the first file of images. In a pipeline file, a path that exists
    /// relative to the pipeline file takes precedence. Empty, the default, for no labels (-1).
    pub labels: PathBuf,
    /// Files with one value per sample and field, by the name of the field. A value is what the
    /// first axis of an array selects: a number, a text, or numbers in row-major order. The paths
    /// are like those of `labels`, but no URLs. Default: no fields.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, PathBuf>,
}

/// Number of pixels that are interleaved from planes at a time.
const PLANAR_PIXELS: usize = 16 << 10;

/// File that contains a stack of images.
struct Stack {
    path: PathBuf,
    file: File,
    /// Length and version of the file at the time of opening.
    stamp: Stamp,
    /// Indices of the samples in this file.
    samples: Range<u64>,
    /// Offset of the first image.
    start: u64,
    size: Size,
    channels: Channels,
}

impl Sealed for Npy {}

impl Configured for Npy {
    const KEY: &'static str = "npy";
    type Settings = NpySettings;
    const FOLDERS: bool = true;

    fn recognises(_: &str, head: &[u8]) -> bool {
        head.starts_with(b"\x93NUMPY")
    }

    fn relative_to(settings: &mut NpySettings, base: &Path) {
        for path in settings.fields.values_mut().chain([&mut settings.labels]) {
            if let Some(whole) = settings::beside(base, path) {
                *path = whole;
            }
        }
    }

    fn open_with(paths: &[PathBuf], settings: &NpySettings, storage: &Storage) -> Result<Self> {
        let AllFiles { images: files, labels, fields } = AllFiles::find(paths, settings, storage)?;
        let mut stacks: Vec<Stack> = Vec::new();
        for path in files {
            let first = stacks.last().map_or(0, |stack| stack.samples.end);
            stacks.push(Stack::open(storage, path, first)?);
        }
        let count = stacks.last().map_or(0, |stack| stack.samples.end);
        if count == 0 {
            let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
            let problem = format!(
                "no sample was found in {}; the first file is {first}",
                counted(stacks.len(), "file")
            );
            return Err(Error::config("source.npy", problem));
        }
        fields.iter().try_for_each(|it| it.check_count(count, "the files of images"))?;
        let labels = (!labels.is_empty()).then(|| Labels::open(storage, &labels)).transpose()?;
        if let Some(labels) = &labels
            && labels.count() != count
        {
            let problem = format!(
                "{} has {}, but the files of images have {}; set source.labels to a file with one \
                 label per sample",
                settings.labels.display(),
                counted(labels.count(), "label"),
                counted(count, "sample")
            );
            return Err(Error::config("source.labels", problem));
        }
        Ok(Self { storage: storage.clone(), stacks, labels, fields })
    }

    /// Opens the arrays of the fields. Files that would have the images are the field `value`.
    /// There may be none of them, and they may have elements of any type and shape.
    fn open_fields(
        paths: &[PathBuf],
        settings: &NpySettings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        bad.check_unset(Self::KEY)?;
        let AllFiles { images: files, mut fields, .. } = AllFiles::find(paths, settings, storage)?;
        if !files.is_empty() {
            if fields.iter().any(|field| field.name() == VALUE) {
                let problem = "is the name of the arrays of source.npy in a join; choose another";
                return Err(Error::config(format!("source.fields.{VALUE}"), problem));
            }
            fields.insert(0, FieldArrays::open(storage, VALUE, Self::KEY, &files)?);
        }
        let first = fields.first().filter(|field| field.count() > 0);
        let Some(first) = first else {
            let shown = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
            let problem = format!("no sample was found; the first path is {shown}");
            return Err(Error::config("source.npy", problem));
        };
        let others = format!("the files of the field {:?}", first.name());
        fields.iter().try_for_each(|field| field.check_count(first.count(), &others))?;
        Ok(Self { storage: storage.clone(), stacks: Vec::new(), labels: None, fields })
    }
}

/// Files of a source.
struct AllFiles {
    images: Vec<PathBuf>,
    labels: Vec<PathBuf>,
    fields: Vec<FieldArrays>,
}

impl AllFiles {
    /// Lists the files, and opens those of the fields.
    fn find(paths: &[PathBuf], settings: &NpySettings, storage: &Storage) -> Result<Self> {
        let mut images = expand(storage, Npy::KEY, paths, ".npy")?;
        let folder = images.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let beside =
            |key: &str, path: &Path| expand(storage, key, &[storage::join(folder, path)], ".npy");
        let labels = match settings.labels.as_os_str().is_empty() {
            true => Vec::new(),
            false => beside("labels", &settings.labels)?,
        };
        let fields = settings.fields.iter().map(|(name, path)| {
            let key = format!("fields.{name}");
            FieldArrays::open(storage, name, &key, &beside(&key, path)?)
        });
        let fields = fields.collect::<Result<Vec<FieldArrays>>>()?;
        let others = || fields.iter().flat_map(FieldArrays::paths).chain(&labels);
        images.retain(|path| others().all(|other| path != other));
        Ok(Self { images, labels, fields })
    }
}

impl Npy {
    fn stack(&self, index: u64) -> &Stack {
        &self.stacks[self.stacks.partition_point(|stack| stack.samples.end <= index)]
    }
}

impl Source for Npy {
    fn len(&self) -> u64 {
        let of_fields = || self.fields.first().map_or(0, FieldArrays::count);
        self.stacks.last().map_or_else(of_fields, |stack| stack.samples.end)
    }

    fn label(&self, index: u64) -> i64 {
        self.labels.as_ref().map_or(-1, |labels| labels.get(index))
    }

    /// Path of the file, followed by the index of the image within the file in brackets.
    fn location(&self, index: u64) -> String {
        let (path, number) = match (&self.stacks[..], &self.fields[..]) {
            ([], [first, ..]) => first.location(index),
            _ => {
                let stack = self.stack(index);
                (&*stack.path, index - stack.samples.start)
            }
        };
        format!("{}[{number}]", Redacted::path(path))
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        if self.stacks.is_empty() {
            return Err(without_images());
        }
        let stack = self.stack(index);
        let (head, bytes) = (stack.head(), stack.bytes());
        let head = head.bytes();
        super::check_size(head.len() as u64 + bytes, limit)?;
        let (before, space) = page.space(head.len() + bytes as usize)?.split_at_mut(head.len());
        before.copy_from_slice(head);
        let at = stack.start + bytes * (index - stack.samples.start);
        match stack.channels {
            Channels::Gray | Channels::Last | Channels::Array(_) => stack.read(at, space),
            Channels::First => stack.read_planes(at, space),
        }
    }

    /// Path of the first file, number of further files, and number of samples.
    fn describe(&self) -> String {
        let (first, more) = match (&self.stacks[..], &self.fields[..]) {
            ([], [first, ..]) => (first.location(0).0, first.paths().len() - 1),
            (stacks, _) => (&*stacks[0].path, stacks.len() - 1),
        };
        let first = Redacted::path(first);
        let samples = counted(self.len(), "sample");
        match more {
            0 => format!("{first}: {samples}"),
            _ => format!("{first} and {more} more: {samples}"),
        }
    }

    fn fields(&self) -> Option<&dyn Fields> {
        (!self.fields.is_empty()).then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }
}

impl Hints for Npy {
    fn largest_bytes(&self) -> Option<u64> {
        let bytes = self.stacks.iter().map(|it| it.head().bytes().len() as u64 + it.bytes());
        bytes.max()
    }

    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        // All images of a stack have the same size, so one sample of each stack is sufficient.
        let firsts = self.stacks.iter().filter(|it| !it.samples.is_empty());
        largest(firsts.map(|it| (it.samples.start, it.size.pixels())), most)
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let paths: usize = self.stacks.iter().map(|stack| stack.path.capacity()).sum();
        let labels = self.labels.as_ref().map_or(0, Labels::memory_bytes);
        let files: u64 = self.stacks.iter().map(|stack| stack.file.memory_bytes()).sum();
        let fields: u64 = self.fields.iter().map(FieldArrays::memory_bytes).sum();
        (self.stacks.capacity() * size_of::<Stack>() + paths) as u64 + files + labels + fields
    }
}

impl Identity for Npy {
    fn version(&self, index: u64) -> Option<String> {
        if self.stacks.is_empty() {
            return None;
        }
        let Stack { stamp, file, .. } = self.stack(index);
        match file.is_remote() {
            true => Some(stamp.to_string()),
            false => Some(format!("{stamp}, {}", file.identity().ok()?)),
        }
    }
}

impl Stack {
    /// Opens a stack. `first` is the index of its first sample in the source.
    fn open(storage: &Storage, path: PathBuf, first: u64) -> Result<Self> {
        let io = |error| Error::io(&path, &error);
        let file = storage.open_pooled(&path).map_err(io)?;
        let stamp = file.stamp().map_err(io)?;
        let array = array::read(&file, stamp.len).map_err(|it| wrong("npy", &path, it))?;
        let images =
            images(&array).map_err(|problem| wrong("npy", &path, FileError::new(0, problem)))?;
        let (count, size, channels) = images;
        let samples = first..first + count;
        let file = storage.map(file);
        Ok(Self { path, file, stamp, samples, start: array.start, size, channels })
    }

    fn head(&self) -> Head {
        match self.channels {
            Channels::Gray => Head::Pnm(PnmHead::gray(self.size)),
            Channels::Last | Channels::First => Head::Pnm(PnmHead::rgb(self.size)),
            Channels::Array(samples) => Head::Npy(samples.head(self.size)),
        }
    }

    /// Size of an image in bytes.
    fn bytes(&self) -> u64 {
        let of_pixel = match self.channels {
            Channels::Gray => 1,
            Channels::Last | Channels::First => CHANNELS as u64,
            Channels::Array(Samples { channels, bytes, .. }) => {
                u64::from(channels.max(1)) * u64::from(bytes)
            }
        };
        of_pixel * self.size.pixels()
    }

    /// Fills the buffer from offset `at`, and checks that the file has not changed since it was
    /// opened.
    fn read(&self, at: u64, space: &mut [u8]) -> Result<(), DataError> {
        read(&self.file, self.stamp, at, space)
    }

    /// Reads an image of three planes and interleaves its channels.
    fn read_planes(&self, at: u64, pixels: &mut [u8]) -> Result<(), DataError> {
        let mut planes = [0; CHANNELS * PLANAR_PIXELS];
        let plane = pixels.len() / CHANNELS;
        for (number, pixels) in pixels.chunks_mut(CHANNELS * PLANAR_PIXELS).enumerate() {
            let count = pixels.len() / CHANNELS;
            let planes = &mut planes[..pixels.len()];
            if count == plane {
                // The planes of a small image fit into the buffer and are consecutive, so one call
                // reads them.
                self.read(at, planes)?;
            } else {
                for (channel, part) in planes.chunks_mut(count).enumerate() {
                    self.read(at + (plane * channel + PLANAR_PIXELS * number) as u64, part)?;
                }
            }
            let (red, rest) = planes.split_at(count);
            let (green, blue) = rest.split_at(count);
            for (((pixel, red), green), blue) in
                pixels.chunks_exact_mut(CHANNELS).zip(red).zip(green).zip(blue)
            {
                pixel.copy_from_slice(&[*red, *green, *blue]);
            }
        }
        Ok(())
    }
}

/// Fills the buffer from offset `at` of a file, and checks that the file still has this stamp.
fn read(file: &File, stamp: Stamp, at: u64, space: &mut [u8]) -> Result<(), DataError> {
    let unreadable = |error: io::Error| DataError::io(&error);
    file.read_exact_at(space, at).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => {
            let end = at + space.len() as u64;
            DataError::new(Reason::Truncated, format!("the file ends before byte {end}"))
        }
        _ => unreadable(error),
    })?;
    if file.stamp().map_err(unreadable)? != stamp {
        let problem = "the file was changed after it was opened; open the source again";
        return Err(DataError::new(Reason::Unreadable, problem));
    }
    Ok(())
}

/// Creates the error for a file that the setting `key` names.
fn wrong(key: &str, path: &Path, wrong: FileError) -> Error {
    let place = format!("source.{key}: {}, byte {}", path.display(), wrong.offset);
    Error::config(place, wrong.problem)
}
