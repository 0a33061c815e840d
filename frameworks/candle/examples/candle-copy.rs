//! Measures the copy of a batch into a tensor of candle: into new memory, and into an existing
//! tensor.
//!
//! In `frameworks/`: `cargo run -p feedwater-candle --example candle-copy`

use std::error::Error;
use std::time::Instant;

use candle_core::Device;
use feedwater::loader::{Batch, DeviceChoice, Loader};
use feedwater::op::{Chain, Resize};
use feedwater::source::Memory;
use feedwater::{DType, Layout};
use feedwater_candle::{copy_images, images};

/// Number of images per batch, and side of the images in pixels.
const BATCH: usize = 64;
const SIDE: usize = 224;
/// Number of measured batches. One more batch is copied before them, and is not measured.
const ROUNDS: usize = 21;

fn main() -> Result<(), feedwater::MainError> {
    for dtype in [DType::F32, DType::U8] {
        let loader = loader(dtype)?;
        let mut batches = loader.into_batches();
        let mut next = || batches.next().expect("epochs are endless");
        let tensor = images(next()?, &Device::Cpu)?;
        let megabytes = (tensor.elem_count() * dtype.bytes()) as f64 / 1e6;
        let new = median(&mut next, |batch| images(batch, &Device::Cpu).map(drop))?;
        let existing = median(&mut next, |batch| copy_images(batch, &tensor))?;
        println!(
            "{dtype}, batch of {megabytes:.1} MB: {new:.2} ms into new memory, {existing:.2} ms into an existing tensor"
        );
    }
    Ok(())
}

/// Returns the median time of `copy`, in milliseconds.
fn median(
    next: &mut impl FnMut() -> feedwater::Result<Batch>,
    copy: impl Fn(Batch) -> candle_core::Result<()>,
) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let batch = next()?;
        let begin = Instant::now();
        copy(batch)?;
        if round > 0 {
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

/// Creates a loader whose batches repeat one small image, which takes a worker little time.
fn loader(dtype: DType) -> feedwater::Result<Loader> {
    let image = [b"P6 2 2 255\n".as_slice(), &[7; 12]].concat();
    let source = Memory::new(vec![(image, 0); BATCH])?;
    Loader::builder(source, Chain::new().then(Resize::to(SIDE as u32, SIDE as u32)))
        .batch_size(BATCH)
        .output(dtype, Layout::Nchw)
        .num_workers(1)
        .device(DeviceChoice::Cpu)
        .epochs(None)
        .build()
}
