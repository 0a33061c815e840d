//! Images, settings and checks that the tests and examples of the frameworks share.

use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Normalize, Resize};
use feedwater::source::Memory;
use feedwater::{DType, LastBatch, Layout, Result};
use feedwater_tools::synth;

pub use slots::assert_slot_waits;

mod slots;

/// Number of classes. Each is a scene of the synthetic images.
pub const CLASSES: usize = 10;
/// Side of the images of a batch, in pixels.
pub const SIDE: usize = 32;
/// Images per batch.
pub const BATCH: usize = 32;
/// Epochs of a training.
pub const EPOCHS: u32 = 4;
/// Learning rate of AdamW.
pub const LEARNING_RATE: f64 = 0.002;
/// Seed of the weights.
pub const SEED: u64 = 0;
/// Share of the held-out images that each trained network must classify correctly.
pub const ACCURACY: f64 = 0.9;

/// Loader of 1000 images for [`EPOCHS`] epochs: f32, NCHW, `[BATCH, 3, SIDE, SIDE]`, shuffled.
///
/// # Errors
/// None on a machine with enough memory.
pub fn training_images() -> Result<Loader> {
    loader(images(0, 1000)?, DType::F32, Layout::Nchw).shuffle(true).epochs(Some(EPOCHS)).build()
}

/// Loader of 200 images that are not in [`training_images`], once and in order.
///
/// # Errors
/// None on a machine with enough memory.
pub fn held_out_images() -> Result<Loader> {
    loader(images(1, 200)?, DType::F32, Layout::Nchw)
        .last_batch(LastBatch::Partial)
        .epochs(Some(1))
        .build()
}

/// Loader of endless epochs of 24 images in batches of 4, with two slots. Two live batches occupy
/// both slots.
///
/// # Errors
/// None on a machine with enough memory.
pub fn small_batches(dtype: DType, layout: Layout) -> Result<Loader> {
    loader(images(2, 24)?, dtype, layout).batch_size(4).prefetch(1).epochs(None).build()
}

/// First batch of [`small_batches`].
///
/// # Panics
/// On a machine with too little memory.
pub fn small_batch(dtype: DType, layout: Layout) -> Batch {
    let mut loader = small_batches(dtype, layout).expect("the settings are sound");
    loader.epoch().next().expect("an epoch has batches").expect("the images are sound")
}

/// Settings that all loaders share. The loader stays on the CPU. Values are normalized, unless they are bytes.
fn loader(images: Memory, dtype: DType, layout: Layout) -> LoaderBuilder {
    let chain = Chain::new().then(Resize::to(SIDE as u32, SIDE as u32));
    let chain = if dtype == DType::U8 { chain } else { chain.then(Normalize::IMAGENET) };
    Loader::builder(images, chain)
        .batch_size(BATCH)
        .num_workers(1)
        .output(dtype, layout)
        .device(DeviceChoice::Cpu)
}

/// feedwater's synthetic JPEGs of 64x64 pixels. Sets with different seeds have different images.
fn images(seed: u64, count: u64) -> Result<Memory> {
    let (width, height) = (64, 64);
    let sample = |index| {
        let jpeg =
            synth::encode(&synth::image(seed, index, width, height), width, height, 92, false)?;
        Ok((jpeg, (index % CLASSES as u64) as i64))
    };
    Memory::new((0..count).map(sample).collect::<Result<_>>()?)
}
