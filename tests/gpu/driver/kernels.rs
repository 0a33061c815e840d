//! Compiles, caches and launches kernels.

use super::*;

#[test]
fn a_text_that_does_not_compile_gives_the_compilers_log() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let Err(Error::Compile { log }) =
        Kernel::load(&device, "int f() { return wrong; }", "fused", 8)
    else {
        panic!("the invalid text compiled");
    };
    assert!(log.contains("wrong"), "{log}");
    let Err(Error::Device { call, .. }) = Kernel::load(&device, "enum { UNUSED };", "fused", 8)
    else {
        panic!("no such function");
    };
    assert_eq!(call, "cuModuleGetFunction");
    drop(device);
    assert_clean(&machine, "compile errors");
}

#[test]
fn a_launch_is_checked_before_it_runs() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, pinned) = pools(&device).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (kernel, samples) = copy_kernel(&device, &memory, &pinned);
    for (offset, count, width, height) in [
        (0, 11, 8, 8),
        (250, 1, 8, 8),
        (usize::MAX, 1, 8, 8),
        (0, u32::MAX, 8, 8),
        (0, 1, 8, 600_000),
    ] {
        let launched = kernel.launch(&stream, samples.device(), offset, count, width, height);
        assert!(
            matches!(launched, Err(Error::Internal { .. })),
            "{offset} {count} {width} {height}"
        );
    }
    kernel.launch(&stream, samples.device(), 0, 0, 8, 8).unwrap();
    assert_eq!(machine.calls("cuLaunchKernel"), 0);
}

#[test]
fn a_kernel_is_compiled_once_and_again_if_its_file_is_damaged() {
    let Some(machine) = exclusive() else { return };
    let directory = tempfile::tempdir().unwrap();
    let kept_in = |directory: &Path| {
        let runtime = runtime().with_cache_directory(directory);
        Device::open_with(0, &runtime).unwrap()
    };
    let compilations_on = |device: &Arc<Device>| {
        let before = machine.compilations();
        Kernel::load(device, KERNEL, "fused", SAMPLE_BYTES).unwrap();
        machine.compilations() - before
    };
    let device = kept_in(directory.path());
    let compilations = || compilations_on(&device);
    assert_eq!(compilations(), 1);
    let opened = machine.compiler_openings();
    assert_eq!(compilations(), 0);
    assert_eq!(machine.compiler_openings(), opened, "a cached kernel must need no compiler");
    let files = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().path());
    let mut kernels = files.filter(|it| it.extension().is_some_and(|it| it == "cubin"));
    let file = kernels.next().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[1000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert_eq!(compilations(), 1, "damaged");
    fs::write(&file, &bytes[..500]).unwrap();
    assert_eq!(compilations(), 1, "cut");
    assert_eq!(compilations(), 0, "mended");

    // A second device handle uses another cache directory at the same time.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = kept_in(elsewhere.path());
    assert_eq!(
        [1, 0].map(|_| compilations_on(&other)),
        [1, 0],
        "compilations with and without an empty cache"
    );
    assert_eq!(compilations(), 0);
    let lost = kept_in(&file.join("below a file"));
    assert_eq!(
        [1, 1].map(|_| compilations_on(&lost)),
        [1, 1],
        "a directory that cannot be written"
    );
    drop((device, other, lost));
    assert_clean(&machine, "cache");
}

/// Launches the kernel once, in a stream in which nothing has run yet.
fn launch(stream: &Stream, kernel: &Kernel, samples: &mut Staged, out: &DeviceBuffer) {
    describe(samples, 0, out, 0, out, 0).unwrap();
    fill(stream, out, 0..16, 1).unwrap();
    samples.upload(stream, 0..SAMPLE_BYTES).unwrap();
    kernel.launch(stream, samples.device(), 0, 1, 16, 1).unwrap();
}

#[test]
fn a_dropped_kernel_waits_for_its_launches_and_no_other_work() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, pinned) = pools(&device).unwrap();
    let (stream, framework) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let out = memory.buffer("slots", 256).unwrap();
    let (kernel, mut samples) = copy_kernel(&device, &memory, &pinned);
    launch(&stream, &kernel, &mut samples, &out);
    machine.endless_work(&framework);
    machine.capturing(true);
    drop(kernel);
    machine.capturing(false);
    let counts = machine.counts();
    assert_eq!((counts.modules, counts.faults()), (0, 0), "{counts:?}");
    machine.end_work();
    drop((memory, pinned, stream, framework, out, samples, device));
    assert_clean(&machine, "kernel");
}

#[test]
fn a_kernel_whose_launches_cannot_be_waited_for_stays_loaded_until_the_device_is_dropped() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, pinned) = pools(&device).unwrap();
    let stream = Stream::new(&device).unwrap();
    let out = memory.buffer("slots", 256).unwrap();
    let (kernel, mut samples) = copy_kernel(&device, &memory, &pinned);
    launch(&stream, &kernel, &mut samples, &out);
    machine.fail("cuEventSynchronize", 1, LAUNCH_FAILED);
    drop(kernel);
    let counts = machine.counts();
    assert_eq!((counts.modules, counts.destroyed_in_use), (1, 0), "{counts:?}");
    stream.synchronize().unwrap();
    drop((memory, pinned, stream, out, samples, device));
    assert_clean(&machine, "kernel");
}
