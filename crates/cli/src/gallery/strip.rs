//! Strips of small images, one file per operator, for the operator reference.

use feedwater::error::DataError;
use feedwater::internals::geometry::Size;
use feedwater::internals::image::{HostImage, Image};
use feedwater::op::Resize;

use super::page::Picture;
use super::{PHOTO, applied};

/// Width of the unchanged image in a strip, in pixels.
const WIDTH: u32 = 96;

/// Gap between two images, in pixels.
const GAP: u32 = 4;

/// Largest number of images in a strip, besides the unchanged one.
const MOST: usize = 3;

/// Returns the positions of the images that a strip shows: first one per strength, then further
/// samples.
pub fn chosen(pictures: &[Picture<'_>]) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..pictures.len()).collect();
    chosen.sort_by_key(|&at| pictures[at].draw);
    chosen.truncate(MOST);
    chosen.sort_unstable();
    chosen
}

/// Draws images beside each other on white, at the scale of the unchanged image. The longer side of
/// a larger image is reduced to [`WIDTH`].
pub fn strip(pictures: &[Image<u8>]) -> Result<Image<u8>, DataError> {
    let small = pictures.iter().map(reduced).collect::<Result<Vec<_>, _>>()?;
    let sizes = small.iter().map(|it| it.window().size());
    let width = sizes.clone().map(|size| size.width + GAP).sum::<u32>() - GAP;
    let height = sizes.map(|size| size.height).max().unwrap_or(1);
    let mut strip = Image::new(Size::new(width, height).window());
    strip.data_mut().fill(u8::MAX);
    let mut left = 0;
    for image in &small {
        let Size { width, height } = image.window().size();
        for y in 0..height {
            for x in 0..width {
                strip.set_pixel(left + x, y, image.pixel(x, y));
            }
        }
        left += width + GAP;
    }
    Ok(strip)
}

fn reduced(image: &Image<u8>) -> Result<Image<u8>, DataError> {
    let Size { width, height } = image.window().size();
    let longer = width.max(height).max(PHOTO.width);
    let side = |side: u32| (side * WIDTH).div_ceil(longer);
    let resize = Resize::to(side(width), side(height));
    match applied(&resize, 0, &HostImage::U8(image.clone()))? {
        HostImage::U8(image) => Ok(image),
        HostImage::F32(_) => unreachable!("resizing keeps bytes"),
    }
}

/// Returns the alternative text of a strip, for readers who do not see it.
pub fn alt(pictures: &[Picture<'_>], chosen: &[usize]) -> String {
    let mut text = String::from("The unchanged image");
    for &at in chosen {
        let Picture { settings, draw, .. } = &pictures[at];
        // The first line is the operator's name.
        let settings: Vec<&str> = settings.lines().skip(1).collect();
        text += "; ";
        text += &match (draw, settings.as_slice()) {
            // The image has the settings of the previous one.
            (1.., _) => format!("sample {draw}"),
            (0, []) => String::from("with its defaults"),
            (0, settings) => settings.join(", "),
        };
    }
    text
}
