//! Comparison of the same loader on the CPU and on a GPU.

use std::sync::Arc;

use crate::error::Error;
use crate::geometry::Size;
use crate::gpu::{self, Device};
use crate::header::PnmHead;
use crate::loader::{DeviceChoice, Loader, LoaderBuilder};
use crate::op::{Chain, Operator, Placement};
use crate::plan::LastBatch;
use crate::source::Memory;
use crate::tensor::TensorShape;

use super::error::{Difference, Implementation, ParityError};
use super::random_image;
use super::values::of_tensors;

/// Sizes of the test images.
const SIZES: [Size; 4] =
    [Size::new(61, 47), Size::new(1, 1), Size::new(3, 200), Size::new(128, 96)];

/// Compares loaders on the first GPU and on the CPU. If there is no GPU, returns the reason.
pub fn check(operators: &[Arc<dyn Operator>], seed: u64) -> Result<Option<String>, ParityError> {
    let device = Device::open(0).and_then(|device| gpu::compiler(&device).map(|_| ()));
    if let Err(error) = device {
        return Ok(Some(error.to_string()));
    }
    let files = SIZES.map(|size| {
        let image = random_image(size, seed);
        ([PnmHead::rgb(size).bytes(), image.data()].concat(), 0)
    });
    let source = Arc::new(Memory::new(files.to_vec())?);
    let of = |device| {
        let chain = operators
            .iter()
            .fold(Chain::new(), |chain, op| chain.then_any(Placement::Auto, op.clone()));
        let builder =
            LoaderBuilder::new(source.clone(), chain).device(device).seed(seed).shuffle(false);
        let builder = builder
            .configure(|settings| settings.decode.placement = Placement::Cpu)
            .batch_size(SIZES.len())
            .configure(|settings| settings.loader.tune = false)
            .num_workers(1);
        tensors(&mut builder.shard(0, 1).last_batch(LastBatch::Partial).epochs(Some(1)).build()?)
    };
    let (expected, found) = (of(DeviceChoice::Cpu)?, of(DeviceChoice::Gpu(0))?);
    let shape = expected.0;
    let samples = expected.1.chunks(shape.bytes()).zip(found.1.chunks(shape.bytes()));
    for ((expected, found), input) in samples.zip(SIZES) {
        let Some((x, y, channel, expected, found)) = of_tensors(shape, expected, found) else {
            continue;
        };
        let (form, case) = (Implementation::Device, format!("{operators:?}, seed {seed}"));
        let difference = Difference { form, input, x, y, channel, expected, found, case };
        return Err(ParityError::Differs(Box::new(difference)));
    }
    Ok(None)
}

/// Shape of a sample, and the bytes of all samples.
fn tensors(loader: &mut Loader) -> Result<(TensorShape, Vec<u8>), Error> {
    let mut all = Vec::new();
    for batch in &mut *loader {
        all.extend(batch?.to_host()?);
    }
    Ok((TensorShape { batch: 1, ..loader.plan().shape }, all))
}
