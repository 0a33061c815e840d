//! Calls of the JPEG engines.

use super::*;

/// The state of each of the two decoders is initialized once, at the start, although groups differ in size and each epoch ends
/// with a smaller one.
#[test]
fn each_size_of_a_call_gives_the_same_batches_and_initializes_states_once() {
    let machine = machine();
    for (seed, group) in [1, 2, 7, 16, 64].into_iter().enumerate() {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.schedule(Schedule::Random(seed as u64));
        let make = || {
            let builder = builder(jpegs(40), training()).last(Last::Partial).epochs(Some(2));
            builder.workers(4).routes([Route::NvjpegHardware]).hardware_group(Some(group))
        };
        let loader = same(make, &format!("{group} images per call"));
        let device = loader.plan().device.clone().unwrap();
        assert_eq!(device.hardware_group, group);
        let states = group.min(2) as u64;
        assert_eq!(machine.calls("nvjpegDecodeBatchedInitialize"), states, "{group}");
        let stats = loader.stats();
        assert_eq!(stats.outcomes["nvjpeg-hardware"], 80, "{stats:?}");
        assert_eq!(machine.decoded(Backend::Hardware), 80);
    }
}

/// With the fewest pages each is used again while work on its previous image is still in the streams. Engines that keep the
/// stream's order read the file late, and those of Hopper write the pixels early.
#[test]
fn a_page_is_used_again_when_engines_and_kernel_have_read_it() {
    let machine = machine();
    let make = |limit| {
        let builder = builder(jpegs(58), training()).last(Last::Pad).workers(3).prefetch(20);
        builder.routes([Route::NvjpegHardware]).device_memory(limit)
    };
    let build = |limit| make(limit).device(DeviceChoice::Gpu(0)).runtime(&runtime()).build();
    let predicted = |loader: Loader| loader.stats().memory.device_bytes_predicted;
    let mut limit = predicted(build(None).unwrap());
    while let Ok(smaller) = build(Some(limit - 1)) {
        limit = predicted(smaller);
    }
    let schedules = [Schedule::Lazy, Schedule::Random(41), Schedule::Random(42)];
    for (schedule, hopper) in schedules.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        machine.schedule(schedule);
        machine.hopper(hopper);
        same(|| make(Some(limit)), &format!("{schedule:?} hopper {hopper}"));
    }
}
