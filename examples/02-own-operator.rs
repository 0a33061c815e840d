//! Two operators of your own. The first one, `Posterize`, is a look-up table, which is a kind of
//! action that feedwater has. feedwater composes such an operator with its neighbours and runs it
//! in the same kernel as the built-in operators. It needs no CUDA source. The second one, `Frame`,
//! may compute each pixel from any pixels of its input. It is written in Rust and in CUDA. The
//! tests check both operators bit for bit, with the test harness of the built-in operators.
//!
//! `cargo run --release --example 02-own-operator -- DIRECTORY`, and `cargo test --example
//! 02-own-operator`.

use bytemuck::{Pod, Zeroable};
use feedwater::loader::Loader;
use feedwater::op::custom::{
    Cuda, Draw, FieldError, HostImage, ImageFormula, Kind, Kinds, PixelType,
};
use feedwater::op::{self, Chain, Operator};
use feedwater::source::Directory;
use serde::Serialize;

/// Reduces the number of bits per channel, like Pillow's `ImageOps.posterize`, with a probability.
#[derive(Clone, Copy, Debug)]
struct Posterize {
    /// Bits to keep, 1 to 8.
    bits: u32,
    /// Probability, 0 to 1.
    probability: f64,
}

impl Operator for Posterize {
    fn name(&self) -> &'static str {
        "my_posterize"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let bits = if draw.rng().chance(self.probability) { self.bits } else { 8 };
        draw.table(|_channel, byte| byte & (0xff << (8 - bits)) as u8);
    }

    fn check(&self) -> Result<(), FieldError> {
        if !(1..=8).contains(&self.bits) {
            return Err(FieldError::new("bits", format!("must be 1 to 8, is {}", self.bits)));
        }
        if !(0.0..=1.0).contains(&self.probability) {
            let problem = format!("must be from 0 to 1, is {}", self.probability);
            return Err(FieldError::new("probability", problem));
        }
        Ok(())
    }
}

/// Draws a frame of one colour around the image.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Width in pixels.
    width: u32,
    /// Red, green and blue.
    colour: [u8; 3],
}

/// Parameters of one sample: plain bytes, the same on CPU and GPU. Their size is a multiple of 8.
#[derive(Clone, Copy, Debug, Pod, Zeroable, Serialize)]
#[repr(C)]
struct FrameParams {
    width: i32,
    height: i32,
    frame: i32,
    colour: [u8; 3],
    #[serde(skip)]
    unused: u8,
}

impl FrameParams {
    fn covers(&self, x: u32, y: u32) -> bool {
        let inside = |at: u32, len: i32| (self.frame..len - self.frame).contains(&(at as i32));
        !inside(x, self.width) || !inside(y, self.height)
    }
}

impl Operator for Frame {
    fn name(&self) -> &'static str {
        "frame"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let size = draw.size();
        let (width, height) = (size.width as i32, size.height as i32);
        let (frame, colour) = (self.width as i32, self.colour);
        draw.image::<Self>(&FrameParams { width, height, frame, colour, unused: 0 }, size);
    }
}

impl ImageFormula for Frame {
    type Params = FrameParams;
    // `at(x, y)` returns the pixel (x, y) of the output. `src.at(x, y)` reads a pixel of the input.
    const CUDA: Option<Cuda> = Some(Cuda::new(
        "Frame",
        "
struct FrameParams {
    int width, height, frame;
    unsigned char colour[3], unused;
};

template <class Src> struct Frame {
    typedef Bytes Pixel;
    Src src;
    FrameParams p;
    __device__ Pixel at(int x, int y) const {
        if (x < p.frame || y < p.frame || x >= p.width - p.frame || y >= p.height - p.frame) {
            const Bytes colour = {p.colour[0], p.colour[1], p.colour[2]};
            return colour;
        }
        return src.at(x, y);
    }
};
",
    ));

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(PixelType::U8)
    }

    fn reference(params: &FrameParams, src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("pixels() takes bytes only");
        };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                let pixel = if params.covers(x, y) { params.colour } else { src.pixel(x, y) };
                out.set_pixel(x, y, pixel);
            }
        }
    }
}

fn main() -> Result<(), feedwater::MainError> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;
    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(Posterize { bits: 3, probability: 0.5 })
        .then(Frame { width: 4, colour: [255, 0, 0] })
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain).batch_size(8).build()?;
    println!("{}", loader.plan());
    if let Some(batch) = loader.epoch().next() {
        println!("{}", batch?.shape());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use feedwater::testing::{Parity, check_operator};

    use super::*;

    #[test]
    fn reference_and_cuda_text_give_the_same_bits() {
        for (bits, probability) in [(1, 1.0), (4, 0.5), (8, 1.0)] {
            let report = check_operator(Posterize { bits, probability }).unwrap();
            assert_eq!(report.no_host_kernel, None);
        }
        for width in [0, 3, 1000] {
            let report = check_operator(Frame { width, colour: [9, 200, 1] }).unwrap();
            assert_eq!(report.no_host_kernel, None);
        }
    }

    #[test]
    fn they_follow_and_precede_the_built_in_operators() {
        let chain = Parity::new(op::RandomResizedCrop::to(20, 16))
            .then(Posterize { bits: 3, probability: 0.5 })
            .then(Frame { width: 2, colour: [255, 0, 0] })
            .then(op::Flip { horizontal: 0.5, vertical: 0.0 })
            .then(op::Normalize::IMAGENET);
        println!("{}", chain.run().unwrap());
    }

    #[test]
    fn impossible_settings_are_named() {
        let bits = Operator::check(&Posterize { bits: 0, probability: 1.0 }).unwrap_err();
        assert_eq!((bits.field.as_str(), bits.problem.as_str()), ("bits", "must be 1 to 8, is 0"));
    }
}
