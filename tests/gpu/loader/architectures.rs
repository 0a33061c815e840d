//! Loaders on GPUs with an architecture that the run-time compiler NVRTC does not know.

use super::*;
use feedwater::gpu::Runtime;

/// Builds a loader with an empty kernel cache.
fn build(choice: DeviceChoice) -> Result<Loader, Error> {
    let directory = tempfile::tempdir().unwrap();
    let runtime: Runtime = runtime().with_cache_directory(directory.path());
    builder(jpegs(8), training()).device(choice).runtime(&runtime).build()
}

#[test]
fn a_newer_gpu_makes_the_same_batches_as_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.architecture(110, true);
    let cpu = epochs(&mut on_cpu(builder(jpegs(8), training())).build().unwrap());
    let mut loader = build(DeviceChoice::Auto).unwrap();
    assert_eq!(loader.plan().runs_on.gpu, Some(0));
    assert_eq!(machine.compiled_for(), "compute_100");
    let gpu = epochs(&mut loader);
    assert!(cpu.iter().map(|it| &it.1).eq(gpu.iter().map(|it| &it.1)));
}

#[test]
fn auto_uses_the_cpu_and_says_why_where_no_kernel_can_run() {
    let Some(machine) = machine() else { return };
    for (capability, accepts_ptx, why) in
        [(61, true, "a kernel compiler"), (110, false, "UNSUPPORTED_PTX_VERSION")]
    {
        machine.architecture(capability, accepts_ptx);
        let loader = build(DeviceChoice::Auto).unwrap();
        assert!(!loader.plan().uses_gpu());
        assert_eq!(loader.plan().runs_on.gpu, None);
        assert!(loader.device().contains(why), "{}", loader.device());
        for choice in [DeviceChoice::LocalGpu, DeviceChoice::Gpu(0)] {
            assert!(build(choice).is_err());
        }
    }
    assert_clean(&machine, "end");
}
