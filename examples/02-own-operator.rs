//! A custom operator: its settings, its reference in Rust and its CUDA text. It is fused with the built-in operators into one
//! kernel, and tested bit for bit with the same harness.
//!
//! `cargo run --release --example 02-own-operator -- DIRECTORY`, and `cargo test --example 02-own-operator`.

use bytemuck::{Pod, Zeroable};
use feedwater::Size;
use feedwater::loader::Loader;
use feedwater::op::custom::{Cuda, FieldError, HostImage, PixelType, SampleRng};
use feedwater::op::{self, Chain, Operator};
use feedwater::source::Directory;

/// Reduces the number of bits per channel, like Pillow's `ImageOps.posterize`, with a probability.
#[derive(Clone, Copy, Debug)]
struct Posterize {
    /// Bits to keep, 1 to 8.
    bits: u32,
    /// Probability, 0 to 1.
    probability: f64,
}

/// Parameters of one sample: plain bytes, the same on CPU and GPU, with a size that is a multiple of 8.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct PosterizeParams {
    mask: i32,
    unused: i32,
}

impl Operator for Posterize {
    const NAME: &'static str = "posterize";
    type Params = PosterizeParams;
    // `at(x, y)` of the image that leaves, from `src.at(x, y)` of the image that enters.
    const CUDA: Option<Cuda> = Some(Cuda::new(
        "Posterize",
        "
struct PosterizeParams {
    int mask, unused;
};

template <class Src> struct Posterize {
    typedef Bytes Pixel;
    Src src;
    PosterizeParams p;
    __device__ unsigned char kept(unsigned char byte) const { return (unsigned char)(byte & p.mask); }
    __device__ Pixel at(int x, int y) const {
        const Bytes pixel = src.at(x, y);
        const Bytes out = {kept(pixel.r), kept(pixel.g), kept(pixel.b)};
        return out;
    }
};
",
    ));

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

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        match input {
            PixelType::U8 => Ok(PixelType::U8),
            PixelType::F32 => Err("posterize works on bytes: put it before normalize".into()),
        }
    }

    fn prepare(&self, input: Size, rng: &mut SampleRng) -> (Size, PosterizeParams) {
        let bits = if rng.chance(self.probability) { self.bits } else { 8 };
        (input, PosterizeParams { mask: 0xff & (0xff << (8 - bits)), unused: 0 })
    }

    fn reference(params: &PosterizeParams, _: &[i32], src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("pixels() takes bytes only");
        };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                out.set_pixel(x, y, src.pixel(x, y).map(|byte| byte & params.mask as u8));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;
    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(Posterize { bits: 3, probability: 0.5 })
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain).batch(8).build()?;
    println!("{}", loader.plan());
    if let Some(batch) = loader.epoch().next() {
        println!("{}", batch?.shape());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use feedwater::Roi;
    use feedwater::op::custom::Image;
    use feedwater::testing::{Parity, check_operator};

    use super::*;

    #[test]
    fn reference_and_cuda_text_give_the_same_bits() {
        for (bits, probability) in [(1, 1.0), (4, 0.5), (8, 1.0)] {
            let report = check_operator(Posterize { bits, probability }).unwrap();
            assert_eq!(report.no_host_kernel, None);
        }
    }

    #[test]
    fn it_fuses_with_the_built_in_operators() {
        let chain = Parity::new(op::RandomResizedCrop::to(20, 16))
            .then(Posterize { bits: 3, probability: 0.5 })
            .then(op::Flip { horizontal: 0.5, vertical: 0.0 })
            .then(op::Normalize::IMAGENET);
        println!("{}", chain.run().unwrap());
    }

    #[test]
    fn the_upper_bits_are_kept() {
        let src = HostImage::U8(Image::from_data(Roi::new(0, 0, 1, 1), vec![255, 128, 31]));
        let mut out = HostImage::new(PixelType::U8, Roi::new(0, 0, 1, 1));
        let params = PosterizeParams { mask: 0b1110_0000, unused: 0 };
        <Posterize as Operator>::reference(&params, &[], &src, &mut out);
        assert_eq!(out, HostImage::U8(Image::from_data(Roi::new(0, 0, 1, 1), vec![224, 128, 0])));
    }

    #[test]
    fn impossible_settings_are_named() {
        let bits = Operator::check(&Posterize { bits: 0, probability: 1.0 }).unwrap_err();
        assert_eq!((bits.field.as_str(), bits.problem.as_str()), ("bits", "must be 1 to 8, is 0"));
    }
}
