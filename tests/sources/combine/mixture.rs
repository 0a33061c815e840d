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
    // With equal weights, the longer part determines the length of the mixture. The shorter part
    // repeats evenly.
    let source = mixture(&[(1.0, 4), (1.0, 10)], None);
    assert_eq!(source.len(), 20);
    let drawn = draws(&source);
    let of = |part| drawn.iter().filter(|it| it.0 == part).map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(of(1), (0..10).collect::<Vec<_>>());
    assert_eq!(of(0), [0, 1, 2, 3, 0, 1, 2, 3, 0, 2]);
    // With one sample less, the longer part would not appear completely.
    let shorter = mixture(&[(1.0, 4), (1.0, 10)], Some(19));
    assert!(draws(&shorter).iter().filter(|it| it.0 == 1).count() < 10);
    // If fewer samples of a part are drawn than it has, they are spread over the whole part.
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
        refused(mix(&[1.0, weight]), "source.mixture[1].weight", &[&weight.to_string()]);
    }
    let empty = Mixture::new(vec![(numbered("a", 0, 0), 1.0)], None);
    refused(empty, "source.mixture[0]", &[]);
    let none = Mixture::new(vec![(numbered("a", 0, 1), 1.0)], Some(0));
    refused(none, "source.samples", &["1", "0"]);
}

/// Returns how often each part is drawn per period, as the mixture's description prints it.
fn shares(weights: &[f64]) -> Vec<u64> {
    let parts = weights.iter().map(|&weight| (numbered("a", 0, 5), weight));
    let text = Mixture::new(parts.collect(), Some(10)).unwrap().describe();
    let of = |text: &str| text.split(" of ").next()?.rsplit(' ').next()?.parse().ok();
    let parts = text.split("; ").map(|part| of(part.rsplit(": ").next().unwrap()));
    parts.map(|share| share.unwrap_or_else(|| panic!("{text}"))).collect()
}

#[test]
fn weights_are_any_positive_finite_numbers() {
    assert_eq!(shares(&[1.0 / 3.0, 2.0 / 3.0]), [1, 2]);
    assert_eq!(shares(&[0.1, 0.2, 0.7]), [1, 2, 7]);
    assert_eq!(shares(&[0.1 + 0.2, 0.7]), [3, 7]);
    assert_eq!(shares(&[1.0, 1048575.0]), [1, 1048575]);
    assert_eq!(shares(&[1e300, 3e300]), [1, 3]);
    assert_eq!(shares(&[1e-300, 3e-300]), [1, 3]);
    assert_eq!(shares(&[5e11, 1e12]), [1, 2]);
    // Weights may be numbers of samples, or outputs of a softmax. They are rounded to multiples of
    // 1/2^20, so the period has at most 2^20 draws.
    for weights in [&[1_281_167.0, 50_000.0][..], &[0.090_030_573, 0.244_728_471, 0.665_240_955]] {
        let sum: f64 = weights.iter().sum();
        let shares = shares(weights);
        let period: u64 = shares.iter().sum();
        for (share, weight) in shares.iter().zip(weights) {
            let difference = *share as f64 / period as f64 - weight / sum;
            assert!(difference.abs() < 1e-6, "{weights:?} {shares:?}");
        }
    }
    // A part with almost no weight is drawn once per period.
    assert_eq!(shares(&[1.0, 1e-12]), [(1 << 20) - 1, 1]);
    assert_eq!(shares(&[f64::MAX, f64::MIN_POSITIVE, f64::MAX])[1], 1);
    let many: Vec<f64> = (0..60_000).map(|it| if it == 0 { 1e9 } else { 1e-9 }).collect();
    assert_eq!(shares(&many).iter().sum::<u64>(), 1 << 20);
}

/// A state of one mixture cannot be resumed with another mixture, even if both have the same number
/// of samples. The error names the difference.
#[test]
fn a_state_is_only_of_the_same_mixture() {
    let mixed = |first: &[(u64, i64)], weights: [f64; 2]| -> Arc<dyn Source> {
        let parts = first.iter().zip(weights).map(|(&(len, base), weight)| {
            let name = if base == 0 { "a" } else { "b" };
            let images = jpegs(len).into_iter().map(|(bytes, label)| (bytes, label + base));
            let source: Arc<dyn Source> =
                Arc::new(Named(name, Memory::new(images.collect()).unwrap()));
            (source, weight)
        });
        Arc::new(Mixture::new(parts.collect(), Some(24)).unwrap())
    };
    let builder = |source: Arc<dyn Source>| {
        let builder = Loader::builder(Wrapping(source), training()).device(DeviceChoice::Cpu);
        builder.num_workers(2).batch_size(3).last_batch(LastBatch::Partial).shuffle(true).seed(4)
    };
    let parts = [(6, 0), (6, 100)];
    let state = builder(mixed(&parts, [1.0, 3.0])).build().unwrap().state();
    let text = serde_json::to_string(&state).unwrap();
    assert!(text.contains("[1,3]"), "{text}");
    let state = serde_json::from_str(&text).unwrap();
    let resume = |source| builder(source).resume(state).build().map(drop);
    resume(mixed(&parts, [1.0, 3.0])).unwrap();
    resume(mixed(&parts, [0.25, 0.75])).unwrap();
    refused(resume(mixed(&parts, [1.0, 1.0])), "state.combined", &["1 : 3", "1 : 1"]);
    for other in [[(6, 100), (6, 0)], [(7, 0), (6, 100)]] {
        refused(resume(mixed(&other, [1.0, 3.0])), "state.combined", &["order"]);
    }
    refused(resume(Arc::new(Memory::new(jpegs(24)).unwrap())), "state.combined", &["combination"]);
    let subset = Subset::take(mixed(&parts, [1.0, 3.0]), 24).unwrap();
    // A subset with all samples in their order counts as the same source.
    resume(Arc::new(subset)).unwrap();
    // States of earlier versions do not identify the mixture, so they can be resumed with any
    // mixture.
    let mut earlier = state;
    earlier.combined = None;
    builder(mixed(&parts, [1.0, 1.0])).resume(earlier).build().unwrap();
}

/// A source in memory whose samples have names.
struct Named(&'static str, Memory);

impl Source for Named {
    fn len(&self) -> u64 {
        self.1.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.1.label(index)
    }
    fn location(&self, index: u64) -> String {
        format!("moved/{}{index}.jpg", self.0)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.1.read(index, page, limit)
    }
}

/// Returns random parts (weight and length), and a random length of the mixture or none.
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

    /// After any number of draws, the number of draws of each part satisfies the bound of
    /// Tijdeman's chairman assignment. After a whole period, the numbers are exactly proportional
    /// to the weights.
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
                // This is |count - n * weight / total| < 1, multiplied by `total` to avoid
                // fractions.
                prop_assert!((count * total).abs_diff(n * weight) < total, "{counts:?} {n}");
            }
            if n == total {
                prop_assert_eq!(&counts, &weights);
            }
        }
    }

    /// Every sample of a part appears once before one of them repeats. With the default length of
    /// the mixture, every sample appears.
    #[test]
    fn parts_are_walked_without_repetition((parts, samples) in mixtures()) {
        let source = mixture(&parts, samples);
        let mut walked = vec![BTreeSet::new(); parts.len()];
        let mut all = vec![BTreeSet::new(); parts.len()];
        for (part, sample) in draws(&source) {
            prop_assert!(sample < parts[part].1);
            prop_assert!(walked[part].insert(sample), "sample {sample} of part {part} was repeated too early");
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

/// For a mixture of any length, the sample at an index is computed in constant time and memory.
#[test]
fn a_mixture_of_billions_needs_no_memory_and_no_time() {
    let parts: Vec<_> = [(0.7, 3u64 << 32), (0.2, 1 << 31), (0.1, 5)]
        .map(|(weight, len)| (numbered("large", 0, len), weight))
        .into();
    let source = Mixture::new(parts, None).unwrap();
    // 7 of 10 draws are samples of the first part. Its last sample therefore appears at the end of
    // the mixture.
    assert!(source.len().abs_diff((3u64 << 32) / 7 * 10) < 20);
    assert!(source.memory_bytes() < 3000 + 1000);
    // If `location` needed linear time, this loop would not end in reasonable time.
    for step in 0..10_000 {
        source.location(source.len() / 10_000 * step);
    }
}
