//! A data loader for vision models: compressed images in, model-ready batches out.
//!
//! feedwater reads images (JPEG, PNG, WebP, PNM) from folders, record files, archives and object
//! storage, decodes them, runs a chain of operators, and returns batches in host memory or on a
//! GPU. It does for Rust what NVIDIA DALI does for Python.
//!
//! * Pixels decoded and transformed on the CPU equal Pillow's and torchvision's bit for bit.
//! * The same seed gives the same samples, whatever the number of workers, the batch size and the
//!   number of shards.
//! * Memory is predicted before the run ([`footprint`]), allocated once, and limited if you set a
//!   limit.
//! * Every sample's outcome is counted ([`loader::Stats`]).
//!
//! The GPU path is complete, but no real GPU has run it yet. Tests run it against a simulated
//! driver. An interpreter executes the kernels that NVIDIA's compiler generates. The CUDA libraries
//! are opened at run time. Everything also runs on the CPU.
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
//! The same pipeline as a TOML file: `Pipeline::from_file("pipeline.toml")?.builder()?.build()?`
//! ([`Pipeline`]).
//!
//! # The main types
//!
//! | task | use |
//! |---|---|
//! | open a data set | [`source::Directory`], [`source::FileList`], [`source::WebDataset`], [`source::Memory`]; with their [features](#features) `source::Beton`, `source::Coco`, `source::Lmdb`, `source::Npy`, `source::Parquet`, `source::RecordIo`, `source::TfRecord`; the trait [`source::Source`] |
//! | concatenate, mix or select samples | [`source::Concat`], [`source::Mixture`], [`source::Subset`], [`source::Repeat`] |
//! | define the transforms | [`op::Chain`] of [`op::RandomResizedCrop`], [`op::Resize`], [`op::Crop`], [`op::CenterCrop`], [`op::RandomCrop`], [`op::Flip`], [`op::Normalize`]; the trait [`op::Operator`] |
//! | write your own operator or source | [`op::custom`], [`source::custom`]; test an operator: [`testing`] |
//! | change all other settings, such as the batch size | [`loader::LoaderBuilder`], [`plan::Settings`] |
//! | load batches | [`loader::Loader`], an iterator of [`loader::Batch`] |
//! | convert a single image to a tensor, for inference | [`Preprocessor`] |
//! | resume a run | [`loader::Loader::state`], [`loader::LoaderBuilder::resume`] |
//! | inspect the plan, and measurements of a run | [`plan::Plan`], [`footprint::Footprint`], [`loader::Stats`], [`Profile`], [`loader::Loader::report`] |
//! | hand batches to PyTorch, JAX, cudarc and others | [`handoff`] |
//! | read the tensor | [`loader::Batch::as_f32`] and similar methods, [`loader::Batch::array_shape`] |
//! | read any column of a batch | [`loader::Batch::column`], [`loader::Column`] |
//! | read boxes and masks | [`loader::Batch::objects`], [`annotation`] |
//!
//! # Features
//!
//! These need no feature: folders, file lists, WebDataset, the GPU path, and the formats JPEG, PNG,
//! WebP and PNM.
//!
//! * `remote`: files behind URLs (S3, Google Cloud Storage, Azure, HTTP), see [`storage`].
//! * `beton`, `coco`, `lmdb`, `npy`, `parquet`, `recordio`, `tfrecord`: each feature adds the
//!   source with the same name.
//! * `zstd`: shards compressed with Zstandard.
//! * `all-sources`: enables `remote`, `zstd` and the features of all sources.
//! * `bmp`, `gif`, `tiff`: each feature adds the image format with the same name; `all-formats`
//!   enables all three.
//! * `tracing`: events of the `tracing` crate: stages of samples at level TRACE, batches at level
//!   DEBUG.
//!
//! # Rules
//!
//! * Build with `panic = "unwind"`, the default. `panic = "abort"` does not compile, because errors
//!   of libjpeg unwind.
//! * Build loaders after `fork`. A child process gets [`Error::Forked`] from a loader of its
//!   parent.
//!
//! The repository has guides and recipes in its folder `docs`, and programs in `examples`.

pub mod annotation;
mod config;
mod decode;
pub mod error;
mod field;
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
mod numpy;
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
/// Crate with `f16` and `bf16`, which are element types of [`Batch`].
pub use half;
#[doc(inline)]
pub use image::PixelFormat;
#[doc(no_inline)]
pub use loader::{
    Batch, Batches, DeviceChoice, Epoch, Loader, LoaderBuilder, LoaderState, Outcome, SampleRecord,
    SharedEpoch, Stats, StopHandle,
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
pub use tensor::{DType, Element, ElementType, Layout, Tensor, TensorShape};

/// Compiles the Rust code blocks of the pages in `docs`. `crates/cli/tests/docs.rs` checks that
/// every page is listed.
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
    #[doc = include_str!("../docs/joins.md")]
    mod joins {}
    #[doc = include_str!("../docs/masks.md")]
    mod masks {}
    #[doc = include_str!("../docs/memory.md")]
    mod memory {}
    #[doc = include_str!("../docs/operators.md")]
    mod operators {}
    #[doc = include_str!("../docs/order-and-resume.md")]
    mod order_and_resume {}
    #[doc = include_str!("../docs/pipeline-file.md")]
    mod pipeline_file {}
    #[doc = include_str!("../docs/pixels.md")]
    mod pixels {}
    #[doc = include_str!("../docs/python.md")]
    mod python {}
    #[doc = include_str!("../docs/ray.md")]
    mod ray {}
    #[doc = include_str!("../docs/recipes.md")]
    mod recipes {}
    #[doc = include_str!("../docs/records.md")]
    mod records {}
    #[doc = include_str!("../docs/row-index.md")]
    mod row_index {}
    #[doc = include_str!("../docs/remote-storage.md")]
    mod remote_storage {}
    #[doc = include_str!("../docs/rust-frameworks.md")]
    mod rust_frameworks {}
    #[doc = include_str!("../docs/sources.md")]
    mod sources {}
    #[doc = include_str!("../docs/views.md")]
    mod views {}
}
