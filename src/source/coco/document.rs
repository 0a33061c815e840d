//! Streaming parser of the JSON file.

use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read};
use std::marker::PhantomData;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::bounds::{Corners, List, MOST_NUMBERS, Tokens, too_many};
use super::pool::Pool;
use super::{Category, Coco, CocoSettings, Image};
use crate::annotation::{Object, RunLengths, Segmentation};
use crate::error::{Error, Result};
use crate::geometry::{BoundingBox, Size};
use crate::source::label::MOST_NAME_BYTES;
use crate::source::{ExclusionReason, Exclusions, file};
use crate::storage::{File, Storage};

/// Reads and checks the file.
pub fn read(json: &Path, settings: &CocoSettings, storage: &Storage) -> Result<Coco> {
    let io = |error: io::Error| Error::io(json, &error);
    let file = Cursor { file: storage.open(json).map_err(io)?, at: 0, tokens: Tokens::default() };
    let mut document = Document::default();
    let mut stream = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 20, file));
    stream.deserialize_map(&mut document).and_then(|()| stream.end()).map_err(
        |error| match error.io_error_kind() {
            Some(ErrorKind::InvalidData) | None => wrong(json, error),
            Some(_) => io(error.into()),
        },
    )?;
    document.finish(json, settings, storage).map_err(|problem| wrong(json, problem))
}

fn wrong(json: &Path, problem: impl fmt::Display) -> Error {
    Error::config("source.coco", format!("{}: {problem}", json.display()))
}

/// Sequential reader of a file.
struct Cursor {
    file: File,
    at: u64,
    tokens: Tokens,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buffer, self.at)?;
        self.at += len as u64;
        self.tokens.pass(&buffer[..len])?;
        Ok(len)
    }
}

/// Parsed content of the file.
#[derive(Default)]
struct Document {
    images: Vec<Image>,
    names: String,
    categories: Vec<Category>,
    /// For each annotation, its image ID and its start in the pool.
    annotations: Vec<(i64, u64)>,
    pool: Pool,
    excluded: Exclusions,
}

#[derive(Deserialize)]
struct ImageEntry {
    id: i64,
    file_name: String,
    #[serde(default)]
    width: u32,
    #[serde(default)]
    height: u32,
}

#[derive(Deserialize)]
struct CategoryEntry {
    id: i64,
    name: Option<String>,
}

#[derive(Deserialize)]
struct AnnotationEntry {
    id: Option<i64>,
    image_id: Option<i64>,
    category_id: Option<i64>,
    bbox: Option<Corners>,
    area: Option<f64>,
    #[serde(default)]
    iscrowd: Flag,
    #[serde(default)]
    segmentation: Outline,
}

/// Value of `segmentation`.
#[derive(Default)]
enum Outline {
    #[default]
    None,
    Polygons(Vec<Vec<f64>>),
    Runs(Size, Counts),
}

enum Counts {
    Lengths(Vec<u64>),
    Compressed(String),
}

/// 0 or 1, or false or true.
#[derive(Default, PartialEq)]
struct Flag(bool);

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
        let ImageEntry { id, file_name, width, height } = entry;
        bounded(&format!("image {id} has a file_name"), &file_name, file::MOST_PATH_BYTES)?;
        self.names += &file_name;
        let name_end = self.names.len() as u64;
        self.images.push(Image { id, size: Size::new(width, height), name_end, end: 0 });
        Ok(())
    }

    fn category(&mut self, entry: CategoryEntry) -> Result<(), String> {
        let CategoryEntry { id, name } = entry;
        let name = name.unwrap_or_else(|| id.to_string());
        bounded(&format!("category {id} has a name"), &name, MOST_NAME_BYTES)?;
        self.categories.push(Category { id, name });
        Ok(())
    }

    fn annotation(&mut self, entry: AnnotationEntry) -> Result<(), String> {
        let number = self.annotations.len();
        let id = entry.id.ok_or(format!("annotation number {number} (from 0) has no id"))?;
        let lacks = |key: &str| {
            format!(
                "annotation {id} has no {key}; only object detection is supported, as in instances_*.json"
            )
        };
        let image = entry.image_id.ok_or_else(|| lacks("image_id"))?;
        let category = entry.category_id.ok_or_else(|| lacks("category_id"))?;
        let bbox = entry.bbox.ok_or_else(|| lacks("bbox"))?;
        let Corners { numbers: bbox @ [x, y, width, height], count: 4 } = bbox else {
            return Err(format!("annotation {id} has a bbox of {} numbers, must be 4", bbox.count));
        };
        if width < 0.0 || height < 0.0 {
            return Err(format!(
                "annotation {id} has a bbox of negative size: {bbox:?} must be x, y, width, height"
            ));
        }
        let segmentation =
            entry.segmentation.checked().map_err(|it| format!("annotation {id}: {it}"))?;
        let area = entry.area.unwrap_or(width * height);
        let crowd = entry.iscrowd.0;
        let bounding = BoundingBox::new(x, y, width, height);
        let object = Object { id, category, bbox: bounding, area, crowd, segmentation };
        self.annotations.push((image, self.pool.push(&object, bbox)));
        Ok(())
    }

    /// Runs the checks that need the whole file, and assigns annotations to images.
    fn finish(
        mut self,
        json: &Path,
        settings: &CocoSettings,
        storage: &Storage,
    ) -> Result<Coco, String> {
        self.categories.sort_by_key(|category| category.id);
        let ids = self.categories.iter().map(|category| category.id);
        unique("categories", ids.collect())?;
        unique("images", self.images.iter().map(|image| image.id).collect())?;
        unique("annotations", self.annotations.iter().map(|it| self.pool.head(it.1).id).collect())?;

        let mut places: Vec<(i64, u32)> =
            self.images.iter().map(|image| image.id).zip(0..).collect();
        places.sort_unstable();
        // Replace the ID of the image by its position.
        for (image, start) in &mut self.annotations {
            let head = self.pool.head(*start);
            let id = head.id;
            let Ok(at) = places.binary_search_by_key(image, |place| place.0) else {
                return Err(format!("annotation {id} is of image {image}, which does not exist"));
            };
            if Coco::label(&self.categories, head.category).is_none() {
                let category = head.category;
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
                return Err(format!(
                    "annotation {id} has a mask of {runs}, and image {image} is {size}"
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
        }
        if settings.skip_empty {
            self.skip_empty();
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
            images: self.images,
            names: self.names,
            starts: self.annotations.into_iter().map(|annotation| annotation.1).collect(),
            pool: self.pool,
            largest_bytes: 0,
            excluded: self.excluded.into_list(),
        })
    }

    /// Removes images without annotations, and their names.
    fn skip_empty(&mut self) {
        let (mut names, mut name, mut end) = (String::new(), 0, 0);
        self.images.retain_mut(|image| {
            let keep = image.end > end;
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

/// Rejects a text that is too long.
fn bounded(what: &str, text: &str, most: usize) -> Result<(), String> {
    match text.len() > most {
        true => Err(format!("{what} of {} bytes; the maximum is {most}", text.len())),
        false => Ok(()),
    }
}

/// Rejects duplicate IDs.
fn unique(what: &str, mut ids: Vec<i64>) -> Result<(), String> {
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two {what} have the id {}", pair[0])),
        None => Ok(()),
    }
}

impl Outline {
    fn checked(self) -> Result<Option<Segmentation>, String> {
        match self {
            Outline::None => Ok(None),
            Outline::Runs(size, Counts::Lengths(lengths)) => {
                RunLengths::new(size, lengths).map(|runs| Some(Segmentation::Runs(runs)))
            }
            Outline::Runs(size, Counts::Compressed(text)) => {
                let runs = RunLengths::from_compressed(size, text.as_bytes())?;
                Ok(Some(Segmentation::Runs(runs)))
            }
            Outline::Polygons(polygons) => {
                let mut kept = Vec::new();
                for numbers in polygons {
                    let (points, odd) = numbers.as_chunks();
                    if !odd.is_empty() {
                        let len = numbers.len();
                        return Err(format!(
                            "a polygon of {len} numbers, must be pairs of x and y"
                        ));
                    }
                    if points.len() >= 3 {
                        kept.push(points.to_vec());
                    }
                }
                Ok((!kept.is_empty()).then_some(Segmentation::Polygons(kept)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OutlineVisitor)
    }
}

struct OutlineVisitor;

impl<'de> Visitor<'de> for OutlineVisitor {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of polygons, or size and counts")
    }

    fn visit_unit<E>(self) -> Result<Outline, E> {
        Ok(Outline::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Outline, A::Error> {
        let (mut polygons, mut numbers) = (Vec::new(), 0);
        while let Some(List(polygon)) = seq.next_element::<List<f64>>()? {
            // A polygon without points takes memory too.
            numbers += polygon.len() + 1;
            if numbers > MOST_NUMBERS {
                return Err(A::Error::custom(too_many()));
            }
            polygons.push(polygon);
        }
        Ok(Outline::Polygons(polygons))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let (mut size, mut counts) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "size" => size = Some(map.next_value::<[u32; 2]>()?),
                "counts" => counts = Some(map.next_value()?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        let [height, width] = size.ok_or_else(|| A::Error::missing_field("size"))?;
        let counts = counts.ok_or_else(|| A::Error::missing_field("counts"))?;
        Ok(Outline::Runs(Size::new(width, height), counts))
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CountsVisitor)
    }
}

struct CountsVisitor;

impl<'de> Visitor<'de> for CountsVisitor {
    type Value = Counts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("run lengths, or the string of pycocotools")
    }

    fn visit_str<E>(self, text: &str) -> Result<Counts, E> {
        Ok(Counts::Compressed(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Counts, A::Error> {
        let List(lengths) = List::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Counts::Lengths(lengths))
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FlagVisitor)
    }
}

struct FlagVisitor;

impl Visitor<'_> for FlagVisitor {
    type Value = Flag;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0 or 1")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Flag, E> {
        Ok(Flag(flag))
    }

    fn visit_u64<E>(self, flag: u64) -> Result<Flag, E> {
        Ok(Flag(flag != 0))
    }
}

/// Calls a function with each element of a list as it is parsed.
struct Each<T, F>(F, PhantomData<T>);

fn each<T, F: FnMut(T) -> Result<(), String>>(give: F) -> Each<T, F> {
    Each(give, PhantomData)
}

impl<'de, T, F> DeserializeSeed<'de> for Each<T, F>
where
    T: Deserialize<'de>,
    F: FnMut(T) -> Result<(), String>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T, F> Visitor<'de> for Each<T, F>
where
    T: Deserialize<'de>,
    F: FnMut(T) -> Result<(), String>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element()? {
            (self.0)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
