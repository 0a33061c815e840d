//! Memory of random chains: within the plan's bound, and not allocated again for later samples.

use std::fmt::Write;
use std::sync::Arc;

use feedwater::decode::{DecodeMemory, Decoders};
use feedwater::geometry::Size;
use feedwater::header::{Header, PnmHead};
use feedwater::op::{Chain, Crop, Operator, Placement};
use feedwater::plan::{DeviceFacts, Facts, Plan, SampleMemory, SamplePlan, Settings};
use feedwater::random::SampleKey;
use feedwater::testing::random_image;
use feedwater::transform::{HostTransform, PlannedImage};

use super::counted;
use super::drawn::{chain, numbers};

/// Largest image.
const LARGE: Size = Size::new(61, 47);
/// Sizes of the images, the largest first.
const SIZES: [Size; 3] = [LARGE, Size::new(23, 40), Size::new(9, 5)];
/// Samples per size.
const SAMPLES: u64 = 4;

/// A worker's part of a loader: a plan with the buffers that it uses again.
struct Worker {
    plan: Plan,
    transform: HostTransform,
    decoder: Decoders,
    sample: SamplePlan,
    out: Vec<u32>,
}

/// An image file.
struct File {
    bytes: Vec<u8>,
    header: Header,
}

impl File {
    fn of(size: Size) -> Self {
        let bytes = [PnmHead::rgb(size).bytes(), random_image(size, 5).data()].concat();
        let header = Header::parse(&bytes).unwrap();
        Self { bytes, header }
    }
}

impl Worker {
    /// Runs the operators, and a crop that gives all samples one size.
    fn of(operators: &[Arc<dyn Operator>]) -> Self {
        let any = |chain: Chain, it: &Arc<dyn Operator>| chain.then_any(Placement::Cpu, it.clone());
        let chain = operators.iter().fold(Chain::new(), any);
        let chain = chain.then(Crop { x: 0, y: 0, width: 37, height: 29 });
        let facts = Facts { device: DeviceFacts::None("none".into()), ..Facts::default() };
        let plan = Plan::new(&chain, &Settings::default(), &facts).unwrap();
        Self {
            transform: HostTransform::new(&plan),
            decoder: Decoders::new(),
            sample: SamplePlan::default(),
            out: vec![0; plan.shape.sample_bytes().div_ceil(4)],
            plan,
        }
    }

    /// Makes the tensor of sample number `index` in a loader's steps.
    fn run(&mut self, file: &File, index: u64) -> Run {
        let Self { plan, transform, decoder, sample, out } = self;
        let key = SampleKey { seed: 3, epoch: 0, index };
        let before = counted::calls();
        let need = plan.sample_memory(&file.header, 0, DecodeMemory::default(), sample);
        let fixed = plan.fixed_entries();
        let entries = (need.tables / 4) as usize;
        sample.actions.reserve(entries.saturating_sub(fixed), fixed);
        plan.sample(key, &file.header, sample).unwrap();
        let planned = counted::calls();
        let image = PlannedImage { bytes: &file.bytes, header: &file.header, plan, sample };
        let out = &mut bytemuck::cast_slice_mut(out)[..plan.shape.sample_bytes()];
        transform.run(image, decoder, out).unwrap();
        let allocations = [planned - before, counted::calls() - planned];
        let drawn = SampleMemory { windows: sample.windows, ..SampleMemory::default() };
        Run { allocations, need: need.max(&drawn) }
    }
}

/// What a sample took.
struct Run {
    /// Allocations of planning and of transforming.
    allocations: [i64; 2],
    /// Memory that the plan predicts.
    need: SampleMemory,
}

#[test]
fn no_chain_allocates_once_its_buffers_have_grown() {
    let files = SIZES.map(File::of);
    let mut problems = String::new();
    for seed in 0..600 {
        let operators = chain(&mut numbers(seed), LARGE, 30_000);
        let mut worker = Worker::of(&operators);
        let samples = || files.iter().flat_map(|file| (0..SAMPLES).map(move |it| (file, it)));
        // Images alternate between two buffers, so each sample comes with either of them first.
        let mut first = 0;
        for (file, index) in samples().chain(samples()) {
            first += worker.run(file, index).allocations.iter().sum::<i64>();
        }
        assert!(first > 0, "the buffers of the first samples are counted");
        let runs = samples().map(|(file, index)| worker.run(file, index).allocations);
        let [planned, transformed] = runs.fold([0, 0], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        if planned + transformed > 0 {
            writeln!(problems, "seed {seed}: {planned}, {transformed} by {operators:?}").unwrap();
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn no_chain_holds_more_than_planned() {
    let file = File::of(LARGE);
    let mut problems = String::new();
    for seed in 0..600 {
        let operators = chain(&mut numbers(seed), LARGE, 30_000);
        let (mut worker, mut need) = (Worker::of(&operators), SampleMemory::default());
        for index in 0..8 {
            // A worker holds the maximum of each buffer over its samples.
            need = need.max(&worker.run(&file, index).need);
            let held = worker.transform.capacity_bytes() as u64;
            let tables = worker.sample.table_bytes();
            let most = need.taps + need.rows + need.windows.iter().sum::<u64>();
            if held > most || tables > need.tables {
                let found = format!("{held} of {most}, tables {tables} of {}", need.tables);
                writeln!(problems, "seed {seed}: {found} by {operators:?}").unwrap();
                break;
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}
