//! Caches of a loader that uses a device, and the decoder of cached decoded images.

use super::*;

/// For every placement of decoding and operators and every schedule, the bytes equal those of a run
/// on the CPU without a cache. If tuning chooses the placement, which depends on timing, the bytes
/// must be the same too.
#[test]
fn batches_on_a_device_do_not_depend_on_the_caches() {
    let Some(machine) = exclusive() else { return };
    machine.set_decoder(Some(libjpeg));
    let crop = |cpu: usize| {
        let place = |number| if number < cpu { Placement::Cpu } else { Placement::Auto };
        Chain::new()
            .then_on(place(0), op::RandomResizedCrop::to(19, 21))
            .then_on(place(1), op::Normalize::IMAGENET)
            .then_on(place(2), op::Flip { horizontal: 0.5, vertical: 0.5 })
    };
    for (schedule, cpu) in [
        (Schedule::Lazy, 0),
        (Schedule::Random(1), 0),
        (Schedule::Random(2), 1),
        (Schedule::Eager, 2),
    ] {
        machine.schedule(schedule);
        let mut plain = builder(Counting::new(mixed()), crop(cpu)).build().unwrap();
        let expected: Vec<_> = (0..3).map(|_| epoch(&mut plain)).collect();
        let limits =
            [(PLENTY, None), (None, PLENTY), (Some(24_000), Some(60_000)), (Some(24_000), None)];
        for ((encoded, decoded), tune) in
            limits.into_iter().flat_map(|it| [(it, false), (it, true)])
        {
            let source = Counting::new(mixed());
            let builder = builder(source.clone(), crop(cpu)).configure(|it| it.loader.tune = tune);
            let builder = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).num_workers(3);
            let mut loader = builder
                .configure(|it| {
                    it.cache.encoded = encoded;
                    it.cache.decoded = decoded;
                })
                .build()
                .unwrap();
            assert!(loader.plan().uses_gpu());
            for expected in &expected {
                assert!(
                    epoch(&mut loader) == *expected,
                    "{schedule:?} {cpu} {encoded:?} {decoded:?}"
                );
            }
            let stats = loader.stats();
            assert!(stats.caches.iter().any(|cache| cache.hits > 0));
            if decoded == PLENTY {
                // The cache holds all decoded images in host memory, so the device does not decode
                // them again. Exceptions are images that were read for the second epoch before the
                // first epoch had cached them.
                let again = stats.caches[0].misses.saturating_sub(20);
                assert!(stats.outcomes["cpu"] + again >= 60, "{stats:?}");
                assert!(source.all() <= 40 + again, "{stats:?}");
                // On a slow or busy device, tuning may move all work to the CPU. Other fallbacks
                // are not allowed.
                let tuned = |why: &&str| tune && *why == "the CPU keeps up";
                assert!(stats.cpu_fallback.keys().all(tuned), "{stats:?}");
            }
            drop(loader);
            assert_clean(&machine, "end");
        }
    }
    let refused = builder(Counting::new(mixed()), training())
        .device(DeviceChoice::Gpu(0))
        .runtime(&runtime())
        .configure(|it| {
            it.decode.routes = vec![Route::NvjpegGpu];
            it.cache.decoded = PLENTY;
        })
        .build();
    common::refused(refused, "cache.decoded", &["cpu", "decode.routes"]);
}

/// The decoder reads a cached decoded image like a file: it returns only the needed window, or an
/// error if the cached image is malformed.
#[test]
fn a_cached_decoded_image_yields_its_windows() {
    let size = Size::new(7, 5);
    let pixels: Vec<u8> = (0..105).collect();
    let header =
        Header { format: Format::Pixels, size, orientation: Orientation::UPRIGHT, jpeg: None };
    let decode = |pixels: &[u8], window, reduction| {
        let mut found = Vec::new();
        let decoded = Decoders::new().decode(pixels, &header, window, reduction, &mut |rows| {
            found.extend(rows.iter().map(|(y, row)| (y, row.to_vec())));
        });
        decoded.map(|()| found)
    };
    let rows = decode(&pixels, Roi::new(2, 1, 3, 2), 1).unwrap();
    assert_eq!(rows, [(1, pixels[27..36].to_vec()), (2, pixels[48..57].to_vec())]);
    for (pixels, window, reduction) in [
        (&pixels[1..], size.window(), 1),
        (&pixels[..], Roi::new(5, 0, 3, 2), 1),
        (&pixels[..], Roi::new(0, 0, 3, 2), 2),
    ] {
        assert!(decode(pixels, window, reduction).is_err());
    }
}
