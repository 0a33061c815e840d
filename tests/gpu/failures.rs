//! Failures on the device path: every call of the driver and of nvJPEG fails in turn, on every
//! route, on the simulated machine.

use crate::common::{jpegs, training};
use crate::simulated::images::libjpeg;
use crate::simulated::{LAUNCH_FAILED, OUT_OF_MEMORY, Schedule, Simulated, exclusive, runtime};
use feedwater::error::Error;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::MixupOrCutMix;
use feedwater::plan::Route;
use feedwater::source::Memory;

/// Returns a loader. Odd seeds have batch operators.
fn builder(seed: u64) -> LoaderBuilder {
    let source = Memory::new(jpegs(16)).unwrap();
    let (chain, classes) = match seed % 2 {
        0 => (training().then_batch(MixupOrCutMix::default()), Some(16)),
        _ => (training(), None),
    };
    let builder = Loader::builder(source, chain).configure(|it| it.targets.classes = classes);
    builder.batch_size(4).num_workers(2).shuffle(true).seed(seed).epochs(Some(1))
}

/// Runs an epoch on these routes and returns the number of delivered samples. Checks that all
/// batches before an error equal the CPU's.
fn epoch(routes: &[Route], seed: u64) -> Result<u64, Error> {
    let mut cpu = builder(seed).device(DeviceChoice::Cpu).build().unwrap();
    let builder =
        builder(seed).configure(|it| it.decode.routes = routes.into()).device(DeviceChoice::Gpu(0));
    let mut loader = builder.runtime(&runtime()).build()?;
    for (batch, cpu) in (&mut loader).into_iter().zip(&mut cpu) {
        let (batch, cpu) = (batch?, cpu.unwrap());
        assert!(batch.to_host()? == cpu.to_host().unwrap(), "seed {seed}");
        let targets = cpu.soft_targets_to_host().unwrap();
        assert!(batch.soft_targets_to_host()? == targets, "seed {seed}");
    }
    // A failed measurement must be absent from the profile.
    assert!(loader.profile().images <= 16);
    let stats = loader.stats();
    assert_eq!(stats.outcomes.values().sum::<u64>(), stats.images, "{stats:?}");
    Ok(stats.images)
}

/// Resets the machine without releasing it to another test.
fn restart(machine: &Simulated, schedule: u64) {
    machine.restart();
    machine.set_decoder(Some(libjpeg));
    machine.schedule(Schedule::Random(schedule));
}

/// Checks the result of a run with a failure: either an error or all samples with their outcomes
/// counted, and no leaks.
fn check(machine: &Simulated, result: &Result<u64, Error>, what: &str) {
    let counts = machine.counts();
    assert_eq!((counts.live(), counts.faults()), (0, 0), "{what}: {counts:?}");
    if let Ok(images) = result {
        assert_eq!(*images, 16, "{what}");
    }
}

/// Lets each call fail in turn, while building or running. The result must be an error or a sample
/// on the CPU, never a panic, a hang or a leak.
#[test]
fn a_failure_at_any_call_is_an_error_and_leaks_nothing() {
    let machine = exclusive();
    let (mut failed, mut nth) = (0, 1);
    loop {
        restart(&machine, nth);
        machine.fail("", nth, if nth % 2 == 0 { OUT_OF_MEMORY } else { LAUNCH_FAILED });
        let result = epoch(&Route::ALL, nth);
        check(&machine, &result, &format!("call {nth}"));
        failed += u64::from(result.is_err());
        if machine.counts().injected == 0 {
            assert!(result.is_ok(), "call {nth}: {result:?}");
            break;
        }
        // Covers every one of the first 40 calls, then ever larger steps, because a run has many
        // hundred calls.
        nth += 1 + nth / 40;
    }
    assert!(failed > 20, "{failed} failures");
}

/// Fails the first call, one in the middle and the last call of every function, on each route that uses it.
#[test]
fn a_failure_of_any_function_is_an_error_and_leaks_nothing() {
    let machine = exclusive();
    let mut reached = 0;
    for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
        for name in FUNCTIONS {
            restart(&machine, 1);
            epoch(&[route], 1).unwrap();
            let calls = machine.calls(name);
            let mut places = vec![1, calls / 2, calls];
            places.retain(|&nth| nth > 0 && nth <= calls);
            places.dedup();
            for nth in places {
                restart(&machine, nth);
                machine.fail(name, nth, LAUNCH_FAILED);
                let result = epoch(&[route], nth);
                check(&machine, &result, &format!("{name}, call {nth}, by {}", route.name()));
                reached += machine.counts().injected;
            }
        }
    }
    assert!(reached > 200, "{reached} failures");
}

/// Functions that a loader calls. Destructors are missing, because their failures have no
/// consequence.
const FUNCTIONS: [&str; 51] = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuEventCreate",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuMemAlloc",
    "cuMemGetInfo",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "nvjpegBufferDeviceCreateV2",
    "nvjpegBufferDeviceResize",
    "nvjpegBufferDeviceRetrieve",
    "nvjpegBufferPinnedCreateV2",
    "nvjpegBufferPinnedResize",
    "nvjpegBufferPinnedRetrieve",
    "nvjpegCreateExV2",
    "nvjpegDecodeBatchedEx",
    "nvjpegDecodeBatchedInitialize",
    "nvjpegDecodeBatchedPreAllocate",
    "nvjpegDecodeBatchedSupportedEx",
    "nvjpegDecodeJpegDevice",
    "nvjpegDecodeJpegHost",
    "nvjpegDecodeJpegTransferToDevice",
    "nvjpegDecodeParamsCreate",
    "nvjpegDecodeParamsSetOutputFormat",
    "nvjpegDecodeParamsSetROI",
    "nvjpegDecodeParamsSetScaleFactor",
    "nvjpegDecoderCreate",
    "nvjpegDecoderStateCreate",
    "nvjpegGetHardwareDecoderInfo",
    "nvjpegJpegStreamCreate",
    "nvjpegJpegStreamParse",
    "nvjpegJpegStreamParseHeader",
];
