//! Items that the tests, benches and programs of this repository use in addition to the public
//! interface.
//!
//! **Unstable**: every item of this module may change or disappear in any version.

#![allow(missing_docs, reason = "modules by the names that they have in the library")]

#[doc(hidden)]
pub mod config {
    pub use crate::config::*;
}

#[doc(hidden)]
pub mod decode {
    pub use crate::decode::*;
}

#[doc(hidden)]
pub mod error {
    pub use crate::error::redacted::Redacted;
    pub use crate::error::shorten::{beginning, shortened};
    pub use feedwater_insight::text::{escaped, escaped_json, escaped_lines};
    pub mod reserve {
        pub use crate::error::reserve::*;
    }
}

#[doc(hidden)]
pub mod field {
    pub use crate::field::numpy::{Numbers, npz};
    pub use crate::field::{CellFormat, FieldPath, Pick, SampleContext, TooLong};
}

#[doc(hidden)]
pub mod numpy {
    pub use crate::numpy::{Item, head};
}

#[doc(hidden)]
pub mod file {
    pub use crate::file::*;
}

#[doc(hidden)]
pub mod footprint {
    pub use crate::footprint::available::Available;
    pub use feedwater_insight::text::{bytes, counted};
}

#[doc(hidden)]
pub mod geometry {
    pub use crate::geometry::*;
}

#[doc(hidden)]
pub mod gpu {
    pub use crate::gpu::foreign::BorrowedSlice;
    pub use crate::gpu::kernel::{Kernel, compiler};
    pub use crate::gpu::pool::{
        ALIGN_BYTES, DeviceBuffer, DevicePool, PinnedBuffer, PinnedPool, Pool,
    };
    pub use crate::gpu::probe::{DeviceReport, LibraryReport, Probe, probe};
    pub use crate::gpu::shape::{BLOCK, LaunchGoal, Multiprocessors, PROGRAM_THREADS, Shape};
    pub use crate::gpu::slot::TensorSlot;
    pub use crate::gpu::stopwatch::{Lap, Stopwatch};
    pub use crate::gpu::transfer::{Download, Staged, Upload, copy, copy_within, fill, read_back};
    pub mod host_kernel {
        pub use crate::gpu::host_kernel::*;
    }
    pub mod kernel {
        pub use crate::gpu::kernel::*;
    }
    pub mod nvjpeg {
        pub use crate::gpu::nvjpeg::*;
    }
    pub mod nvml {
        pub use crate::gpu::nvml::*;
    }
    pub mod nvtx {
        pub use crate::gpu::nvtx::*;
    }
}

#[doc(hidden)]
pub mod header {
    pub use crate::header::*;
}

#[doc(hidden)]
pub mod image {
    pub use crate::image::*;
}

#[doc(hidden)]
pub mod loader {
    pub use crate::loader::api::profile::ConsumerSpan;
    pub use crate::loader::api::resolve::open_device;
    pub use crate::loader::balance::RouteReport;
    pub use crate::loader::device::offered;
    pub use crate::loader::order::{EpochOrder, Extent, Order, Position};
    pub use crate::loader::sample::large::{LargeImages, Room, Take};
    pub use crate::loader::sample::prefetcher::PrefetcherReport;
}

#[doc(hidden)]
pub mod measure {
    pub use crate::measure::*;
}

#[doc(hidden)]
pub mod op {
    pub use crate::op::action::Action;
    pub use crate::op::actions::Actions;
    pub use crate::op::chain::ChainStep;
    pub use crate::op::kind::{ActionParams, ParamBytes};
    pub use crate::op::list_of_operators::{NAMES, example_settings, examples, read};
    pub mod batch {
        pub use crate::op::batch::*;
    }
    pub mod colour {
        pub use crate::op::colour::*;
    }
    pub mod combine {
        pub use crate::op::combine::*;
    }
    pub mod device_chain {
        pub use crate::op::device_chain::*;
    }
    pub mod erase {
        pub use crate::op::erase::*;
    }
    pub mod filter {
        pub use crate::op::filter::*;
    }
    pub mod kernel_text {
        pub use crate::op::kernel_text::*;
    }
    pub mod kind {
        pub use crate::op::kind::*;
    }
    pub mod mask {
        pub use crate::op::mask::*;
    }
    pub mod noise {
        pub use crate::op::noise::*;
    }
    pub mod policy {
        pub use crate::op::policy::*;
    }
    pub mod program {
        pub use crate::op::program::*;
    }
    pub mod resample {
        pub use crate::op::resample::*;
    }
    pub mod shared {
        pub use crate::op::shared::*;
    }
    pub mod spatial {
        pub use crate::op::spatial::*;
    }
    pub mod warp {
        pub use crate::op::warp::*;
    }
    pub mod wide {
        pub use crate::op::wide::*;
    }
}

#[doc(hidden)]
pub mod output {
    pub use crate::output::*;
}

#[doc(hidden)]
pub mod plan {
    pub use crate::plan::bounds::Bounds;
    pub use crate::plan::budget::Reduction;
    pub use crate::plan::counts::Counts;
    pub use crate::plan::device::{DevicePlan, DeviceSplit, LAUNCH_BLOCKS, RoutePlan, rows};
    pub use crate::plan::device_facts::DeviceFacts;
    pub use crate::plan::device_pick::DevicePick;
    pub use crate::plan::facts::{Facts, ScannedSample};
    pub use crate::plan::mask::MaskPlan;
    pub use crate::plan::need::{SampleMemory, SampleRoom};
    pub use crate::plan::offload::Offload;
    pub use crate::plan::route::{DecoderMemory, MeasuredMemory};
    pub use crate::plan::sample::SamplePlan;
    pub use crate::plan::shard::{Environment, Shard};
    pub use crate::plan::shuffle::{Shuffle, Windows};
    pub use crate::plan::stage::BatchStage;
    pub use crate::plan::step::{Place, PlannedStep};
}

#[doc(hidden)]
pub mod random {
    pub use crate::random::*;
}

#[doc(hidden)]
pub mod ring {
    pub use crate::ring::*;
}

#[doc(hidden)]
pub mod source {
    pub use crate::source::class_table::ClassNames;
    pub use crate::source::combine::{
        Chosen, FilterSettings, InTurn, Numbered, PartSettings, Repeated, Selection, Weighted,
    };
    pub use crate::source::configured::{Configured, HEAD_BYTES};
    pub use crate::source::exclusion::{Exclusions, exclusion_lines};
    pub use crate::source::list_of_sources::{DISABLED, KEYS, read};
    pub mod records {
        pub use crate::source::records::*;
    }
}

#[doc(hidden)]
pub mod storage {
    pub use crate::storage::facts::version;
    pub use crate::storage::opening::is_opening;
    pub use crate::storage::path::{exists, is_url, join};
    pub use crate::storage::pool::raise_open_files_limit;
    pub mod unpacked {
        pub use crate::storage::unpacked::*;
    }
}

#[doc(hidden)]
pub mod tensor {
    pub use crate::tensor::*;
}

#[doc(hidden)]
pub mod testing {
    pub use crate::testing::case::Case;
    pub use crate::testing::images::{extreme_images, random_image};
    pub use crate::testing::kernels::Kernels;
}

#[doc(hidden)]
pub mod threads {
    pub use crate::threads::*;
}

#[doc(hidden)]
pub mod transform {
    pub use crate::transform::*;
}

#[doc(hidden)]
pub mod tune {
    pub use crate::tune::*;
}
