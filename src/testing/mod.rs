//! Checks for your own operators: every implementation of an operator must produce the same bits as
//! its reference.
//!
//! ```no_run
//! # use feedwater::op::Flip;
//! # let operator = Flip::default();
//! let report = feedwater::testing::check_operator(operator).unwrap();
//! println!("{report}");
//! ```
//!
//! Three kinds of implementations are compared with the reference implementations of the operator's
//! actions:
//!
//! * The fast CPU implementations
//!   ([`ImageFormula::apply`](crate::op::custom::ImageFormula::apply)).
//! * The CPU path of a loader, which processes an image row by row.
//! * The kernels, compiled for the host by `$CXX` or `c++`, and run on a GPU if there is one.
//!
//! The test images have random or extreme values. Their sizes include odd and tiny ones.

use std::fmt;
use std::sync::Arc;

use crate::geometry::{Orientation, Size};
use crate::gpu::host_kernel::HostCompiler;
use crate::image::PixelType;
use crate::op::{CenterCrop, Flip, Normalize, Operator, RandomResizedCrop};
use crate::random::SampleKey;
use crate::tensor::{DType, Layout};

pub use error::{Difference, Implementation, ParityError};

pub(crate) use case::Case;
pub(crate) use images::{extreme_images, random_image};
pub(crate) use kernels::Kernels;

pub(crate) mod case;
mod device;
mod error;
pub(crate) mod images;
pub(crate) mod kernels;
mod values;

/// Compares every implementation of an operator with its reference. The operator runs alone, and
/// between built-in operators.
///
/// # Errors
///
/// Fails with the first [`Difference`], or with the reason why a comparison is impossible.
pub fn check_operator(operator: impl Operator) -> Result<ParityReport, ParityError> {
    Parity::new(operator).run()
}

/// Builder of a comparison of operators.
#[derive(Clone, Debug)]
pub struct Parity {
    operators: Vec<Arc<dyn Operator>>,
    samples: u64,
    seed: u64,
}

/// Report of a comparison without differences.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParityReport {
    /// Number of cases: combinations of image, chain, element type and layout.
    pub cases: u64,
    /// Reason why the CUDA source was not compiled for the host. `None` if it was.
    pub no_host_kernel: Option<String>,
    /// Reason why the CUDA source was not run on a GPU. `None` if it was.
    pub no_device: Option<String>,
}

/// Sizes of images: one pixel, one row, one column, prime numbers, ordinary.
const SIZES: [(u32, u32); 6] = [(1, 1), (1, 37), (41, 1), (13, 17), (31, 29), (50, 37)];
/// Size of the images with extreme values.
const EXTREME: Size = Size::new(43, 30);
/// Size of the crop that is appended to chains without a fixed output size.
const CROP: (u32, u32) = (37, 29);

impl Parity {
    /// Creates a comparison of this operator.
    pub fn new(operator: impl Operator) -> Self {
        Self { operators: vec![Arc::new(operator)], samples: 4, seed: 1 }
    }

    /// Appends an operator to the compared chain.
    pub fn then(mut self, operator: impl Operator) -> Self {
        self.operators.push(Arc::new(operator));
        self
    }

    /// Number of samples per image size, which differ in their random numbers. Default 4.
    pub fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// Seed of images and random numbers. Default 1.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs the comparison.
    ///
    /// # Errors
    ///
    /// Fails with the first [`Difference`], or with the reason why a comparison is impossible.
    pub fn run(&self) -> Result<ParityReport, ParityError> {
        let has_cuda = self.operators.iter().all(|op| op.kinds().not_on_device().is_none());
        let compiler = match has_cuda {
            true => HostCompiler::of_process().runs(),
            false => Err(std::io::Error::other("an operator has no CUDA source")),
        };
        let no_host_kernel = compiler.as_ref().err().map(ToString::to_string);
        let kernels = compiler.map_or(Kernels::None, Kernels::Host);
        let chains = self.chains()?;
        let mut cases = 0;
        for chain in &chains {
            cases += self.check(chain, kernels)?;
        }
        let no_device = match has_cuda {
            true => device::check(&batchable(&chains[0]), self.seed)?,
            false => no_host_kernel.clone(),
        };
        Ok(ParityReport { cases, no_host_kernel, no_device })
    }

    /// Chains to compare: the operators alone, and the operators between built-in ones. If the
    /// operators do not accept bytes, the only chain is [`Normalize`] followed by the operators.
    fn chains(&self) -> Result<Vec<Vec<Arc<dyn Operator>>>, ParityError> {
        let own = || self.operators.iter().cloned();
        let normalize: Arc<dyn Operator> = Arc::new(Normalize::IMAGENET);
        let takes_bytes = self.operators[0].pixels(PixelType::U8).is_ok();
        let alone: Vec<_> = match takes_bytes {
            true => own().collect(),
            false => [normalize.clone()].into_iter().chain(own()).collect(),
        };
        let pixels = pixels_after(PixelType::U8, &alone)
            .map_err(|problem| ParityError::Invalid { problem, case: format!("{alone:?}") })?;
        if !takes_bytes {
            return Ok(vec![alone]);
        }
        let first: Arc<dyn Operator> = Arc::new(RandomResizedCrop::to(32, 24));
        let flip: Arc<dyn Operator> = Arc::new(Flip { horizontal: 0.5, vertical: 0.5 });
        let mut between: Vec<_> = [first].into_iter().chain(own()).chain([flip]).collect();
        if pixels == PixelType::U8 {
            between.push(normalize);
        }
        Ok(vec![alone, batchable(&between)])
    }

    fn check(&self, chain: &[Arc<dyn Operator>], kernels: Kernels<'_>) -> Result<u64, ParityError> {
        let outputs = match pixels_after(PixelType::U8, chain) {
            Ok(PixelType::U8) => [(DType::U8, Layout::Nchw), (DType::F32, Layout::Nhwc)],
            _ => [(DType::F32, Layout::Nchw), (DType::F16, Layout::Nhwc)],
        };
        let random = SIZES.map(|(width, height)| random_image(Size::new(width, height), self.seed));
        let images = random.into_iter().chain(extreme_images(EXTREME));
        let mut cases = 0;
        for (image, exif) in images.flat_map(|image| [(image.clone(), 1), (image, 6)]) {
            for index in 0..self.samples {
                let (dtype, layout) = outputs[index as usize % outputs.len()];
                let case = Case {
                    operators: chain,
                    on_host: 0,
                    stored: &image,
                    orientation: Orientation::from_exif(exif),
                    reduction: 1,
                    dtype,
                    layout,
                    key: SampleKey { seed: self.seed, epoch: 0, index },
                    kernels,
                    planes: None,
                    known: &[],
                };
                case.check()?;
                cases += 1;
            }
        }
        Ok(cases)
    }
}

/// Output pixel type of a chain.
fn pixels_after(before: PixelType, operators: &[Arc<dyn Operator>]) -> Result<PixelType, String> {
    operators.iter().try_fold(before, |pixels, op| op.pixels(pixels))
}

/// Appends a crop if the operators have no fixed output size, because a batch needs one.
fn batchable(operators: &[Arc<dyn Operator>]) -> Vec<Arc<dyn Operator>> {
    let mut operators = operators.to_vec();
    if operators.iter().fold(None, |size, op| op.fixed_output(size)).is_none() {
        operators.push(Arc::new(CenterCrop::to(CROP.0, CROP.1)));
    }
    operators
}

impl fmt::Display for ParityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cases give the same bits as the reference", self.cases)?;
        for (what, why) in [("host", &self.no_host_kernel), ("device", &self.no_device)] {
            match why {
                None => write!(f, "; the CUDA source was compared on the {what}")?,
                Some(why) => write!(f, "; the CUDA source was not compared on the {what}: {why}")?,
            }
        }
        Ok(())
    }
}
