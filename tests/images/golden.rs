//! Compares operators with Pillow and torchvision, bit for bit. `tests/golden/ops.py` writes the
//! expected results to `tests/golden/ops.json`.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::picture;
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::image::{HostImage, PixelType};
use feedwater::internals::op::Actions;
use feedwater::internals::op::resample::{self, Filter};
use feedwater::internals::output;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::HostTransform;
use feedwater::op::custom::Wanted;
use feedwater::op::{CenterCrop, Crop, Flip, Normalize, Operator, Resize};

fn image(size: Size, seed: u64) -> HostImage {
    HostImage::U8(picture(size, seed))
}

fn golden(key: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../golden/ops.json")).unwrap();
    let cases = all[key].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap() as u32
}

fn size(value: &Value) -> Size {
    Size::new(number(&value[0]), number(&value[1]))
}

fn roi(value: &Value) -> Roi {
    let [x, y, width, height] = [0, 1, 2, 3].map(|at| number(&value[at]));
    Roi::new(x, y, width, height)
}

fn filter(case: &Value) -> Filter {
    serde_json::from_value(case["filter"].clone()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(image: &HostImage) -> &[u8] {
    match image {
        HostImage::U8(image) => image.data(),
        HostImage::F32(_) => panic!("these operators output bytes"),
    }
}

/// Shape of the output tensors. The tests compare images, so the values do not matter.
const SHAPE: TensorShape = TensorShape {
    batch: 1,
    width: 1,
    height: 1,
    dtype: DType::F32,
    layout: Layout::Nchw,
    channels: 3,
};

/// Returns the output of a chain for a whole image twice: computed by the reference implementation
/// and by the CPU transform.
fn run(operators: &[Arc<dyn Operator>], image: HostImage) -> [HostImage; 2] {
    let size = image.window().size();
    let operators = operators.iter().map(|operator| &**operator);
    let actions = Actions::of(operators, SampleKey::default(), size);
    let mut transform = HostTransform::of_shape(SHAPE);
    let mut fast = image.clone();
    for operator in 0..actions.ends.len() {
        transform.run_operator(&actions, operator, &fast).unwrap();
        fast = transform.image().clone();
    }
    [actions.reference(&image), fast]
}

/// Resizes a region of an image, which a decoder may already have reduced. `of` is the region in
/// the image before the reduction.
fn resample(
    image: &HostImage,
    of: Roi,
    to: Size,
    reduction: u32,
    filter: Filter,
) -> [HostImage; 2] {
    let mut params = resample::Params::new(of, to);
    let mut table = Vec::new();
    let input = image.window().size();
    let wanted = Wanted { input, reduction, padding: Size::default(), output: to.window() };
    resample::fill_table(&mut params, wanted, filter, &mut table);
    let mut results = [(); 2].map(|()| HostImage::new(PixelType::U8, to.window()));
    let [reference, fast] = &mut results;
    resample::reference(&params, &table, image, reference);
    resample::apply(&params, &table, image, fast).unwrap();
    results
}

fn assert_tensors(image: &HostImage, case: &Value) {
    for (dtype, key) in [(DType::F32, "f32"), (DType::F16, "f16"), (DType::BF16, "bf16")] {
        let len = 3 * image.window().size().pixels() as usize;
        let mut out = vec![0u32; len];
        let out = &mut bytemuck::cast_slice_mut::<_, u8>(&mut out)[..len * dtype.bytes()];
        output::store(image, TensorShape { dtype, ..SHAPE }, out);
        assert_eq!(sha256(out), case[key], "{dtype}: {case}");
    }
}

#[test]
fn resize_equals_pillow() {
    for case in golden("resize") {
        let (source, target) = (size(&case["source"]), size(&case["target"]));
        let op = Resize { filter: filter(&case), ..Resize::to(target.width, target.height) };
        for result in run(&[Arc::new(op)], image(source, 1)) {
            if let Some(expected) = case["bytes"].as_str() {
                let hex: String = bytes(&result).iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(hex, expected, "{case}");
            }
            assert_eq!(sha256(bytes(&result)), case["sha256"], "{case}");
        }
    }
}

#[test]
fn a_reduced_image_is_resized_as_pillow_resizes_a_fractional_box() {
    let reduced = image(Size::new(61, 47), 2);
    for case in golden("boxes") {
        let reduction = number(&case["reduction"]);
        let results =
            resample(&reduced, roi(&case["box"]), Size::new(19, 23), reduction, filter(&case));
        for result in results {
            assert_eq!(sha256(bytes(&result)), case["sha256"], "{case}");
        }
    }
}

#[test]
fn the_training_chain_equals_torchvision_on_given_crops() {
    for case in golden("training") {
        let source = image(size(&case["source"]), 3);
        let horizontal = if case["mirrored"] == true { 1.0 } else { 0.0 };
        let rest: [Arc<dyn Operator>; 2] =
            [Arc::new(Flip { horizontal, vertical: 0.0 }), Arc::new(Normalize::IMAGENET)];
        let to = Size::new(224, 224);
        for image in resample(&source, roi(&case["box"]), to, 1, Filter::Bilinear) {
            for image in run(&rest, image) {
                assert_tensors(&image, &case);
            }
        }
    }
}

#[test]
fn the_evaluation_chain_equals_torchvision() {
    let chain: [Arc<dyn Operator>; 3] = [
        Arc::new(Resize::shorter(256)),
        Arc::new(CenterCrop::to(224, 224)),
        Arc::new(Normalize::IMAGENET),
    ];
    for case in golden("evaluation") {
        for image in run(&chain, image(size(&case["source"]), 4)) {
            assert_tensors(&image, &case);
        }
    }
}

#[test]
fn crops_equal_torchvision_on_pil_images() {
    for case in golden("crops") {
        let (width, height) = (number(&case["width"]), number(&case["height"]));
        let op: Arc<dyn Operator> = if case["op"] == "crop" {
            Arc::new(Crop { x: number(&case["x"]), y: number(&case["y"]), width, height })
        } else {
            Arc::new(CenterCrop::to(width, height))
        };
        for result in run(&[op], image(Size::new(31, 22), 5)) {
            assert_eq!(sha256(bytes(&result)), case["sha256"], "{case}");
        }
    }
}

#[test]
fn sides_are_rounded_as_torchvision_does() {
    for case in golden("sizes") {
        let op = match case["shorter"].as_u64() {
            Some(pixels) => Resize::shorter(pixels as u32),
            None => Resize::longer(number(&case["longer"])),
        };
        let given = Operator::fixed_output(&op, Some(size(&case["source"])));
        assert_eq!(given, Some(size(&case["size"])), "{case}");
    }
}
