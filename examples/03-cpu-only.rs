//! An epoch without a GPU: everything placed on the CPU by hand, an operator of one's own for the CPU alone, damaged files
//! skipped and counted, and where the time went.
//!
//! `cargo run --release --example 03-cpu-only -- DIRECTORY`

use feedwater::Size;
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::custom::{HostImage, PixelType, SampleRng};
use feedwater::op::{self, Chain, Operator, Placement};
use feedwater::plan::{Last, OnError};
use feedwater::source::Directory;

/// Inverts bytes from a threshold on: Pillow's `ImageOps.solarize`. Without `CUDA` text an operator runs on the CPU, and so do
/// decoding and all operators before it.
#[derive(Clone, Copy, Debug)]
struct Solarize {
    threshold: u8,
}

impl Operator for Solarize {
    const NAME: &'static str = "solarize";
    // The threshold; a multiple of 8 bytes.
    type Params = u64;

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        match input {
            PixelType::U8 => Ok(PixelType::U8),
            PixelType::F32 => Err("solarize works on bytes: put it before normalize".into()),
        }
    }

    fn prepare(&self, input: Size, _: &mut SampleRng) -> (Size, u64) {
        (input, self.threshold.into())
    }

    fn reference(threshold: &u64, _: &[i32], src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("pixels() takes bytes only");
        };
        let solarized = |byte| if u64::from(byte) < *threshold { byte } else { 255 - byte };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                out.set_pixel(x, y, src.pixel(x, y).map(solarized));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;

    // `cpu` places each step on the CPU; `then` would use `auto`.
    let chain = Chain::new()
        .then_on(Placement::Cpu, op::Resize::shorter(256))
        .then_on(Placement::Cpu, op::CenterCrop::to(224, 224))
        .then_on(Placement::Cpu, Solarize { threshold: 192 })
        .then_on(Placement::Cpu, op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain)
        .device(DeviceChoice::Cpu)
        .decode(Placement::Cpu)
        .batch(32)
        .last(Last::Partial)
        .on_error(OnError::Skip)
        .epochs(Some(1))
        .build()?;
    println!("{}", loader.plan());

    for batch in &mut loader {
        let batch = batch?;
        for error in batch.errors() {
            println!("{error}");
        }
        // The tensor without a copy; dropping `batch` returns the slot to the loader.
        let _: Option<&[u8]> = batch.host();
    }

    let stats = loader.stats();
    println!("{} images, {:.0} a second", stats.images, stats.images as f64 / stats.seconds);
    println!("seconds of all threads: {:.2?}", stats.stages);
    println!("outcomes: {:?}", stats.outcomes);
    println!("errors: {:?}", stats.errors);
    Ok(())
}
