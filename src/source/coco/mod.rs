//! COCO: images in a folder, and one JSON file that tells what is in them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::largest::largest;
use super::{
    Annotations, Configured, Expected, Heads, Hints, HostPage, Identity, LeftOut, Notes, Page, RemoteReads, Sealed, Source, file,
    settings,
};
use crate::annotation::{Canvas, Frame, Object};
use crate::error::{Error, DataError, Redacted, Result};
use crate::geometry::Size;
use crate::storage::{self, Storage};

mod bounds;
mod document;
mod pool;

use pool::Pool;

/// Images with objects in them, as COCO's `instances_*.json` tells (<https://cocodataset.org/#format-data>).
///
/// * The samples are the `images` in the order of the file, also those without an annotation (`skip_empty` leaves them
///   out and counts them). An image's `file_name` is relative to the folder `images`. That folder must be there, with at least
///   one of the images; an image that is not there is a sample that cannot be read.
/// * [`Annotations::objects`] are the `annotations` of an image in the order of the file: box, category, `iscrowd`, `area`
///   (where it is left out, that of the box), `id`, and polygons or run lengths, also in pycocotools' compressed form.
///   Their label is the place of the category among all `categories` in the order of ids; [`Source::classes`] has the names,
///   [`Coco::categories`] the ids.
/// * A sample's own label is -1: no class is the image's.
/// * Every number is kept to the last bit. Numbers of at most two decimals, which is what COCO has, take two bytes or so.
/// * Positions mean the stored pixels unless `coordinates` says otherwise; with an image of another size than its `width`
///   and `height` say, the sample cannot be used.
/// * What cannot be is an error with the id: two images, categories or annotations with one id, an annotation of an image or a
///   category that is not there, a box that has no four numbers or a negative side, a polygon of an odd number of
///   coordinates, run lengths for another size or beyond it. A polygon of fewer than three points is left out, and
///   what run lengths do not reach is background. What is no JSON (`NaN`, say) is an error with line and column.
/// * The file is read as a stream: memory is what is kept. A text of more than 4 MiB, a `file_name` of more than 8 KiB, a name
///   of more than 4 KiB and an outline of more than 4 Mi numbers are errors.
#[derive(Debug)]
pub struct Coco {
    storage: Storage,
    json: PathBuf,
    folder: PathBuf,
    coordinates: Frame,
    categories: Vec<Category>,
    classes: Vec<String>,
    images: Vec<Image>,
    /// All file names, one after another.
    names: String,
    /// Where each annotation begins in the pool; those of an image follow one another.
    starts: Vec<u64>,
    pool: Pool,
    largest_bytes: u64,
    left_out: Vec<LeftOut>,
}

/// What stands beside `coco`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CocoSettings {
    /// The folder of the images: absolute, or relative to that of the JSON file; in a pipeline file first relative to that file,
    /// if there is such a folder. Default: the folder of the JSON file.
    pub images: PathBuf,
    /// Leaves images without an annotation out. Default false.
    pub skip_empty: bool,
    /// Which image positions mean: `stored` pixels, or the `upright` image. Default stored.
    pub coordinates: Frame,
    /// Where `images` was looked for before, for the error; no key.
    #[serde(skip)]
    pub tried: Option<PathBuf>,
}

/// A sort of object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Category {
    /// Its id in the file: any number.
    pub id: i64,
    /// Its name; the id where it has none.
    pub name: String,
}

/// One of `images`.
#[derive(Debug)]
struct Image {
    id: i64,
    /// 0x0 where the file does not say.
    size: Size,
    /// The end of its name; it begins where that of the image before ends.
    name_end: u64,
    /// The end of its annotations; likewise.
    end: u64,
}

impl Coco {
    /// Reads the JSON file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where it cannot be read, [`Error::Config`] where it says what cannot be, or has no images.
    pub fn open(json: impl AsRef<Path>, settings: &CocoSettings) -> Result<Self> {
        Self::open_with(json, settings, &Storage::default())
    }

    /// Reads the JSON file, and the images, through this handle.
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
        this.largest_bytes = file::largest(&this.storage, this.len(), |index| this.path(index));
        let first = this.path(0);
        let set = !settings.images.as_os_str().is_empty();
        if set && this.largest_bytes == 0 && !storage::is_url(&first) && !first.exists() {
            let (folder, first) = (this.folder.display(), first.display());
            let problem = format!("no image of {} is in {folder}: there is no {first}", json.display());
            return Err(Error::config("source.images", problem));
        }
        Ok(this)
    }

    /// All categories in the order of their ids: the first is that of label 0.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }

    /// The id of a sample's image in the file. `index` is below [`Source::len`].
    pub fn image_id(&self, index: u64) -> i64 {
        self.images[index as usize].id
    }

    /// The path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        let start = self.before(index).map_or(0, |image| image.name_end);
        let name = &self.names[start as usize..self.images[index as usize].name_end as usize];
        storage::join(&self.folder, Path::new(name))
    }

    fn is_at_url(&self) -> bool {
        self.len() > 0 && storage::is_url(&self.path(0))
    }

    fn before(&self, index: u64) -> Option<&Image> {
        index.checked_sub(1).map(|before| &self.images[before as usize])
    }

    /// The label of a category.
    fn label(categories: &[Category], id: i64) -> Option<usize> {
        categories.binary_search_by_key(&id, |category| category.id).ok()
    }
}

impl CocoSettings {
    /// The folder of the images of this JSON file.
    fn folder(&self, json: &Path) -> PathBuf {
        storage::join(json.parent().unwrap_or(Path::new("")), &self.images)
    }

    /// Refuses a folder that is not there, at once and not at the first sample.
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
        name.ends_with(".json") && head.trim_ascii_start().starts_with(b"{")
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
        file::read(&self.storage, &self.path(index), page, limit)
    }

    fn describe(&self) -> String {
        format!(
            "{}: {} images in {}, {} objects of {} categories",
            Redacted::path(&self.json),
            self.images.len(),
            Redacted::path(&self.folder),
            self.starts.len(),
            self.categories.len()
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
            let label = Self::label(&self.categories, object.category);
            let label = label.expect("a category that is not there was refused");
            Object { category: label as i64, ..object }
        };
        starts.iter().map(object).collect()
    }

    fn canvas(&self, index: u64) -> Canvas {
        let size = self.images[index as usize].size;
        Canvas { frame: self.coordinates, size: (size.pixels() > 0).then_some(size) }
    }
}

impl RemoteReads for Coco {
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let path = self.path(index);
        storage::is_url(&path).then(|| file::expect(&self.storage, path, None, limit))
    }
}

impl Heads for Coco {
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        file::read_head(&self.storage, &self.path(index), page, most, limit)
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
        (images + annotations + categories) as u64
    }
}

impl Identity for Coco {
    fn version(&self, index: u64) -> Option<String> {
        file::version(&self.path(index))
    }
}

impl Notes for Coco {
    fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.clone()
    }
}
