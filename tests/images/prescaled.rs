//! With `decode.prescale`, the content of an image keeps its position, for every EXIF orientation
//! and for all padding that the decoder adds.

use feedwater::internals::geometry::{BoundingBox, Orientation, Size};
use feedwater::internals::op::resample::Filter;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{Chain, Crop, Resize};
use feedwater::source::Memory;
use jpeg_encoder::{ColorType, Encoder};

use crate::common::with_orientation;

/// Returns a black image with a white box. `x` to `height` are the box in the stored image, before
/// the orientation is applied.
fn with_box(size: Size, [x, y, width, height]: [u32; 4]) -> Vec<u8> {
    let inside = |at: u32, first: u32, len: u32| (first..first + len).contains(&at);
    let positions = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
    let pixels: Vec<u8> = positions
        .map(|at| if inside(at.0, x, width) && inside(at.1, y, height) { 255 } else { 0 })
        .collect();
    let mut bytes = Vec::new();
    let encoder = Encoder::new(&mut bytes, 95);
    encoder.encode(&pixels, size.width as u16, size.height as u16, ColorType::Luma).unwrap();
    bytes
}

/// Returns the centre of the bright pixels, in output pixels.
fn centre(pixels: &[u8], width: usize) -> (f64, f64) {
    let (mut sum, mut x, mut y) = (0.0, 0.0, 0.0);
    for (at, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
        // Subtracts 16, because JPEG compression adds ringing around the box.
        let value = f64::from(pixel[0].saturating_sub(16));
        sum += value;
        x += value * ((at % width) as f64 + 0.5);
        y += value * ((at / width) as f64 + 0.5);
    }
    (x / sum, y / sum)
}

#[test]
fn a_reduced_image_keeps_its_place_in_every_orientation() {
    let mut reductions = Vec::new();
    for size in [Size::new(801, 601), Size::new(807, 602), Size::new(418, 303), Size::new(209, 157)]
    {
        let stored = [size.width / 4, size.height / 3, size.width / 3, size.height / 4];
        let [left, top, width, height] = stored.map(f64::from);
        let bytes = with_box(size, stored);
        for value in 1..=8 {
            let orientation = Orientation::from_exif(value);
            let upright = orientation.upright_size(size);
            let (columns, rows) = if orientation.transpose { (75, 100) } else { (100, 75) };
            let of = orientation.upright_box(size, &BoundingBox::new(left, top, width, height));
            for filter in [Filter::Nearest, Filter::Bilinear, Filter::Lanczos] {
                let resize = Resize { filter, ..Resize::to(columns, rows) };
                // Tests the whole output, and a crop of it.
                let part = Crop { x: 2, y: 3, width: columns - 7, height: rows - 4 };
                for chain in [Chain::new().then(resize), Chain::new().then(resize).then(part)] {
                    let source = Memory::new(vec![(with_orientation(&bytes, value), 0)]).unwrap();
                    let mut loader = Loader::builder(source, chain)
                        .device(DeviceChoice::Cpu)
                        .batch_size(1)
                        .num_workers(1)
                        .epochs(Some(1))
                        .output(DType::U8, Layout::Nhwc)
                        .configure(|it| it.decode.prescale = true)
                        .build()
                        .unwrap();
                    let batch = (&mut loader).into_iter().next().unwrap().unwrap();
                    let [sample] = batch.samples() else { panic!("one sample") };
                    assert_eq!((sample.orientation, sample.size), (orientation, upright));
                    reductions.push(sample.reduction);
                    let (x, y) = centre(batch.host().unwrap(), batch.shape().width as usize);
                    let seen = sample.trace.mapping.visible_box(&of);
                    let (left, top) =
                        ((seen.left + seen.right) / 2.0, (seen.top + seen.bottom) / 2.0);
                    // The filter `Nearest` may move the content by half a pixel. Other filters add
                    // ringing, so 0.1 pixels are tolerated.
                    let most = if filter == Filter::Nearest { 0.5 } else { 0.1 };
                    assert!(
                        (x - left).abs() < most && (y - top).abs() < most,
                        "{size}, orientation {value}, {filter:?}: {x:.3}/{y:.3}, and the box has {left:.3}/{top:.3}"
                    );
                }
            }
        }
    }
    reductions.sort_unstable();
    reductions.dedup();
    assert_eq!(reductions, [2, 4, 8]);
}
