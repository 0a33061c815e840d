//! Chains: lists of operators of any type, each with its placement.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BatchOperator, Operator};
use crate::image::PixelFormat;
use crate::tensor::DType;

/// Where an operator (or the decoder) runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Placement {
    /// The operator runs on the CPU.
    Cpu,
    /// The operator runs on the GPU.
    Gpu,
    /// The operator runs on the GPU if there is one and the preceding operators allow it, else on
    /// the CPU.
    #[default]
    Auto,
}

/// Operators that every image passes through, in order, and then operators that the finished batch
/// passes through. [`View`]s are further outputs of the same image.
#[derive(Clone, Default)]
pub struct Chain {
    steps: Vec<ChainStep>,
    batch: Vec<Arc<dyn BatchOperator>>,
    views: Vec<View>,
}

/// Further output of a sample's image, or of an image in a field of the sample, with a chain of its
/// own: a column of batches. An image is decoded once for all its views.
///
/// If all operators of the main chain are on a device, kernels compute the views there, from the
/// same decoded pixels. Views with an operator without kernels, views of images in fields, and
/// views of images of 16 bits or of floats are computed on the CPU, and copied if batches are on a
/// device.
///
/// A chain may have only views and no operators. Its batches then have no images besides the views.
///
/// ```
/// use feedwater::op::{Chain, Flip, Grayscale, Normalize, RandomResizedCrop, View};
///
/// let flip = Flip { horizontal: 0.5, vertical: 0.0 };
/// let crop = |side| Chain::new().then(RandomResizedCrop::to(side, side)).then(flip.clone());
/// let small = crop(96).then(Grayscale::default()).then(Normalize::IMAGENET);
/// let chain = crop(224)
///     .then(Normalize::IMAGENET)
///     // Eight random crops per sample, of shape [batch, 8, 3, 96, 96].
///     .view(View::new("small", small).count(8))
///     // The crop and flip of the main chain, at another size.
///     .view(View::new("plain", crop(112)).like("image"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct View {
    /// Name of the view's column.
    pub name: String,
    /// Operators of the view. They run in one place: on the CPU if the placement of one of them is
    /// `cpu`, otherwise on the device if all of them and all of the main chain can run there. If
    /// the placement of one of them is `gpu`, a view that cannot run there is a configuration
    /// error.
    pub chain: Chain,
    /// Field of the source with the file of another image, such as the second image of a pair
    /// ([`Fields`](crate::source::Fields)). `None` means the image of the sample.
    pub field: Option<String>,
    /// Number of outputs per sample, each with its own random numbers. They are an axis of the
    /// column, after that of the samples. `None` means one output and no such axis.
    ///
    /// If an operator has several outputs ([`Operator::outputs`]), `None` means each of them once,
    /// and a count must be a multiple of their number. All outputs of one run of the chain have the
    /// same random numbers. With [`TenCrop`](super::TenCrop) and a count of 20, the chain runs
    /// twice with different random numbers, and each run gives ten crops.
    pub count: Option<u32>,
    /// Name of the view whose random numbers this view uses, or `image` for those of the main
    /// chain. Operators that have the same name and settings in both chains then draw the same,
    /// such as the same crop. Their images must have the same size. `None` means random numbers of
    /// its own, which depend only on the name and the number of the run, not on other views.
    pub like: Option<String>,
    /// Element type. `None` means that of [`Settings::output`](crate::plan::Settings::output).
    pub dtype: Option<DType>,
    /// Pixel format of the decoded image of a [`field`](Self::field). `None` means `u8x3`.
    /// Views of the sample's image have the pixels of
    /// [`DecodeSettings::pixels`](crate::plan::DecodeSettings::pixels).
    pub pixels: Option<PixelFormat>,
}

impl View {
    /// Creates a view with one output per sample and random numbers of its own.
    pub fn new(name: &str, chain: Chain) -> Self {
        let (field, count, like, dtype, pixels) = (None, None, None, None, None);
        Self { name: name.into(), chain, field, count, like, dtype, pixels }
    }

    /// Reads the image from a field of the source.
    pub fn field(self, name: &str) -> Self {
        Self { field: Some(name.into()), ..self }
    }

    /// Sets the number of outputs per sample.
    pub fn count(self, count: u32) -> Self {
        Self { count: Some(count), ..self }
    }

    /// Uses the random numbers of another view, or those of the main chain (`image`).
    pub fn like(self, name: &str) -> Self {
        Self { like: Some(name.into()), ..self }
    }

    /// Sets the element type.
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// Sets the pixel format of the decoded image of a field.
    pub fn pixels(self, pixels: PixelFormat) -> Self {
        Self { pixels: Some(pixels), ..self }
    }
}

/// One operator of a chain.
#[derive(Clone)]
#[non_exhaustive]
pub struct ChainStep {
    /// Where the operator runs.
    pub placement: Placement,
    /// The operator.
    pub operator: Arc<dyn Operator>,
}

impl Chain {
    /// A chain without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an operator with [`Placement::Auto`].
    pub fn then(self, operator: impl Operator) -> Self {
        self.then_on(Placement::Auto, operator)
    }

    /// Appends an operator that runs at `placement`.
    pub fn then_on(self, placement: Placement, operator: impl Operator) -> Self {
        self.then_any(placement, Arc::new(operator))
    }

    /// Appends an operator of unknown type, such as one read from a file.
    pub fn then_any(mut self, placement: Placement, operator: Arc<dyn Operator>) -> Self {
        self.steps.push(ChainStep { placement, operator });
        self
    }

    /// Appends a batch operator, which runs on the device (CPU or GPU) that holds the finished
    /// batch. Batch operators produce soft targets. These need
    /// [`TargetSettings::classes`](crate::plan::TargetSettings::classes) and an even batch size. A
    /// [`Preprocessor`](crate::Preprocessor) skips batch operators.
    pub fn then_batch(self, operator: impl BatchOperator) -> Self {
        self.then_any_batch(Arc::new(operator))
    }

    /// Appends a batch operator of unknown type, such as one read from a file.
    pub fn then_any_batch(mut self, operator: Arc<dyn BatchOperator>) -> Self {
        self.batch.push(operator);
        self
    }

    /// Adds a further output of each image. [`Preprocessor`](crate::Preprocessor) ignores views.
    pub fn view(mut self, view: View) -> Self {
        self.views.push(view);
        self
    }

    /// Views of the chain, in order.
    pub fn views(&self) -> &[View] {
        &self.views
    }

    /// Batch operators of the chain, in order.
    pub fn batch_operators(&self) -> &[Arc<dyn BatchOperator>] {
        &self.batch
    }

    /// The same chain without batch operators and views.
    pub(crate) fn of_one_image(self) -> Self {
        Self { steps: self.steps, ..Self::default() }
    }

    /// Maximum number of outputs of an operator of the chain.
    pub(crate) fn outputs(&self) -> u32 {
        self.steps.iter().map(|step| step.operator.outputs()).max().unwrap_or(1).max(1)
    }

    /// Steps of the chain, in order.
    pub fn steps(&self) -> &[ChainStep] {
        &self.steps
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        list.entries(self.steps.iter().map(|step| &step.operator));
        list.entries(&self.batch).entries(&self.views).finish()
    }
}
