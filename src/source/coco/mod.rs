//! Source for COCO: images in a folder, and one JSON file with their annotations.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{self, Files};
use super::largest::largest;
use super::{
    Annotations, Configured, Exclusion, Heads, Hints, Identity, Notes, Page, RemoteReads, Sealed,
    Source, settings,
};
use crate::annotation::{Canvas, Frame, Object};
use crate::error::{DataError, Error, Redacted, Result};
use crate::footprint::counted;
use crate::geometry::Size;
use crate::storage::{self, Storage};

mod bounds;
mod document;
mod loose;
mod outline;
mod pool;

use pool::Pool;

/// Images with objects from COCO's `instances_*.json` (<https://cocodataset.org/#format-data>).
///
/// * The samples are the `images` in file order, including those without annotations (`skip_empty` skips and counts them). The
///   `file_name` of an image is relative to the folder `images`. That folder must exist and contain at least one of the images; a
///   missing image is a sample error.
/// * [`Annotations::objects`] are the `annotations` of an image in file order: box, category, `iscrowd`, `area` (default: that of
///   the box), `id`, and polygons or run lengths, including pycocotools' compressed form. The label of an object is the position
///   of its category among all `categories` ordered by ID; [`Source::classes`] has the names, [`Coco::categories`] the IDs.
/// * The label of a sample is -1: an image has no class.
/// * Numbers are stored exactly. Numbers with at most two decimals, as in COCO, take about two bytes.
/// * Coordinates refer to the stored pixels unless `coordinates` says otherwise. An image whose size differs from its `width` and
///   `height` is a sample error.
/// * An ID is a whole number, which may be written as a float (`3.0`) or a text (`"3"`). If the IDs of a kind are other texts,
///   all must be: categories are then ordered by them, and [`Category::id`] and [`Coco::image_id`] return the position in this
///   order or in `images`.
/// * As in pycocotools: `width` and `height` may be floats, and 0, -1 or null if they are not known; `iscrowd` may be null; an
///   image without `file_name` (LVIS) has the last part of its `coco_url`; annotations of images that are not listed are skipped
///   and counted, unless all are; annotations with the same ID are all used, with a warning ([`Notes::warnings`]).
/// * Errors, with the ID: duplicate IDs of images or categories; an annotation of a missing category; a box without four numbers or
///   with a negative side; a polygon with an odd number of coordinates; run lengths for another size or beyond it. Invalid JSON
///   (such as `NaN`) is an error with line and column. A polygon with fewer than three points is dropped; pixels not covered by run
///   lengths are background.
/// * The file is parsed as a stream; only the results are in memory. A text of more than 4 MiB, a `file_name` of more than 8 KiB,
///   a name of more than 4 KiB and an outline of more than 4 Mi numbers are errors.
#[derive(Debug)]
pub struct Coco {
    storage: Storage,
    json: PathBuf,
    folder: PathBuf,
    coordinates: Frame,
    categories: Vec<Category>,
    /// Label of each category ID in the file, ordered by ID.
    labels: Vec<(i64, usize)>,
    classes: Vec<String>,
    warning: Option<String>,
    images: Vec<Image>,
    /// All file names, concatenated.
    names: String,
    /// Start of each annotation in the pool; those of an image are consecutive.
    starts: Vec<u64>,
    pool: Pool,
    largest_bytes: u64,
    excluded: Vec<Exclusion>,
}

/// Settings next to `coco`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CocoSettings {
    /// Folder of the images, absolute or relative to the folder of the JSON file. In a pipeline file, a path relative to that
    /// file takes precedence if the folder exists. Default: the folder of the JSON file.
    pub images: PathBuf,
    /// Whether to skip images without annotations. Default false.
    pub skip_empty: bool,
    /// Image to which coordinates refer: `stored` pixels, or the `upright` image. Default stored.
    pub coordinates: Frame,
    /// Folder that was tried before, for the error message; not a key.
    #[serde(skip)]
    pub tried: Option<PathBuf>,
}

/// Category of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Category {
    /// ID in the file; its position in the order of IDs if they are texts.
    pub id: i64,
    /// Name, or the ID if it has none.
    pub name: String,
}

/// Entry of `images`.
#[derive(Debug)]
struct Image {
    id: i64,
    /// 0x0 if the file gives no size.
    size: Size,
    /// End of its name in `names`; it begins at the end of the previous one.
    name_end: u64,
    /// Index after its last annotation.
    end: u64,
}

impl Coco {
    /// Reads the JSON file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be read, [`Error::Config`] if it is invalid or has no images.
    pub fn open(json: impl AsRef<Path>, settings: &CocoSettings) -> Result<Self> {
        Self::open_with(json, settings, &Storage::default())
    }

    /// Reads the JSON file and the images through this storage handle.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_with(
        json: impl AsRef<Path>,
        settings: &CocoSettings,
        storage: &Storage,
    ) -> Result<Self> {
        let json = json.as_ref();
        settings.check(json)?;
        let mut this = document::read(json, settings, storage)?;
        if this.images.is_empty() {
            let problem = match settings.skip_empty {
                true => format!("{} has no image with an annotation", json.display()),
                false => format!("{} has no images", json.display()),
            };
            return Err(Error::config("source.coco", problem));
        }
        let allowed = storage.settings().allowed(&this.folder);
        for index in 0..this.len() {
            allowed.check(this.name(index)).map_err(|problem| {
                let place =
                    format!("source.coco: {}, image {}", json.display(), this.image_id(index));
                Error::config(place, problem)
            })?;
        }
        this.largest_bytes = file::largest(&this.storage, this.len(), |index| this.path(index));
        let first = this.path(0);
        let set = !settings.images.as_os_str().is_empty();
        if set && this.largest_bytes == 0 && !storage::is_url(&first) && !first.exists() {
            let (folder, first) = (this.folder.display(), first.display());
            let problem =
                format!("no image of {} is in {folder}: {first} does not exist", json.display());
            return Err(Error::config("source.images", problem));
        }
        Ok(this)
    }

    /// All categories ordered by ID; the first has label 0.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }

    /// ID of a sample's image in the file; its position in `images` if IDs are texts. `index` is below [`Source::len`].
    pub fn image_id(&self, index: u64) -> i64 {
        self.images[index as usize].id
    }

    /// Path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        storage::join(&self.folder, Path::new(self.name(index)))
    }

    /// `file_name` of a sample.
    fn name(&self, index: u64) -> &str {
        let start = self.before(index).map_or(0, |image| image.name_end);
        &self.names[start as usize..self.images[index as usize].name_end as usize]
    }

    fn is_at_url(&self) -> bool {
        self.len() > 0 && storage::is_url(&self.path(0))
    }

    fn before(&self, index: u64) -> Option<&Image> {
        index.checked_sub(1).map(|before| &self.images[before as usize])
    }

    /// Label of a category.
    fn label(labels: &[(i64, usize)], id: i64) -> Option<usize> {
        labels.binary_search_by_key(&id, |label| label.0).ok().map(|place| labels[place].1)
    }
}

impl CocoSettings {
    /// Folder of the images of this JSON file.
    fn folder(&self, json: &Path) -> PathBuf {
        storage::join(json.parent().unwrap_or(Path::new("")), &self.images)
    }

    /// Rejects a missing folder when the source is opened.
    fn check(&self, json: &Path) -> Result<()> {
        let folder = self.folder(json);
        if self.images.as_os_str().is_empty() || storage::is_url(&folder) || folder.is_dir() {
            return Ok(());
        }
        let before = self.tried.as_ref().map(|it| format!("{} nor in ", it.display()));
        let problem = format!(
            "is {}, and there is no such folder in {}{}",
            self.images.display(),
            before.unwrap_or_default(),
            json.parent().unwrap_or(Path::new("")).display()
        );
        Err(Error::config("source.images", problem))
    }
}

impl Sealed for Coco {}

impl Configured for Coco {
    const KEY: &'static str = "coco";
    type Settings = CocoSettings;

    fn relative_to(settings: &mut CocoSettings, base: &Path) {
        match settings::beside(base, &settings.images) {
            Some(folder) => settings.images = folder,
            None => settings.tried = Some(base.into()),
        }
    }

    fn recognises(name: &str, head: &[u8]) -> bool {
        let text = head.strip_prefix(document::MARK).unwrap_or(head);
        name.ends_with(".json") && text.trim_ascii_start().starts_with(b"{")
    }

    fn open_with(paths: &[PathBuf], settings: &CocoSettings, storage: &Storage) -> Result<Self> {
        Self::open_with(settings::only(Self::KEY, paths)?, settings, storage)
    }
}

impl Source for Coco {
    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn label(&self, _: u64) -> i64 {
        -1
    }

    fn location(&self, index: u64) -> String {
        Redacted::path(&self.path(index)).into_string()
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        file::read_sample(self, index, page, limit)
    }

    fn describe(&self) -> String {
        format!(
            "{}: {} in {}, {} of {}",
            Redacted::path(&self.json),
            counted(self.images.len(), "image"),
            Redacted::path(&self.folder),
            counted(self.starts.len(), "object"),
            counted(self.categories.len(), "category")
        )
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn annotations(&self) -> Option<&dyn Annotations> {
        Some(self)
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        self.is_at_url().then_some(self)
    }

    fn heads(&self) -> Option<&dyn Heads> {
        (!self.is_at_url()).then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

impl Annotations for Coco {
    fn objects(&self, index: u64) -> Vec<Object> {
        let start = self.before(index).map_or(0, |image| image.end);
        let end = self.images[index as usize].end;
        let starts = &self.starts[start as usize..end as usize];
        let object = |&at: &u64| {
            let object = self.pool.object(at);
            let label = Self::label(&self.labels, object.category);
            let label = label.expect("missing categories were rejected");
            Object { category: label as i64, ..object }
        };
        starts.iter().map(object).collect()
    }

    fn canvas(&self, index: u64) -> Canvas {
        let size = self.images[index as usize].size;
        Canvas { frame: self.coordinates, size: (size.pixels() > 0).then_some(size) }
    }
}

impl Hints for Coco {
    fn largest_bytes(&self) -> Option<u64> {
        Some(self.largest_bytes)
    }

    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        largest((0..).zip(self.images.iter().map(|image| image.size.pixels())), most)
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let names = self.classes.iter().chain(self.categories.iter().map(|it| &it.name));
        let images = self.images.capacity() * size_of::<Image>() + self.names.capacity();
        let annotations = self.starts.capacity() * size_of::<u64>() + self.pool.bytes();
        let categories = names.map(|name| name.capacity() + size_of::<String>()).sum::<usize>();
        let labels = self.labels.capacity() * size_of::<(i64, usize)>();
        (images + annotations + categories + labels) as u64
    }
}

impl Files for Coco {
    fn storage(&self) -> &Storage {
        &self.storage
    }

    fn path(&self, index: u64) -> PathBuf {
        self.path(index)
    }
}

impl Notes for Coco {
    fn excluded(&self) -> Vec<Exclusion> {
        self.excluded.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warning.iter().cloned().collect()
    }
}
