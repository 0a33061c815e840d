//! `thumbnail`: Pillow's `Image.thumbnail` with `reducing_gap=None` (`src/PIL/Image.py`).

use crate::geometry::Size;

/// Size of the thumbnail: that of the image if it fits within `most`, otherwise the one within `most` whose aspect ratio is
/// nearest to that of the image.
pub fn size(input: Size, most: Size) -> Size {
    if most.width >= input.width && most.height >= input.height {
        return input;
    }
    let (x, y) = (f64::from(most.width), f64::from(most.height));
    let aspect = f64::from(input.width) / f64::from(input.height);
    // The whole number beside `side` with the smaller error; the lower one if they are equal.
    let nearest = |side: f64, error: &dyn Fn(f64) -> f64| {
        let (low, high) = (side.floor(), side.ceil());
        (if error(high) < error(low) { high } else { low }).max(1.0) as u32
    };
    if x / y >= aspect {
        Size::new(nearest(y * aspect, &|side| (aspect - side / y).abs()), most.height)
    } else {
        let error = |side: f64| if side == 0.0 { 0.0 } else { (aspect - x / side).abs() };
        Size::new(most.width, nearest(x / aspect, &error))
    }
}
