//! A data loader for vision models: compressed images in, model-ready batches out.
//!
//! feedwater reads images (JPEG, PNG, WebP, PNM) from folders, record files, archives and object storage, decodes
//! them, runs a chain of operators, and returns batches in host memory or on a GPU. It does for Rust what NVIDIA DALI
//! does for Python.
//!
//! * Pixels decoded and transformed on the CPU equal Pillow's and torchvision's bit for bit.
//! * The same seed gives the same samples for any number of workers, batch size and number of shards.
//! * Memory is predicted before the run ([`footprint`]), allocated once, and limited on request.
//! * Every sample's outcome is counted ([`loader::Stats`]).
//!
//! The GPU path is complete, but no real GPU has run it yet: it is tested against a simulated driver, with the
//! kernels that NVIDIA's compiler makes executed by an interpreter. CUDA is opened at run time, and everything also runs on the CPU.
//!
//! # Start here
//!
//! ```no_run
//! use feedwater::loader::Loader;
//! use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
//! use feedwater::source::Directory;
//!
//! fn main() -> Result<(), feedwater::MainError> {
//!     let chain = Chain::new()
//!         .then(RandomResizedCrop::to(224, 224))
//!         .then(Flip { horizontal: 0.5, ..Flip::default() })
//!         .then(Normalize::IMAGENET);
//!     let source = Directory::open("data/train")?;
//!     let mut loader = Loader::builder(source, chain).batch_size(64).shuffle(true).epochs(Some(1)).build()?;
//!     for batch in &mut loader {
//!         let batch = batch?;
//!         println!("{} {:?}", batch.shape(), batch.labels());
//!     } // a dropped batch gives its memory back to the loader
//!     Ok(())
//! }
//! ```
//!
//! The same pipeline as a TOML file: `Pipeline::from_file("pipeline.toml")?.builder()?.build()?` ([`Pipeline`]).
//!
//! # The main types
//!
//! | to | use |
//! |---|---|
//! | name the data | [`source::Directory`], [`source::FileList`], [`source::Coco`], [`source::TfRecord`], [`source::WebDataset`], [`source::Parquet`], [`source::Lmdb`], [`source::RecordIo`], [`source::Beton`], [`source::Npy`], [`source::Memory`]; the trait [`source::Source`] |
//! | join, mix and choose samples | [`source::Concat`], [`source::Mixture`], [`source::Subset`], [`source::Repeat`] |
//! | say what is done to an image | [`op::Chain`] of [`op::RandomResizedCrop`], [`op::Resize`], [`op::Crop`], [`op::CenterCrop`], [`op::RandomCrop`], [`op::Flip`], [`op::Normalize`]; the trait [`op::Operator`] |
//! | write an operator or a source of your own | [`op::custom`], [`source::custom`]; compare all forms of an operator: [`testing`] |
//! | set everything else | [`loader::LoaderBuilder`], [`plan::Settings`] |
//! | load | [`loader::Loader`], an iterator of [`loader::Batch`] |
//! | make the tensor of one image, for inference | [`Preprocessor`] |
//! | resume | [`loader::Loader::state`], [`loader::LoaderBuilder::resume`] |
//! | see what will happen, and what did | [`plan::Plan`], [`footprint::Footprint`], [`loader::Stats`], [`Profile`], [`loader::Loader::report`] |
//! | hand batches to PyTorch, JAX, cudarc and others | [`handoff`] |
//! | read the tensor | [`loader::Batch::as_f32`] and its like, [`loader::Batch::array_shape`] |
//! | read boxes and masks | [`loader::Batch::objects`], [`annotation`] |
//!
//! # Features
//!
//! Folders, file lists, WebDataset, the image formats and the GPU path need no feature.
//!
//! * `remote`: files behind URLs (S3, Google Cloud Storage, Azure, HTTP), see [`storage`].
//! * `beton`, `coco`, `lmdb`, `npy`, `parquet`, `recordio`, `tfrecord`: one source each.
//! * `zstd`: shards that are compressed with Zstandard.
//! * `all-sources`: all of the above.
//! * `tracing`: events of the `tracing` crate, every stage of a sample at TRACE and every batch at DEBUG.
//!
//! # Rules
//!
//! * Build with `panic = "unwind"`, the default. `panic = "abort"` does not compile, because errors of libjpeg unwind.
//! * Build loaders after `fork`. A child process gets [`Error::Forked`] from a loader of its parent.
//!
//! The repository has guides and recipes in its folder `docs`, and programs in `examples`.

pub mod annotation;
mod config;
mod decode;
pub mod error;
mod file;
pub mod footprint;
mod geometry;
pub mod gpu;
pub mod handoff;
mod header;
mod image;
pub mod internals;
pub mod loader;
mod measure;
pub mod op;
mod output;
pub mod plan;
mod preprocessor;
mod random;
mod ring;
pub mod source;
pub mod storage;
mod tensor;
pub mod testing;
mod threads;
mod transform;
mod tune;

#[doc(no_inline)]
pub use feedwater_insight::{explain, model, profile};

#[doc(no_inline)]
pub use annotation::Objects;
#[doc(inline)]
pub use config::Pipeline;
#[doc(inline)]
pub use decode::{JpegBy, JpegDecoder, JpegRefusal};
pub use error::{ConfigError, Error, MainError, Reason, Result, SampleError};
#[doc(no_inline)]
pub use explain::Report;
#[doc(no_inline)]
pub use footprint::Footprint;
#[doc(inline)]
pub use geometry::{Roi, Size};
#[doc(no_inline)]
pub use gpu::{Runtime, Stream};
/// `f16` and `bf16` are element types of [`Batch`].
pub use half;
#[doc(no_inline)]
pub use loader::{
    Batch, Batches, DeviceChoice, Epoch, Loader, LoaderBuilder, LoaderState, Outcome, SampleRecord,
    SharedEpoch, Stats, Stopper,
};
#[doc(no_inline)]
pub use op::{Chain, Operator, Placement};
#[doc(no_inline)]
pub use plan::{LastBatch, OnError, Plan, Route, Settings};
pub use preprocessor::{Preprocessor, PreprocessorBuilder};
#[doc(no_inline)]
pub use profile::Profile;
#[doc(no_inline)]
pub use source::Source;
#[doc(no_inline)]
pub use storage::Storage;
#[doc(inline)]
pub use tensor::{DType, Layout, Tensor, TensorShape};

/// Compiles the Rust code blocks of the pages in `docs`. `tests/docs.rs` checks that every page is listed.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/benchmarks.md")]
    mod benchmarks {}
    #[doc = include_str!("../docs/caches.md")]
    mod caches {}
    #[doc = include_str!("../docs/distributed.md")]
    mod distributed {}
    #[doc = include_str!("../docs/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../docs/glossary.md")]
    mod glossary {}
    #[doc = include_str!("../docs/gpu.md")]
    mod gpu {}
    #[doc = include_str!("../docs/insight.md")]
    mod insight {}
    #[doc = include_str!("../docs/memory.md")]
    mod memory {}
    #[doc = include_str!("../docs/operators.md")]
    mod operators {}
    #[doc = include_str!("../docs/order-and-resume.md")]
    mod order_and_resume {}
    #[doc = include_str!("../docs/pipeline-file.md")]
    mod pipeline_file {}
    #[doc = include_str!("../docs/python.md")]
    mod python {}
    #[doc = include_str!("../docs/ray.md")]
    mod ray {}
    #[doc = include_str!("../docs/recipes.md")]
    mod recipes {}
    #[doc = include_str!("../docs/row-index.md")]
    mod row_index {}
    #[doc = include_str!("../docs/remote-storage.md")]
    mod remote_storage {}
    #[doc = include_str!("../docs/rust-frameworks.md")]
    mod rust_frameworks {}
    #[doc = include_str!("../docs/sources.md")]
    mod sources {}
}
