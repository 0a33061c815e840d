//! Output: conversion of the final window's pixels to elements of the tensor.
//!
//! Bytes keep their value (0 to 255) in every element type. Floats are rounded to nearest even for f16 and bf16, and
//! cannot be stored as bytes. A sample's tensor is dense: three planes (NCHW) or interleaved pixels (NHWC).

use bytemuck::Pod;
use half::{bf16, f16};

use crate::image::{HostImage, Image, PixelType};
use crate::op::normalize;
use crate::tensor::{CHANNELS, DType, Layout};

/// Checks that pixels of this type can be stored as elements of `dtype`. The error says what to do instead.
pub fn check(pixels: PixelType, dtype: DType) -> Result<(), String> {
    match (pixels, dtype) {
        (PixelType::F32, DType::U8) => {
            Err("u8 cannot hold what normalize gives: use f32, f16 or bf16, or drop normalize"
                .into())
        }
        _ => Ok(()),
    }
}

/// Stores an image as one sample's tensor, which `out` covers exactly, aligned for `dtype`. Reference implementation.
///
/// [`check`] must allow this combination of pixels and element type.
pub fn store(image: &HostImage, dtype: DType, layout: Layout, out: &mut [u8]) {
    match (image, dtype) {
        (HostImage::U8(image), DType::U8) => each(image, layout, out, |value| value),
        (HostImage::U8(image), DType::F16) => {
            each(image, layout, out, |value| f16::from_f32(value.into()));
        }
        (HostImage::U8(image), DType::BF16) => {
            each(image, layout, out, |value| bf16::from_f32(value.into()));
        }
        (HostImage::U8(image), DType::F32) => each(image, layout, out, f32::from),
        (HostImage::F32(image), DType::F16) => each(image, layout, out, f16::from_f32),
        (HostImage::F32(image), DType::BF16) => each(image, layout, out, bf16::from_f32),
        (HostImage::F32(image), DType::F32) => each(image, layout, out, |value| value),
        (HostImage::F32(_), DType::U8) => unreachable!("check() refuses floats as bytes"),
    }
}

fn each<T: Copy + Default, E: Pod>(
    image: &Image<T>,
    layout: Layout,
    out: &mut [u8],
    convert: impl Fn(T) -> E,
) {
    let out: &mut [E] = bytemuck::cast_slice_mut(out);
    assert_eq!(out.len(), image.data().len(), "elements of a sample");
    let plane = out.len() / CHANNELS;
    for (at, pixel) in image.data().as_chunks::<CHANNELS>().0.iter().enumerate() {
        for (channel, &value) in pixel.iter().enumerate() {
            let place = match layout {
                Layout::Nchw => channel * plane + at,
                Layout::Nhwc => CHANNELS * at + channel,
            };
            out[place] = convert(value);
        }
    }
}

/// Fused end of a chain of bytes: mirroring, `normalize` and the conversion, with lookup tables, row by row. The bits
/// equal those of the operators and [`store`].
#[derive(Clone, Debug)]
pub struct Tail {
    tables: Tables,
    layout: Layout,
}

/// Converted values of each byte of each channel.
#[derive(Clone, Debug)]
enum Tables {
    Bytes,
    Halves(Box<[[u16; 256]; CHANNELS]>),
    Floats(Box<[[f32; 256]; CHANNELS]>),
}

impl Tail {
    /// Creates the tables for `normalize` with these parameters, or without it.
    pub fn new(normalize: Option<&normalize::Params>, dtype: DType, layout: Layout) -> Self {
        let floats = || match normalize {
            Some(params) => params.tables(),
            None => [std::array::from_fn(|byte| byte as f32); CHANNELS],
        };
        let halves = |convert: fn(f32) -> u16| {
            Tables::Halves(Box::new(floats().map(|table| table.map(convert))))
        };
        let tables = match dtype {
            DType::U8 if normalize.is_some() => unreachable!("check() refuses floats as bytes"),
            DType::U8 => Tables::Bytes,
            DType::F16 => halves(|value| f16::from_f32(value).to_bits()),
            DType::BF16 => halves(|value| bf16::from_f32(value).to_bits()),
            DType::F32 => Tables::Floats(Box::new(floats())),
        };
        Self { tables, layout }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.tables {
            Tables::Bytes => 0,
            Tables::Halves(tables) => size_of_val(&**tables),
            Tables::Floats(tables) => size_of_val(&**tables),
        }
    }

    /// Stores row `y` of a sample of `width` x `height`. `row` is its RGB, still unmirrored; `out` is the sample's
    /// whole tensor, aligned for its element type.
    pub fn store_row(
        &self,
        row: &[u8],
        y: u32,
        (width, height): (u32, u32),
        mirror_x: bool,
        out: &mut [u8],
    ) {
        let place =
            Place { width: width as usize, height: height as usize, y: y as usize, mirror_x };
        let pixels = row.as_chunks().0;
        assert_eq!(pixels.len(), place.width, "pixels of a row");
        match &self.tables {
            Tables::Bytes => place.store(self.layout, pixels, out, |_, byte| byte),
            Tables::Halves(tables) => {
                let out: &mut [u16] = bytemuck::cast_slice_mut(out);
                place.store(self.layout, pixels, out, |c, byte| tables[c][usize::from(byte)]);
            }
            Tables::Floats(tables) => {
                let out: &mut [f32] = bytemuck::cast_slice_mut(out);
                place.store(self.layout, pixels, out, |c, byte| tables[c][usize::from(byte)]);
            }
        }
    }
}

/// Position of a row in a sample's tensor.
#[derive(Clone, Copy)]
struct Place {
    width: usize,
    height: usize,
    y: usize,
    mirror_x: bool,
}

impl Place {
    #[inline(always)]
    fn store<E>(
        self,
        layout: Layout,
        pixels: &[[u8; CHANNELS]],
        out: &mut [E],
        element: impl Fn(usize, u8) -> E,
    ) {
        assert_eq!(out.len(), CHANNELS * self.width * self.height, "elements of a sample");
        match layout {
            Layout::Nchw => {
                let start = self.y * self.width;
                for (channel, plane) in out.chunks_exact_mut(self.width * self.height).enumerate() {
                    let line = plane[start..start + self.width].iter_mut();
                    let values = pixels.iter().map(|pixel| pixel[channel]);
                    if self.mirror_x {
                        line.rev().zip(values).for_each(|(e, byte)| *e = element(channel, byte));
                    } else {
                        line.zip(values).for_each(|(e, byte)| *e = element(channel, byte));
                    }
                }
            }
            Layout::Nhwc => {
                let start = CHANNELS * self.y * self.width;
                let line = &mut out[start..start + CHANNELS * self.width];
                let line = line.as_chunks_mut::<CHANNELS>().0.iter_mut();
                let store = |(e, pixel): (&mut [E; CHANNELS], &[u8; CHANNELS])| {
                    *e = [0, 1, 2].map(|channel| element(channel, pixel[channel]));
                };
                if self.mirror_x {
                    line.rev().zip(pixels).for_each(store);
                } else {
                    line.zip(pixels).for_each(store);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Roi, Size};
    use crate::op::{AnyOperator, Flip, Normalize};
    use crate::random::{SampleKey, SampleRng};

    #[test]
    fn nchw_stores_planes_and_nhwc_interleaved_pixels() {
        let image = Image::from_data(Roi::new(5, 5, 2, 1), vec![1u8, 2, 3, 4, 5, 6]);
        let mut out = [0; 6];
        store(&HostImage::U8(image.clone()), DType::U8, Layout::Nchw, &mut out);
        assert_eq!(out, [1, 4, 2, 5, 3, 6]);
        store(&HostImage::U8(image), DType::U8, Layout::Nhwc, &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn floats_are_rounded_to_nearest_even() {
        // 1 + 2^-11 and 1 + 3 * 2^-11 lie halfway between two f16; 1 + 2^-8 between two bf16.
        let data = vec![1.0 + 0.5f32.powi(11), 1.0 + 3.0 * 0.5f32.powi(11), 1.0 + 0.5f32.powi(8)];
        let image = HostImage::F32(Image::from_data(Roi::new(0, 0, 1, 1), data));
        let mut out = vec![0u16; 3];
        store(&image, DType::F16, Layout::Nchw, bytemuck::cast_slice_mut(&mut out));
        assert_eq!(out, [0x3c00, 0x3c02, 0x3c04]);
        store(&image, DType::BF16, Layout::Nchw, bytemuck::cast_slice_mut(&mut out));
        assert_eq!(out, [0x3f80, 0x3f80, 0x3f80]);
    }

    #[test]
    fn floats_are_refused_as_bytes() {
        assert!(check(PixelType::F32, DType::U8).unwrap_err().contains("bf16"));
        assert_eq!(check(PixelType::U8, DType::U8), Ok(()));
    }

    #[test]
    fn the_tail_equals_flip_normalize_and_store() {
        let size = Size::new(37, 5);
        let data = (0..3 * size.pixels()).map(|at| (at * 89 % 256) as u8).collect();
        let image = Image::from_data(size.window(), data);
        let rng = &mut SampleRng::new(SampleKey::default(), 0);
        for (mirror_x, dtype, layout) in [false, true].into_iter().flat_map(|mirror_x| {
            DType::ALL
                .into_iter()
                .flat_map(move |dtype| Layout::ALL.map(move |layout| (mirror_x, dtype, layout)))
        }) {
            let flip = Flip { horizontal: mirror_x.into(), vertical: 0.0 };
            let (_, flip_params) = AnyOperator::prepare(&flip, size, rng);
            let mut flipped = HostImage::new(PixelType::U8, size.window());
            AnyOperator::reference(
                &flip,
                &flip_params,
                &[],
                &HostImage::U8(image.clone()),
                &mut flipped,
            );
            for op in [None, Some(Normalize::IMAGENET)] {
                if op.is_some() && dtype == DType::U8 {
                    continue;
                }
                let mut expected = vec![0u32; 3 * 37 * 5];
                let len = 3 * 37 * 5 * dtype.bytes();
                let expected = &mut bytemuck::cast_slice_mut::<_, u8>(&mut expected)[..len];
                if let Some(op) = op {
                    let (_, params) = AnyOperator::prepare(&op, size, rng);
                    let mut floats = HostImage::new(PixelType::F32, size.window());
                    AnyOperator::reference(&op, &params, &[], &flipped, &mut floats);
                    store(&floats, dtype, layout, expected);
                } else {
                    store(&flipped, dtype, layout, expected);
                }
                let params = op.map(|op| normalize::Params { mean: op.mean, std: op.std });
                let tail = Tail::new(params.as_ref(), dtype, layout);
                let mut out = vec![0u32; 3 * 37 * 5];
                let out = &mut bytemuck::cast_slice_mut::<_, u8>(&mut out)[..len];
                for y in 0..5 {
                    tail.store_row(image.row(y), y, (37, 5), mirror_x, out);
                }
                assert_eq!(out, expected, "{dtype} {layout} mirrored {mirror_x} {op:?}");
            }
        }
    }
}
