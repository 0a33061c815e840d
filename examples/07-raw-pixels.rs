//! A source of your own that returns pixels instead of encoded images. It writes a PNM header of a
//! few bytes before the pixels of each image. So the image passes through the chain like a file. A
//! second source wraps the first one and replaces the labels.
//!
//! `cargo run --release --example 07-raw-pixels`

use feedwater::Size;
use feedwater::error::DataError;
use feedwater::loader::Loader;
use feedwater::op::{self, Chain};
use feedwater::source::Source;
use feedwater::source::custom::{Page, PnmHead};

/// Simulates a camera. Each frame is a gradient whose blue channel is the frame's number.
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

    // Many threads call this at the same time, with different pages.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let head = self.head();
        let head = head.bytes();
        let bytes = head.len() as u64 + 3 * self.size.pixels();
        let (before, pixels) = page.space_within(bytes, limit)?.split_at_mut(head.len());
        before.copy_from_slice(head);
        for (place, pixel) in pixels.chunks_exact_mut(3).enumerate() {
            let (x, y) = (place as u32 % self.size.width, place as u32 / self.size.width);
            pixel.copy_from_slice(&[x as u8, y as u8, index as u8]);
        }
        Ok(())
    }
}

/// Wraps any source, and replaces its labels.
struct Labelled<S> {
    source: S,
    labels: Vec<i64>,
}

impl<S: Source> Source for Labelled<S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn label(&self, index: u64) -> i64 {
        self.labels[index as usize]
    }

    fn location(&self, index: u64) -> String {
        self.source.location(index)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.source.read(index, page, limit)
    }

    // Keeps the other features of the wrapped source available: boxes, prefetching, hints for the
    // plan.
    fn inner(&self) -> Option<&dyn Source> {
        Some(&self.source)
    }
}

fn main() -> Result<(), feedwater::MainError> {
    let camera = Camera { frames: 64, size: Size::new(256, 192) };
    let labels = (0..64).map(|frame| frame / 16).collect();
    let source = Labelled { source: camera, labels };
    let chain = Chain::new().then(op::RandomResizedCrop::to(64, 64)).then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(source, chain).batch_size(16).epochs(Some(1)).build()?;
    println!("{}", loader.plan());
    for batch in &mut loader {
        let batch = batch?;
        println!("batch {}: {}, labels {:?}", batch.number(), batch.shape(), batch.labels());
    }
    Ok(())
}
