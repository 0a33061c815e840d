//! Failures on the device path: calls of the driver and of nvJPEG fail, one in each run, on the
//! simulated machine.

use crate::common::{jpegs, tests_all_cases, training};
use crate::simulated::images::{assert_clean, libjpeg};
use crate::simulated::{LAUNCH_FAILED, OUT_OF_MEMORY, Schedule, Simulated, exclusive, runtime};
use feedwater::error::Error;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::MixupOrCutMix;
use feedwater::plan::Route;
use feedwater::source::Memory;

/// Returns a loader. For even seeds, its chain ends with a batch operator.
fn builder(seed: u64) -> LoaderBuilder {
    let source = Memory::new(jpegs(16)).unwrap();
    let (chain, classes) = match seed % 2 {
        0 => (training().then_batch(MixupOrCutMix::default()), Some(16)),
        _ => (training(), None),
    };
    let builder = Loader::builder(source, chain).configure(|it| it.targets.classes = classes);
    builder.batch_size(4).num_workers(2).shuffle(true).seed(seed).epochs(Some(1))
}

/// Runs an epoch on the given decode routes and returns the number of delivered samples. Checks
/// that all batches before an error equal those of the CPU.
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
    // A measurement that failed must not appear in the profile.
    assert!(loader.profile().images <= 16);
    let stats = loader.stats();
    assert_eq!(stats.outcomes.values().sum::<u64>(), stats.images, "{stats:?}");
    Ok(stats.images)
}

/// Resets the simulated machine. The calling test keeps its exclusive use of the machine.
fn restart(machine: &Simulated, schedule: u64) {
    machine.restart();
    machine.set_decoder(Some(libjpeg));
    machine.schedule(Schedule::Random(schedule));
}

/// Checks the result of a run in which a call failed. The run must end with an error, or deliver
/// all 16 samples. Nothing may leak.
fn check(machine: &Simulated, result: &Result<u64, Error>, what: &str) {
    assert_clean(machine, what);
    if let Ok(images) = result {
        assert_eq!(*images, 16, "{what}");
    }
}

/// Lets one call of the driver or nvJPEG fail in each run, while the loader is built or runs. The
/// result must be an error or a sample that is decoded on the CPU, never a panic, a hang or a leak.
#[test]
fn a_failure_at_any_call_is_an_error_and_leaks_nothing() {
    let Some(machine) = exclusive() else { return };
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
        // Tests each of the first 40 calls (with all cases) or every third, then calls at growing
        // distances, because a run has hundreds of calls.
        nth += nth / 40 + if tests_all_cases() { 1 } else { 3 };
    }
    let least = if tests_all_cases() { 20 } else { 7 };
    assert!(failed > least, "{failed} failures");
}

/// As above, with files that stay in device memory, from which the second epoch is decoded.
#[test]
fn a_failure_with_files_on_the_device_is_an_error_and_leaks_nothing() {
    let Some(machine) = exclusive() else { return };
    let two_epochs = |seed: u64| -> Result<u64, Error> {
        let builder = || {
            builder(seed).epochs(Some(2)).configure(|it| {
                it.decode.routes = vec![Route::Feedwater, Route::Cpu];
                it.cache.device = Some(1 << 18);
            })
        };
        let mut cpu = builder().device(DeviceChoice::Cpu).build().unwrap();
        let mut loader = builder().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build()?;
        for _ in 0..2 {
            for (batch, cpu) in (&mut loader).into_iter().zip(&mut cpu) {
                assert!(batch?.to_host()? == cpu.unwrap().to_host().unwrap(), "seed {seed}");
            }
        }
        Ok(loader.stats().images)
    };
    let (mut failed, mut nth) = (0, 1);
    loop {
        restart(&machine, nth);
        machine.fail("", nth, if nth % 2 == 0 { OUT_OF_MEMORY } else { LAUNCH_FAILED });
        let result = two_epochs(nth);
        assert_clean(&machine, &format!("call {nth}"));
        assert!(result.as_ref().is_err() || matches!(result, Ok(32)), "call {nth}: {result:?}");
        failed += u64::from(result.is_err());
        if machine.counts().injected == 0 {
            break;
        }
        nth += nth / 20 + if tests_all_cases() { 1 } else { 5 };
    }
    assert!(failed > 10, "{failed} failures");
}

/// For each function, lets its first, middle or last call fail, on each route of the device that
/// calls the function.
#[test]
fn a_failure_of_any_function_is_an_error_and_leaks_nothing() {
    let Some(machine) = exclusive() else { return };
    let mut reached = 0;
    for (by, route) in Route::all_on_device().enumerate() {
        restart(&machine, 1);
        epoch(&[route], 1).unwrap();
        let calls = FUNCTIONS.map(|name| machine.calls(name));
        for (number, (name, calls)) in FUNCTIONS.into_iter().zip(calls).enumerate() {
            let mut places = vec![1, calls / 2, calls];
            places.retain(|&nth| nth > 0 && nth <= calls);
            places.dedup();
            let some = if tests_all_cases() { places.len() } else { 1 };
            for &nth in places.iter().cycle().skip(number + by).take(some) {
                restart(&machine, nth);
                machine.fail(name, nth, LAUNCH_FAILED);
                let result = epoch(&[route], nth);
                check(&machine, &result, &format!("{name}, call {nth}, by {}", route.name()));
                reached += machine.counts().injected;
            }
        }
    }
    let least = if tests_all_cases() { 200 } else { 70 };
    assert!(reached > least, "{reached} failures");
}

/// Functions that a loader calls. Functions that destroy objects are left out, because a failure of
/// these has no consequence.
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
