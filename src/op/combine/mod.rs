//! Combinators: operators that run other operators, chosen for each sample.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::geometry::Size;
use crate::image::PixelType;
use crate::random::SampleRng;

use super::{Bounds, FieldError, Kinds, Operator};

pub use one_of::OneOf;
pub use random_apply::RandomApply;
pub use random_order::RandomOrder;
pub use some_of::SomeOf;

mod one_of;
mod random_apply;
mod random_order;
mod some_of;

/// Names of the combinators, as in TOML. The operators of a combinator are under the key
/// `operators`.
pub const NAMES: &[&str] = &[RandomApply::NAME, OneOf::NAME, SomeOf::NAME, RandomOrder::NAME];

/// Operators inside of a combinator.
type Inner = Vec<Arc<dyn Operator>>;

/// Kinds of the actions that a combinator may draw if it runs each operator at most once, in any
/// order.
fn kinds(operators: &Inner) -> Kinds {
    let kinds: Vec<Kinds> = operators.iter().map(|it| it.kinds()).collect();
    let most = kinds.iter().map(Kinds::most).sum();
    Kinds::up_to(most, kinds.iter().flat_map(|it| it.list().to_vec()).collect::<Vec<_>>())
}

/// Maximum number of operators of a combinator.
const MOST_OPERATORS: usize = 64;

/// Draws `some` different numbers below `count`, which is at most [`MOST_OPERATORS`]. All choices
/// and orders are equally likely. These are the first steps of a Fisher-Yates shuffle.
fn shuffled(count: usize, some: usize, rng: &mut SampleRng) -> impl Iterator<Item = usize> + use<> {
    let mut order: [usize; MOST_OPERATORS] = std::array::from_fn(|place| place);
    for place in 0..some.min(count) {
        let other = place + rng.below((count - place) as u64) as usize;
        order.swap(place, other);
    }
    order.into_iter().take(some)
}

/// Reads the settings of the combinator `name`, and gives it these operators. Returns `None` if no
/// combinator has this name.
pub fn read<'de, D: Deserializer<'de>>(
    name: &str,
    settings: D,
    operators: Vec<Arc<dyn Operator>>,
) -> Option<Result<Arc<dyn Operator>, D::Error>> {
    Some(match name {
        RandomApply::NAME => read_as(settings, |Probability { probability }| {
            operators.into_iter().fold(RandomApply::new(probability), RandomApply::then_any)
        }),
        OneOf::NAME => read_as(settings, |Weights { weights }| OneOf::weighted(weights, operators)),
        SomeOf::NAME => read_as(settings, |Count { count }| {
            operators.into_iter().fold(SomeOf::new(count), SomeOf::or_any)
        }),
        RandomOrder::NAME => read_as(settings, |Nothing {}| {
            operators.into_iter().fold(RandomOrder::new(), RandomOrder::and_any)
        }),
        _ => return None,
    })
}

fn read_as<'de, D: Deserializer<'de>, S: Deserialize<'de>, O: Operator>(
    settings: D,
    make: impl FnOnce(S) -> O,
) -> Result<Arc<dyn Operator>, D::Error> {
    S::deserialize(settings).map(|settings| Arc::new(make(settings)) as _)
}

/// Settings of [`RandomApply`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Probability {
    #[serde(default = "half")]
    probability: f64,
}

/// Default probability of torchvision's `RandomApply`.
fn half() -> f64 {
    0.5
}

/// Settings of [`OneOf`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weights {
    #[serde(default)]
    weights: Option<Vec<f64>>,
}

/// Settings of [`SomeOf`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    count: usize,
}

/// Settings of [`RandomOrder`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Checks the number of operators and the settings of each operator.
fn check(operators: &Inner) -> Result<(), FieldError> {
    if operators.is_empty() {
        return Err(FieldError::new("operators", "is empty; list at least one operator"));
    }
    if operators.len() > MOST_OPERATORS {
        let problem =
            format!("has {} operators; at most {MOST_OPERATORS} are allowed", operators.len());
        return Err(FieldError::new("operators", problem));
    }
    for (place, operator) in operators.iter().enumerate() {
        operator.check().map_err(|FieldError { field, problem }| {
            FieldError::new(format!("operators[{place}].{field}"), problem)
        })?;
        let outputs = operator.outputs();
        if outputs > 1 {
            let problem = format!(
                "{} makes {outputs} outputs of one image, which an operator inside of another \
                 cannot do; move it out, or set crop if it has this setting",
                operator.name()
            );
            return Err(FieldError::new(format!("operators[{place}]"), problem));
        }
    }
    Ok(())
}

/// Checks that a number is a probability.
fn check_probability(field: &str, probability: f64) -> Result<(), FieldError> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    let problem = format!("must be a probability from 0 to 1, is {probability}");
    Err(FieldError::new(field, problem))
}

/// Pixel type after a combinator. Because some samples skip some of the operators, no operator may
/// change the pixel type.
fn kept_pixels(name: &str, operators: &Inner, input: PixelType) -> Result<PixelType, String> {
    for (place, operator) in operators.iter().enumerate() {
        if operator.pixels(input)? != input {
            let inner = operator.name();
            return Err(format!(
                "operators[{place}], {inner}, changes bytes to floats, but {name} does not apply \
                 it to every sample; move {inner} behind {name}"
            ));
        }
    }
    Ok(input)
}

/// Number of channels after a combinator, which must keep it.
fn kept_channels(name: &str, operators: &Inner, input: usize) -> Result<usize, String> {
    for (place, operator) in operators.iter().enumerate() {
        let output = operator.channels(input)?;
        if output != input {
            let inner = operator.name();
            return Err(format!(
                "operators[{place}], {inner}, changes the number of channels from {input} to \
                 {output}, but operators inside of {name} must keep it; move {inner} out of \
                 {name}, or set its channels to {input}"
            ));
        }
    }
    Ok(input)
}

/// Output size of a combinator that runs any of the operators, or none. It is known only if every
/// operator keeps the size.
fn kept_output(operators: &Inner, input: Option<Size>) -> Option<Size> {
    let keep = operators.iter().all(|it| it.fixed_output(input) == input);
    input.filter(|_| keep)
}

/// Upper bound for the output size if any of the operators run in any order, each at most once.
fn largest_output(operators: &Inner, input: Size) -> Size {
    let is_nested = |it: &&Arc<dyn Operator>| NAMES.contains(&it.name());
    let nested = || operators.iter().filter(is_nested);
    // The sizes are computed in two rounds, because an operator may also run after an operator that
    // is later in the list.
    let rounds = |size: Size| {
        let plain = || operators.iter().filter(|it| !is_nested(it));
        plain().chain(plain()).fold(size, |size, it| larger(size, it.largest_output(size)))
    };
    // Start with a size that covers the output of each operator for the input itself, and the fixed
    // output size of each operator.
    let fixed = operators.iter().filter_map(|it| it.fixed_output(None));
    let mut size = rounds(fixed.fold(largest_alone(operators, input), larger));
    let count = nested().count();
    if count == 0 {
        return size;
    }
    // Calling each nested combinator twice would take exponential time in the depth of nesting.
    // Each is therefore called once. For the second round, its output is scaled in proportion to
    // its input, which is an upper bound for operators that add pixels or multiply sides.
    let mut grown = [(size, size); MOST_OPERATORS];
    for (operator, (before, output)) in nested().zip(&mut grown) {
        (*before, *output) = (size, operator.largest_output(size));
        size = larger(size, *output);
    }
    if count > 1 {
        for (before, output) in grown.into_iter().take(count) {
            let width = in_proportion(output.width, size.width, before.width);
            let height = in_proportion(output.height, size.height, before.height);
            size = larger(size, Size::new(width, height));
        }
    }
    rounds(size)
}

/// Largest image between or after the operators if they run in this order.
fn largest_in_order(operators: &Inner, input: Size) -> Size {
    let mut size = input;
    operators.iter().fold(input, |largest, operator| {
        size = larger(operator.largest_output(size), operator.largest_alone(input));
        larger(largest, size)
    })
}

/// Largest output that a single operator makes of the input. This case needs its own bound, because
/// a larger input may give a smaller output: an operator that keeps the aspect ratio enlarges a
/// thin input more than a less thin one.
fn largest_alone(operators: &Inner, input: Size) -> Size {
    operators.iter().map(|it| it.largest_alone(input)).fold(input, larger)
}

/// Smallest size that covers both sizes.
fn larger(a: Size, b: Size) -> Size {
    Size::new(a.width.max(b.width), a.height.max(b.height))
}

/// `len * numerator / denominator`, rounded up.
fn in_proportion(len: u32, numerator: u32, denominator: u32) -> u32 {
    let product = u64::from(len) * u64::from(numerator);
    u32::try_from(product.div_ceil(u64::from(denominator.max(1)))).unwrap_or(u32::MAX)
}

/// Number of resampling coefficients of all operators together.
fn coefficients(operators: &Inner, bounds: Bounds) -> usize {
    operators.iter().map(|it| it.coefficients(bounds)).fold(0, usize::saturating_add)
}
