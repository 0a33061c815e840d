//! Loads an epoch without a GPU. All steps are placed on the CPU. One operator is your own and runs
//! only on the CPU. Damaged files are skipped and counted. At the end, the time of each stage is
//! printed.
//!
//! `cargo run --release --example 03-cpu-only -- DIRECTORY`

use feedwater::Roi;
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::custom::{Draw, HostImage, ImageFormula, Kind, Kinds, PixelType, Wanted};
use feedwater::op::{self, Chain, Operator, Placement};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::Directory;

/// Replaces each block of pixels with its upper left pixel. An operator without CUDA source runs on
/// the CPU. So decoding and all operators before it run on the CPU too.
#[derive(Clone, Copy, Debug)]
struct Pixelate {
    /// Width and height of a block, in pixels.
    block: u32,
}

impl Operator for Pixelate {
    fn name(&self) -> &'static str {
        "pixelate"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.image::<Self>(&self.block.into(), draw.size());
    }
}

impl ImageFormula for Pixelate {
    // The parameter is the side of a block. `u64` is used because the size of `Params` must be a
    // multiple of 8 bytes.
    type Params = u64;

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(PixelType::U8)
    }

    fn demand(&mut block: &mut u64, wanted: Wanted) -> Roi {
        let first = |at: u32| at - at % block as u32;
        let (x, y) = (first(wanted.output.x), first(wanted.output.y));
        Roi::new(x, y, wanted.output.right() - x, wanted.output.bottom() - y)
    }

    fn reference(&block: &u64, src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("pixels() takes bytes only");
        };
        let first = |at: u32| at - at % block as u32;
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                out.set_pixel(x, y, src.pixel(first(x), first(y)));
            }
        }
    }
}

fn main() -> Result<(), feedwater::MainError> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;

    // `Placement::Cpu` places an operator on the CPU. `Chain::then` would use `Placement::Auto`.
    let chain = Chain::new()
        .then_on(Placement::Cpu, op::Resize::shorter(256))
        .then_on(Placement::Cpu, op::CenterCrop::to(224, 224))
        .then_on(Placement::Cpu, Pixelate { block: 8 })
        .then_on(Placement::Cpu, op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain)
        .device(DeviceChoice::Cpu)
        .configure(|settings| settings.decode.placement = Placement::Cpu)
        .batch_size(32)
        .last_batch(LastBatch::Partial)
        .on_error(OnError::Skip)
        .epochs(Some(1))
        .build()?;
    println!("{}", loader.plan());

    for batch in &mut loader {
        let batch = batch?;
        for error in batch.errors() {
            println!("{error}");
        }
        // `host` returns the tensor without a copy. Dropping `batch` returns its memory to the
        // loader.
        let _: Option<&[u8]> = batch.host();
    }

    let stats = loader.stats();
    println!("{} images, {:.0} a second", stats.images, stats.images as f64 / stats.seconds);
    println!("seconds of all threads: {:.2?}", stats.stages);
    println!("outcomes: {:?}", stats.outcomes);
    println!("errors: {:?}", stats.errors);
    Ok(())
}
