//! Ways of a transform through its buffers, of which a chain with random numbers has many.

use crate::geometry::Size;
use crate::image::PixelType;
use crate::tensor::CHANNELS;

/// Images that were stored on one way, or at most those of several ways.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Bytes of both buffers of bytes, and of both of floats.
    pub bytes: [[u64; 2]; 2],
    /// Type of the current image: 0 for bytes, 1 for floats.
    sort: u8,
    /// Last used buffer of each type.
    last: [u8; 2],
}

impl Way {
    /// Before the first image, as in `transform/images.rs`.
    const BEGIN: Self = Self { bytes: [[0; 2]; 2], sort: 0, last: [1, 0] };

    /// Stores an image in the other buffer of the same type, or in the last used one of the other type.
    fn put(mut self, (pixels, size): (PixelType, Size)) -> Self {
        let sort = u8::from(pixels == PixelType::F32);
        let last = &mut self.last[usize::from(sort)];
        if sort == self.sort {
            *last = 1 - *last;
        }
        let bytes = &mut self.bytes[usize::from(sort)][usize::from(*last)];
        *bytes = (*bytes).max(bytes_of(pixels, size));
        self.sort = sort;
        self
    }

    /// Whether the last used buffer of a type is the smaller one.
    fn is_smaller(&self, sort: usize) -> bool {
        let last = usize::from(self.last[sort]);
        self.bytes[sort][last] < self.bytes[sort][1 - last]
    }

    /// At most the images of either way. What the buffers are called does not matter, but which one was used last.
    fn or(mut self, other: &Self) -> Self {
        for (sort, bytes) in self.bytes.iter_mut().enumerate() {
            let exchange = usize::from(self.last[sort] != other.last[sort]);
            for (place, bytes) in bytes.iter_mut().enumerate() {
                *bytes = (*bytes).max(other.bytes[sort][place ^ exchange]);
            }
        }
        self
    }
}

/// Ways to one state. Those that go on alike are one: ways with the same type of the current image, and with the larger
/// image of each type in the buffer that was used last, or in the other one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways([Option<Way>; 8]);

impl Ways {
    /// The way before the first image.
    pub fn begin() -> Self {
        let mut ways = Self::default();
        ways.add(&Way::BEGIN);
        ways
    }

    /// All ways.
    pub fn iter(&self) -> impl Iterator<Item = &Way> {
        self.0.iter().flatten()
    }

    /// These ways and other ones.
    pub fn or(&self, other: &Self) -> Self {
        let mut all = *self;
        other.iter().for_each(|way| all.add(way));
        all
    }

    /// Stores an image on each way.
    pub fn put(&self, image: (PixelType, Size)) -> Self {
        let mut all = Self::default();
        self.iter().for_each(|way| all.add(&way.put(image)));
        all
    }

    fn add(&mut self, way: &Way) {
        let [bytes, floats] = [0, 1].map(|sort| usize::from(way.is_smaller(sort)));
        let alike = &mut self.0[4 * usize::from(way.sort) + 2 * floats + bytes];
        *alike = Some(alike.map_or(*way, |it| it.or(way)));
    }
}

/// Size of a window, in bytes.
pub fn bytes_of(pixels: PixelType, size: Size) -> u64 {
    let value = match pixels {
        PixelType::U8 => 1,
        PixelType::F32 => size_of::<f32>() as u64,
    };
    size.pixels().saturating_mul(CHANNELS as u64 * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(ways: &Ways, pixels: PixelType, columns: u32) -> Ways {
        ways.put((pixels, Size::new(columns, 1)))
    }

    fn images(ways: &Ways) -> Vec<[[u64; 2]; 2]> {
        ways.iter().map(|way| way.bytes).collect()
    }

    #[test]
    fn images_alternate_and_another_type_goes_on_with_its_last_buffer() {
        use PixelType::{F32, U8};
        let mut ways = Ways::begin();
        for (pixels, columns) in [(U8, 10), (U8, 20), (F32, 5), (U8, 30), (F32, 6), (F32, 7)] {
            ways = put(&ways, pixels, columns);
        }
        assert_eq!(images(&ways), [[[30, 90], [72, 84]]]);
    }

    #[test]
    fn an_image_that_is_in_either_buffer_is_not_counted_twice() {
        let one = put(&Ways::begin(), PixelType::U8, 1);
        let either = one.or(&put(&one, PixelType::U8, 1));
        let large = put(&either, PixelType::U8, 100);
        let later = large.or(&put(&large, PixelType::U8, 2));
        for way in later.iter() {
            let [first, second] = way.bytes[0];
            assert_eq!((first.max(second), first.min(second) <= 6), (300, true), "{way:?}");
        }
        assert_eq!(later.iter().count(), 2);
    }
}
