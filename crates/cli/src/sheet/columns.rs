//! Columns on a contact sheet: boxes, points and texts.

use feedwater::loader::Batch;
use feedwater::plan::{CellKind, ColumnKind, ColumnSettings, Plan};

use super::object::{Object, colour};

/// Largest number of characters of a text.
const MAX_CHARACTERS: usize = 120;

/// Half of the side of the square around a point, in pixels.
const HALF_SIDE: f32 = 2.0;

/// Boxes and points of a sample that follow a view, or the main chain. Each column has a colour.
pub fn objects(plan: &Plan, batch: &Batch, (place, view): (usize, Option<usize>)) -> Vec<Object> {
    let mut objects = Vec::new();
    for (number, settings) in following(plan, view).enumerate() {
        let Some(column) = batch.column(&settings.name) else { continue };
        let Some(numbers) = column.sample::<f32>(place) else { continue };
        let mut add = |rectangle: [f32; 4]| {
            let rectangle = rectangle.map(|edge| edge.round() as i32);
            let colour = colour(number as i64);
            objects.push(Object { rectangle, name: String::new(), colour, crowd: false });
        };
        match settings.kind {
            ColumnKind::Boxes => {
                let boxes = numbers.as_chunks().0.iter();
                boxes.filter(|it| it[2] > it[0]).for_each(|it| add(*it));
            }
            ColumnKind::Points => {
                let axes = column.shape().last().copied().unwrap_or(2);
                let shown = |it: &&[f32]| it.get(2).is_none_or(|&visibility| visibility > 0.0);
                for point in numbers.chunks_exact(axes).filter(shown) {
                    let half = HALF_SIDE;
                    let (x, y) = (point[0], point[1]);
                    if x.is_finite() && y.is_finite() {
                        add([x - half, y - half, x + half, y + half]);
                    }
                }
            }
            _ => {}
        }
    }
    objects
}

/// Texts of a sample, each cut to [`MAX_CHARACTERS`]. Of several texts in a column, the first.
pub fn texts(batch: &Batch, place: usize) -> impl Iterator<Item = String> {
    batch.columns().filter_map(move |column| {
        let text = match column.kind() {
            CellKind::Text => column.text(place)?,
            CellKind::Texts => column.texts(place)?.next()?,
            _ => return None,
        };
        Some(text.chars().take(MAX_CHARACTERS).collect())
    })
}

/// Columns that follow the view with this number, or the main chain.
pub(super) fn following(plan: &Plan, view: Option<usize>) -> impl Iterator<Item = &ColumnSettings> {
    let followed = move |column: &ColumnSettings| {
        let like = column.like.as_ref();
        like.and_then(|like| plan.views.iter().position(|view| view.name == *like))
    };
    let columns = plan.settings.columns.iter().filter(|column| {
        use ColumnKind::{Boxes, Instances, Mask, Points, Runs};
        matches!(column.kind, Mask | Points | Boxes | Instances | Runs)
    });
    columns.filter(move |column| followed(column) == view)
}
