//! Source for COCO: images in a folder, with one JSON file of annotations.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{self, Files};
use super::largest::largest;
use super::{
    Annotations, BadShards, Configured, Exclusion, Fields, Heads, Hints, Identity, Notes, Page,
    RemoteReads, Sealed, Source, settings, without_images,
};
use crate::annotation::{Canvas, Frame, Object};
use crate::error::{DataError, Error, Redacted, Result};
use crate::footprint::counted;
use crate::geometry::Size;
use crate::storage::{self, Storage};

mod bounds;
mod document;
mod extras;
mod fields;
mod loose;
mod outline;
mod pool;
mod stream;

use extras::Extras;
use pool::Pool;

/// Images with objects from COCO's `instances_*.json` (<https://cocodataset.org/#format-data>).
///
/// * The samples are the `images` in file order, including images without annotations (`skip_empty`
///   skips and counts these). The `file_name` of an image is relative to the folder `images`. This
///   folder must exist and contain at least one of the images, except in the second source of a
///   join. A missing image is a sample error.
/// * [`Annotations::objects`] returns the `annotations` of an image in file order: box, category,
///   `iscrowd`, `area` (default: the area of the box), `id`, and polygons or run lengths, including
///   pycocotools' compressed form. The label of an object is the position of its category among all
///   `categories`, ordered by ID. [`Source::classes`] returns their names, [`Coco::categories`]
///   their IDs.
/// * The label of a sample is -1, because an image has no class.
/// * Numbers are stored exactly. Numbers with at most two decimals, as in COCO, take about two
///   bytes.
/// * Coordinates refer to the stored pixels unless `coordinates` states otherwise. An image whose
///   size differs from its `width` and `height` is a sample error.
/// * An ID is a whole number. It may be written as a float (`3.0`) or a text (`"3"`). If an image
///   or category has any other text as its ID, all images or all categories must have texts as IDs.
///   Categories are then ordered by these texts, and [`Category::id`] is the position in this
///   order. For images, [`Coco::image_id`] is then the position in `images`.
/// * As in pycocotools, `width` and `height` may be floats, and may be 0, -1 or null if unknown.
///   `iscrowd` may be null. An image without `file_name` (LVIS) is named by the last part of its
///   `coco_url`. Annotations whose image is not listed are skipped and counted. Opening fails if no
///   annotation refers to a listed image. Annotations with the same ID are all used, with a warning
///   ([`Notes::warnings`]).
/// * Opening fails with a message that names the ID in these cases: two images or two categories
///   have the same ID; the category of an annotation is not listed; a box does not have four
///   numbers or has a negative side; a polygon has an odd number of coordinates; run lengths are
///   for an image of another size or exceed the image. Invalid JSON (such as `NaN`) is an error
///   with line and column. A polygon with fewer than three points is dropped. Pixels after the last
///   run length are background.
/// * Annotations with a `caption` and without box and category, as in `captions_*.json`, are
///   captions, not objects.
/// * The [`Fields`](super::custom::Fields) of a sample are values of the file, unchanged by the
///   operators: `image_id`, `file_name`, `width` and `height`; and for each object, in the order of
///   the objects and including crowds, `boxes` (x, y, width and height), `categories` (labels),
///   `category_ids`, `areas`, `iscrowd`, `keypoints` (x, y and visibility of each point) and
///   `segmentations`; and `captions`, a list of texts. `captions` are read from the file of this
///   setting, if it is set. `segmentations` has for each object null, a list of polygons, or an
///   object with `size` and `counts`, which is always a list.
/// * Keypoints and captions are read from the file again, once, if a column needs them. They are
///   kept in memory.
/// * The file is parsed as a stream, and only the results are kept in memory. A text of more than 4
///   MiB, a `file_name` of more than 8 KiB, a name of more than 4 KiB and an outline of more than 4
///   Mi numbers are errors.
#[derive(Debug)]
pub struct Coco {
    storage: Storage,
    json: PathBuf,
    folder: PathBuf,
    coordinates: Frame,
    categories: Vec<Category>,
    /// Label of each category ID of the file, ordered by ID.
    labels: Vec<(i64, usize)>,
    classes: Vec<String>,
    warning: Option<String>,
    images: Vec<Image>,
    /// All file names, concatenated.
    names: String,
    /// Start of each annotation's encoding in `pool`. The annotations of an image are consecutive.
    starts: Vec<u64>,
    pool: Pool,
    largest_bytes: u64,
    /// Whether the source was opened for its fields, so the images need not exist.
    for_fields: bool,
    excluded: Vec<Exclusion>,
    /// Number of annotations in the file that are captions.
    captions: usize,
    /// Whether an annotation has keypoints.
    has_keypoints: bool,
    /// Whether the IDs of images are texts, so `Image::id` is a position.
    has_text_ids: bool,
    extras: Extras,
}

/// Settings of the source `coco`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CocoSettings {
    /// Folder of the images, absolute or relative to the folder of the JSON file. In a pipeline
    /// file, a folder that exists relative to the pipeline file takes precedence. Default: the
    /// folder of the JSON file.
    pub images: PathBuf,
    /// Whether to skip images without annotations. Default false.
    pub skip_empty: bool,
    /// Image to which coordinates refer: `stored` pixels, or the `upright` image. Default stored.
    pub coordinates: Frame,
    /// COCO file with the captions of the images, such as `captions_train2017.json`, absolute or
    /// relative to the folder of the JSON file. In a pipeline file, a path that exists relative to
    /// the pipeline file takes precedence. It is read only if a column needs captions. Default: the
    /// captions are in the JSON file itself, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captions: Option<PathBuf>,
    /// Folder of the pipeline file, if the folder `images` does not exist in it. The error message
    /// for missing images names both places. Not a key in TOML.
    #[serde(skip)]
    pub tried: Option<PathBuf>,
}

/// Category of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Category {
    /// ID in the file. If IDs are texts, the position of the category in the order of the texts.
    pub id: i64,
    /// Name of the category, or its ID if it has no name.
    pub name: String,
}

/// One entry of `images`.
#[derive(Debug)]
struct Image {
    id: i64,
    /// Size of the image; 0x0 if the file does not state it.
    size: Size,
    /// End of the image's name in `names`. The name begins where the previous name ends.
    name_end: u64,
    /// Index in `Coco::starts` after the image's last annotation.
    end: u64,
}

impl Coco {
    /// Reads the JSON file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::Config`] if it is invalid or has no
    /// images.
    pub fn open(json: impl AsRef<Path>, settings: &CocoSettings) -> Result<Self> {
        Self::open_with(json, settings, &Storage::default())
    }

    /// Like [`open`](Self::open), but reads the JSON file and the images through this storage
    /// handle.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open`](Self::open).
    pub fn open_with(
        json: impl AsRef<Path>,
        settings: &CocoSettings,
        storage: &Storage,
    ) -> Result<Self> {
        let json = json.as_ref();
        settings.check(json)?;
        let mut this = Self::parsed(json, settings, storage)?;
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
            let problem = format!(
                "the folder {folder} has none of the images of {}: for example, {first} does \
                     not exist",
                json.display()
            );
            return Err(Error::config("source.images", problem));
        }
        Ok(this)
    }

    /// Reads the JSON file. Does not check the paths of the images.
    fn parsed(json: &Path, settings: &CocoSettings, storage: &Storage) -> Result<Self> {
        let this = document::read(json, settings, storage)?;
        if this.images.is_empty() {
            let problem = match settings.skip_empty {
                true => format!("no image of {} has an annotation", json.display()),
                false => format!("{} has no images", json.display()),
            };
            return Err(Error::config("source.coco", problem));
        }
        Ok(this)
    }

    /// Returns all categories ordered by ID. The first has label 0.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }

    /// Returns the ID of a sample's image in the file. If IDs are texts, returns its position in
    /// `images`. `index` must be below [`Source::len`].
    pub fn image_id(&self, index: u64) -> i64 {
        self.images[index as usize].id
    }

    /// Returns the path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        storage::join(&self.folder, Path::new(self.name(index)))
    }

    /// Returns the `file_name` of a sample.
    fn name(&self, index: u64) -> &str {
        let start = self.before(index).map_or(0, |image| image.name_end);
        &self.names[start as usize..self.images[index as usize].name_end as usize]
    }

    fn is_at_url(&self) -> bool {
        self.len() > 0 && storage::is_url(&self.path(0))
    }

    /// Returns the positions in `starts` of the annotations of a sample.
    fn objects_of(&self, index: u64) -> Range<usize> {
        let start = self.before(index).map_or(0, |image| image.end);
        start as usize..self.images[index as usize].end as usize
    }

    fn before(&self, index: u64) -> Option<&Image> {
        index.checked_sub(1).map(|before| &self.images[before as usize])
    }

    /// Returns the label of a category.
    fn label(labels: &[(i64, usize)], id: i64) -> Option<usize> {
        labels.binary_search_by_key(&id, |label| label.0).ok().map(|place| labels[place].1)
    }
}

impl CocoSettings {
    /// Returns the folder of the images that belong to a JSON file.
    fn folder(&self, json: &Path) -> PathBuf {
        storage::join(json.parent().unwrap_or(Path::new("")), &self.images)
    }

    /// Returns the file with the captions that belong to a JSON file, if it is another file.
    fn captions_file(&self, json: &Path) -> Option<PathBuf> {
        let captions = self.captions.as_ref()?;
        Some(storage::join(json.parent().unwrap_or(Path::new("")), captions))
    }

    /// Returns an error if the folder of the images is missing. Called when the source is opened.
    fn check(&self, json: &Path) -> Result<()> {
        let folder = self.folder(json);
        if self.images.as_os_str().is_empty() || storage::is_url(&folder) || folder.is_dir() {
            return Ok(());
        }
        let beside = json.parent().unwrap_or(Path::new(""));
        let tried = self.tried.as_deref().filter(|tried| *tried != beside);
        let tried = tried.map(|it| format!("{} nor in ", it.display())).unwrap_or_default();
        let (images, beside) = (self.images.display(), beside.display());
        let problem = format!("is {images}, but there is no such folder in {tried}{beside}");
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
        if let Some(captions) = &mut settings.captions
            && let Some(found) = settings::beside(base, captions)
        {
            *captions = found;
        }
    }

    fn recognises(name: &str, head: &[u8]) -> bool {
        let text = head.strip_prefix(stream::MARK).unwrap_or(head);
        name.ends_with(".json") && text.trim_ascii_start().starts_with(b"{")
    }

    fn open_with(paths: &[PathBuf], settings: &CocoSettings, storage: &Storage) -> Result<Self> {
        Self::open_with(settings::only(Self::KEY, paths)?, settings, storage)
    }

    /// Reads the JSON file. The images need not exist.
    fn open_fields(
        paths: &[PathBuf],
        settings: &CocoSettings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        bad.check_unset(Self::KEY)?;
        let mut this = Self::parsed(settings::only(Self::KEY, paths)?, settings, storage)?;
        this.for_fields = true;
        Ok(this)
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
        if self.for_fields {
            // The paths of the images were not checked.
            return Err(without_images());
        }
        file::read_sample(self, index, page, limit)
    }

    fn describe(&self) -> String {
        let captions = match self.captions {
            0 => String::new(),
            captions => format!(", {}", counted(captions, "caption")),
        };
        format!(
            "{}: {} in {}, {} of {}{captions}",
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

    fn fields(&self) -> Option<&dyn Fields> {
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
        let starts = &self.starts[self.objects_of(index)];
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
        (images + annotations + categories + labels + self.extras.bytes()) as u64
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
