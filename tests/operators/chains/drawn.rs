//! Random chains of built-in operators. Some of the operators are inside combinators.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use feedwater::internals::geometry::Size;
use feedwater::internals::image::PixelType;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::op::{OneOf, Operator, RandomApply, RandomOrder, SomeOf};

/// The operators of a chain.
pub type Operators = Vec<Arc<dyn Operator>>;

/// Examples of all built-in operators.
pub static EXAMPLES: LazyLock<Operators> = LazyLock::new(feedwater::internals::op::examples);

/// Returns random numbers for a test.
pub fn numbers(seed: u64) -> SampleRng {
    SampleRng::new(SampleKey { seed, epoch: 0, index: 0 }, 17)
}

/// Yields the seeds from 0 to `count`, so every run tests the same cases. If the environment
/// variable `FEEDWATER_CHAIN_SECONDS` is set, yields seeds that no run had before, for that time.
/// `FEEDWATER_CHAIN_SEED` sets the first seed.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |key| std::env::var(key).ok().map(|text| text.parse::<f64>().expect(key));
    let end = number("FEEDWATER_CHAIN_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let new = end.map(|_| since_epoch.expect("a clock").as_millis() as u64);
    let first = number("FEEDWATER_CHAIN_SEED").map(|seed| seed as u64).or(new).unwrap_or(0);
    (first..).take_while(move |seed| match end {
        Some(end) => Instant::now() < end,
        None => *seed < first + count,
    })
}

/// Whether [`seeds`] yields the same seeds in every run. Only then do all runs draw the same cases,
/// so a test may expect rare ones.
pub fn are_seeds_fixed() -> bool {
    let is_set = |key| std::env::var_os(key).is_some();
    !is_set("FEEDWATER_CHAIN_SECONDS") && !is_set("FEEDWATER_CHAIN_SEED")
}

/// Returns a random size with sides up to `most`. Some of the sizes are much higher than wide, or
/// much wider than high.
pub fn size(rng: &mut SampleRng, most: u32) -> Size {
    let mut side = |most: u32| 1 + rng.below(most.into()) as u32;
    match side(8) {
        1 => Size::new(side(most), side(4)),
        2 => Size::new(side(4), side(most)),
        _ => Size::new(side(most), side(most)),
    }
}

/// Returns one to six random operators for images up to `size`. No intermediate image has more than
/// `pixels` pixels.
pub fn chain(rng: &mut SampleRng, size: Size, pixels: u64) -> Operators {
    let wanted = 1 + rng.below(6) as usize;
    let (mut chain, mut kind, mut size) = (Operators::new(), PixelType::U8, size);
    let mut channels = 3;
    while chain.len() < wanted {
        let operator = operator(rng);
        let output = operator.largest_output(size);
        if let (Ok(next), Ok(left)) = (operator.pixels(kind), operator.channels(channels))
            && output.pixels() <= pixels
        {
            (kind, channels, size) = (next, left, output);
            chain.push(operator);
        }
    }
    chain
}

/// Returns a random example operator, or a combinator with one to three example operators.
fn operator(rng: &mut SampleRng) -> Arc<dyn Operator> {
    let example = |rng: &mut SampleRng| EXAMPLES[rng.below(EXAMPLES.len() as u64) as usize].clone();
    if !rng.chance(0.15) {
        return example(rng);
    }
    let inner: Operators = (0..1 + rng.below(3)).map(|_| example(rng)).collect();
    match rng.below(4) {
        0 => Arc::new(inner.into_iter().fold(RandomApply::new(0.5), RandomApply::then_any)),
        1 => Arc::new(OneOf::weighted(None, inner)),
        2 => Arc::new(inner.into_iter().fold(SomeOf::new(1), SomeOf::or_any)),
        _ => Arc::new(inner.into_iter().fold(RandomOrder::new(), RandomOrder::and_any)),
    }
}
