//! Converts the pixels of the final window to elements of the tensor.
//!
//! Bytes keep their value (0 to 255) in every element type. Floats are rounded to nearest even for
//! f16 and bf16. They cannot be stored as bytes. The tensor of a sample is dense: planes (NCHW) or
//! interleaved pixels (NHWC). A tensor with one channel has the first of the three equal channels
//! of a gray image.

use std::ops::Range;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::image::{HostImage, Image, PixelType};
use crate::op::kind::table::{self, Floats};
use crate::op::wide::elements::ElementTables;
use crate::op::wide::writer::TensorWriter;
use crate::op::wide::{Instructions, bytes};
use crate::tensor::{CHANNELS, DType, Layout, TensorShape};

/// Checks that pixels of this type can be stored as elements of `dtype`. The error message names
/// alternatives.
pub fn check(pixels: PixelType, dtype: DType) -> Result<(), String> {
    match (pixels, dtype) {
        (PixelType::F32, DType::U8) => {
            Err("u8 cannot hold the floats of normalize: use f32, f16 or bf16, or remove normalize"
                .into())
        }
        _ => Ok(()),
    }
}

/// Stores an image as the tensor of one sample. `out` has exactly the size of this tensor and is
/// aligned for `dtype`. This is the reference implementation.
///
/// The combination of pixels and element type must pass [`check`].
pub fn store(image: &HostImage, shape: TensorShape, out: &mut [u8]) {
    store_channels(image, shape, 0..shape.channels, out);
}

/// Stores the first channels of an image as these channels of the tensor of one sample. Otherwise
/// like [`store`].
pub fn store_channels(
    image: &HostImage,
    shape: TensorShape,
    channels: Range<usize>,
    out: &mut [u8],
) {
    let place = (shape, channels);
    match (image, shape.dtype) {
        (HostImage::U8(image), DType::U8) => each(image, place, out, |value| value),
        (HostImage::U8(image), DType::F16) => {
            each(image, place, out, |value| f16::from_f32(value.into()));
        }
        (HostImage::U8(image), DType::BF16) => {
            each(image, place, out, |value| bf16::from_f32(value.into()));
        }
        (HostImage::U8(image), DType::F32) => each(image, place, out, f32::from),
        (HostImage::F32(image), DType::F16) => each(image, place, out, f16::from_f32),
        (HostImage::F32(image), DType::BF16) => each(image, place, out, bf16::from_f32),
        (HostImage::F32(image), DType::F32) => each(image, place, out, |value| value),
        (HostImage::F32(_), DType::U8) => {
            unreachable!("check() refuses an output of bytes after an operator that makes floats")
        }
    }
}

fn each<T: Copy + Default, E: Pod>(
    image: &Image<T>,
    (TensorShape { channels, layout, .. }, which): (TensorShape, Range<usize>),
    out: &mut [u8],
    convert: impl Fn(T) -> E,
) {
    let out: &mut [E] = bytemuck::cast_slice_mut(out);
    let pixels = image.data().as_chunks::<CHANNELS>().0;
    assert_eq!(out.len(), channels * pixels.len(), "elements of a sample");
    for (at, pixel) in pixels.iter().enumerate() {
        for (channel, &value) in which.clone().zip(pixel) {
            let place = match layout {
                Layout::Nchw => channel * pixels.len() + at,
                Layout::Nhwc => channels * at + channel,
            };
            out[place] = convert(value);
        }
    }
}

/// Converts rows to elements of the tensor, and mirrors them if required. Bytes are converted with
/// a look-up table, into which the last tables of a chain are merged. The results equal, bit for
/// bit, those of executing the actions and then [`store`].
#[derive(Clone, Debug)]
pub struct Tail {
    elements: Elements,
    dtype: DType,
    order: Order,
}

/// Places of the elements of a pixel in the tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// One plane for each of the first channels of the pixels, this many. Also for one channel in
    /// NHWC, which is a single plane.
    Planes(usize),
    /// All channels of a pixel side by side.
    Interleaved,
}

impl Order {
    fn of(TensorShape { channels, layout, .. }: TensorShape) -> Self {
        match layout {
            Layout::Nhwc if channels == CHANNELS => Order::Interleaved,
            _ => Order::Planes(channels),
        }
    }

    const fn channels(self) -> usize {
        match self {
            Order::Planes(channels) => channels,
            Order::Interleaved => CHANNELS,
        }
    }
}

/// Tensor element for each byte value of each channel.
#[derive(Clone, Debug)]
enum Elements {
    Bytes,
    Halves(Box<ElementTables<u16, 2>>),
    Floats(Box<ElementTables<f32, 4>>),
}

/// Position of a row in a sample's tensor.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    /// Number of columns of the tensor.
    pub width: usize,
    /// Number of rows of the tensor.
    pub height: usize,
    /// Row of the tensor, from 0.
    pub y: usize,
    /// Whether the row's pixels are stored in reverse order.
    pub mirrored: bool,
}

impl Tail {
    /// Creates a converter that maps bytes to floats with the table `values` and then to elements.
    /// Without a table, bytes keep their value.
    pub fn new(values: Option<&Floats>, shape: TensorShape) -> Self {
        let floats = || values.copied().unwrap_or_else(|| table::of(|_, byte| f32::from(byte)));
        let halves = |convert: fn(f32) -> u16| {
            Elements::Halves(Box::new(ElementTables::new(floats().map(|table| table.map(convert)))))
        };
        let elements = match shape.dtype {
            DType::U8 if values.is_some() => unreachable!(
                "check() refuses an output of bytes after an operator that makes floats"
            ),
            DType::U8 => Elements::Bytes,
            DType::F16 => halves(half_bits),
            DType::BF16 => halves(brain_bits),
            DType::F32 => Elements::Floats(Box::new(ElementTables::new(floats()))),
        };
        Self { elements, dtype: shape.dtype, order: Order::of(shape) }
    }

    /// Replaces the table that maps bytes to floats.
    pub fn set(&mut self, values: &Floats) {
        let convert = if self.dtype == DType::F16 { half_bits } else { brain_bits };
        match &mut self.elements {
            Elements::Bytes => unreachable!(
                "check() refuses an output of bytes after an operator that makes floats"
            ),
            Elements::Floats(tables) => tables.set(*values),
            Elements::Halves(tables) => tables.set(values.map(|table| table.map(convert))),
        }
    }

    /// Creates a converter for rows of floats only.
    pub fn of_floats(shape: TensorShape) -> Self {
        Self { elements: Elements::Bytes, dtype: shape.dtype, order: Order::of(shape) }
    }

    /// Stores a row of red, green and blue bytes. `out` writes to the tensor of the whole sample.
    pub fn store_bytes(&self, row: &[u8], place: RowPlace, out: &mut TensorWriter<'_>) {
        let pixels = row.as_chunks().0;
        match &self.elements {
            Elements::Bytes => place.store_channels(self.order, pixels, out),
            Elements::Halves(tables) => place.store_elements(self.order, pixels, out, tables),
            Elements::Floats(tables) => place.store_elements(self.order, pixels, out, tables),
        }
    }

    /// Stores a row of red, green and blue floats. `out` writes to the tensor of the whole sample.
    pub fn store_floats(&self, row: &[f32], place: RowPlace, out: &mut TensorWriter<'_>) {
        let pixels = row.as_chunks().0;
        match self.dtype {
            DType::U8 => unreachable!(
                "check() refuses an output of bytes after an operator that makes floats"
            ),
            DType::F16 | DType::BF16 => {
                let convert = if self.dtype == DType::F16 { half_bits } else { brain_bits };
                place.store(self.order, pixels, out, |_, value| convert(value));
            }
            DType::F32 => place.store(self.order, pixels, out, |_, value| value),
        }
    }
}

fn half_bits(value: f32) -> u16 {
    f16::from_f32(value).to_bits()
}

fn brain_bits(value: f32) -> u16 {
    bf16::from_f32(value).to_bits()
}

impl RowPlace {
    fn store_channels(self, order: Order, pixels: &[[u8; CHANNELS]], out: &mut TensorWriter<'_>) {
        if order == Order::Interleaved {
            return self.store(order, pixels, out, |_, byte| byte);
        }
        let instructions = Instructions::here();
        self.put_lines(order, pixels, out, |channel, line| {
            bytes::channel(channel, pixels, self.mirrored, line, instructions);
        });
    }

    fn store_elements<E: Pod, const N: usize>(
        self,
        order: Order,
        pixels: &[[u8; CHANNELS]],
        out: &mut TensorWriter<'_>,
        tables: &ElementTables<E, N>,
    ) {
        if order == Order::Interleaved {
            return self.store(order, pixels, out, |channel, byte| tables.of(channel, byte));
        }
        let instructions = Instructions::here();
        self.put_lines(order, pixels, out, |channel, line| {
            tables.line(channel, pixels, self.mirrored, line, instructions);
        });
    }

    #[inline(always)]
    fn store<T: Copy, E: Pod>(
        self,
        order: Order,
        pixels: &[[T; CHANNELS]],
        out: &mut TensorWriter<'_>,
        element: impl Fn(usize, T) -> E,
    ) {
        if order != Order::Interleaved {
            return self.put_lines(order, pixels, out, |channel, line: &mut [E]| {
                let (line, values) = (line.iter_mut(), pixels.iter().map(|pixel| pixel[channel]));
                if self.mirrored {
                    line.rev().zip(values).for_each(|(e, it)| *e = element(channel, it));
                } else {
                    line.zip(values).for_each(|(e, it)| *e = element(channel, it));
                }
            });
        }
        self.check::<_, E>(order, pixels, out);
        let start = CHANNELS * self.y * self.width;
        out.put(start..start + CHANNELS * self.width, |line: &mut [E]| {
            let line = line.as_chunks_mut::<CHANNELS>().0.iter_mut();
            let store = |(e, pixel): (&mut [E; CHANNELS], &[T; CHANNELS])| {
                *e = [0, 1, 2].map(|channel| element(channel, pixel[channel]));
            };
            if self.mirrored {
                line.rev().zip(pixels).for_each(store);
            } else {
                line.zip(pixels).for_each(store);
            }
        });
    }

    /// Stores the row in each plane.
    #[inline(always)]
    fn put_lines<T, E: Pod>(
        self,
        order: Order,
        pixels: &[[T; CHANNELS]],
        out: &mut TensorWriter<'_>,
        make: impl Fn(usize, &mut [E]),
    ) {
        self.check::<_, E>(order, pixels, out);
        for channel in 0..order.channels() {
            let start = (channel * self.height + self.y) * self.width;
            out.put(start..start + self.width, |line| make(channel, line));
        }
    }

    fn check<T, E: Pod>(self, order: Order, pixels: &[[T; CHANNELS]], out: &TensorWriter<'_>) {
        let elements = order.channels() * self.width * self.height;
        assert_eq!(out.elements::<E>(), elements, "elements of a sample");
        assert_eq!(pixels.len(), self.width, "pixels of a row");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Roi, Size};
    use crate::op::kind::mix::Mixer;
    use crate::op::kind::{ActionKind, flip};

    /// Shape of a tensor whose sides do not matter.
    fn shape(channels: usize, dtype: DType, layout: Layout) -> TensorShape {
        TensorShape { batch: 1, width: 1, height: 1, channels, dtype, layout }
    }

    #[test]
    fn nchw_stores_planes_and_nhwc_interleaved_pixels() {
        let image = Image::from_data(Roi::new(5, 5, 2, 1), vec![1u8, 2, 3, 4, 5, 6]);
        let image = HostImage::U8(image);
        let mut out = [0; 6];
        store(&image, shape(3, DType::U8, Layout::Nchw), &mut out);
        assert_eq!(out, [1, 4, 2, 5, 3, 6]);
        store(&image, shape(3, DType::U8, Layout::Nhwc), &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
        for layout in Layout::ALL {
            store(&image, shape(1, DType::U8, layout), &mut out[..2]);
            assert_eq!(out, [1, 4, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn floats_are_rounded_to_nearest_even() {
        // 1 + 2^-11 and 1 + 3 * 2^-11 lie halfway between two f16 numbers. 1 + 2^-8 lies halfway
        // between two bf16 numbers.
        let data = vec![1.0 + 0.5f32.powi(11), 1.0 + 3.0 * 0.5f32.powi(11), 1.0 + 0.5f32.powi(8)];
        let image = HostImage::F32(Image::from_data(Roi::new(0, 0, 1, 1), data));
        let mut out = vec![0u16; 3];
        store(&image, shape(3, DType::F16, Layout::Nchw), bytemuck::cast_slice_mut(&mut out));
        assert_eq!(out, [0x3c00, 0x3c02, 0x3c04]);
        store(&image, shape(3, DType::BF16, Layout::Nchw), bytemuck::cast_slice_mut(&mut out));
        assert_eq!(out, [0x3f80, 0x3f80, 0x3f80]);
    }

    #[test]
    fn floats_are_refused_as_bytes() {
        assert!(check(PixelType::F32, DType::U8).unwrap_err().contains("bf16"));
        assert_eq!(check(PixelType::U8, DType::U8), Ok(()));
    }

    #[test]
    fn rows_are_stored_like_images() {
        let size = Size::new(37, 5);
        let data: Vec<u8> = (0..3 * size.pixels()).map(|at| (at * 89 % 256) as u8).collect();
        let values = table::of(|channel, byte| f32::from(byte) / 7.0 - channel as f32);
        let floats = data.iter().enumerate().map(|(at, &byte)| values[at % 3][usize::from(byte)]);
        let floats = HostImage::F32(Image::from_data(size.window(), floats.collect()));
        let bytes = HostImage::U8(Image::from_data(size.window(), data));
        let shapes = DType::ALL.into_iter().flat_map(|dtype| {
            let of = move |channels| Layout::ALL.map(|layout| shape(channels, dtype, layout));
            [1, 3].into_iter().flat_map(of)
        });
        for (mirrored, shape) in shapes.flat_map(|it| [(false, it), (true, it)]) {
            let dtype = shape.dtype;
            let elements = shape.channels * size.pixels() as usize;
            let filled = |fill: &dyn Fn(&mut [u8])| {
                let mut out = vec![0u32; elements];
                fill(&mut bytemuck::cast_slice_mut(&mut out)[..elements * dtype.bytes()]);
                out
            };
            let expected = |image: &HostImage| {
                let mut mirror = HostImage::new(image.pixels(), size.window());
                flip::Params::new(size, mirrored, false).reference(
                    &[],
                    image,
                    &mut mirror,
                    &mut Mixer::default(),
                );
                filled(&|out| store(&mirror, shape, out))
            };
            let rows = |image: &HostImage, tail: &Tail| {
                filled(&|out| {
                    let out = &mut TensorWriter::new(out, None);
                    for y in 0..5 {
                        let place = RowPlace { width: 37, height: 5, y: y as usize, mirrored };
                        match image {
                            HostImage::U8(image) => tail.store_bytes(image.row(y), place, out),
                            HostImage::F32(image) => tail.store_floats(image.row(y), place, out),
                        }
                    }
                })
            };
            let case = format!("{shape:?} mirrored {mirrored}");
            let plain = Tail::new(None, shape);
            assert_eq!(rows(&bytes, &plain), expected(&bytes), "{case}");
            if dtype != DType::U8 {
                let tail = Tail::new(Some(&values), shape);
                assert_eq!(rows(&bytes, &tail), expected(&floats), "{case}");
                let mut changed = plain;
                changed.set(&values);
                assert_eq!(rows(&bytes, &changed), expected(&floats), "{case}");
                assert_eq!(rows(&floats, &tail), expected(&floats), "{case}");
            }
        }
    }
}
