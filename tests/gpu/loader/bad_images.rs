//! Damaged images, and images that nvJPEG refuses.

use super::*;

#[test]
fn every_error_policy_works_on_the_device_as_on_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(6));
    // A lenient GPU, simulated or real, does not report a damaged file. The loader's checks before
    // the upload must detect the damage.
    for (policy, lenient) in [
        (OnError::Skip, false),
        (OnError::Skip, true),
        (OnError::Substitute, false),
        (OnError::Substitute, true),
        (OnError::Drop, false),
        (OnError::Drop, true),
    ] {
        machine.lenient(lenient);
        let loader =
            same(|| builder(damaged(), evaluation()).on_error(policy), &format!("{policy:?}"));
        let stats = loader.stats();
        let key = match policy {
            OnError::Skip => "skipped",
            OnError::Substitute => "substituted",
            _ => "dropped",
        };
        assert!(stats.outcomes[key] >= 4, "{stats:?}");
    }
    let mut loader = builder(damaged(), evaluation())
        .shuffle(false)
        .device(DeviceChoice::Gpu(0))
        .runtime(&runtime())
        .build()
        .unwrap();
    let mut epoch = loader.epoch();
    assert_eq!(epoch.next().unwrap().unwrap().indices().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let Err(Error::Sample(error)) = epoch.next().unwrap() else { panic!("batch 1 has sample 5") };
    assert_eq!((error.index, error.reason), (5, Reason::Truncated));
    drop(loader);
    assert_eq!(machine.counts().live(), 0);
}

/// If nvJPEG refuses an image, the CPU decoder decides whether the image is valid. The same files
/// are therefore valid on every machine.
#[test]
fn images_that_nvjpeg_refuses_are_decoded_on_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(8));
    let cpu = epochs(&mut builder(jpegs(8), training()).device(DeviceChoice::Cpu).build().unwrap());
    // Refuses every image of odd width as corrupt.
    machine.set_decoder(Some(
        |file, window, rgb| {
            if window.width % 2 == 1 { 3 } else { libjpeg(file, window, rgb) }
        },
    ));
    let bytes = |all: &[(Vec<SampleRecord>, Vec<u8>)]| {
        all.iter().map(|it| it.1.clone()).collect::<Vec<_>>()
    };
    for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
        let builder = builder(jpegs(8), training()).configure(|it| it.decode.routes = vec![route]);
        let mut loader = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
        let gpu = epochs(&mut loader);
        assert!(bytes(&cpu) == bytes(&gpu), "{route:?}");
        let stats = loader.stats();
        let (there, on_cpu) = (stats.outcomes[route.name()], stats.outcomes["cpu"]);
        assert_eq!(there + on_cpu, 16, "{stats:?}");
        assert_eq!(stats.cpu_fallback.values().sum::<u64>(), on_cpu, "{stats:?}");
        // Only the images that nvJPEG refuses fall back to the CPU, even on the hardware route,
        // where one call decodes many images.
        assert!(there > 0 && on_cpu > 0, "{stats:?}");
    }
}
