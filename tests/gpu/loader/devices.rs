//! Several loaders on several GPUs in one process.

use super::*;
use feedwater::plan::Settings;

/// One thread takes batches from loaders on three GPUs in turn.
#[test]
fn loaders_on_several_gpus_make_the_same_batches_as_on_the_cpu() {
    const GPUS: usize = 3;
    let Some(machine) = machine() else { return };
    let make = |gpu: usize| builder(jpegs(10), training()).seed(gpu as u64);
    let cpu: Vec<_> =
        (0..GPUS).map(|gpu| epochs(&mut on_cpu(make(gpu)).build().unwrap())).collect();
    for schedule in [Schedule::Lazy, Schedule::Eager, Schedule::Random(31)] {
        machine.schedule(schedule);
        machine.devices(GPUS as i32);
        let on = |gpu| make(gpu).device(DeviceChoice::Gpu(gpu)).runtime(&runtime());
        let mut loaders: Vec<_> = (0..GPUS).map(|gpu| on(gpu).build().unwrap()).collect();
        for (gpu, loader) in loaders.iter().enumerate() {
            assert_eq!(loader.plan().runs_on.gpu, Some(gpu));
            let (bytes, _) = machine.on_device(gpu as i32);
            assert_eq!(bytes, loader.stats().memory.device_bytes_predicted, "gpu {gpu}");
        }
        let mut found = vec![Vec::new(); GPUS];
        for _ in 0..2 {
            let mut running: Vec<_> = loaders.iter_mut().map(Loader::epoch).collect();
            loop {
                let batches: Vec<_> = running.iter_mut().map_while(Iterator::next).collect();
                if batches.is_empty() {
                    break;
                }
                for (gpu, batch) in batches.into_iter().enumerate() {
                    let batch = batch.unwrap();
                    assert_eq!(batch.stream().unwrap().device().ordinal(), gpu);
                    found[gpu].push(batch.to_host().unwrap());
                }
            }
        }
        for (gpu, (cpu, found)) in cpu.iter().zip(&found).enumerate() {
            let cpu: Vec<_> = cpu.iter().map(|(_, bytes)| bytes.clone()).collect();
            assert!(cpu == *found, "gpu {gpu}, {schedule:?}");
            assert!(machine.on_device(gpu as i32).1 > 0, "gpu {gpu}");
        }
        drop(loaders);
        assert_clean(&machine, "end");
    }
}

/// The consumer's stream selects the GPU of the loader, whatever settings follow.
#[test]
fn a_loader_is_on_the_gpu_of_its_consumer() {
    let Some(machine) = machine() else { return };
    machine.devices(2);
    let device = Device::open_with(1, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let make = || builder(jpegs(10), training()).stream(stream.clone());
    assert_eq!(make().plan().unwrap().runs_on.gpu, Some(1));
    assert_eq!(make().settings(Settings::default()).plan().unwrap().runs_on.gpu, Some(1));
    assert_eq!(make().device(DeviceChoice::Cpu).plan().unwrap().runs_on.gpu, None);
    for device in [DeviceChoice::Gpu(0), DeviceChoice::LocalGpu] {
        common::refused(make().device(device).plan(), "device", &["0", "1"]);
        common::refused(make().device(device).build(), "device", &["0", "1"]);
    }
}
