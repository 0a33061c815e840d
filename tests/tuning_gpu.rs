//! A loader that chooses for itself what is on the device, against the simulated driver: no byte changes with it.

#![allow(unsafe_code, reason = "the mocked decoder is called by C")]

mod common;
mod simulated;

use std::thread;
use std::time::Duration;

use common::{jpegs, training};
use feedwater::geometry::Size;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Placement, RandomResizedCrop};
use feedwater::plan::Route;
use feedwater::source::Memory;
use feedwater::tune::Offload;
use simulated::pictures::libjpeg;
use simulated::{Schedule, Simulated, exclusive};

fn machine() -> Simulated {
    let machine = exclusive();
    machine.set_decoder(Some(libjpeg));
    machine.schedule(Schedule::Random(5));
    machine
}

fn builder(chain: Chain) -> LoaderBuilder {
    let source = Memory::new(jpegs(40)).unwrap();
    Loader::builder(source, chain).batch(4).workers(2).shuffle(true).seed(3)
}

fn on_device(chain: Chain) -> LoaderBuilder {
    builder(chain).device(DeviceChoice::Gpu(0))
}

/// Takes epochs until the loader has settled, and two more, at least four; gives the bytes of all batches.
fn settle(loader: &Loader, step: Duration) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut after = 0;
    for epoch in 0..2000 {
        for batch in loader {
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

/// The same batches, made on the CPU.
fn on_cpu(batches: usize) -> Vec<Vec<u8>> {
    let loader = builder(training()).device(DeviceChoice::Cpu).build().unwrap();
    let mut all = Vec::new();
    while all.len() < batches {
        all.extend((&loader).into_iter().map(|batch| batch.unwrap().to_host().unwrap()));
    }
    all
}

#[test]
fn where_the_cpu_keeps_up_the_device_is_left_alone_and_no_byte_changes() {
    let machine = machine();
    for most in [None, Some(1)] {
        let loader = on_device(training()).max_cpu_threads(most).build().unwrap();
        keeps_up(loader);
        let counts = machine.counts();
        assert_eq!((counts.live(), counts.faults()), (0, 0), "{counts:?}");
    }
}

fn keeps_up(loader: Loader) {
    assert_eq!(loader.choice().offload, Offload::Everything);
    let batches = settle(&loader, Duration::from_millis(25));
    assert_eq!(loader.choice().offload, Offload::Nothing, "{:#?}", loader.decisions());
    let tried: Vec<_> = loader.decisions().iter().map(|it| it.choice.offload).collect();
    assert!(tried.contains(&Offload::Operators), "{tried:?}");
    let stats = loader.stats();
    let (left, all) = (stats.finished_on_cpu["the CPU keeps up"], stats.images);
    assert!(left > 0 && left < all, "{left} of {all}");
    assert_eq!(stats.outcomes["cpu"] + by_device(&stats.outcomes), all);
    assert!(by_device(&stats.outcomes) > 0);
    assert!(batches == on_cpu(batches.len()), "bytes do not depend on what is chosen");
}

fn by_device(outcomes: &std::collections::BTreeMap<&'static str, u64>) -> u64 {
    ["hardware", "cuda", "host"].iter().map(|name| outcomes[name]).sum()
}

#[test]
fn all_numbers_may_be_chosen_at_once() {
    let machine = machine();
    let loader = on_device(training()).auto_workers().auto_prefetch().cpu_threads(Some(4));
    let loader = loader.build().unwrap();
    let most = loader.plan().workers.most;
    assert_eq!(most, 2, "besides the launcher and the thread that feeds the engines");
    let batches = settle(&loader, Duration::ZERO);
    assert!(loader.decisions().iter().all(|it| (1..=most).contains(&it.choice.workers)));
    assert!(batches == on_cpu(batches.len()));
    drop(loader);
    assert_eq!((machine.counts().live(), machine.counts().faults()), (0, 0));
}

#[test]
fn what_has_a_placement_stays_where_it_is() {
    let machine = machine();
    let fixed = on_device(training()).decode(Placement::Gpu).build().unwrap();
    settle(&fixed, Duration::from_millis(10));
    assert!(fixed.decisions().is_empty(), "{:#?}", fixed.decisions());
    assert_eq!(fixed.choice().offload, Offload::Everything);

    let without_cpu = on_device(training()).routes([Route::Cuda, Route::Host]).build().unwrap();
    settle(&without_cpu, Duration::from_millis(10));
    assert!(without_cpu.decisions().is_empty(), "the CPU may not decode");

    let crop = RandomResizedCrop::to(24, 24);
    let operators = Chain::new().then_on(Placement::Gpu, crop);
    let operators = on_device(operators).output(feedwater::tensor::DType::U8, Default::default());
    let operators = operators.build().unwrap();
    settle(&operators, Duration::from_millis(10));
    let tried: Vec<_> = operators.decisions().iter().map(|it| it.choice.offload).collect();
    assert!(tried.contains(&Offload::Operators) && !tried.contains(&Offload::Nothing), "{tried:?}");
    assert_eq!(operators.plan().shape.width, Size::new(24, 24).width);
    drop((fixed, without_cpu, operators));
    assert_eq!((machine.counts().live(), machine.counts().faults()), (0, 0));
}
