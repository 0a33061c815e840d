//! Weighted mixtures.

use super::*;

#[test]
fn two_to_one_is_evenly_interleaved() {
    let drawn: Vec<_> = draws(&mixture(&[(2.0, 4), (1.0, 2)], None));
    let parts: Vec<_> = drawn.iter().map(|it| it.0).collect();
    assert_eq!(parts, [0, 1, 0, 0, 1, 0]);
    assert_eq!(drawn, [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)]);
}

#[test]
fn the_length_is_the_shortest_that_reaches_every_sample() {
    // With equal weights the longer part decides; the shorter one repeats, evenly.
    let source = mixture(&[(1.0, 4), (1.0, 10)], None);
    assert_eq!(source.len(), 20);
    let drawn = draws(&source);
    let of = |part| drawn.iter().filter(|it| it.0 == part).map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(of(1), (0..10).collect::<Vec<_>>());
    assert_eq!(of(0), [0, 1, 2, 3, 0, 1, 2, 3, 0, 2]);
    // One sample fewer would not suffice.
    let shorter = mixture(&[(1.0, 4), (1.0, 10)], Some(19));
    assert!(draws(&shorter).iter().filter(|it| it.0 == 1).count() < 10);
    // A part that is not drawn in full is sampled over its whole length.
    let drawn = draws(&mixture(&[(1.0, 100), (1.0, 2)], Some(20)));
    let first: Vec<_> = drawn.iter().filter(|it| it.0 == 0).map(|it| it.1).collect();
    assert_eq!(first, (0..10).map(|it| 10 * it).collect::<Vec<_>>());
}

#[test]
fn invalid_weights_are_errors() {
    let mix = |weights: &[f64]| {
        let parts = weights.iter().map(|&weight| (numbered("a", 0, 5), weight));
        Mixture::new(parts.collect(), None)
    };
    refused(mix(&[]), "source.mixture", &[]);
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let values = ["0", "1e9", &weight.to_string()];
        refused(mix(&[1.0, weight]), "source.mixture[1].weight", &values);
    }
    // The most decimal places, and weights to write instead.
    refused(mix(&[1.0 / 3.0, 2.0 / 3.0]), "source.mixture", &["6", "1", "2"]);
    // The period, and the longest one.
    refused(mix(&[1.0, 2e6]), "source.mixture", &["2000001", "1048576"]);
    let empty = Mixture::new(vec![(numbered("a", 0, 0), 1.0)], None);
    refused(empty, "source.mixture[0]", &[]);
    let none = Mixture::new(vec![(numbered("a", 0, 1), 1.0)], Some(0));
    refused(none, "source.samples", &["1", "0"]);
}

/// Weights and lengths of parts, and a length of the whole that is not a multiple of anything.
fn mixtures() -> impl Strategy<Value = (Vec<(f64, u64)>, Option<u64>)> {
    let weight = prop_oneof![
        (1..20u32).prop_map(f64::from),
        (1..300u32).prop_map(|it| f64::from(it) / 100.0)
    ];
    let part = (weight, 1..60u64);
    (prop::collection::vec(part, 1..9), prop::option::of(1..3000u64))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The bound of Tijdeman's chairman assignment holds for every prefix, with equality after a period.
    #[test]
    fn counts_differ_from_their_share_by_less_than_one((parts, _) in mixtures()) {
        let weights: Vec<u64> = parts.iter().map(|it| (it.0 * 100.0).round() as u64).collect();
        let total: u64 = weights.iter().sum();
        let source = mixture(&parts, Some(total + 500));
        let mut counts = vec![0u64; parts.len()];
        for (place, (part, _)) in draws(&source).into_iter().enumerate() {
            counts[part] += 1;
            let n = place as u64 + 1;
            for (count, weight) in counts.iter().zip(&weights) {
                // |count - n * weight / total| < 1, in integers.
                prop_assert!((count * total).abs_diff(n * weight) < total, "{counts:?} {n}");
            }
            if n == total {
                prop_assert_eq!(&counts, &weights);
            }
        }
    }

    /// Every sample of a part appears once before any repeats, and the default length reaches all of them.
    #[test]
    fn parts_are_walked_without_repetition((parts, samples) in mixtures()) {
        let source = mixture(&parts, samples);
        let mut walked = vec![BTreeSet::new(); parts.len()];
        let mut all = vec![BTreeSet::new(); parts.len()];
        for (part, sample) in draws(&source) {
            prop_assert!(sample < parts[part].1);
            prop_assert!(walked[part].insert(sample), "sample {sample} of part {part} came too early");
            all[part].insert(sample);
            if walked[part].len() as u64 == parts[part].1 {
                walked[part].clear();
            }
        }
        if samples.is_none() {
            for (part, &(_, len)) in parts.iter().enumerate() {
                prop_assert_eq!(all[part].len() as u64, len);
            }
        }
    }
}

/// Each part's count is exact anywhere in a mixture of any length, and computed in constant time.
#[test]
fn a_mixture_of_billions_needs_no_memory_and_no_time() {
    let parts: Vec<_> = [(0.7, 3u64 << 32), (0.2, 1 << 31), (0.1, 5)]
        .map(|(weight, len)| (numbered("large", 0, len), weight))
        .into();
    let source = Mixture::new(parts, None).unwrap();
    // The first part has 7 of 10 draws, so its last sample appears in the last round.
    assert!(source.len().abs_diff((3u64 << 32) / 7 * 10) < 20);
    assert!(source.memory_bytes() < 3000 + 1000);
    // In linear time this would not end.
    for step in 0..10_000 {
        source.location(source.len() / 10_000 * step);
    }
}
