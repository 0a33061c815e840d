//! Distributions of the random parameters that batch operators draw.

use feedwater::internals::geometry::Size;
use feedwater::internals::op::batch::beta::{ALPHAS, beta};
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::loader::PairOutcome;
use feedwater::op::{Mixup, MixupOrCutMix};
use feedwater::plan::LastBatch;

use super::{builder, epoch};
use crate::common::training;
use crate::golden::rows;

fn drawn(alpha: f64, count: u64) -> Vec<f64> {
    let key = |index| SampleKey { seed: 15, epoch: 0, index };
    (0..count).map(|index| beta(alpha, &mut SampleRng::new(key(index), 1))).collect()
}

/// Compares the drawn weights with SciPy's quantiles (Kolmogorov-Smirnov distance). Of a thousand
/// lists of correct weights, only one would exceed the limit.
#[test]
fn weights_have_the_beta_distribution() {
    const COUNT: u64 = 20_000;
    for row in rows(include_str!("../../golden/operators/batch.json"), "beta") {
        let alpha = row["alpha"].as_f64().unwrap();
        let mut ours = drawn(alpha, COUNT);
        ours.sort_by(f64::total_cmp);
        for (percent, quantile) in (1..).zip(row["quantiles"].as_array().unwrap()) {
            let quantile = quantile.as_f64().unwrap();
            // If the parameter of the Beta distribution is small, several quantiles are 1 and many
            // weights are equal to them. So the share of the weights that belongs to a quantile is
            // a range, from `below` to `upto`.
            let below = ours.partition_point(|&it| it < quantile) as f64 / COUNT as f64;
            let upto = ours.partition_point(|&it| it <= quantile) as f64 / COUNT as f64;
            let (share, limit) = (f64::from(percent) / 100.0, 1.95 / (COUNT as f64).sqrt());
            let near = below - limit <= share && share <= upto + limit;
            assert!(near, "Beta({alpha}): {quantile} {below} {upto}");
        }
    }
}

#[test]
fn the_ends_of_the_range_of_parameters_give_numbers_from_0_to_1() {
    for (alpha, low, high) in [(ALPHAS.0, 0.0, 1.0), (ALPHAS.1, 0.4, 0.6)] {
        let ours = drawn(alpha, 2000);
        assert!(ours.iter().all(|it| (low..=high).contains(it)), "{alpha}");
    }
    let extreme =
        drawn(ALPHAS.0, 2000).iter().filter(|it| !(1e-9..=1.0 - 1e-9).contains(*it)).count();
    assert!(extreme > 1900, "{extreme}");
}

/// Checks that `count / of` differs from `share` by at most four standard deviations.
fn assert_share(count: usize, of: usize, share: f64) {
    let off = (count as f64 - of as f64 * share).abs();
    assert!(off <= 4.0 * (of as f64 * share * (1.0 - share)).sqrt(), "{count} of {of}: {share}");
}

#[test]
fn pairs_are_mixed_with_the_probability_and_by_cutmix_with_its_own() {
    let operator =
        MixupOrCutMix { probability: 0.6, cutmix_probability: 0.25, ..Default::default() };
    let chain = training().then_batch(operator);
    let mut loader = builder(chain).last_batch(LastBatch::Drop).build().unwrap();
    let mut pairs = Vec::new();
    for _ in 0..20 {
        for batch in &mut loader {
            pairs.extend(batch.unwrap().pairs().to_vec());
        }
    }
    let mixed: Vec<_> = pairs.iter().filter(|it| it.outcome() == PairOutcome::Mixed).collect();
    assert_share(mixed.len(), pairs.len(), 0.6);
    // Cutmix replaces the pixels in a box by those of the other sample, so the weight of its blends
    // is 0, unlike the weights of mixup's blends.
    let cut = mixed.iter().filter(|it| it.blends()[0].weight == 0.0).count();
    assert_share(cut, mixed.len(), 0.25);
    let weights: Vec<f32> = mixed.iter().map(|it| it.blends()[0].target_weight).collect();
    assert!(weights.iter().any(|&it| it < 0.3) && weights.iter().any(|&it| it > 0.7));
}

#[test]
fn a_probability_of_0_changes_nothing() {
    let plain = epoch(builder(training()));
    let never = Mixup { probability: 0.0, ..Mixup::default() };
    let made = epoch(builder(training().then_batch(never)));
    assert_eq!(plain, made);
    assert!(made.iter().all(|it| it.pair.outcome() == PairOutcome::Unmixed));
    assert_eq!(made.len(), 60);
}

#[test]
fn the_box_covers_the_image_or_nothing_at_the_ends() {
    use feedwater::op::CutMix;
    let size = Size::new(10, 6);
    assert!(CutMix::window(size, 1.0, (3, 3)).is_empty());
    assert_eq!(CutMix::window(size, 0.0, (5, 3)), size.window());
    assert_eq!(CutMix::target_weight(size, size.window()), 0.0);
}
