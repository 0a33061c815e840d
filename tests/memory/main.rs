//! Tests that a loader never allocates more than its predicted footprint, whatever the files
//! contain.
//!
//! The tests count allocations, not resident memory, so the machine's load does not matter.

#![allow(unsafe_code, reason = "the allocator that counts")]

mod alpha;
mod aspect;
mod chains;
mod counted;
mod fields;
mod files;
mod floats;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;
mod large_images;
mod schemas;
mod small_sets;
mod steady;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../operators/chains/drawn.rs"]
mod drawn;

use feedwater_tests::common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs};

use feedwater::Preprocessor;
use feedwater::error::Error;
use feedwater::footprint::Memory;
use feedwater::internals::decode::{Decoders, memory_bytes};
use feedwater::internals::header::Header;
use feedwater::loader::{Loader, LoaderBuilder};
use feedwater::op::{self, CenterCrop, Chain, Crop, Flip, Normalize, RandomResizedCrop, Resize};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::Directory;
use libtest_mimic::{Arguments, Trial};

const MIB: u64 = 1 << 20;

/// Allowance for what the footprint's row `process` contains: rings, meters, names and threads.
const PROCESS: u64 = 2 * MIB;

/// The tests of this program, by path.
macro_rules! tests {
    ($($test:path),* $(,)?) => {
        [$((stringify!($test), $test as fn())),*]
    };
}

/// Starts each test in a new process, on its main thread. Allocations are counted for the whole
/// process, so no other test may run in it, and the harness of `#[test]` would allocate on its own
/// thread.
fn main() -> ExitCode {
    if cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        println!("skipped: only allocations of the GNU C library can be counted");
        return ExitCode::SUCCESS;
    }
    let tests = tests![
        what_operators_keep_is_in_the_footprint,
        a_row_of_millions_of_pixels_exceeds_the_side_limit_and_then_the_bytes,
        a_preprocessor_does_not_grow_from_image_to_image,
        hostile_mixtures_stay_within_the_footprint,
        mixed_batches_stay_within_the_footprint,
        blending_a_pair_allocates_nothing,
        nothing_is_allocated_for_views_once_buffers_have_their_size,
        nothing_is_allocated_for_a_sample_once_buffers_have_their_size,
        aspect::the_prediction_for_wide_and_tall_images_is_close_to_their_peak,
        aspect::a_line_of_text_is_not_refused,
        chains::photographs_are_not_refused_behind_operators_that_leave_some_alone,
        chains::an_image_is_refused_only_for_what_was_drawn,
        chains::operators_in_random_order_are_planned_for_what_they_draw,
        chains::random_chains_stay_within_a_footprint_that_is_too_small_for_them,
        chains::large_tables_of_outputs_are_not_kept,
        chains::the_refused_images_do_not_depend_on_the_workers,
        chains::random_chains_refuse_no_photograph_and_stay_within_the_footprint,
        chains::random_views_refuse_no_photograph_and_stay_within_the_footprint,
        chains::the_image_that_views_share_is_counted_once,
        chains::the_tables_of_each_output_of_a_view_are_counted,
        chains::a_photograph_that_grew_since_the_plan_was_made_takes_from_the_large_image_room,
        alpha::random_chains_of_gray_and_alpha_stay_within_the_footprint,
        alpha::random_chains_of_alpha_in_floats_stay_within_the_footprint,
        alpha::an_image_with_alpha_is_predicted_closely,
        floats::random_chains_of_floats_stay_within_the_footprint,
        floats::an_image_of_floats_is_predicted_closely,
        fields::fields_of_any_length_stay_within_the_footprint,
        fields::masks_of_any_size_stay_within_the_footprint,
        fields::outlines_of_any_length_stay_within_the_footprint,
        fields::arrays_of_archives_stay_within_the_footprint,
        fields::images_in_fields_stay_within_the_footprint,
        fields::larger_images_in_fields_take_from_the_pool,
        fields::images_in_fields_that_are_always_larger_are_predicted,
        fields::features_of_any_length_stay_within_the_footprint,
        schemas::random_schemas_stay_within_the_footprint,
        large_images::a_header_of_34_bytes_does_not_allocate_a_gibibyte,
        large_images::bitmaps_gifs_and_tiffs_need_no_more_memory_than_predicted,
        large_images::groups_of_codes_of_a_webp_are_counted_before_it_is_decoded,
        large_images::a_webp_of_many_code_groups_is_decoded_within_the_large_image_budget_or_not_at_all,
        large_images::the_only_image_of_a_set_is_no_outlier,
        large_images::images_that_exceed_a_workers_share_use_the_large_image_budget,
        large_images::a_loader_can_be_dropped_while_its_workers_wait_for_memory,
        small_sets::slots_of_a_batch_that_is_larger_than_the_set_have_its_size,
        small_sets::a_huge_file_of_row_indexes_is_read_within_the_footprint,
        small_sets::a_huge_stored_file_of_row_indexes_is_read_within_the_footprint,
        steady::no_chain_allocates_once_its_buffers_have_grown,
        steady::no_chain_needs_or_holds_more_than_its_headers_say,
        steady::what_a_combinator_makes_of_a_thin_image_that_it_turned_is_bounded,
        steady::the_memory_of_a_freed_image_is_returned,
        steady::nested_combinators_are_planned_in_linear_time,
    ];
    const TEST: &str = "FEEDWATER_TEST_PROCESS";
    if let Ok(wanted) = env::var(TEST) {
        let (_, test) = tests.iter().find(|(name, _)| *name == wanted).expect(TEST);
        test();
        return ExitCode::SUCCESS;
    }
    let trial = |(name, _)| {
        Trial::test(name, move || {
            let program = env::current_exe().unwrap();
            let output = Command::new(program).env(TEST, name).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            if !output.status.success() {
                return Err(format!("{}\n{text}", output.status).into());
            }
            print!("{text}");
            Ok(())
        })
    };
    let tests = tests.into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Result of running a loader.
struct Seen {
    /// Sum of all entries of the predicted footprint except `process`, in bytes.
    predicted: u64,
    /// Measured peak of allocated bytes.
    peak: u64,
    /// The loader's plan as text, for failure messages.
    plan: String,
    /// Number of delivered samples.
    images: u64,
    errors: BTreeMap<&'static str, u64>,
    problem: Option<Error>,
}

impl Seen {
    /// Checks that the peak is at most 2 % above the prediction plus [`PROCESS`].
    fn check(&self, case: &str) {
        let Self { predicted, peak, plan, .. } = self;
        let most = predicted + predicted / 50 + PROCESS;
        assert!(peak <= &most, "{case}: {peak} bytes, predicted {predicted}\n{plan}");
    }
}

fn run(builder: impl FnOnce() -> LoaderBuilder, epochs: u32) -> Seen {
    let (peak, seen) = counted::most_during(|| {
        let mut loader: Loader = builder().epochs(Some(epochs)).build().unwrap();
        let plan = loader.plan();
        let process = plan.footprint.row("process").unwrap().total_bytes();
        let predicted = plan.footprint.total_bytes(Memory::Host) - process;
        let mut problem = None;
        for _ in 0..epochs {
            for batch in &mut loader {
                problem = problem.or(batch.err());
            }
        }
        let plan = loader.plan().to_string();
        let stats = loader.stats();
        Seen { predicted, peak: 0, plan, images: stats.images, errors: stats.errors, problem }
    });
    Seen { peak, ..seen }
}

/// A temporary folder of files.
struct Files(tempfile::TempDir);

impl Files {
    fn new(files: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        for (number, bytes) in files.into_iter().enumerate() {
            fs::write(this.0.path().join(format!("{number:05}.jpg")), bytes).unwrap();
        }
        this
    }

    fn replace(&self, number: usize, bytes: &[u8]) {
        fs::write(self.0.path().join(format!("{number:05}.jpg")), bytes).unwrap();
    }

    fn loader(&self, chain: Chain) -> LoaderBuilder {
        let source = Directory::open(self.0.path()).unwrap();
        let builder = Loader::builder(source, chain).batch_size(8).num_workers(2).prefetch(1);
        builder
            .last_batch(LastBatch::Partial)
            .on_error(OnError::Skip)
            .device(feedwater::loader::DeviceChoice::Cpu)
    }
}

fn small(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|seed| common::jpeg(seed as u64 % 5, 64, 48))
}

fn crop() -> Chain {
    Chain::new().then(RandomResizedCrop::to(32, 32))
}

/// Returns a chain that must store its whole window, because it mirrors before it resamples.
fn stored() -> Chain {
    Chain::new().then(Flip { horizontal: 0.5, vertical: 0.5 }).then(RandomResizedCrop::to(32, 32))
}

/// Returns a chain that converts bytes to floats.
fn floats() -> Chain {
    Chain::new()
        .then(Resize::to(96, 80))
        .then(Normalize::IMAGENET)
        .then(Crop { x: 40, y: 40, width: 96, height: 96 })
        .then(Flip { horizontal: 0.5, vertical: 0.5 })
}

/// Returns a chain that stores more than an image: displacements, terms of a sum, blurred lines.
fn kept() -> Chain {
    Chain::new()
        .then(Resize::to(96, 80))
        .then(op::Elastic::default())
        .then(op::AugMix { chain_depth: Some(3), ..op::AugMix::default() })
        .then(op::JpegDistortion { quality: [20, 90] })
        .then(op::ThreeAugment {})
        .then(op::Pad::with(op::PadMode::Reflect, [9; 4]))
}

fn what_operators_keep_is_in_the_footprint() {
    let files = Files::new((0..24).map(|seed| common::jpeg(seed, 480, 360)));
    run(|| files.loader(kept()), 2).check("fixed sizes");
    let first = Chain::new().then(op::Elastic::default()).then(op::AugMix::default());
    run(|| files.loader(first.then(RandomResizedCrop::to(32, 32))), 2).check("whole images");
}

fn a_row_of_millions_of_pixels_exceeds_the_side_limit_and_then_the_bytes() {
    let files = Files::new(small(300).chain([files::png_head(178_956_970, 1, false)]));
    let seen = run(|| files.loader(crop()), 2);
    seen.check("refused for its side");
    assert_eq!(seen.errors["oversized"], 2);
    assert!(seen.peak < 12 * MIB, "{}", seen.peak);
    let stop = |side| {
        let loader =
            files.loader(crop()).on_error(OnError::Stop).configure(|it| it.limits.max_side = side);
        match run(|| loader, 1).problem {
            Some(Error::Sample(error)) => (error.reason.name(), error.problem),
            other => panic!("{other:?}"),
        }
    };
    let (reason, problem) = stop(65_535);
    assert!(reason == "oversized" && problem.contains("limits.max_side"), "{problem}");
    let (reason, problem) = stop(u32::MAX);
    assert!(reason == "oversized" && problem.contains("limits.large_image_memory"), "{problem}");
    run(|| files.loader(stored()).configure(|it| it.limits.max_side = u32::MAX), 2)
        .check("stored, refused for its bytes");
}

/// Once its buffers have their final size, a preprocessor allocates nothing for a PNM except the
/// list of windows, because no library decodes it. For other formats, libraries allocate memory,
/// which is freed before the call returns. Nothing grows from image to image.
fn a_preprocessor_does_not_grow_from_image_to_image() {
    for chain in [floats_without_draws(), Chain::new().then(Resize::to(96, 80))] {
        let preprocessor = Preprocessor::builder(chain).build().unwrap();
        let mut out = vec![0f32; preprocessor.shape().sample_len()];
        let out: &mut [u8] = bytemuck::cast_slice_mut(&mut out);
        let pnm = |side: usize| {
            [format!("P6 {side} {side} 255\n").as_bytes(), &vec![9; 3 * side * side]].concat()
        };
        let (small, large) = (pnm(100), pnm(400));
        preprocessor.run_into(&large, out).unwrap();
        for image in [&small, &large] {
            let before = counted::calls();
            let (peak, ()) = counted::most_during(|| preprocessor.run_into(image, out).unwrap());
            let calls = counted::calls() - before;
            assert!(calls <= 8 && peak <= 4096, "{calls} allocations, {peak} bytes");
        }
        let jpeg = common::jpeg(1, 300, 200);
        let mut run = |times: u32| {
            let made = || (0..times).for_each(|_| preprocessor.run_into(&jpeg, out).unwrap());
            counted::most_during(made).0
        };
        run(2);
        let (one, many) = (run(1), run(50));
        assert!(many <= one + 4096, "{many} bytes after 50 images, {one} after one");
    }
}

fn floats_without_draws() -> Chain {
    Chain::new().then(Resize::to(96, 80)).then(Normalize::IMAGENET).then(Crop {
        x: 40,
        y: 40,
        width: 96,
        height: 96,
    })
}

/// Tests random files, chains and settings. All of them follow from a seed.
fn hostile_mixtures_stay_within_the_footprint() {
    // These four seeds draw every chain, both limits of a side, and every cache.
    let seeds: Vec<u64> = match common::tests_all_cases() {
        true => (0..10).collect(),
        false => vec![2, 3, 6, 7],
    };
    for seed in seeds {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let count = 1 + draw(1400) as usize;
        let mut all: Vec<Vec<u8>> = small(count).collect();
        for _ in 0..1 + draw(12) {
            let (width, height) = (1 + draw(1300) as u32, 1 + draw(1100) as u32);
            let place = draw(count as u64) as usize;
            all[place] = match draw(7) {
                0 => files::png_head(1 << draw(31), 1 << draw(31), draw(2) == 0),
                1 => files::webp_head(1 + draw(16_383) as u32, 1 + draw(16_383) as u32),
                2 => common::progressive(draw(9), width, height),
                3 => files::png(width, height, true),
                4 => files::png(width * 30, height / 30 + 1, false),
                5 => files::png(width, height, false),
                _ => common::jpeg(draw(9), width, height),
            };
        }
        let files = Files::new(all);
        let chain = match draw(4) {
            0 => crop(),
            1 => stored(),
            2 => floats(),
            _ => Chain::new()
                .then(Resize::shorter(40))
                .then(CenterCrop::to(32, 32))
                .then(Normalize::IMAGENET),
        };
        let (workers, large) = (1 + draw(4) as usize, (1 + draw(24)) * MIB);
        let side = [65_535, u32::MAX][draw(2) as usize];
        let decoded = (draw(3) == 0).then_some(3 * MIB);
        let presize = decoded.is_some().then_some(90).filter(|_| draw(2) == 0);
        let encoded = (draw(4) == 0).then_some(MIB);
        let case = format!(
            "seed {seed}: {count} files, {chain:?}, {workers} workers, {large} for large ones"
        );
        let seen = run(
            || {
                let loader = files
                    .loader(chain)
                    .num_workers(workers)
                    .configure(|it| it.limits.large_image_memory = large);
                let loader = loader
                    .configure(|it| {
                        it.limits.max_side = side;
                        it.limits.max_pixels = 1 << 40;
                    })
                    .shuffle(true)
                    .seed(seed);
                loader.configure(|it| {
                    it.cache.decoded = decoded;
                    it.cache.presize = presize;
                    it.cache.encoded = encoded;
                })
            },
            2,
        );
        seen.check(&case);
        assert!(seen.problem.is_none() || count < 20, "{case}: {:?}", seen.problem);
    }
}

/// Memory for pairs and soft targets is in the footprint. Mixing itself allocates nothing.
fn mixed_batches_stay_within_the_footprint() {
    let mixing = crop().then_batch(feedwater::op::MixupOrCutMix::default());
    for dtype in [feedwater::DType::F32, feedwater::DType::F16] {
        let files = Files::new(small(40));
        let loader = || {
            let loader = files.loader(mixing.clone()).output(dtype, feedwater::Layout::Nchw);
            loader.configure(|it| {
                it.targets.classes = Some(20_000);
                it.targets.smoothing = 0.1;
            })
        };
        run(loader, 3).check(&format!("{dtype}"));
    }
}

fn blending_a_pair_allocates_nothing() {
    use feedwater::internals::random::SampleKey;
    use feedwater::internals::transform::blend_pair::blend;
    use feedwater::op::{Blends, MixupOrCutMix};

    let operators: [std::sync::Arc<dyn feedwater::op::BatchOperator>; 1] =
        [std::sync::Arc::new(MixupOrCutMix::default())];
    for dtype in feedwater::DType::ALL {
        let layout = feedwater::Layout::Nhwc;
        let shape =
            feedwater::TensorShape { batch: 2, width: 32, height: 24, dtype, layout, channels: 3 };
        let (mut a, mut b) = (vec![0u32; shape.sample_len()], vec![1u32; shape.sample_len()]);
        let bytes = shape.sample_bytes();
        let pair = [&mut a, &mut b].map(|it| bytemuck::cast_slice_mut(it));
        let [a, b]: [&mut [u8]; 2] = pair;
        let before = counted::calls();
        for index in 0..50 {
            let key = SampleKey { seed: 1, epoch: 0, index };
            let blends = Blends::draw(&operators, feedwater::Size::new(32, 24), key);
            blend(shape, &blends, [&mut a[..bytes], &mut b[..bytes]]);
        }
        assert_eq!(counted::calls() - before, 0, "{dtype}");
    }
}

/// Even a chain that converts bytes to floats and back reuses the memory of the previous sample.
fn nothing_is_allocated_for_a_sample_once_buffers_have_their_size() {
    use feedwater::internals::decode::Decoders;
    use feedwater::internals::header::Header;
    use feedwater::internals::plan::{DeviceFacts, Facts, SamplePlan};
    use feedwater::internals::random::SampleKey;
    use feedwater::internals::transform::{HostTransform, PlannedImage};
    use feedwater::plan::{Plan, Settings};

    let file = b"P6 120 90 255\n".iter().copied().chain((0..3 * 120 * 90).map(|at| at as u8));
    let file: Vec<u8> = file.collect();
    let header = Header::parse(&file).unwrap();
    for (name, chain) in
        [("floats", floats()), ("stored", stored()), ("streamed", crop()), ("kept", kept())]
    {
        let facts = Facts { device: DeviceFacts::None("none".into()), ..Facts::default() };
        let plan = Plan::new(&chain, &Settings::default(), &facts).unwrap();
        let (mut transform, mut decoder) = (HostTransform::new(&plan), Decoders::new());
        let (mut sample, mut out) =
            (SamplePlan::default(), vec![0u32; plan.shape.sample_bytes() / 4]);
        let mut make = |seed: u64| {
            // There are only three keys, so the same windows are drawn again and again.
            let key = SampleKey { seed: seed % 3, epoch: 0, index: 0 };
            plan.sample(key, &header, &mut sample).unwrap();
            let before = counted::calls();
            let image =
                PlannedImage { bytes: &file, header: &header, plan: &plan, sample: &sample };
            transform.run(image, &mut decoder, bytemuck::cast_slice_mut(&mut out)).unwrap();
            counted::calls() - before
        };
        let counts: Vec<i64> = (0..30).map(&mut make).collect();
        let later: i64 = counts[6..].iter().sum();
        assert_eq!(later, 0, "{name}");
    }
}

/// Views of different element types and sizes, with and without `normalize`.
fn nothing_is_allocated_for_views_once_buffers_have_their_size() {
    use feedwater::DType;
    use feedwater::internals::decode::Decoders;
    use feedwater::internals::header::Header;
    use feedwater::internals::plan::{DeviceFacts, Facts, SamplePlan};
    use feedwater::internals::random::SampleKey;
    use feedwater::internals::transform::{HostTransform, Views};
    use feedwater::op::View;
    use feedwater::plan::{Plan, Settings};

    let bytes = common::jpeg(3, 120, 90);
    let header = Header::parse(&bytes).unwrap();
    let chain = Chain::new()
        .view(View::new("bytes", crop()).count(2).dtype(DType::U8))
        .view(View::new("floats", floats()))
        .view(View::new("halves", stored().then(Normalize::IMAGENET)).dtype(DType::F16));
    let facts = Facts { device: DeviceFacts::None("none".into()), ..Facts::default() };
    let plan = Plan::new(&chain, &Settings::default(), &facts).unwrap();
    let mut views = Views::new(&plan, vec![0, 1, 2]);
    let (mut image, mut transform) = (HostTransform::new(&plan), HostTransform::new(&plan));
    let (mut decoder, mut main) = (Decoders::new(), SamplePlan::default());
    let mut out = vec![0_u32; 3 * 96 * 96];
    let mut make = |seed: u64| {
        let key = SampleKey { seed: seed % 3, epoch: 0, index: 0 };
        views.draw(&plan, (key, &header), Some(&mut main));
        views.demand(&plan, &header, Some(&mut main)).unwrap();
        let before = counted::calls();
        views.decode((&bytes, &header), &plan, &mut decoder, &mut image).unwrap();
        for (_, plan, output) in views.planned(&plan) {
            transform.set_shape(plan.shape);
            let out = &mut bytemuck::cast_slice_mut(&mut out)[..plan.shape.sample_bytes()];
            let steps = 0..plan.steps.len();
            transform.run_image(&output.actions, steps, image.image(), Some(out)).unwrap();
        }
        counted::calls() - before
    };
    let counts: Vec<i64> = (0..30).map(&mut make).collect();
    assert_eq!(counts[6..].iter().sum::<i64>(), 0, "{counts:?}");
}
