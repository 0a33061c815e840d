//! Chains that need the program kernel, because their operators differ between samples or are of
//! kinds that no fused kernel supports.

use feedwater::op::custom::{Kind, Kinds};
use feedwater::op::{
    CenterCrop, Draw, Equalize, Flip, GaussianBlur, Normalize, Operator, RandAugment,
    RandomErasing, RandomPerspective, RandomResizedCrop, RandomRotation, Resize, Sharpness,
};

use super::*;

fn erasing() -> RandomErasing {
    RandomErasing { probability: 0.7, std: [1.0; 3], ..RandomErasing::default() }
}

/// Returns chains that begin with a fused kernel. The output of the fused kernel differs in size
/// between samples only in the last chain.
fn behind_a_resampling() -> [(&'static str, Chain); 3] {
    let crop = || Chain::new().then(RandomResizedCrop::to(32, 24));
    let flip = Flip { horizontal: 0.5, vertical: 0.0 };
    let blur = GaussianBlur { kernel_size: [5, 3], sigma: [0.1, 2.0] };
    [
        (
            "policy",
            crop()
                .then(flip)
                .then(RandAugment::default())
                .then(Normalize::IMAGENET)
                .then(erasing()),
        ),
        (
            "jitter",
            crop().then(jitter()).then(blur).then(Equalize::default()).then(Normalize::IMAGENET),
        ),
        (
            "other sizes",
            Chain::new()
                .then(Resize::shorter(25))
                .then(RandomRotation::within(30.0))
                .then(CenterCrop::to(29, 21))
                .then(Normalize::IMAGENET),
        ),
    ]
}

/// Returns chains that need only the program kernel.
fn alone() -> [(&'static str, Chain); 3] {
    [
        (
            "before a resampling",
            Chain::new()
                .then(jitter())
                .then(RandomResizedCrop::to(24, 20))
                .then(Normalize::IMAGENET),
        ),
        (
            "without a resampling",
            Chain::new().then(RandomPerspective::default()).then(CenterCrop::to(33, 50)),
        ),
        (
            "nothing drawn",
            Chain::new().then(CenterCrop::to(24, 20)).then(Sharpness { factor: [0.0, 2.0] }),
        ),
    ]
}

#[test]
fn programs_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    for (fused, chains) in [(true, behind_a_resampling()), (false, alone())] {
        for (number, (what, chain)) in chains.into_iter().enumerate() {
            // Late work shows a missing wait, so the schedules that delay it come first.
            let schedules = [Schedule::Lazy, Schedule::Random(3), Schedule::Eager];
            for schedule in some_of(schedules, number % 2) {
                machine.schedule(schedule);
                let loader = same(|| builder(jpegs(40), chain.clone()).prefetch(6), what);
                let device = loader.plan().device.as_ref().unwrap();
                let kernels = &device.planned().chain;
                assert_eq!(
                    (kernels.fused.is_some(), kernels.program.is_some()),
                    (fused, true),
                    "{what}"
                );
                assert_eq!(
                    (device.splits[0].first, loader.stats().cpu_fallback.len()),
                    (0, 0),
                    "{what}"
                );
            }
        }
    }
    assert_eq!(machine.counts().faults(), 0);
}

/// The plan names the kernels of each launch and their scratch memory, and predicts the memory
/// exactly.
#[test]
fn the_plan_names_both_kernels_and_their_scratch_memory() {
    let Some(machine) = machine() else { return };
    let [(_, policy), ..] = behind_a_resampling();
    let make =
        || builder(jpegs(16), policy.clone()).device(DeviceChoice::Gpu(0)).runtime(&runtime());
    let mut loader = make().build().unwrap();
    let taken = machine.counts();
    epochs(&mut loader);
    assert_eq!(taken.device.peak_bytes, machine.counts().device.peak_bytes);
    assert_eq!(loader.stats().memory.device_bytes_predicted, machine.counts().device.bytes);
    let plan = loader.plan();
    let device = plan.device.as_ref().unwrap();
    let named = plan.to_string().lines().filter(|line| line.starts_with("kernel ")).count();
    assert_eq!(named, 2, "{plan}");
    assert!(plan.to_string().contains("rand_augment (chain[2])"), "{plan}");
    // A scratch buffer holds the output of the resampling of one sample. There are two such buffers
    // for each sample of a launch.
    assert_eq!(device.scratch_bytes, (3 * 32 * 24_usize).next_multiple_of(256));
    let row = plan.footprint.rows.iter().find(|row| row.name == "kernel scratch").unwrap();
    assert_eq!(row.count, 2 * device.group as u64);
    drop(loader);
    assert_eq!(machine.counts().live(), 0);
}

/// Without a window, the tables of a resize grow with the image. The plan has space for those of
/// the scanned images, not of every image that fits into a page.
#[test]
fn a_launch_has_space_for_the_tables_of_the_scanned_images() {
    let Some(_machine) = machine() else { return };
    let [.., (_, chain)] = behind_a_resampling();
    let make = || builder(jpegs(16), chain.clone()).device(DeviceChoice::Gpu(0));
    let mut loader = make().runtime(&runtime()).build().unwrap();
    let row = |name| loader.plan().footprint.row(name).unwrap().each_bytes;
    let most = 16 * (1280 + row("sample plans")) + 256;
    assert!(row("launch parameters") <= most, "{most}\n{}", loader.plan());
    epochs(&mut loader);
    assert_eq!(loader.stats().cpu_fallback.len(), 0);
}

/// The plan inspects only some samples, and the one large image is not among them.
#[test]
fn an_image_that_needs_more_scratch_memory_than_planned_is_made_on_the_cpu() {
    let Some(_machine) = machine() else { return };
    let chain = || {
        Chain::new().then(jitter()).then(RandomRotation::within(30.0)).then(CenterCrop::to(24, 20))
    };
    let mut files = jpegs(40);
    files[8].0 = common::jpeg(70, 230, 220);
    let make = || {
        let source = SlowShuffled(Memory::new(files.clone()).unwrap());
        settled(Loader::builder(source, chain())).last_batch(LastBatch::Partial)
    };
    let loader = same(make, "one large image");
    let stats = loader.stats();
    assert_eq!(stats.cpu_fallback.values().sum::<u64>(), 2, "{stats:?}");
    assert!(stats.cpu_fallback.keys().any(|why| why.contains("scratch")), "{stats:?}");
}

/// An operator that declares only flips, but draws a table for some samples.
#[derive(Debug)]
struct Undeclared;

impl Operator for Undeclared {
    fn name(&self) -> &'static str {
        "undeclared"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Flip])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        match draw.rng().below(2) {
            0 => draw.flip(true, false),
            _ => draw.table(|_, byte| 255 - byte),
        }
    }
}

#[test]
fn an_operator_that_draws_what_it_does_not_declare_ends_no_thread() {
    let Some(_machine) = machine() else { return };
    for chain in [
        Chain::new().then(RandomResizedCrop::to(24, 20)).then(Undeclared),
        Chain::new().then(RandomResizedCrop::to(24, 20)).then(Undeclared).then(jitter()),
    ] {
        let loader = same(|| builder(jpegs(20), chain.clone()), "undeclared");
        let stats = loader.stats();
        let on_cpu = stats.cpu_fallback.values().sum::<u64>();
        assert!(on_cpu > 0 && on_cpu < 40, "{stats:?}");
    }
}
