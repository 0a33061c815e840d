//! Decisions of a plan: placement, windows, downscaling, limits, memory, and error messages.

mod memory;
mod placement;
mod sample;

use crate::common::{Invert, evaluation, jpeg, training};
use feedwater::error::{ConfigError, Error, Reason};
use feedwater::footprint::Memory;
use feedwater::internals::footprint::Available;
use feedwater::internals::geometry::{Orientation, Roi, Size};
use feedwater::internals::header::{Format, Header, PnmHead};
use feedwater::internals::plan::{Bounds, DeviceFacts, Facts, Place, SamplePlan};
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::DType;
use feedwater::op::{Chain, Crop, Flip, Normalize, Placement, RandomResizedCrop, Resize, View};
use feedwater::plan::{AutoCount, Plan, Route, Settings};

use Place::{Cpu, Gpu};

const ENGINES: [Route; 4] =
    [Route::NvjpegHardware, Route::Feedwater, Route::NvjpegGpu, Route::NvjpegHybrid];

const NO_DRIVER: &str = "no driver";
const NO_NVJPEG: &str = "libnvjpeg.so is not there";

fn no_gpu() -> Facts {
    Facts { device: DeviceFacts::None(NO_DRIVER.into()), ..Facts::default() }
}

fn gpu() -> Facts {
    Facts { device: DeviceFacts::gpu(Ok(ENGINES.into())), ..Facts::default() }
}

fn gpu_without_nvjpeg() -> Facts {
    let nvjpeg = Err(NO_NVJPEG.into());
    Facts { device: DeviceFacts::gpu(nvjpeg), ..Facts::default() }
}

/// Plans a chain of resize, flip and normalize. `steps` are the placements of these operators, and
/// `decode` is the placement of decoding.
fn placed(decode: Placement, steps: [Placement; 3], facts: &Facts) -> Result<Plan, Error> {
    let chain = Chain::new()
        .then_on(steps[0], Resize::to(8, 6))
        .then_on(steps[1], Flip::default())
        .then_on(steps[2], Normalize::IMAGENET);
    let mut settings = Settings::default();
    settings.decode.placement = decode;
    Plan::new(&chain, &settings, facts)
}

fn places(plan: &Plan) -> (Place, Vec<Place>) {
    (plan.decode, plan.steps.iter().map(|step| step.place).collect())
}

fn plan(chain: &Chain, change: impl Fn(&mut Settings)) -> Plan {
    let mut settings = Settings::default();
    change(&mut settings);
    Plan::new(chain, &settings, &no_gpu()).unwrap()
}

fn refused(chain: &Chain, change: impl Fn(&mut Settings)) -> ConfigError {
    let mut settings = Settings::default();
    change(&mut settings);
    config(Plan::new(chain, &settings, &no_gpu()).unwrap_err())
}

fn config(error: Error) -> ConfigError {
    let Error::Config(error) = error else { panic!("{error}") };
    error
}

/// Returns all numbers in a message in ascending order.
fn numbers(text: &str) -> Vec<u64> {
    let digits = text.split(|it: char| !it.is_ascii_digit());
    let mut all: Vec<u64> = digits.filter_map(|it| it.parse().ok()).collect();
    all.sort_unstable();
    all
}

fn header(size: Size, format: Format, exif: u16) -> Header {
    Header { format, size, orientation: Orientation::from_exif(exif), jpeg: None }
}

fn sample(plan: &Plan, header: &Header, index: u64) -> SamplePlan {
    let mut out = SamplePlan::default();
    plan.sample(SampleKey { seed: 1, epoch: 0, index }, header, &mut out).unwrap();
    out
}

const AUTO: Placement = Placement::Auto;

fn decode_with(placement: Placement, routes: &[Route], offered: &[Route]) -> Result<Plan, Error> {
    let facts = Facts { device: DeviceFacts::gpu(Ok(offered.into())), ..no_gpu() };
    let mut settings = Settings::default();
    settings.decode.placement = placement;
    settings.decode.routes = routes.into();
    Plan::new(&training(), &settings, &facts)
}
