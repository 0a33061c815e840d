//! Batch operators on the device: pixels and soft targets equal those of the CPU.

use feedwater::loader::Pair;

use super::*;

/// Returns the pairs and soft targets of each batch of two epochs.
fn targets(loader: &mut Loader) -> Vec<(Vec<Pair>, Vec<f32>)> {
    let mut all = Vec::new();
    for _ in 0..2 {
        for batch in &mut *loader {
            let batch = batch.unwrap();
            let targets = batch.soft_targets_to_host().unwrap();
            assert_eq!(targets.len(), batch.len() * batch.classes());
            let on_host = (batch.soft_targets().is_some(), batch.soft_targets_ptr().is_none());
            assert_eq!(on_host, (batch.host().is_some(), batch.host().is_some()));
            all.push((batch.pairs().to_vec(), targets));
        }
    }
    all
}

/// Compares pixels, pairs and soft targets of the device with those of the CPU.
fn same_targets(make: impl Fn() -> LoaderBuilder, what: &str) {
    same(&make, what);
    let cpu = targets(&mut on_cpu(make()).build().unwrap());
    let make = || make().device(DeviceChoice::Gpu(0)).runtime(&runtime());
    assert!(cpu == targets(&mut make().build().unwrap()), "{what}");
}

fn mixing(builder: LoaderBuilder) -> LoaderBuilder {
    builder.configure(|it| {
        it.targets.classes = Some(100);
        it.targets.smoothing = 0.1;
    })
}

fn chains() -> [Chain; 3] {
    let some = op::MixupOrCutMix { probability: 0.7, ..Default::default() };
    let both = || training().then_batch(op::CutMix::alpha(1.0)).then_batch(op::Mixup::alpha(0.4));
    [training(), training().then_batch(some), both()]
}

#[test]
fn every_chain_and_schedule_equals_the_cpu() {
    let Some(machine) = machine() else { return };
    let schedules = [Schedule::Eager, Schedule::Lazy, Schedule::Random(1), Schedule::Random(2)];
    let lasts = [LastBatch::Pad, LastBatch::Partial];
    for (which, schedule) in schedules.into_iter().enumerate() {
        machine.schedule(schedule);
        let cases = chains().into_iter().flat_map(|chain| lasts.map(|last| (chain.clone(), last)));
        for (number, (chain, last)) in some_of(cases.enumerate(), which) {
            let make = || {
                let builder = mixing(builder(jpegs(37), chain.clone()));
                builder.last_batch(last).num_workers(3).prefetch(5)
            };
            same_targets(make, &format!("{schedule:?} {number} {last:?}"));
        }
    }
    assert_clean(&machine, "end");
}

#[test]
fn repeats_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(8));
    for last in [LastBatch::Pad, LastBatch::Partial] {
        let make = || {
            let builder = mixing(builder(jpegs(37), training().then_batch(op::Mixup::alpha(0.8))));
            builder.last_batch(last).shuffle(true).configure(|it| it.loader.repeats = 3)
        };
        same_targets(make, &format!("{last:?}"));
    }
}

#[test]
fn every_dtype_and_layout_equals_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(7));
    let bytes = || Chain::new().then(op::Resize::to(17, 23));
    let gray = op::Grayscale { channels: 1 };
    let normalize = op::Normalize { mean: [0.4; 3], std: [0.25; 3] };
    for (dtype, layout) in DType::ALL.into_iter().flat_map(|it| Layout::ALL.map(|to| (it, to))) {
        let colours = || if dtype == DType::U8 { bytes() } else { training() };
        let gray = || match dtype {
            DType::U8 => bytes().then(gray),
            _ => Chain::new().then(op::RandomResizedCrop::to(24, 20)).then(gray).then(normalize),
        };
        for (chain, channels) in [(colours(), 3), (gray(), 1)] {
            let both = chain.then_batch(op::CutMix::alpha(1.0)).then_batch(op::Mixup::alpha(0.8));
            let make = || mixing(builder(jpegs(12), both.clone())).output(dtype, layout);
            same_targets(make, &format!("{dtype} {layout} {channels}"));
        }
    }
}

/// One batch has samples that were decoded on the device, decoded on the CPU, processed entirely on
/// the CPU, and replaced by zeros. All are mixed on the device.
#[test]
fn samples_of_all_routes_are_mixed_where_the_batch_is() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(6));
    let chain = || evaluation().then_batch(op::Mixup::alpha(0.8));
    for policy in [OnError::Skip, OnError::Substitute] {
        for routes in routes() {
            let make = || {
                let builder = mixing(builder(damaged(), chain())).on_error(policy);
                builder.configure(|it| {
                    it.decode.routes = routes.clone();
                    it.decode.placement = Placement::Auto;
                })
            };
            same_targets(make, &format!("{policy:?} {routes:?}"));
        }
    }
}

#[test]
fn a_batch_larger_than_a_launch_is_mixed_whole() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(3));
    let [.., chain] = chains();
    for batch in [2, 16, 30] {
        let make = || {
            mixing(builder(jpegs(61), chain.clone()))
                .batch_size(batch)
                .last_batch(LastBatch::Partial)
        };
        same_targets(make, &format!("batches of {batch}"));
    }
}

#[test]
fn memory_of_the_batch_stage_equals_the_plan() {
    let Some(machine) = machine() else { return };
    let [.., chain] = chains();
    let builder = mixing(builder(jpegs(16), chain)).device(DeviceChoice::Gpu(0));
    let mut loader = builder.runtime(&runtime()).build().unwrap();
    let row = |memory| {
        let rows = loader.footprint().rows.iter().filter(move |row| row.memory == memory);
        rows.map(|row| row.name.clone()).collect::<Vec<_>>()
    };
    assert!(row(MemoryKind::Device).contains(&"soft targets".to_string()));
    assert!(row(MemoryKind::Pinned).contains(&"pair parameters".to_string()));
    let text = loader.plan().to_string();
    assert!(text.contains("gpu     targets 4x100 f32"), "{text}");
    let taken = machine.counts();
    epochs(&mut loader);
    let after = machine.counts();
    assert_eq!(taken.device.peak_bytes, after.device.peak_bytes);
    let memory = loader.stats().memory;
    assert_eq!(memory.device_bytes_predicted, after.device.bytes);
    assert_eq!(memory.pinned_bytes_predicted, after.pinned.bytes);
}
