//! GPUs with an architecture that the run-time compiler NVRTC does not know.

use super::*;
use feedwater::gpu::{Runtime, compile};
use feedwater::internals::gpu::compiler;

/// Returns a runtime with an empty kernel cache.
fn uncached() -> (tempfile::TempDir, Runtime) {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime().with_cache_directory(directory.path());
    (directory, runtime)
}

/// Runs a kernel that adds 2 to 40, and returns the result.
fn run(device: &Arc<Device>) -> Vec<u8> {
    let (memory, pinned) = pools(device).unwrap();
    let stream = Stream::new(device).unwrap();
    let (kernel, mut samples) = copy_kernel(device, &memory, &pinned);
    let [out, input] = [(); 2].map(|()| memory.buffer("slots", 256).unwrap());
    fill(&stream, &input, 0..256, 40).unwrap();
    describe(&mut samples, 0, &out, 0, &input, 2).unwrap();
    samples.upload(&stream, 0..SAMPLE_BYTES).unwrap();
    kernel.launch(&stream, samples.device(), 0, 1, 256, 1).unwrap();
    let mut bytes = vec![0; 256];
    read_back(&stream, &out, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_newer_gpu_runs_the_drivers_translation_of_the_newest_known_architecture() {
    let Some(machine) = exclusive() else { return };
    machine.architecture(103, true);
    machine.compiler_knows(&[75, 80, 90, 100, 120]);
    let (_directory, runtime) = uncached();
    let device = Device::open_with(0, &runtime).unwrap();
    compiler(&device).unwrap();
    assert_eq!(run(&device), [42; 256]);
    assert_eq!(machine.compiled_for(), "compute_100");
    let before = machine.compilations();
    assert_eq!(run(&device), [42; 256]);
    assert_eq!(machine.compilations(), before, "the result must come from the cache");
    drop(device);

    machine.compiler_knows(&[75, 80, 90, 100, 103, 120]);
    let (_directory, runtime) = uncached();
    assert_eq!(run(&Device::open_with(0, &runtime).unwrap()), [42; 256]);
    assert_eq!(machine.compiled_for(), "sm_103");
    assert_clean(&machine, "newer");
}

#[test]
fn each_architecture_has_a_cached_kernel_of_its_own() {
    let Some(machine) = exclusive() else { return };
    let (_directory, runtime) = uncached();
    let mut all = Vec::new();
    for architecture in [90, 100] {
        machine.architecture(architecture, true);
        let device = Device::open_with(0, &runtime).unwrap();
        all.push(compile(&device, KERNEL).unwrap());
        assert_eq!(run(&device), [42; 256]);
        assert_eq!(machine.compiled_for(), format!("sm_{architecture}"));
    }
    assert_ne!(all[0], all[1]);
}

#[test]
fn an_older_gpu_and_a_driver_that_rejects_the_code_have_no_compiler() {
    let Some(machine) = exclusive() else { return };
    let (_directory, runtime) = uncached();
    machine.architecture(61, true);
    let device = Device::open_with(0, &runtime).unwrap();
    for error in [compiler(&device).unwrap_err(), compile(&device, KERNEL).unwrap_err()] {
        let Error::Unavailable { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains("sm_61") && reason.contains("sm_75"), "{reason}");
    }
    drop(device);
    machine.architecture(110, false);
    let device = Device::open_with(0, &runtime).unwrap();
    let error = compiler(&device).unwrap_err();
    assert!(matches!(&error, Error::Device { call: "cuModuleLoadData", .. }), "{error}");
    drop(device);
    assert_clean(&machine, "none");
}
