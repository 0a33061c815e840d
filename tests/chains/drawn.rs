//! Random chains of the examples of all built-in operators, some of them inside of combinators.

use std::sync::{Arc, LazyLock};

use feedwater::geometry::Size;
use feedwater::image::PixelType;
use feedwater::op::{self, OneOf, Operator, RandomApply, RandomOrder, SomeOf};
use feedwater::random::{SampleKey, SampleRng};

/// Operators of a chain.
pub type Operators = Vec<Arc<dyn Operator>>;

/// Examples of all built-in operators.
pub static EXAMPLES: LazyLock<Operators> = LazyLock::new(op::examples);

/// Random numbers of a test.
pub fn numbers(seed: u64) -> SampleRng {
    SampleRng::new(SampleKey { seed, epoch: 0, index: 0 }, 17)
}

/// One to six operators for images of at most `size`, whose images never have more than `pixels` pixels.
pub fn chain(rng: &mut SampleRng, size: Size, pixels: u64) -> Operators {
    let wanted = 1 + rng.below(6) as usize;
    let (mut chain, mut kind, mut size) = (Operators::new(), PixelType::U8, size);
    while chain.len() < wanted {
        let operator = operator(rng);
        let output = operator.largest_output(size);
        if let Ok(next) = operator.pixels(kind)
            && output.pixels() <= pixels
        {
            (kind, size) = (next, output);
            chain.push(operator);
        }
    }
    chain
}

/// An example, or one to three of them inside of a combinator.
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
