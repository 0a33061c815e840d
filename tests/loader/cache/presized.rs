//! Caching of images that the setting `presize` has reduced.

use super::*;

/// Presizing gives the same bytes as a resize at the start of the chain, whether images are cached
/// or not. Images that are already small enough are unchanged.
#[test]
fn presized_images_equal_a_resize_before_the_chain_cached_or_not() {
    let larger = || {
        let mut all: Vec<_> = (0..16).map(|seed| (jpeg(seed, 90 + seed as u32, 70), 0)).collect();
        for (value, (bytes, _)) in (1..=8).zip(&mut all) {
            *bytes = turned(bytes, value);
        }
        all[9].0 = png(9, 71, 99);
        all[10].0 = progressive(10, 80, 120);
        all
    };
    let rest = || Chain::new().then(op::CenterCrop::to(30, 28)).then(op::Normalize::IMAGENET);
    let first = || {
        let chain = Chain::new().then(op::Resize::shorter(34));
        chain.then(op::CenterCrop::to(30, 28)).then(op::Normalize::IMAGENET)
    };
    let bytes = |mut loader: Loader| -> Vec<Vec<Vec<u8>>> {
        let epochs = (0..3).map(|_| epoch(&mut loader).into_iter().map(|batch| batch.1).collect());
        epochs.collect()
    };
    for orientation in [true, false] {
        let make = |chain| {
            builder(Counting::new(larger()), chain)
                .configure(|it| it.decode.orientation = orientation)
        };
        let expected = bytes(make(first()).build().unwrap());
        for decoded in [PLENTY, Some(20_000), Some(1)] {
            let loader = make(rest())
                .configure(|it| {
                    it.cache.decoded = decoded;
                    it.cache.presize = Some(34);
                })
                .build()
                .unwrap();
            assert!(bytes(loader) == expected, "orientation {orientation}, {decoded:?}");
        }
    }
    // Chains with random crops give the same bytes too, whether images are cached or not.
    let random = |decoded, presize| {
        let builder = builder(Counting::new(larger()), training());
        let mut loader = builder
            .configure(|it| {
                it.cache.decoded = decoded;
                it.cache.presize = presize;
            })
            .build()
            .unwrap();
        let all: Vec<_> = (0..3).map(|_| epoch(&mut loader)).collect();
        (all, loader.stats().caches[0].clone())
    };
    let (kept, stats) = random(PLENTY, Some(34));
    assert_eq!(stats.hits, 32);
    let (not_kept, stats) = random(Some(1), Some(34));
    assert_eq!(stats.hits, 0);
    assert!(kept == not_kept);
    assert!(kept[0][0].0.iter().all(|it| it.1.min(it.2) == 34));
    // No image has a side of more than 120 pixels, so presizing to 120 changes nothing.
    assert!(random(PLENTY, Some(120)).0 == random(PLENTY, None).0);
    assert!(random(PLENTY, None).0 != kept);
}

/// A presized image takes memory in the cache only for its reduced pixels.
#[test]
fn presized_images_need_less_memory() {
    let kept = |presize| {
        let builder = builder(Counting::new(equal(10)), training());
        let mut loader = builder
            .configure(|it| {
                it.cache.decoded = PLENTY;
                it.cache.presize = presize;
            })
            .build()
            .unwrap();
        epoch(&mut loader);
        loader.stats().caches[0].kept_bytes
    };
    assert_eq!((kept(None), kept(Some(18))), (10 * 3 * 48 * 36, 10 * 3 * 24 * 18));
}
