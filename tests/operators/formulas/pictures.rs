//! Test images, which tests/golden/operators/colour.py computes too, and operators that are applied
//! to them.

use feedwater::internals::geometry::Size;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::HostTransform;
use feedwater::op::Operator;
use serde_json::Value;

use crate::golden::{digest, picture, rows};

/// Returns the same images as `PICTURES` in colour.py.
pub fn pictures() -> Vec<Image<u8>> {
    let waves = |width, height, seed| picture(Size::new(width, height), seed);
    let dim = |width, height, seed| map(waves(width, height, seed), |byte| byte / 9 * 5 + 40);
    let constant = |width, height, byte| map(waves(width, height, 0), |_| byte);
    vec![
        waves(1, 1, 1),
        waves(1, 9, 2),
        waves(11, 1, 3),
        waves(2, 2, 4),
        waves(3, 3, 5),
        waves(13, 17, 6),
        waves(64, 48, 7),
        waves(211, 97, 8),
        dim(64, 48, 9),
        dim(5, 4, 10),
        constant(6, 5, 0),
        constant(6, 5, 255),
        constant(1, 1, 77),
    ]
}

fn map(mut image: Image<u8>, of: impl Fn(u8) -> u8) -> Image<u8> {
    image.data_mut().iter_mut().for_each(|byte| *byte = of(*byte));
    image
}

/// Returns an image of 4096 rows with all 2^24 colours. Blue changes fastest.
pub fn colours() -> Image<u8> {
    let bytes = (0..1u32 << 24).flat_map(|at| [(at >> 16) as u8, (at >> 8) as u8, at as u8]);
    Image::from_data(Size::new(4096, 4096).window(), bytes.collect())
}

/// Returns the entries of the list `key` in colour.json.
pub fn golden(key: &str) -> Vec<Value> {
    rows(include_str!("../../golden/operators/colour.json"), key)
}

/// Returns the first 16 digits of the SHA-256 of an image's bytes.
pub fn short_digest(image: &HostImage) -> String {
    digest(bytes(image))[..16].into()
}

/// Returns the bytes of an image whose values are bytes.
pub fn bytes(image: &HostImage) -> &[u8] {
    let HostImage::U8(image) = image else { panic!("an image of bytes") };
    image.data()
}

/// Shape of the output tensors. These tests compare only images, so the values do not matter.
const SHAPE: TensorShape = TensorShape {
    batch: 1,
    width: 1,
    height: 1,
    dtype: DType::F32,
    layout: Layout::Nchw,
    channels: 3,
};

/// An operator, and the actions that it draws for a whole image.
pub struct Applied<'a> {
    image: &'a HostImage,
    actions: Actions,
}

impl<'a> Applied<'a> {
    /// Creates the operator `name` with settings as in a pipeline file, and draws its actions.
    pub fn new(name: &str, settings: &Value, image: &'a HostImage) -> Self {
        let operator = feedwater::internals::op::read(name, settings.clone()).unwrap().unwrap();
        operator.check().unwrap();
        let operators = [&*operator as &dyn Operator];
        let actions = Actions::of(operators, SampleKey::default(), image.window().size());
        Self { image, actions }
    }

    /// Returns the image that the reference implementation computes.
    pub fn reference(&self) -> HostImage {
        self.actions.reference(self.image)
    }

    /// Returns the image that the CPU transform computes.
    pub fn transformed(&self) -> HostImage {
        let mut transform = HostTransform::of_shape(SHAPE);
        transform.run_operator(&self.actions, 0, self.image).unwrap();
        transform.image().clone()
    }
}
