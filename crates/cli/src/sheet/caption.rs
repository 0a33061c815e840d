//! Caption of one image: label, class, file and objects, and whether the image replaces another
//! sample.

use std::path::Path;

use feedwater::internals::footprint::counted;
use feedwater::loader::{Batch, Loader, Outcome, SampleRecord};

use super::columns;
use super::font;
use super::line::{Line, Rgb, shortened, text_width};
use super::object::{Object, colour};

/// Largest number of characters of a category name that is drawn beside a box.
const NAME: usize = 20;

const RED: Rgb = [230, 40, 40];
const AMBER: Rgb = [240, 168, 32];
const GRAY: Rgb = [130, 130, 130];

pub(super) struct Caption {
    pub title: String,
    pub file: String,
    /// Text and frame colour that mark an unusual image. `None` for a usual one.
    pub mark: Option<(String, Rgb)>,
    pub objects: Vec<Object>,
}

impl Caption {
    pub fn new(loader: &Loader, batch: &Batch, place: usize) -> Self {
        let (source, sample) = (loader.source(), &batch.samples()[place]);
        let class =
            |label: i64| usize::try_from(label).ok().and_then(|it| source.classes().get(it));
        let object = |object: &feedwater::annotation::PlacedObject| {
            let category = object.category;
            let name = class(category).map_or_else(|| category.to_string(), Clone::clone);
            let colour = colour(category);
            let name = shortened(&name, NAME);
            // The conversion with `as` is exact, because edges lie within the tensor.
            let rectangle = object.bbox.xyxy().map(|edge| edge.round() as i32);
            Object { rectangle, name, colour, crowd: object.crowd }
        };
        let objects: Vec<_> = batch.objects(place).iter().map(object).collect();
        let mut title: Vec<String> = columns::texts(batch, place).collect();
        let label = match sample.label {
            Some(label) => {
                Some(class(label).map_or(label.to_string(), |it| format!("{label} {it}")))
            }
            None if source.annotations().is_some() => Some(counted(objects.len(), "object")),
            None => title.is_empty().then(|| "no label".into()),
        };
        title.splice(0..0, label);
        let mut objects = objects;
        objects.extend(columns::objects(loader.plan(), batch, (place, None)));
        let location = source.named_location(sample.index);
        let name = Path::new(&location).file_name().map(|name| name.to_string_lossy().into_owned());
        Self {
            title: title.join(", "),
            file: name.unwrap_or(location),
            mark: mark(sample),
            objects,
        }
    }

    /// Caption of an output of a view. `output` is the number of the output, if the view has a
    /// count.
    pub fn of_view(
        loader: &Loader,
        batch: &Batch,
        (place, output): (usize, Option<usize>),
        view: usize,
    ) -> Self {
        let caption = Self::new(loader, batch, place);
        let objects = columns::objects(loader.plan(), batch, (place, Some(view)));
        let number = output.map_or(String::new(), |output| format!("[{output}] "));
        Self { title: format!("{number}{}", caption.title), objects, ..caption }
    }

    /// Draws one row of everything that lies over an image of this size: the boxes, their names,
    /// and the mark.
    pub fn draw_over(&self, line: &mut Line, [width, height]: [i32; 2], scale: i32) {
        for object in &self.objects {
            let Object { rectangle, colour, crowd, .. } = *object;
            // Dark lines on both sides of the outline keep it visible on any background.
            let [left, top, right, bottom] = rectangle;
            let seam = [left - 1, top - 1, right + 1, bottom + 1];
            line.outline(seam, 2 * scale + 2, [0; 3], false);
            line.outline(rectangle, 2 * scale, colour, crowd);
        }
        let rows = font::ROWS as i32 * scale + 2;
        let named = self.objects.iter().filter(|object| !object.name.is_empty());
        for Object { rectangle: [left, top, ..], name, colour, .. } in named {
            // Draw the name above the box, or inside it if there is too little space above.
            let top = if *top >= rows { top - rows } else { *top };
            tag(line, [*left, top], name, *colour, width, scale);
        }
        if let Some((text, colour)) = &self.mark {
            let most = (width - 1) / (font::ADVANCE as i32 * scale);
            let text = shortened(text, most.max(0) as usize);
            tag(line, [0, height - rows], &text, *colour, width, scale);
        }
    }
}

/// Draws text on a background of the colour `ground`, within the image.
fn tag(line: &mut Line, [left, top]: [i32; 2], text: &str, ground: Rgb, width: i32, scale: i32) {
    let across = text_width(text.chars().count(), scale) + 4;
    let left = left.min(width - across).max(0);
    line.fill([left, top, left + across, top + font::ROWS as i32 * scale + 2], ground);
    let [red, green, blue] = ground.map(i32::from);
    let ink = if 3 * red + 6 * green + blue > 1250 { [0; 3] } else { [255; 3] };
    line.text([left + 2, top + 2], text, scale, ink);
}

/// Returns the text and the colour that mark an unusual sample. Returns `None` for a usual one.
fn mark(sample: &SampleRecord) -> Option<(String, Rgb)> {
    match (sample.outcome, sample.replaces) {
        (Outcome::Substituted, _) => Some(("substituted".into(), RED)),
        (_, Some(skipped)) => Some((format!("#{skipped} skipped"), AMBER)),
        _ if sample.padding => Some(("padding".into(), GRAY)),
        _ => None,
    }
}
