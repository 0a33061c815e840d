//! Compares the distributions of random parameters with those of torchvision.
//! tests/golden/operators/colour.py recorded the parameters that torchvision drew.

use feedwater::internals::geometry::Size;
use feedwater::internals::op::colour::color_jitter::ColorStep;
use feedwater::internals::op::colour::lighting;
use feedwater::internals::op::erase::random_erasing::Boxes;
use feedwater::internals::op::kind::PositionFormula;
use feedwater::internals::op::noise::gaussian_noise;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::op::{ColorJitter, GaussianNoise, Operator, PhotometricDistort};
use serde_json::Value;

use super::pictures::golden;

const SAMPLES: u64 = 4000;

fn drawn<T>(draw: impl Fn(&mut SampleRng) -> T) -> Vec<T> {
    let key = |index| SampleKey { seed: 15, epoch: 0, index };
    (0..SAMPLES).map(|index| draw(&mut SampleRng::new(key(index), 3))).collect()
}

fn stored(operator: &str) -> Value {
    golden("draws").into_iter().find(|row| row["operator"] == operator).unwrap()
}

/// Compares the distribution of our numbers with torchvision's (Kolmogorov-Smirnov distance). Of a
/// thousand pairs of lists with the same distribution, one would exceed the first term of the
/// limit. `ranks` has only every hundredth of torchvision's sorted numbers, so 0.01 is added to the
/// limit.
fn assert_same_distribution(name: &str, mut ours: Vec<f64>, ranks: &Value, theirs: f64) {
    ours.sort_by(f64::total_cmp);
    let ranks: Vec<f64> = ranks.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
    assert_eq!(ranks.len(), 101);
    let count = ours.len() as f64;
    let limit = 1.95 * (1.0 / count + 1.0 / theirs).sqrt() + 0.01;
    for (percent, &value) in ranks.iter().enumerate() {
        // Equal numbers have a range of ranks. So the range among our numbers is compared with the
        // range among torchvision's numbers.
        let near = |it: f64| it + 1e-5 * it.abs();
        let below = ours.partition_point(|&it| near(it) < value) as f64 / count;
        let upto = ours.partition_point(|&it| it <= near(value)) as f64 / count;
        let share = percent as f64 / 100.0;
        let first = ranks.iter().position(|&it| it == value).unwrap() as f64 / 100.0;
        let last = ranks.iter().rposition(|&it| it == value).unwrap() as f64 / 100.0;
        assert!(below <= last + limit && upto >= first - limit, "{name} {share}: {below} {upto}");
    }
}

/// Checks that `ours / total` differs from `share` by at most four standard deviations.
fn assert_share(name: &str, ours: usize, total: f64, share: f64) {
    let expected = total * share;
    let off = (ours as f64 - expected).abs();
    assert!(off <= 4.0 * (expected * (1.0 - share)).sqrt(), "{name}: {ours} {expected}");
}

fn factors(steps: &[ColorStep], of: impl Fn(&ColorStep) -> Option<f64>) -> Vec<f64> {
    steps.iter().filter_map(of).collect()
}

fn brightness(step: &ColorStep) -> Option<f64> {
    if let ColorStep::Brightness(it) = step { Some(*it) } else { None }
}

fn contrast(step: &ColorStep) -> Option<f64> {
    if let ColorStep::Contrast(it) = step { Some(*it) } else { None }
}

fn saturation(step: &ColorStep) -> Option<f64> {
    if let ColorStep::Saturation(it) = step { Some(*it) } else { None }
}

fn hue(step: &ColorStep) -> Option<f64> {
    if let ColorStep::Hue(it) = step { Some(*it) } else { None }
}

#[test]
fn color_jitter_draws_like_torchvision() {
    let settings = "brightness = 0.4\ncontrast = [0.5, 0.9]\nsaturation = 1.5\nhue = 0.1";
    let jitter: ColorJitter = toml::from_str(settings).unwrap();
    jitter.check().unwrap();
    let stored = stored("color_jitter");
    let drawn = drawn(|rng| jitter.steps(rng).map(Option::unwrap));
    let steps = drawn.as_flattened();
    let theirs = stored["samples"].as_f64().unwrap();
    for (name, ours) in [
        ("brightness", factors(steps, brightness)),
        ("contrast", factors(steps, contrast)),
        ("saturation", factors(steps, saturation)),
        ("hue", factors(steps, hue)),
    ] {
        assert_eq!(ours.len(), SAMPLES as usize);
        assert_same_distribution(name, ours, &stored[name], theirs);
    }
    let mut orders = std::collections::BTreeMap::new();
    for steps in &drawn {
        let order = steps.map(|step| match step {
            ColorStep::Brightness(_) => 0,
            ColorStep::Contrast(_) => 1,
            ColorStep::Saturation(_) => 2,
            _ => 3,
        });
        *orders.entry(order).or_insert(0) += 1;
    }
    assert_eq!(orders.len(), 24);
    assert_eq!(stored["orders"], 24);
    orders.values().for_each(|&count| assert_share("order", count, SAMPLES as f64, 1.0 / 24.0));
}

#[test]
fn settings_of_color_jitter_are_torchvisions() {
    let read = |text: &str| toml::from_str::<ColorJitter>(text);
    assert_eq!(read("").unwrap(), ColorJitter::default());
    assert_eq!(read("brightness = 2").unwrap().brightness, Some([0.0, 3.0]));
    assert_eq!(read("hue = 0.25").unwrap().hue, Some([-0.25, 0.25]));
    // A step whose range changes nothing is left out. Otherwise the conversion to HSV and back
    // would change pixels even without a hue shift.
    assert_eq!(read("hue = 0").unwrap().hue, None);
    assert_eq!(read("contrast = [1.0, 1.0]").unwrap().contrast, None);
    for (text, field) in [
        ("hue = 0.6", "hue"),
        ("brightness = -0.1", "brightness"),
        ("contrast = [0.9, 0.5]", "contrast"),
        ("saturation = [nan, 1.0]", "saturation"),
        ("brightness = inf", "brightness"),
    ] {
        assert_eq!(read(text).unwrap().check().unwrap_err().field, field, "{text}");
    }
    assert!(read("brightness = \"much\"").is_err());
    assert!(read("bright = 1").is_err());
}

#[test]
fn photometric_distort_draws_like_torchvision() {
    let stored = stored("photometric_distort");
    let drawn = drawn(|rng| PhotometricDistort::default().steps(rng));
    let theirs = stored["samples"].as_f64().unwrap();
    let steps: Vec<ColorStep> = drawn.as_flattened().iter().flatten().copied().collect();
    let channels = steps.iter().filter(|step| matches!(step, ColorStep::Channels(_))).count();
    for (name, ours) in [
        ("brightness_factor", factors(&steps, brightness).len()),
        ("contrast_factor", factors(&steps, contrast).len()),
        ("saturation_factor", factors(&steps, saturation).len()),
        ("hue_factor", factors(&steps, hue).len()),
        ("channel_permutation", channels),
    ] {
        assert_share(name, ours, SAMPLES as f64, 0.5);
        assert_share(name, stored["present"][name].as_u64().unwrap() as usize, theirs, 0.5);
    }
    let early =
        drawn.iter().filter(|steps| matches!(steps[1], Some(ColorStep::Contrast(_)))).count();
    assert_share("contrast before saturation", early, SAMPLES as f64, 0.25);
    let saturation = factors(&steps, saturation);
    assert_same_distribution("saturation", saturation, &stored["saturation"], theirs / 2.0);
}

#[test]
fn random_erasing_draws_like_torchvision() {
    let stored = stored("random_erasing");
    let drawn = drawn(|rng| Boxes::default().draw(Size::new(200, 150), rng).unwrap());
    for (name, at) in [("j", 0), ("i", 1), ("w", 2), ("h", 3)] {
        let ours = drawn.iter().map(|it| f64::from(it[at])).collect();
        assert_same_distribution(name, ours, &stored[name], stored["samples"].as_f64().unwrap());
    }
}

#[test]
fn gaussian_noise_is_distributed_like_torchvisions() {
    let stored = stored("gaussian_noise");
    let params = gaussian_noise::Params::new(0.1, 0.2, [5, 6]);
    let levels = (0..90_000)
        .flat_map(|at| GaussianNoise::bytes(&params, at % 300, at / 300, [100; 3]).map(f64::from));
    let theirs = stored["samples"].as_f64().unwrap();
    assert_same_distribution("level", levels.collect(), &stored["level"], theirs);
}

/// The shifts of `lighting` must have the covariance that follows from AlexNet's eigenvectors and
/// eigenvalues, times the variance of the random weights.
#[test]
fn lighting_has_the_covariance_of_natural_colours() {
    let drawn = drawn(|rng| lighting::Params::draw(0.1, rng).shift);
    let covariance = |a: usize, b: usize| {
        drawn.iter().map(|shift| shift[a] * shift[b]).sum::<f64>() / SAMPLES as f64
    };
    // The expected values are 25.5^2 times the sum over components of eigenvector * eigenvector *
    // eigenvalue^2.
    for (a, b, expected) in [(0, 0, 10.0277), (0, 1, 10.1339), (1, 2, 10.4228), (2, 2, 10.5901)] {
        let ours = covariance(a, b);
        assert!((ours - expected).abs() < 0.1 * expected, "{a} {b}: {ours} {expected}");
    }
}
