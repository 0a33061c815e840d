//! Parses the JSON file as a stream.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::bounds::Corners;
use super::extras::Extras;
use super::loose::{Ids, Loose};
use super::outline::Outline;
use super::pool::Pool;
use super::stream::{self, each};
use super::{Category, Coco, CocoSettings, Image};
use crate::annotation::Object;
use crate::error::{Redacted, Result};
use crate::geometry::{BoundingBox, Size};
use crate::source::label::MOST_NAME_BYTES;
use crate::source::{ExclusionReason, Exclusions, file};
use crate::storage::{Stamp, Storage};

/// Reads and checks the JSON file.
pub fn read(json: &Path, settings: &CocoSettings, storage: &Storage) -> Result<Coco> {
    let mut document = Document::default();
    let stamp = stream::parse("source.coco", json, storage, &mut document)?;
    let finished = document.finish(json, settings, (storage, stamp));
    finished.map_err(|problem| stream::wrong("source.coco", json, problem))
}

/// Content of the JSON file that has been parsed so far.
#[derive(Default)]
struct Document {
    images: Vec<Image>,
    names: String,
    categories: Vec<Category>,
    /// For each annotation: the ID of its image, and the start of its encoding in `pool`.
    annotations: Vec<(i64, u64)>,
    pool: Pool,
    /// For each caption: the ID of its image, and its own ID.
    captions: Vec<(i64, i64)>,
    has_keypoints: bool,
    excluded: Exclusions,
    image_ids: Ids,
    category_ids: Ids,
    annotation_ids: Ids,
}

#[derive(Deserialize)]
struct ImageEntry {
    #[serde(default)]
    id: Loose,
    file_name: Option<String>,
    /// LVIS has this field instead of `file_name`.
    coco_url: Option<String>,
    #[serde(default)]
    width: Loose,
    #[serde(default)]
    height: Loose,
}

#[derive(Deserialize)]
struct CategoryEntry {
    #[serde(default)]
    id: Loose,
    name: Option<String>,
}

#[derive(Deserialize)]
struct AnnotationEntry {
    #[serde(default)]
    id: Loose,
    #[serde(default)]
    image_id: Loose,
    #[serde(default)]
    category_id: Loose,
    bbox: Option<Corners>,
    area: Option<f64>,
    #[serde(default)]
    iscrowd: Loose,
    #[serde(default)]
    segmentation: Outline,
    keypoints: Option<IgnoredAny>,
    caption: Option<IgnoredAny>,
}

impl<'de> Visitor<'de> for &mut Document {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with images, annotations and categories, as COCO's instances_*.json has them")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "images" => map.next_value_seed(each(|it: ImageEntry| self.image(it)))?,
                "categories" => map.next_value_seed(each(|it: CategoryEntry| self.category(it)))?,
                "annotations" => {
                    map.next_value_seed(each(|it: AnnotationEntry| self.annotation(it)))?;
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

impl Document {
    fn image(&mut self, entry: ImageEntry) -> Result<(), String> {
        let ImageEntry { id, file_name, coco_url, width, height } = entry;
        let number = self.images.len();
        let id = self.image_ids.number(id);
        let id =
            id.map_err(|problem| format!("the id of image number {number} (from 0) {problem}"))?;
        let id = id.ok_or_else(|| format!("image number {number} (from 0) has no id"))?;
        let shown = self.image_ids.written(id);
        let last = |url: String| url.rsplit('/').next().map(String::from);
        let name = file_name.or_else(|| coco_url.and_then(last)).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("image {shown} has no file_name"))?;
        bounded(&format!("image {shown} has a file_name"), &name, file::MOST_PATH_BYTES)?;
        let side = |key: &str, side: Loose| {
            side.side().map_err(|is| {
                format!(
                    "the {key} of image {shown} {is}; it must be a whole number of pixels, or \
                     null if it is not known"
                )
            })
        };
        let (width, height) = (side("width", width)?, side("height", height)?);
        self.names += &name;
        let name_end = self.names.len() as u64;
        self.images.push(Image { id, size: Size::new(width, height), name_end, end: 0 });
        Ok(())
    }

    fn category(&mut self, entry: CategoryEntry) -> Result<(), String> {
        let CategoryEntry { id, name } = entry;
        let number = self.categories.len();
        let id = self.category_ids.number(id);
        let id =
            id.map_err(|problem| format!("the id of category number {number} (from 0) {problem}"))?;
        let id = id.ok_or_else(|| format!("category number {number} (from 0) has no id"))?;
        let shown = self.category_ids.written(id);
        let name = name.unwrap_or_else(|| self.category_ids.plain(id));
        bounded(&format!("category {shown} has a name"), &name, MOST_NAME_BYTES)?;
        self.categories.push(Category { id, name });
        Ok(())
    }

    fn annotation(&mut self, entry: AnnotationEntry) -> Result<(), String> {
        let number = self.annotations.len() + self.captions.len();
        let id = self.annotation_ids.number(entry.id);
        let id = id.map_err(|problem| {
            format!("the id of annotation number {number} (from 0) {problem}")
        })?;
        let id = id.ok_or_else(|| format!("annotation number {number} (from 0) has no id"))?;
        let shown = self.annotation_ids.written(id);
        let lacks = |key: &str| {
            format!(
                "annotation {shown} has no {key}; only objects and captions are supported, as in instances_*.json and captions_*.json"
            )
        };
        let wrong = |key: &'static str| {
            let shown = shown.clone();
            move |is: String| format!("the {key} of annotation {shown} {is}")
        };
        let image = self.image_ids.number(entry.image_id).map_err(wrong("image_id"))?;
        let image = image.ok_or_else(|| lacks("image_id"))?;
        let category = self.category_ids.number(entry.category_id).map_err(wrong("category_id"))?;
        if category.is_none() && entry.bbox.is_none() && entry.caption.is_some() {
            self.captions.push((image, id));
            return Ok(());
        }
        let category = category.ok_or_else(|| lacks("category_id"))?;
        let bbox = entry.bbox.ok_or_else(|| lacks("bbox"))?;
        if let Some(value) = &bbox.wrong {
            return Err(format!("annotation {shown} has a bbox with a number that {}", value.is()));
        }
        let Corners { numbers: bbox @ [x, y, width, height], count: 4, .. } = bbox else {
            let count = bbox.count;
            return Err(format!(
                "annotation {shown} has a bbox of {count} numbers; it must have 4"
            ));
        };
        if width < 0.0 || height < 0.0 {
            return Err(format!(
                "annotation {shown} has a bbox with a negative width or height: {bbox:?}; the \
                 numbers are x, y, width and height"
            ));
        }
        let segmentation =
            entry.segmentation.checked().map_err(|it| format!("annotation {shown}: {it}"))?;
        let area = entry.area.unwrap_or(width * height);
        let crowd =
            entry.iscrowd.flag().map_err(|is| wrong("iscrowd")(format!("{is}, must be 0 or 1")))?;
        let bounding = BoundingBox::new(x, y, width, height);
        let object = Object { id, category, bbox: bounding, area, crowd, segmentation };
        self.annotations.push((image, self.pool.push(&object, bbox)));
        self.has_keypoints |= entry.keypoints.is_some();
        Ok(())
    }

    /// Runs the checks that need the whole file, and assigns the annotations to images.
    fn finish(
        mut self,
        json: &Path,
        settings: &CocoSettings,
        (storage, stamp): (&Storage, Stamp),
    ) -> Result<Coco, String> {
        let labels = self.number_categories()?;
        let ids = self.images.iter().map(|image| image.id);
        if let Some((id, _)) = repeated(ids.collect()) {
            return Err(format!("two images have the id {}", self.image_ids.written(id)));
        }
        let ids = self.annotations.iter().map(|it| self.pool.head(it.1).id);
        let ids = ids.chain(self.captions.iter().map(|caption| caption.1));
        let warning = repeated(ids.collect()).map(|(id, count)| {
            let (json, id) = (Redacted::path(json), self.annotation_ids.written(id));
            format!(
                "{json}: some annotations repeat the id of another annotation (number of \
                 repetitions: {count}; the first repeated id is {id}). All annotations are used. \
                 Give each annotation its own id if you match results by id"
            )
        });

        let mut places: Vec<(i64, u32)> =
            self.images.iter().map(|image| image.id).zip(0..).collect();
        places.sort_unstable();
        let listed = |image: i64| places.binary_search_by_key(&image, |place| place.0).ok();
        let all = self.annotations.iter().map(|it| (it.0, self.pool.head(it.1).id));
        let orphans = all.chain(self.captions.iter().copied()).filter(|it| listed(it.0).is_none());
        for (count, (image, id)) in (1..).zip(orphans) {
            let (id, image) = (self.annotation_ids.written(id), self.image_ids.written(image));
            if count == self.annotations.len() + self.captions.len() && !self.images.is_empty() {
                return Err(format!(
                    "none of the {count} annotations belongs to an image of the file: for \
                     example, annotation {id} belongs to image {image}"
                ));
            }
            let example = format!("annotation {id} of image {image}");
            self.excluded.add(ExclusionReason::OrphanAnnotation, "", 1, &example);
        }
        self.annotations.retain(|it| listed(it.0).is_some());
        self.captions.retain(|it| listed(it.0).is_some());
        let captioned = self.captions.iter().filter_map(|it| listed(it.0).map(|at| places[at].1));
        let (captioned, captions): (HashSet<u32>, _) = (captioned.collect(), self.captions.len());
        // Replaces the image ID of each annotation by the position of the image in `images`.
        for (image, start) in &mut self.annotations {
            let head = self.pool.head(*start);
            let Some(at) = listed(*image) else { continue };
            if Coco::label(&labels, head.category).is_none() {
                let id = self.annotation_ids.written(head.id);
                let category = self.category_ids.written(head.category);
                return Err(format!(
                    "annotation {id} has category {category}, which does not exist"
                ));
            }
            let place = places[at].1;
            let size = self.images[place as usize].size;
            if let Some(runs) = head.size
                && size.pixels() > 0
                && runs != size
            {
                let id = self.annotation_ids.written(head.id);
                let image = self.image_ids.written(*image);
                return Err(format!(
                    "annotation {id} has a mask of {runs} pixels, but image {image} has {size} \
                     pixels"
                ));
            }
            *image = place.into();
        }
        drop(places);
        self.annotations.sort_by_key(|annotation| annotation.0);
        let mut of = self.annotations.iter().peekable();
        let mut end = 0;
        for (place, image) in self.images.iter_mut().enumerate() {
            while of.next_if(|annotation| annotation.0 == place as i64).is_some() {
                end += 1;
            }
            image.end = end;
            if self.image_ids.are_texts() {
                image.id = place as i64;
            }
        }
        if settings.skip_empty {
            self.skip_empty(&captioned);
        }
        self.pool.shrink();
        self.names.shrink_to_fit();
        self.images.shrink_to_fit();
        Ok(Coco {
            storage: storage.clone(),
            json: json.into(),
            folder: settings.folder(json),
            coordinates: settings.coordinates,
            classes: self.categories.iter().map(|category| category.name.clone()).collect(),
            categories: self.categories,
            labels,
            warning,
            images: self.images,
            names: self.names,
            starts: self.annotations.into_iter().map(|annotation| annotation.1).collect(),
            pool: self.pool,
            largest_bytes: 0,
            for_fields: false,
            excluded: self.excluded.into_list(),
            extras: Extras::new(stamp, settings.captions_file(json)),
            captions,
            has_keypoints: self.has_keypoints,
            has_text_ids: self.image_ids.are_texts(),
        })
    }

    /// Sorts the categories by ID. Returns the label of each ID, in the order of IDs. An ID that is
    /// a text is replaced by the position of its category in this order.
    fn number_categories(&mut self) -> Result<Vec<(i64, usize)>, String> {
        match self.category_ids.are_texts() {
            true => self.categories.sort_by_cached_key(|it| self.category_ids.plain(it.id)),
            false => self.categories.sort_by_key(|category| category.id),
        }
        let ids = self.categories.iter().map(|category| category.id);
        let mut labels: Vec<(i64, usize)> = ids.zip(0..).collect();
        labels.sort_unstable();
        if let Some(pair) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let id = self.category_ids.written(pair[0].0);
            return Err(format!("two categories have the id {id}"));
        }
        if self.category_ids.are_texts() {
            (0..).zip(&mut self.categories).for_each(|(place, it)| it.id = place);
        }
        Ok(labels)
    }

    /// Removes the images without annotations, and their names.
    fn skip_empty(&mut self, captioned: &HashSet<u32>) {
        let (mut names, mut name, mut end) = (String::new(), 0, 0);
        let mut places = 0..;
        self.images.retain_mut(|image| {
            let has_caption = places.next().is_some_and(|place| captioned.contains(&place));
            let keep = has_caption || image.end > end;
            let own = &self.names[name as usize..image.name_end as usize];
            match keep {
                true => names += own,
                false => self.excluded.add(ExclusionReason::NoAnnotation, "", 1, own),
            }
            (name, end) = (image.name_end, image.end);
            image.name_end = names.len() as u64;
            keep
        });
        self.names = names;
    }
}

/// Returns an error if a text is too long.
fn bounded(what: &str, text: &str, most: usize) -> Result<(), String> {
    match text.len() > most {
        true => Err(format!("{what} of {} bytes; the maximum is {most} bytes", text.len())),
        false => Ok(()),
    }
}

/// Returns the first ID that occurs more than once, and the total number of repetitions of all IDs.
fn repeated(mut ids: Vec<i64>) -> Option<(i64, usize)> {
    ids.sort_unstable();
    let mut again = ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    again.next().map(|id| (id, 1 + again.count()))
}
