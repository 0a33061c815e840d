//! Element-wise comparison of images and tensors.

use half::{bf16, f16};

use crate::image::HostImage;
use crate::tensor::{CHANNELS, DType, Layout, TensorShape};

/// Value that differs: column, row, channel, expected, found.
pub type Found = (u32, u32, usize, f64, f64);

/// First value whose bits differ between two images of the same window and type.
pub fn of_images(expected: &HostImage, found: &HostImage) -> Option<Found> {
    let window = expected.window();
    let (at, expected, found) = match (expected, found) {
        (HostImage::U8(a), HostImage::U8(b)) => first(a.data(), b.data(), |a, b| a == b)?,
        (HostImage::F32(a), HostImage::F32(b)) => {
            first(a.data(), b.data(), |a, b| a.to_bits() == b.to_bits())?
        }
        _ => return Some((0, 0, 0, f64::NAN, f64::NAN)),
    };
    let (pixel, channel) = ((at / CHANNELS) as u32, at % CHANNELS);
    let (x, y) = (window.x + pixel % window.width, window.y + pixel / window.width);
    Some((x, y, channel, expected, found))
}

/// First value whose bits differ between two tensors of one sample.
pub fn of_tensors(shape: TensorShape, expected: &[u8], found: &[u8]) -> Option<Found> {
    let byte = expected.iter().zip(found).position(|(a, b)| a != b)?;
    let (at, bytes) = (byte / shape.dtype.bytes(), shape.dtype.bytes());
    let (width, pixels) = (shape.width as usize, shape.sample_len() / shape.channels);
    let (pixel, channel) = match shape.layout {
        Layout::Nchw => (at % pixels, at / pixels),
        Layout::Nhwc => (at / shape.channels, at % shape.channels),
    };
    let value = |tensor: &[u8]| value(shape.dtype, &tensor[at * bytes..][..bytes]);
    let (x, y) = ((pixel % width) as u32, (pixel / width) as u32);
    Some((x, y, channel, value(expected), value(found)))
}

fn first<T: Copy + Into<f64>>(
    a: &[T],
    b: &[T],
    same: impl Fn(T, T) -> bool,
) -> Option<(usize, f64, f64)> {
    let at = a.iter().zip(b).position(|(&a, &b)| !same(a, b))?;
    Some((at, a[at].into(), b[at].into()))
}

/// Value of an element.
fn value(dtype: DType, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (DType::U8, &[byte]) => byte.into(),
        (DType::F16, &[a, b]) => f16::from_ne_bytes([a, b]).into(),
        (DType::BF16, &[a, b]) => bf16::from_ne_bytes([a, b]).into(),
        (DType::F32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]).into(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Roi;
    use crate::image::Image;

    #[test]
    fn the_first_differing_value_is_found_with_its_position() {
        let shape = |dtype, layout| TensorShape {
            batch: 1,
            width: 3,
            height: 2,
            dtype,
            layout,
            channels: 3,
        };
        let (a, mut b) = ([0u8; 18], [0u8; 18]);
        b[16] = 5;
        let planes = of_tensors(shape(DType::U8, Layout::Nchw), &a, &b);
        assert_eq!(planes, Some((1, 1, 2, 0.0, 5.0)));
        let pixels = of_tensors(shape(DType::U8, Layout::Nhwc), &a, &b);
        assert_eq!(pixels, Some((2, 1, 1, 0.0, 5.0)));
        assert_eq!(of_tensors(shape(DType::U8, Layout::Nhwc), &a, &a), None);
        let (a, mut b) = ([1f32; 18], [1f32; 18]);
        b[7] = -2.5;
        let bytes = |it: &[f32; 18]| bytemuck::cast_slice::<_, u8>(it).to_vec();
        let floats = of_tensors(shape(DType::F32, Layout::Nhwc), &bytes(&a), &bytes(&b));
        assert_eq!(floats, Some((2, 0, 1, 1.0, -2.5)));
        let image =
            |data: &[f32]| HostImage::F32(Image::from_data(Roi::new(10, 20, 3, 2), data.to_vec()));
        assert_eq!(of_images(&image(&a), &image(&b)), Some((12, 20, 1, 1.0, -2.5)));
    }
}
