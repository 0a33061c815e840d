//! Compares the formulas of batch operators with torchvision and timm, and the fast implementation
//! with the reference.

use std::sync::Arc;

use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::image::HostImage;
use feedwater::internals::op::batch::{TargetCoding, TargetRow, target_rows};
use feedwater::internals::output::store;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::blend_pair::{blend, reference};
use feedwater::loader::PairOutcome;
use feedwater::op::{BatchOperator, Blend, Blends, Chain, CutMix, PairDraw};
use feedwater::plan::LastBatch;

use super::{Made, builder, epoch, mixing};
use crate::common::training;
use crate::golden::{digest, integers, picture, rows, size};

const GOLDEN: &str = include_str!("../../golden/operators/batch.json");

fn shape(size: Size, dtype: DType, layout: Layout) -> TensorShape {
    TensorShape { batch: 2, width: size.width, height: size.height, dtype, layout, channels: 3 }
}

/// A batch operator that draws one fixed blend: its box, its weight and its target weight.
#[derive(Debug)]
struct Fixed(Roi, f32, f32);

impl BatchOperator for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn draw(&self, draw: &mut PairDraw<'_>) {
        draw.blend(self.0, self.1, self.2);
    }
}

fn blends(of: Fixed, size: Size) -> Blends {
    Blends::draw(&[Arc::new(of)], size, SampleKey::default())
}

/// Returns the images of the function `floats` in batch.py, with elements of the shape's type. In
/// floats, 120 is subtracted from each byte, as in batch.py. Bytes are not changed.
fn pair(shape: TensorShape) -> [Vec<u8>; 2] {
    let size = Size::new(shape.width, shape.height);
    [41, 42].map(|seed| {
        let image = picture(size, seed);
        let mut out = vec![0u32; shape.sample_len()];
        let bytes = &mut bytemuck::cast_slice_mut(&mut out)[..shape.sample_bytes()];
        match shape.dtype {
            DType::U8 => store(&HostImage::U8(image), shape, bytes),
            _ => {
                let data = image.data().iter().map(|&byte| f32::from(byte) - 120.0).collect();
                let image = feedwater::internals::image::Image::from_data(image.window(), data);
                store(&HostImage::F32(image), shape, bytes);
            }
        }
        bytes.to_vec()
    })
}

fn mixed(shape: TensorShape, blends: &[Blend]) -> Vec<u8> {
    let mut made = pair(shape).map(|bytes| aligned(&bytes));
    let [a, b] = &mut made;
    let bytes = shape.sample_bytes();
    let pair =
        [&mut bytemuck::cast_slice_mut(a)[..bytes], &mut bytemuck::cast_slice_mut(b)[..bytes]];
    blend(shape, blends, pair);
    made.iter().flat_map(|it| bytemuck::cast_slice(it)[..bytes].to_vec()).collect()
}

fn aligned(bytes: &[u8]) -> Vec<u32> {
    let mut words = vec![0u32; bytes.len().div_ceil(4)];
    bytemuck::cast_slice_mut::<u32, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

fn number(value: &serde_json::Value) -> f32 {
    value.as_f64().unwrap() as f32
}

/// Results in f32 and bytes must be equal bit for bit. For 16-bit floats, the golden data has
/// torchvision's results in f32, rounded once.
#[test]
fn mixup_equals_torchvision_and_timm() {
    for row in rows(GOLDEN, "mixup") {
        let (size, weight) = (size(&row["size"]), number(&row["weight"]));
        for dtype in DType::ALL {
            let blends = blends(Fixed(size.window(), weight, weight), size);
            let made = mixed(shape(size, dtype, Layout::Nchw), &blends);
            assert_eq!(digest(&made), row[dtype.name()], "{row} {dtype}");
        }
    }
}

#[test]
fn cutmix_equals_torchvision() {
    for row in rows(GOLDEN, "cutmix") {
        let size = size(&row["size"]);
        let [x, y] = integers(&row["place"]).map(|it| it as u32);
        let window = CutMix::window(size, row["drawn"].as_f64().unwrap(), (x, y));
        let [left, top, right, bottom] = integers(&row["box"]).map(|it| it as u32);
        let (width, height) = (right - left, bottom - top);
        assert_eq!(window, Roi::new(left, top, width, height), "{row}");
        let weight = CutMix::target_weight(size, window);
        assert_eq!(weight, number(&row["weight"]), "{row}");
        if let Some(expected) = row["f32"].as_str() {
            let blends = blends(Fixed(window, 0.0, weight), size);
            let made = mixed(shape(size, DType::F32, Layout::Nchw), &blends);
            assert_eq!(digest(&made), expected, "{row}");
        }
    }
}

fn written(rows: [TargetRow; 2], classes: usize) -> Vec<f32> {
    let mut all = vec![f32::NAN; 2 * classes];
    for (row, out) in rows.iter().zip(all.chunks_mut(classes)) {
        row.write(out);
    }
    all
}

#[test]
fn soft_targets_equal_timms() {
    for row in rows(GOLDEN, "targets") {
        let classes = row["classes"].as_u64().unwrap() as u32;
        let labels = integers(&row["labels"]).map(|label: i64| Some(label as u32));
        let coding = TargetCoding::new(classes, row["smoothing"].as_f64().unwrap());
        let size = Size::new(1, 1);
        let blends = blends(Fixed(size.window(), 0.5, number(&row["weight"])), size);
        let made = written(target_rows(labels, coding, &blends), classes as usize);
        let bits = row["bits"].as_array().unwrap().iter().flat_map(|it| it.as_array().unwrap());
        let expected = bits.map(|bits| bits.as_i64().unwrap() as u32);
        assert!(made.iter().map(|it| it.to_bits()).eq(expected), "{row} {made:?}");
    }
}

#[test]
fn the_fast_path_equals_the_reference() {
    let windows = |Size { width, height }: Size| {
        let inner = Roi::new(width / 3, height / 4, width / 2, height / 2);
        [Roi::new(0, 0, width, height), inner, Roi::new(0, height / 2, width, 1), Roi::default()]
    };
    for size in [Size::new(1, 1), Size::new(33, 21), Size::new(300, 5)] {
        for window in windows(size) {
            for weight in [0.0, 1e-6, 0.3, 0.5, 1.0] {
                let blends = blends(Fixed(window, weight, weight), size);
                for (dtype, layout) in
                    DType::ALL.into_iter().flat_map(|it| Layout::ALL.map(|layout| (it, layout)))
                {
                    let shape = shape(size, dtype, layout);
                    let mut expected = pair(shape);
                    let [a, b] = &mut expected;
                    reference(shape, &blends[0], [a, b]);
                    let what = format!("{size} {window:?} {weight} {dtype} {layout}");
                    assert!(mixed(shape, &blends) == expected.concat(), "{what}");
                }
            }
        }
    }
}

/// Tests all pairs of bytes, including ties, that is, results halfway between two bytes.
#[test]
fn bytes_are_rounded_to_nearest_even() {
    let element = |weight: f32, a: f32, b: f32| weight * a + (1.0 - weight) * b;
    for weight in [0.25f32, 0.5, 0.1] {
        let (mut a, mut b): (Vec<u8>, Vec<u8>) =
            (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))).unzip();
        let (before, other) = (a.clone(), b.clone());
        let shape = TensorShape {
            batch: 2,
            width: 65536 / 3 + 1,
            height: 1,
            dtype: DType::U8,
            layout: Layout::Nhwc,
            channels: 3,
        };
        a.resize(shape.sample_len(), 0);
        b.resize(shape.sample_len(), 0);
        let size = Size::new(shape.width, 1);
        blend(shape, &blends(Fixed(size.window(), weight, 0.5), size), [&mut a, &mut b]);
        for (at, (&p, &q)) in before.iter().zip(&other).enumerate() {
            let (p, q) = (f32::from(p), f32::from(q));
            assert_eq!(a[at], element(weight, p, q).round_ties_even() as u8, "{weight} {p} {q}");
            assert_eq!(b[at], element(weight, q, p).round_ties_even() as u8, "{weight} {p} {q}");
        }
    }
}

/// Applies the recorded blends to the unmixed samples with the reference implementation. The result
/// must equal the samples that the loader mixed.
#[test]
fn a_loader_mixes_what_it_records() {
    for (number, chain) in mixing().into_iter().enumerate() {
        for (dtype, layout) in
            [(DType::F32, Layout::Nchw), (DType::F16, Layout::Nhwc), (DType::BF16, Layout::Nchw)]
        {
            let of = |chain: Chain| {
                epoch(
                    builder(chain)
                        .output(dtype, layout)
                        .last_batch(LastBatch::Partial)
                        .configure(|it| it.targets.smoothing = 0.0),
                )
            };
            let (plain, made) = (of(training()), of(chain.clone()));
            assert_eq!((plain.len(), made.len()), (61, 61));
            let shape = shape(Size::new(24, 20), dtype, layout);
            for (plain, made) in plain.chunks(2).zip(made.chunks(2)) {
                let expected = mixed_by_hand(shape, plain, made[0].pair.blends());
                let parts = |it: &Made| (it.index, it.pixels.clone(), it.target.clone());
                assert!(expected.iter().map(parts).eq(made.iter().map(parts)), "{number}");
            }
            let mixed = |it: &&Made| it.pair.outcome() == PairOutcome::Mixed;
            assert!(made.iter().filter(mixed).count() > 30);
            assert_eq!(made[60].pair.outcome(), PairOutcome::Alone);
        }
    }
}

fn mixed_by_hand(shape: TensorShape, plain: &[Made], blends: &[Blend]) -> Vec<Made> {
    let mut made = plain.to_vec();
    let [first, second] = &mut made[..] else { return made };
    for blend in blends {
        reference(shape, blend, [&mut first.pixels, &mut second.pixels]);
        for (a, b) in first.target.iter_mut().zip(&mut second.target) {
            let weight = blend.target_weight;
            (*a, *b) = (weight * *a + (1.0 - weight) * *b, weight * *b + (1.0 - weight) * *a);
        }
    }
    made
}
