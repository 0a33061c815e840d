//! Objects over an image, and their colours.

use super::line::{Rectangle, Rgb};

/// Colours of categories. They differ in lightness as well as in hue.
const CATEGORIES: [Rgb; 10] = [
    [255, 214, 10],
    [48, 176, 255],
    [255, 80, 72],
    [80, 220, 100],
    [214, 110, 255],
    [255, 146, 30],
    [20, 224, 208],
    [255, 120, 180],
    [176, 226, 40],
    [120, 130, 255],
];

/// Bounding box of an object in the image.
pub(super) struct Object {
    pub rectangle: Rectangle,
    pub name: String,
    pub colour: Rgb,
    pub crowd: bool,
}

/// Draws the number of a mask over a pixel: a colour for each number except 0 and 255.
pub(super) fn tint(pixel: &mut [u8], number: u8) {
    if number == 0 || number == 255 {
        return;
    }
    for (level, of) in pixel.iter_mut().zip(of_index(number)) {
        *level = ((u16::from(*level) + u16::from(of)) / 2) as u8;
    }
}

/// Colour of an index of a palette: black for 0, gray for 255.
pub(super) fn of_index(number: u8) -> Rgb {
    match number {
        0 => [0; 3],
        255 => [128; 3],
        _ => CATEGORIES[usize::from(number) % CATEGORIES.len()],
    }
}

/// Colour of the category with this number.
pub(super) fn colour(category: i64) -> Rgb {
    CATEGORIES[category.rem_euclid(CATEGORIES.len() as i64) as usize]
}
