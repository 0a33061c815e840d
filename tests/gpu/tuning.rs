//! Autotuning of the split between CPU and device, with the simulated driver. Tuning must not
//! change any byte.

use std::thread;
use std::time::Duration;

use crate::common::{jpegs, training};
use crate::simulated::images::assert_clean;
use crate::simulated::{Schedule, Simulated, runtime};
use feedwater::error::{ConfigError, Error};
use feedwater::internals::geometry::Size;
use feedwater::internals::plan::Offload;
use feedwater::internals::tune::Choice;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, Stats};
use feedwater::op::{CenterCrop, Chain, Flip, Normalize, Placement, RandomResizedCrop, Resize};
use feedwater::plan::{AutoCount, Route};
use feedwater::source::Memory;

fn machine() -> Option<Simulated> {
    let machine = crate::machine()?;
    machine.schedule(Schedule::Random(5));
    Some(machine)
}

fn builder(chain: Chain) -> LoaderBuilder {
    let source = Memory::new(jpegs(40)).unwrap();
    Loader::builder(source, chain).batch_size(4).num_workers(2).shuffle(true).seed(3)
}

fn on_device(chain: Chain) -> LoaderBuilder {
    builder(chain).device(DeviceChoice::Gpu(0)).runtime(&runtime())
}

/// Consumes epochs until two epochs have ended with settled tuning, at least four epochs in total.
/// Returns the bytes of all batches.
fn settle(loader: &mut Loader, step: Duration) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut after = 0;
    for epoch in 0..2000 {
        for batch in &mut *loader {
            all.push(batch.unwrap().to_host().unwrap());
            thread::sleep(step);
        }
        after += u32::from(loader.is_settled() && epoch >= 2);
        if after == 2 {
            return all;
        }
    }
    panic!("not settled: {:#?}", loader.decisions());
}

/// Returns the bytes of the same batches, computed only on the CPU.
fn on_cpu(chain: Chain, batches: usize) -> Vec<Vec<u8>> {
    let mut loader = builder(chain).device(DeviceChoice::Cpu).build().unwrap();
    let mut all = Vec::new();
    while all.len() < batches {
        all.extend(loader.epoch().map(|batch| batch.unwrap().to_host().unwrap()));
    }
    all
}

/// The tuner's choice would depend on the load of the machine that runs this test. So the test
/// itself chooses the CPU for everything. `tests/insight/tune/` has tests with simulated machines,
/// on which the tuner gives all the work to a CPU that is fast enough.
#[test]
fn a_device_without_work_is_left_alone_and_no_byte_changes() {
    let Some(machine) = machine() else { return };
    for most in [None, Some(1)] {
        let mut loader =
            on_device(training()).configure(|it| it.decode.max_cpu_threads = most).build().unwrap();
        assert_eq!(loader.choice().offload, Offload { operators: 3, decode: true });
        let mut batches = settle(&mut loader, Duration::from_millis(5));
        assert!(by_device(&loader.stats().outcomes) > 0);
        loader.choose(Choice { offload: Offload::NOTHING, ..loader.choice() }).unwrap();
        let epoch = |loader: &mut Loader| {
            loader.epoch().map(|batch| batch.unwrap().to_host().unwrap()).collect::<Vec<_>>()
        };
        // In the first epoch after the choice, some batches were begun before the choice. So only
        // the second epoch is checked.
        batches.extend(epoch(&mut loader));
        let before = loader.stats();
        batches.extend(epoch(&mut loader));
        let stats = loader.stats();
        assert_eq!(by_device(&stats.outcomes), by_device(&before.outcomes));
        assert_eq!(stats.outcomes["cpu"] + by_device(&stats.outcomes), stats.images);
        let left = |stats: &Stats| stats.cpu_fallback.get("the CPU keeps up").copied().unwrap_or(0);
        assert!(left(&stats) >= left(&before) + 40, "{:?}", stats.cpu_fallback);
        assert!(
            batches == on_cpu(training(), batches.len()),
            "the bytes must not depend on tuning"
        );
        drop(loader);
        assert_clean(&machine, "end");
    }
}

#[test]
fn each_operator_may_run_on_either_side_and_no_byte_changes() {
    let Some(machine) = machine() else { return };
    let floats = || {
        let crop = RandomResizedCrop::to(40, 30);
        Chain::new().then(crop).then(Normalize::IMAGENET).then(Flip::default())
    };
    let first_on_cpu = || {
        let crop = RandomResizedCrop::to(40, 30);
        Chain::new()
            .then_on(Placement::Cpu, crop)
            .then(Flip { horizontal: 0.5, ..Flip::default() })
            .then(Normalize::IMAGENET)
    };
    let tables = || {
        let crop = CenterCrop::to(30, 24);
        Chain::new().then(crop).then(Resize::to(22, 18)).then(Normalize::IMAGENET)
    };
    let chains: [(&dyn Fn() -> Chain, usize); 4] =
        [(&training, 5), (&floats, 5), (&first_on_cpu, 3), (&tables, 5)];
    for (chain, divisions) in chains {
        let mut loader = on_device(chain()).build().unwrap();
        let all = loader.plan().offloads.clone();
        assert_eq!(all.len(), divisions, "{all:?}");
        assert!(all.is_sorted());
        let mut batches = Vec::new();
        for turn in 0..6 {
            let epoch = loader.epoch();
            let loader = epoch.loader();
            for (number, batch) in epoch.enumerate() {
                batches.push(batch.unwrap().to_host().unwrap());
                // The first three placements of each loader are tried in order, later ones
                // pseudo-randomly.
                let next = if turn < 3 { number / 3 } else { number * 7 + turn };
                let offload = all[next % all.len()];
                loader.choose(Choice { offload, ..loader.choice() }).unwrap();
                assert_eq!(loader.choice().offload, offload);
            }
        }
        assert!(loader.is_settled(), "a manual choice must end tuning");
        // The list of decisions has only the last call of `choose`, and no decision of the tuner.
        let decisions = loader.decisions();
        let [last] = &decisions[..] else { panic!("{decisions:#?}") };
        assert_eq!((last.choice, last.settled), (loader.choice(), true));
        assert!(batches == on_cpu(chain(), batches.len()), "{all:?}");
        let stats = loader.stats();
        assert_eq!(stats.outcomes["cpu"] + by_device(&stats.outcomes), stats.images);
        assert!(stats.cpu_fallback.keys().all(|why| *why == "the CPU keeps up"));
        drop(loader);
        assert_clean(&machine, "end");
    }
}

#[test]
fn only_automatic_settings_can_be_chosen_by_hand() {
    let Some(_machine) = machine() else { return };
    let loader =
        on_device(training()).configure(|it| it.decode.placement = Placement::Gpu).build().unwrap();
    assert_eq!(loader.plan().offloads.len(), 1);
    let now = loader.choice();
    loader.choose(now).unwrap();
    let refused = |choice: Choice| -> ConfigError {
        let error = loader.choose(choice).unwrap_err();
        let Error::Config(error) = error else { panic!("{error}") };
        error
    };
    let other = [now.workers + 1, 0];
    for (choice, key, values) in [
        // The message must contain the refused number and the only valid one.
        (Choice { workers: other[0], ..now }, "loader.num_workers", [other[0], now.workers]),
        (Choice { prefetch: other[1], ..now }, "loader.prefetch", [other[1], now.prefetch]),
    ] {
        let error = refused(choice);
        assert_eq!(error.key, key);
        for value in values {
            assert!(error.problem.contains(&value.to_string()), "{value}: {error}");
        }
    }
    let error = refused(Choice { offload: Offload::NOTHING, ..now });
    assert_eq!(error.key, "chain");
    // The message names the only valid split of the chain between CPU and GPU.
    assert!(error.problem.contains(&now.offload.to_string()), "{error}");
    assert_eq!(loader.choice(), now);
}

fn by_device(outcomes: &std::collections::BTreeMap<&'static str, u64>) -> u64 {
    Route::all_on_device().map(|route| outcomes[route.name()]).sum()
}

#[test]
fn all_numbers_can_be_chosen_at_once() {
    let Some(machine) = machine() else { return };
    let loader = on_device(training())
        .num_workers(AutoCount::Auto)
        .prefetch(AutoCount::Auto)
        .configure(|it| it.limits.cpu_threads = Some(4));
    let mut loader = loader.build().unwrap();
    let most = loader.plan().workers.most;
    assert_eq!(most, 1, "most workers, besides the launcher and two gatherer threads");
    let batches = settle(&mut loader, Duration::ZERO);
    assert!(loader.decisions().iter().all(|it| (1..=most).contains(&it.choice.workers)));
    assert!(batches == on_cpu(training(), batches.len()));
    drop(loader);
    assert_clean(&machine, "end");
}

#[test]
fn operators_with_a_placement_stay_there() {
    let Some(machine) = machine() else { return };
    let mut fixed =
        on_device(training()).configure(|it| it.decode.placement = Placement::Gpu).build().unwrap();
    settle(&mut fixed, Duration::from_millis(10));
    assert!(fixed.decisions().is_empty(), "{:#?}", fixed.decisions());
    assert_eq!(fixed.choice().offload, Offload { operators: 3, decode: true });

    let mut without_cpu = on_device(training())
        .configure(|it| it.decode.routes = vec![Route::NvjpegGpu, Route::NvjpegHybrid])
        .build()
        .unwrap();
    settle(&mut without_cpu, Duration::from_millis(10));
    assert!(
        without_cpu.decisions().is_empty(),
        "there must be no decisions if the CPU may not decode"
    );

    let crop = RandomResizedCrop::to(24, 24);
    let operators = Chain::new().then_on(Placement::Gpu, crop);
    let operators =
        on_device(operators).output(feedwater::internals::tensor::DType::U8, Default::default());
    let mut operators = operators.build().unwrap();
    settle(&mut operators, Duration::from_millis(10));
    let tried: Vec<_> = operators.decisions().iter().map(|it| it.choice.offload).collect();
    let decoded_on_cpu = Offload { operators: 1, decode: false };
    let possible = operators.plan().offloads.clone();
    assert!(possible.contains(&decoded_on_cpu) && !possible.contains(&Offload::NOTHING));
    assert!(tried.iter().all(|it| possible.contains(it)), "{tried:?}");
    assert_eq!(operators.plan().shape.width, Size::new(24, 24).width);
    drop((fixed, without_cpu, operators));
    assert_clean(&machine, "end");
}
