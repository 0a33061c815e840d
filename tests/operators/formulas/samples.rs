//! Compares the distribution of our random draws with that of another library.

use std::collections::BTreeMap;

use serde_json::Value;

/// Compares how often we and the library drew each kind, with a chi-square test.
#[track_caller]
pub fn assert_same_counts(name: &str, ours: &BTreeMap<String, u64>, theirs: &Value) {
    let theirs = theirs.as_object().unwrap();
    let kinds: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut square = 0.0;
    let mut degrees = 0.0;
    let (mut rare_ours, mut rare_theirs) = (0.0, 0.0);
    let mut add = |a: f64, b: f64| {
        if a + b > 0.0 {
            square += (a - b) * (a - b) / (a + b);
            degrees += 1.0;
        }
    };
    for kind in kinds.iter().collect::<std::collections::BTreeSet<_>>() {
        let a = ours.get(*kind).copied().unwrap_or(0) as f64;
        let b = theirs.get(*kind).and_then(Value::as_u64).unwrap_or(0) as f64;
        if a + b < 20.0 {
            (rare_ours, rare_theirs) = (rare_ours + a, rare_theirs + b);
        } else {
            add(a, b);
        }
    }
    add(rare_ours, rare_theirs);
    // The limit is four standard deviations above the mean of the chi-square distribution.
    let most = degrees + 4.0 * f64::sqrt(2.0 * degrees);
    assert!(square < most, "{name}: {square} of {degrees} kinds: {ours:?} {theirs:?}");
}

/// For each of the library's evenly spaced quantiles, checks which share of our numbers is below
/// the quantile.
#[track_caller]
pub fn assert_same_quantiles(name: &str, ours: Vec<f64>, theirs: &Value) {
    let theirs: Vec<f64> =
        theirs.as_str().unwrap().split(' ').map(|it| it.parse().unwrap()).collect();
    let count = ours.len() as f64;
    for (number, quantile) in theirs.iter().enumerate() {
        let share = (number + 1) as f64 / (theirs.len() + 1) as f64;
        let below = ours.iter().filter(|it| *it < quantile).count() as f64 / count;
        let up_to = ours.iter().filter(|it| *it <= quantile).count() as f64 / count;
        // Our numbers and the library's are both random samples, so both have errors. If many
        // numbers are equal, a quantile covers a range of shares.
        let error = 5.0 * (2.0 * share * (1.0 - share) / count).sqrt();
        let range = below - error..=up_to + error;
        assert!(
            range.contains(&share),
            "{name}: a share of {share} should be below {quantile}, ours is {range:?}"
        );
    }
}
