//! Images, settings and checks that the tests and examples of the frameworks share.

use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Normalize, Resize, View};
use feedwater::plan::ColumnSettings;
use feedwater::source::{FileList, Memory};
use feedwater::{DType, ElementType, LastBatch, Layout, Result};
use feedwater_tools::synth;

pub use slots::assert_slot_waits;

mod slots;

/// Number of classes. Each class is one of the scenes that feedwater's synthetic images show.
pub const CLASSES: usize = 10;
/// Side of the images of a batch, in pixels.
pub const SIDE: usize = 32;
/// Number of images per batch.
pub const BATCH: usize = 32;
/// Number of epochs of a training.
pub const EPOCHS: u32 = 4;
/// Learning rate of AdamW.
pub const LEARNING_RATE: f64 = 0.002;
/// Seed of the weights.
pub const SEED: u64 = 0;
/// Share of the held-out images that each trained network must classify correctly.
pub const ACCURACY: f64 = 0.9;

/// Returns a loader of 1000 images in shuffled order for [`EPOCHS`] epochs. Batches are f32 in
/// NCHW, with the shape `[BATCH, 3, SIDE, SIDE]`.
///
/// # Errors
/// Fails only if the machine has too little memory.
pub fn training_images() -> Result<Loader> {
    loader(images(0, 1000)?, DType::F32, Layout::Nchw).shuffle(true).epochs(Some(EPOCHS)).build()
}

/// Returns a loader that reads 200 images once and in order. These images are not in
/// [`training_images`].
///
/// # Errors
/// Fails only if the machine has too little memory.
pub fn held_out_images() -> Result<Loader> {
    loader(images(1, 200)?, DType::F32, Layout::Nchw)
        .last_batch(LastBatch::Partial)
        .epochs(Some(1))
        .build()
}

/// Returns a loader of endless epochs of 24 images in batches of 4. It has memory for two batches
/// (two slots). While a consumer keeps two batches, the loader can fill no other batch.
///
/// # Errors
/// Fails only if the machine has too little memory.
pub fn small_batches(dtype: DType, layout: Layout) -> Result<Loader> {
    loader(images(2, 24)?, dtype, layout).batch_size(4).prefetch(1).epochs(None).build()
}

/// Returns the first batch of [`small_batches`].
///
/// # Panics
/// Panics if the machine has too little memory.
pub fn small_batch(dtype: DType, layout: Layout) -> Batch {
    let mut loader = small_batches(dtype, layout).expect("the settings are sound");
    loader.epoch().next().expect("an epoch has batches").expect("the images are sound")
}

/// Returns a batch of three samples with columns that are made from fields: `score` of f32
/// `[3, 2]`, `tags` of i64 with lists of 0, 1 and 2 numbers, and `text`. It also has the view
/// `small`.
///
/// # Panics
/// Panics if the files cannot be written.
pub fn batch_with_columns() -> Batch {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = "path,score,tags,text\n".to_string();
    for number in 0..3 {
        let image = b"P6 2 1 255\n\x01\x02\x03\x04\x05\x06";
        std::fs::write(folder.path().join(format!("{number}.ppm")), image).expect("written");
        let tags: Vec<usize> = (0..number).map(|it| 10 * number + it).collect();
        lines += &format!("{number}.ppm,\"[{number}, 0.5]\",\"{tags:?}\",text {number}\n");
    }
    let list = folder.path().join("list.csv");
    std::fs::write(&list, lines).expect("written");
    let chain = Chain::new().then(Resize::to(2, 2));
    let view = View::new("small", Chain::new().then(Resize::to(1, 1)).then(Normalize::IMAGENET));
    let source = FileList::open(list).expect("a list");
    let builder = Loader::builder(source, chain.view(view)).batch_size(3).num_workers(1);
    let builder = builder.device(DeviceChoice::Cpu).epochs(Some(1)).configure(|settings| {
        settings.columns = vec![
            ColumnSettings::array("score", ElementType::F32, &[2]),
            ColumnSettings::list("tags", ElementType::I64, &[]),
            ColumnSettings::text("text"),
        ];
    });
    let mut loader = builder.build().expect("the settings are sound");
    loader.epoch().next().expect("an epoch has batches").expect("the images are sound")
}

/// Returns a builder with the settings that all loaders share. They run on the CPU, and normalize
/// values that are not bytes.
fn loader(images: Memory, dtype: DType, layout: Layout) -> LoaderBuilder {
    let chain = Chain::new().then(Resize::to(SIDE as u32, SIDE as u32));
    let chain = if dtype == DType::U8 { chain } else { chain.then(Normalize::IMAGENET) };
    Loader::builder(images, chain)
        .batch_size(BATCH)
        .num_workers(1)
        .output(dtype, layout)
        .device(DeviceChoice::Cpu)
}

/// Returns `count` of feedwater's synthetic JPEGs of 64x64 pixels with their classes as labels.
/// Different seeds give different images.
fn images(seed: u64, count: u64) -> Result<Memory> {
    let (width, height) = (64, 64);
    let sample = |index| {
        let jpeg =
            synth::encode(&synth::image(seed, index, width, height), width, height, 92, false)?;
        Ok((jpeg, (index % CLASSES as u64) as i64))
    };
    Memory::new((0..count).map(sample).collect::<Result<_>>()?)
}
