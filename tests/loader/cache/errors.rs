//! Caches of a loader whose samples are unusable or partly damaged.

use super::*;

#[test]
fn unusable_samples_are_not_cached_and_fail_each_time() {
    let mut samples = equal(12);
    samples[2].0.truncate(20);
    samples[5].0.clear();
    samples[7].0 = b"neither of these".to_vec();
    samples[9].0 = jpeg(9, 300, 200);
    let mut source = Counting::new(samples);
    source.unreadable = vec![3];
    for policy in [OnError::Skip, OnError::Substitute] {
        let make = || {
            builder(source.clone(), training())
                .configure(|it| it.limits.max_pixels = 10_000)
                .on_error(policy)
                .shuffle(false)
        };
        let mut plain = make().build().unwrap();
        let expected: Vec<_> = (0..3).map(|_| epoch(&mut plain)).collect();
        for (encoded, decoded) in [(PLENTY, None), (None, PLENTY)] {
            let mut loader = make()
                .configure(|it| {
                    it.cache.encoded = encoded;
                    it.cache.decoded = decoded;
                })
                .build()
                .unwrap();
            for expected in &expected {
                assert!(epoch(&mut loader) == *expected, "{policy:?} {encoded:?} {decoded:?}");
            }
            let stats = loader.stats();
            let reasons = ["unreadable", "empty", "truncated", "unsupported", "oversized"];
            assert!(reasons.iter().all(|it| stats.errors[it] >= 3), "{stats:?}");
            assert_eq!(stats.caches[0].samples, 7);
        }
    }
    let loader = builder(source, training())
        .on_error(OnError::Stop)
        .configure(|it| it.cache.encoded = PLENTY);
    let mut loader = loader.build().unwrap();
    let ended = loader.into_iter().find_map(Result::err);
    assert!(matches!(ended, Some(Error::Sample(_))), "{ended:?}");
}

/// The decoder stops after the last row of the window. So damage below the window is not detected,
/// with or without a cache.
#[test]
fn an_image_damaged_outside_its_window_is_used() {
    let mut samples = equal(6);
    let whole = jpeg(3, 64, 400);
    samples[3].0 = whole[..whole.len() * 6 / 10].to_vec();
    samples[3].0.extend([0xff, 0xd9]);
    let top = || Chain::new().then(op::Crop { x: 2, y: 1, width: 40, height: 30 });
    let all = || Chain::new().then(op::Resize::to(16, 16));
    let source = Counting::new(samples);
    let run = |chain, decoded| {
        let mut loader = builder(source.clone(), chain)
            .configure(|it| it.cache.decoded = decoded)
            .build()
            .unwrap();
        let batches: Vec<_> = (0..3).map(|_| epoch(&mut loader)).collect();
        (batches, loader.stats())
    };
    let (expected, plain) = run(top(), None);
    let (found, cached) = run(top(), PLENTY);
    assert!(found == expected);
    assert_eq!(plain.errors.values().sum::<u64>() + cached.errors.values().sum::<u64>(), 0);
    assert_eq!((cached.caches[0].samples, cached.caches[0].hits), (5, 10));
    // With this chain, the damaged image is an error. The cache, which decodes whole images, must
    // not change that.
    let (expected, plain) = run(all(), None);
    let (found, cached) = run(all(), PLENTY);
    assert!(found == expected);
    let faults = [plain, cached].map(|stats| stats.errors.values().sum::<u64>());
    assert_eq!(faults, [3, 3]);
}
