//! Kernels that read planes of luma and chroma give the same tensors as the pixels of the CPU
//! decoder. The kernels of the JPEG decoder make the planes.

use std::sync::LazyLock;

use feedwater::internals::decode::{Decoders, JpegDecoder, Rows};
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;
use feedwater::internals::image::Planes;
use feedwater_tests::jpeg_kernels::{Failure, JpegKernels, pixels};

use super::*;
use crate::jpeg::Recipe;

static JPEG: LazyLock<JpegKernels> = LazyLock::new(JpegKernels::new);

/// Gray, 4:4:4, 4:2:2, 4:4:0, 4:2:0 and 4:1:1.
const SAMPLINGS: [&[(u8, u8)]; 6] = [
    &[(1, 1)],
    &[(1, 1), (1, 1), (1, 1)],
    &[(2, 1), (1, 1), (1, 1)],
    &[(1, 2), (1, 1), (1, 1)],
    &[(2, 2), (1, 1), (1, 1)],
    &[(4, 1), (1, 1), (1, 1)],
];

/// A JPEG, and its pixels at a reduction.
struct Jpeg {
    file: Vec<u8>,
    reduction: u32,
    stored: Image<u8>,
}

impl Jpeg {
    /// Returns a JPEG with random coefficients, or `None` if the kernels refuse it: chroma has at
    /// most two columns and half as many columns as luma, or a reduction by 8 enlarges it
    /// otherwise.
    fn new((width, height): (u32, u32), sampling: &[(u8, u8)], reduction: u32) -> Option<Self> {
        let recipe = Recipe::new(width as u16, height as u16, sampling);
        let file = Recipe { seed: u64::from(width + height), step: 11, ..recipe }.make();
        let header = Header::parse_as(&file, false).expect("a valid file");
        let window = header.size.reduced(reduction).window();
        let mut data = Vec::new();
        let sink = &mut |rows: Rows<'_>| rows.iter().for_each(|(_, row)| data.extend(row));
        let decoder = &mut Decoders::new().jpeg(JpegDecoder::Libjpeg);
        decoder.decode(&file, &header, window, reduction, sink).expect("a valid file");
        let stored = Image::from_data(window, data);
        match JPEG.planes(&[((&file, window, reduction), None)]).remove(0) {
            Ok(_) => Some(Self { file, reduction, stored }),
            Err(Failure::Refused(_)) if window.width <= 4 || reduction == 8 => None,
            Err(failure) => panic!("{failure:?}: {width}x{height} {sampling:?} 1/{reduction}"),
        }
    }

    /// Returns the planes for a window. The padding of their rows has values that are visible in
    /// every pixel.
    fn planes(&self, window: Roi) -> (Planes, Vec<u8>) {
        let wanted = (&self.file[..], window, self.reduction);
        let (planes, mut samples) =
            JPEG.planes(&[(wanted, None)]).remove(0).expect("the whole image was accepted");
        let [h, v] = planes.ratio;
        let Roi { width, height, .. } = planes.part;
        let [blue, red] = planes.chroma;
        let chroma = (planes.pitches[1], width as usize / h, height as usize / v);
        let all = [
            (0, (planes.pitches[0], width as usize, height as usize)),
            (blue, chroma),
            (red, chroma),
        ];
        for (start, (pitch, wide, high)) in all.into_iter().take(if planes.is_gray { 1 } else { 3 })
        {
            for row in samples[start..][..pitch * high].chunks_exact_mut(pitch) {
                row[wide..]
                    .iter_mut()
                    .zip(0u8..)
                    .for_each(|(it, at)| *it = 0xd3 ^ at.wrapping_mul(37));
            }
        }
        (planes, samples)
    }

    fn check(&self, case: Case<'_>) {
        check(Case {
            planes: Some(&|window| self.planes(window)),
            reduction: self.reduction,
            ..case
        });
    }
}

fn bytes() -> Operators {
    vec![Arc::new(RandomResizedCrop::to(33, 18)), Arc::new(Flip { horizontal: 0.5, vertical: 0.5 })]
}

fn without_resampling() -> Operators {
    vec![Arc::new(CenterCrop::to(21, 20)), Arc::new(Normalize::IMAGENET)]
}

/// Chain without a fused kernel.
fn program() -> Operators {
    let rotation = op::RandomRotation::within(30.0);
    vec![Arc::new(op::Equalize::default()), Arc::new(rotation), Arc::new(CenterCrop::to(24, 20))]
}

#[test]
fn chains_on_every_subsampling_size_and_orientation() {
    let chains = [training(), evaluation(), gray(), bytes(), without_resampling(), program()];
    let sizes =
        [(3, 3), (5, 3), (4, 37), (41, 1), (13, 17), (31, 29), (50, 37), (127, 64), (161, 90)];
    let mut number = 0;
    for (at, sampling) in SAMPLINGS.into_iter().enumerate() {
        for size in some_if_interpreted(sizes.to_vec(), at) {
            let Some(jpeg) = Jpeg::new(size, sampling, 1) else { continue };
            for exif in some_if_interpreted((1..=8).collect(), number) {
                // Half of all images are upright, because only these are read 16 pixels at a time.
                for exif in [1, exif] {
                    number += 1;
                    let chain = &chains[number % chains.len()];
                    let key = SampleKey { seed: 21, epoch: 0, index: number as u64 };
                    let orientation = Orientation::from_exif(exif);
                    jpeg.check(Case { orientation, key, ..case(chain, &jpeg.stored) });
                }
            }
        }
    }
}

/// Resizes the image by several factors, and keeps each corner, the middle of each edge, and the
/// middle. The last pixels of some images need chroma beyond their edges, and those of others do
/// not.
#[test]
fn windows_at_every_edge() {
    for (number, sampling) in SAMPLINGS.into_iter().enumerate() {
        for size in [(150, 103), (126, 58)] {
            let jpeg = Jpeg::new(size, sampling, 1).expect("not refused");
            let outputs = vec![(size.0, 80), (97, size.1), (61, 44), (301, 250)];
            for (width, height) in some_if_interpreted(outputs, number) {
                for place in 0..9 {
                    let (right, bottom) = (width - 29, height - 23);
                    let (x, y) = (place % 3 * right / 2, place / 3 * bottom / 2);
                    let chain: Operators = vec![
                        Arc::new(Resize::to(width, height)),
                        Arc::new(op::Crop { x, y, width: 29, height: 23 }),
                    ];
                    let layout = Layout::ALL[place as usize % 2];
                    jpeg.check(Case { layout, ..case(&chain, &jpeg.stored) });
                }
            }
        }
    }
}

/// Whole images of all widths and heights, up to a whole MCU.
#[test]
fn every_size() {
    for (number, sampling) in SAMPLINGS.into_iter().enumerate() {
        for more in some_if_interpreted((0..32).collect(), number) {
            let (width, height) = (33 + more, 49 - more % 16);
            let jpeg = Jpeg::new((width, height), sampling, 1).expect("not refused");
            let chain: Operators = vec![Arc::new(Resize::to(width, 2 * height))];
            jpeg.check(case(&chain, &jpeg.stored));
        }
    }
}

#[test]
fn images_that_the_decoder_reduces() {
    for (number, sampling) in SAMPLINGS.into_iter().enumerate() {
        for reduction in some_if_interpreted(vec![2, 4, 8], number) {
            let Some(jpeg) = Jpeg::new((331, 270), sampling, reduction) else { continue };
            for index in 0..4 {
                let key = SampleKey { seed: 22, epoch: 0, index };
                let orientation = Orientation::from_exif([1, 1, 3, 6][index as usize]);
                for chain in [training(), evaluation()] {
                    jpeg.check(Case { key, orientation, ..case(&chain, &jpeg.stored) });
                }
            }
        }
    }
}

#[test]
fn element_types_and_layouts() {
    let jpeg = Jpeg::new((70, 51), SAMPLINGS[4], 1).expect("not refused");
    for (number, chain) in [training(), bytes(), gray(), without_resampling()].iter().enumerate() {
        let pixels = last_pixels(chain);
        let dtypes = DType::ALL.into_iter().filter(|&dtype| output::check(pixels, dtype).is_ok());
        let all = dtypes.flat_map(|dtype| Layout::ALL.map(|it| (dtype, it))).collect();
        for (dtype, layout) in some_if_interpreted(all, number) {
            jpeg.check(Case { dtype, layout, ..case(chain, &jpeg.stored) });
        }
    }
}

/// All pairs of chroma values, each with a small, a medium and a large value of luma.
#[test]
fn every_color() {
    let size = Size::new(256, 256);
    let planes = Planes {
        part: size.window(),
        pitches: [256; 2],
        chroma: [1 << 16, 2 << 16],
        ratio: [1; 2],
        is_gray: false,
        chroma_size: [256; 2],
        bytes: 3 << 16,
    };
    let each =
        |of: &dyn Fn(usize) -> usize| -> Vec<u8> { (0..1 << 16).map(|at| of(at) as u8).collect() };
    for luma in some_if_interpreted(vec![0usize, 1, 2], 0) {
        let luma = each(&|at| (85 * luma + at.wrapping_mul(0x9e37_79b9) / 8192 % 86).min(255));
        let samples = [luma, each(&|at| at % 256), each(&|at| at / 256)].concat();
        let stored = Image::from_data(size.window(), pixels(&planes, &samples, size.window()));
        // Each pixel of the image is the main part of several pixels of the result.
        for chain in [vec![Arc::new(Resize::to(256, 768)) as Arc<dyn Operator>], vec![]] {
            let planes = |_| (planes, samples.clone());
            check(Case { planes: Some(&planes), ..case(&chain, &stored) });
        }
    }
}
