//! Keypoints and captions. Most programs do not need them, so they are not kept when the file is
//! opened. On first use, the file is parsed again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::Coco;
use super::bounds::List;
use super::loose::{Ids, Loose};
use super::pool::Pool;
use super::stream::{self, each};
use crate::error::{Error, Result};
use crate::storage::Stamp;

/// Key of the setting that names the JSON file.
const KEY: &str = "source.coco";

/// Data of annotations that only some columns need.
#[derive(Debug)]
pub struct Extras {
    /// Version of the JSON file when it was opened.
    stamp: Stamp,
    /// File with the captions, if it is another file.
    captions_file: Option<PathBuf>,
    keypoints: OnceLock<Result<Keypoints>>,
    captions: OnceLock<Result<Captions>>,
}

/// Keypoints of all objects.
#[derive(Debug)]
pub struct Keypoints {
    pub pool: Pool,
    /// Start of the keypoints of each object in `pool`, in the order of `Coco::starts`.
    pub starts: Vec<u64>,
}

/// Captions of all images, as JSON.
#[derive(Debug)]
pub struct Captions {
    /// A list of texts for each image that has captions.
    json: Vec<u8>,
    /// End of each image's list in `json`. The list begins where the previous list ends.
    ends: Vec<u64>,
}

impl Extras {
    /// Creates the extras of a file with this version. Reads nothing.
    pub fn new(stamp: Stamp, captions_file: Option<PathBuf>) -> Self {
        Self { stamp, captions_file, keypoints: OnceLock::new(), captions: OnceLock::new() }
    }

    /// Whether the captions are in a file of their own.
    pub fn has_captions_file(&self) -> bool {
        self.captions_file.is_some()
    }

    /// Returns the number of allocated bytes.
    pub fn bytes(&self) -> usize {
        let keypoints = |it: &Keypoints| it.pool.bytes() + it.starts.capacity() * size_of::<u64>();
        let captions = |it: &Captions| it.json.capacity() + it.ends.capacity() * size_of::<u64>();
        let keypoints = self.keypoints.get().and_then(|it| it.as_ref().ok()).map_or(0, keypoints);
        keypoints + self.captions.get().and_then(|it| it.as_ref().ok()).map_or(0, captions)
    }
}

impl Captions {
    /// Returns the captions of a sample as a JSON list; empty if it has none.
    pub fn of(&self, index: u64) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.json[start as usize..self.ends[index as usize] as usize]
    }
}

impl Coco {
    /// Returns the keypoints of all objects. The first call reads the JSON file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::Config`] if keypoints are invalid or if
    /// the file was changed.
    pub(super) fn keypoints(&self) -> Result<&Keypoints> {
        let keypoints = self.extras.keypoints.get_or_init(|| self.read_keypoints());
        keypoints.as_ref().map_err(Clone::clone)
    }

    /// Returns the captions of all images. The first call reads the file with the captions.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::Config`] if captions are invalid or if
    /// the file was changed.
    pub(super) fn captions(&self) -> Result<&Captions> {
        let captions = self.extras.captions.get_or_init(|| self.read_captions());
        captions.as_ref().map_err(Clone::clone)
    }

    fn read_keypoints(&self) -> Result<Keypoints> {
        let (mut pool, mut found) = (Pool::default(), Vec::new());
        let places = self.parse(KEY, &self.json, |image, entry| {
            if entry.bbox.is_none() {
                return Ok(());
            }
            let numbers = entry.keypoints.map_or(Vec::new(), |list| list.0);
            if !numbers.len().is_multiple_of(3) {
                return Err(format!(
                    "an annotation has keypoints of {} numbers; each keypoint must have x, y and \
                     visibility",
                    numbers.len()
                ));
            }
            found.push((image, pool.push_points(&numbers)));
            Ok(())
        })?;
        let place = |(image, start)| Some((places.of(image)?, start));
        let mut found: Vec<(u32, u64)> = found.into_iter().filter_map(place).collect();
        found.sort_by_key(|points| points.0);
        if found.len() != self.starts.len() {
            return Err(changed(&self.json));
        }
        pool.shrink();
        Ok(Keypoints { pool, starts: found.into_iter().map(|points| points.1).collect() })
    }

    fn read_captions(&self) -> Result<Captions> {
        let (key, file) = match &self.extras.captions_file {
            Some(file) => ("source.captions", file),
            None => (KEY, &self.json),
        };
        let (mut text, mut found) = (Vec::new(), Vec::new());
        let places = self.parse(key, file, |image, entry| {
            if let Some(caption) = entry.caption {
                let start = text.len();
                serde_json::to_writer(&mut text, &caption).map_err(|error| error.to_string())?;
                found.push((image, start, text.len()));
            }
            Ok(())
        })?;
        let place = |(image, start, end)| Some((places.of(image)?, start, end));
        let mut found: Vec<(u32, usize, usize)> = found.into_iter().filter_map(place).collect();
        if found.is_empty() {
            let problem = "has no caption of an image of the annotation file; captions are matched \
                           by image_id";
            return Err(stream::wrong(key, file, problem));
        }
        found.sort_by_key(|caption| caption.0);
        let mut all = Captions {
            // Each text has a bracket or a comma before it, and each list a bracket at its end.
            json: Vec::with_capacity(text.len() + 2 * found.len()),
            ends: Vec::with_capacity(self.images.len()),
        };
        let mut rest = found.into_iter().peekable();
        for place in 0..self.images.len() {
            let begin = all.json.len();
            while let Some((_, start, end)) = rest.next_if(|it| it.0 as usize == place) {
                all.json.push(if all.json.len() == begin { b'[' } else { b',' });
                all.json.extend_from_slice(&text[start..end]);
            }
            if all.json.len() > begin {
                all.json.push(b']');
            }
            all.ends.push(all.json.len() as u64);
        }
        all.json.shrink_to_fit();
        Ok(all)
    }

    /// Calls a function with each annotation of a file, and with the number that stands for the ID
    /// of its image. Returns the samples of these numbers.
    fn parse(
        &self,
        key: &str,
        file: &Path,
        give: impl FnMut(i64, Entry) -> Result<(), String>,
    ) -> Result<Places> {
        let mut document = Document { give, ids: Ids::default(), images: Vec::new() };
        let stamp = stream::parse(key, file, &self.storage, &mut document)?;
        let Document { ids, images, .. } = document;
        let own = self.images.iter().map(|image| image.id).zip(0..);
        let places = match (file == self.json, ids.are_texts() || self.has_text_ids) {
            (true, _) if stamp != self.extras.stamp => return Err(changed(file)),
            (_, false) => own.collect(),
            // An ID of `Coco` is the position in `images`.
            (true, true) => own
                .filter_map(|(place, index)| {
                    Some((*images.get(usize::try_from(place).ok()?)?, index))
                })
                .collect(),
            (false, true) => {
                let problem = "the ids of its images or of the images of the annotation file are \
                               texts, so they cannot be matched; write the captions into the \
                               annotation file, or make all ids numbers";
                return Err(stream::wrong(key, file, problem));
            }
        };
        Ok(Places::new(places))
    }
}

/// Samples by the numbers that stand for the IDs of their images.
struct Places(Vec<(i64, u32)>);

impl Places {
    fn new(mut places: Vec<(i64, u32)>) -> Self {
        places.sort_unstable();
        Self(places)
    }

    fn of(&self, image: i64) -> Option<u32> {
        let at = self.0.binary_search_by_key(&image, |place| place.0).ok()?;
        Some(self.0[at].1)
    }
}

fn changed(file: &Path) -> Error {
    stream::wrong(KEY, file, "was changed after it was opened")
}

/// Second pass over a file.
struct Document<F> {
    give: F,
    ids: Ids,
    /// Numbers of the IDs of `images`.
    images: Vec<i64>,
}

#[derive(Deserialize)]
struct ImageEntry {
    #[serde(default)]
    id: Loose,
}

/// One entry of `annotations`.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    image_id: Loose,
    /// Every object has a box.
    bbox: Option<IgnoredAny>,
    keypoints: Option<List<f64>>,
    caption: Option<String>,
}

impl<'de, F: FnMut(i64, Entry) -> Result<(), String>> Visitor<'de> for &mut Document<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with annotations, as COCO's captions_*.json has them")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Document { give, ids, images } = self;
        let mut number = |id: Loose, what: &str| match ids.number(id) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(format!("{what} is null or missing")),
            Err(problem) => Err(format!("{what} {problem}")),
        };
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "images" => map.next_value_seed(each(|it: ImageEntry| {
                    images.push(number(it.id, "the id of an image")?);
                    Ok(())
                }))?,
                "annotations" => map.next_value_seed(each(|mut it: Entry| {
                    let id = std::mem::take(&mut it.image_id);
                    give(number(id, "the image_id of an annotation")?, it)
                }))?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}
