//! A custom source of raw pixels: each image gets a PNM header of a few bytes, and passes the chain like a file.
//!
//! `cargo run --release --example 07-raw-pixels`

use feedwater::error::{DataError, Reason};
use feedwater::geometry::Size;
use feedwater::header::PnmHead;
use feedwater::loader::Loader;
use feedwater::op::{self, Chain};
use feedwater::source::{Page, Source};

/// Frames of a camera, each with a different part of a gradient.
struct Camera {
    frames: u64,
    size: Size,
}

impl Camera {
    fn head(&self) -> PnmHead {
        PnmHead::rgb(self.size)
    }
}

impl Source for Camera {
    fn len(&self) -> u64 {
        self.frames
    }

    fn label(&self, index: u64) -> i64 {
        index as i64 % 2
    }

    fn location(&self, index: u64) -> String {
        format!("frame {index}")
    }

    // Called from many threads at once, with different pages.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let bytes = self.largest_bytes();
        if bytes > limit {
            let problem = format!("{bytes} bytes, limits.max_file_bytes is {limit}");
            return Err(DataError::new(Reason::Oversized, problem));
        }
        let head = self.head();
        let (before, pixels) = page.space(bytes as usize)?.split_at_mut(head.bytes().len());
        before.copy_from_slice(head.bytes());
        for (place, pixel) in pixels.chunks_exact_mut(3).enumerate() {
            let (x, y) = (place as u32 % self.size.width, place as u32 / self.size.width);
            pixel.copy_from_slice(&[x as u8, y as u8, index as u8]);
        }
        Ok(())
    }

    fn largest_bytes(&self) -> u64 {
        self.head().bytes().len() as u64 + 3 * self.size.pixels()
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn describe(&self) -> String {
        format!("a camera: {} frames of {}", self.frames, self.size)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let camera = Camera { frames: 64, size: Size::new(256, 192) };
    let chain = Chain::new().then(op::RandomResizedCrop::to(64, 64)).then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(camera, chain).batch(16).epochs(Some(1)).build()?;
    println!("{}", loader.plan());
    for batch in &mut loader {
        let batch = batch?;
        println!("batch {}: {}, labels {:?}", batch.number(), batch.shape(), batch.labels());
    }
    Ok(())
}
