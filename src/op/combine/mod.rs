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
pub use with_alpha::WithAlpha;

mod one_of;
mod random_apply;
mod random_order;
mod some_of;
mod with_alpha;

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
    // An output size that is the same for every input may be the input of all other operators.
    let (mut start, mut alone) = (input, input);
    let (mut others, mut count) = ([None; MOST_ORDERED], 0);
    for_each_leaf(operators, &mut |leaf| {
        start = leaf.fixed_output(None).map_or(start, |fixed| larger(start, fixed));
        alone = larger(alone, leaf.largest_output(input));
        if !keeps_size(leaf) {
            if let Some(place) = others.get_mut(count) {
                *place = Some(leaf);
            }
            count += 1;
        }
    });
    let alone = larger(start, alone);
    if count > MOST_ORDERED {
        return larger(alone, product_of_factors(operators, start));
    }
    // Bounds for each set of operators that have run: one bit for each operator.
    let mut bounds = [start; 1 << MOST_ORDERED];
    for ran in 1..1 << count {
        for (place, leaf) in others.iter().flatten().enumerate() {
            if ran >> place & 1 == 1 {
                let before = bounds[ran & !(1 << place)];
                bounds[ran] = larger(bounds[ran], larger(before, leaf.largest_output(before)));
            }
        }
    }
    larger(alone, bounds[(1 << count) - 1])
}

/// Maximum number of operators whose orders are examined one by one.
const MOST_ORDERED: usize = 4;

/// Upper bound for the output size if any of the operators run in any order, each at most once: the
/// size of the input times the factors by which each operator enlarges it. An operator that adds
/// pixels, multiplies sides, or turns the image does not enlarge a larger image by a larger factor.
fn product_of_factors(operators: &Inner, input: Size) -> Size {
    let Size { width, height } = input;
    let [two_width, two_height] = [width, height].map(|len| len.saturating_mul(2));
    let (mut start, mut turns) = (input, false);
    for_each_leaf(operators, &mut |leaf| {
        let output = leaf.largest_output(input);
        // An operator whose output does not grow with its input sets the size itself.
        if leaf.largest_output(Size::new(two_width, two_height)) == output {
            start = larger(start, output);
        }
        let wider = leaf.largest_output(Size::new(two_width, height));
        let higher = leaf.largest_output(Size::new(width, two_height));
        turns |= wider.height > output.height || higher.width > output.width;
    });
    if turns {
        // Either side of the result may come from the longer side of the image.
        let side = start.width.max(start.height);
        start = Size::new(side, side);
    }
    let (mut across, mut down) = (1.0_f64, 1.0_f64);
    for_each_leaf(operators, &mut |leaf| {
        let output = leaf.largest_output(start);
        across *= (f64::from(output.width) / f64::from(start.width.max(1))).max(1.0);
        down *= (f64::from(output.height) / f64::from(start.height.max(1))).max(1.0);
    });
    if turns {
        (across, down) = (across.max(down), across.max(down));
    }
    // The factors are rounded. A cast to `u32` saturates.
    let scaled = |len: u32, factor: f64| (f64::from(len) * factor * (1.0 + 1e-9)).ceil() as u32;
    Size::new(scaled(start.width, across), scaled(start.height, down))
}

/// Calls `see` with every operator, and with the operators of combinators instead of the
/// combinators. A combinator that runs one of several operators, none of which is a combinator,
/// stays together, because its operators do not run one after another.
///
/// This takes the operators out of their order. Calling combinators for every order instead would
/// take exponential time in the depth of nesting.
fn for_each_leaf<'a>(
    operators: &'a [Arc<dyn Operator>],
    see: &mut dyn FnMut(&'a Arc<dyn Operator>),
) {
    for operator in operators {
        let inner = operator.inner();
        let is_choice = operator.name() == OneOf::NAME;
        if inner.is_empty() || is_choice && inner.iter().all(|it| it.inner().is_empty()) {
            see(operator);
        } else {
            for_each_leaf(inner, see);
        }
    }
}

/// Whether the output of an operator has the size of its input for every image.
fn keeps_size(operator: &Arc<dyn Operator>) -> bool {
    let probes = [(1, 65_521), (65_521, 1), (509, 307)];
    let mut probes = probes.into_iter().map(|(width, height)| Some(Size::new(width, height)));
    probes.all(|size| operator.fixed_output(size) == size)
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

/// Number of resampling coefficients of all operators together.
fn coefficients(operators: &Inner, bounds: Bounds) -> usize {
    operators.iter().map(|it| it.coefficients(bounds)).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{
        Autocontrast, Pad, RandomAffine, RandomApply, RandomOrder, RandomRotation, RandomZoomOut,
        Resize,
    };

    fn order(operators: Inner) -> RandomOrder {
        operators.into_iter().fold(RandomOrder::new(), RandomOrder::and_any)
    }

    fn zoom_out() -> RandomZoomOut {
        RandomZoomOut { side_range: [1.0, 3.0], ..RandomZoomOut::default() }
    }

    /// An operator runs once, so a bound does not grow with the operators beside it, nor with the
    /// depth of nesting.
    #[test]
    fn a_bound_applies_each_operator_once() {
        let input = Size::new(50, 40);
        let contrast =
            || -> Arc<dyn Operator> { Arc::new(RandomApply::new(0.5).then(Autocontrast {})) };
        let moved: Arc<dyn Operator> = Arc::new(RandomAffine::within(30.0));
        let mut operator = order(vec![contrast(), Arc::new(zoom_out()), moved]);
        for _ in 0..4 {
            assert_eq!(operator.largest_output(input), zoom_out().largest_output(input));
            operator = order(vec![contrast(), Arc::new(operator), contrast()]);
        }
    }

    /// Compares with all orders, for operators of which a larger input has a larger output.
    #[test]
    fn a_bound_covers_every_order() {
        let turned = RandomRotation { expand: true, ..RandomRotation::within(90.0) };
        let all: [Arc<dyn Operator>; 7] = [
            Arc::new(zoom_out()),
            Arc::new(Pad::constant([0, 90, 0, 0], [0.0; 3])),
            Arc::new(Pad::constant([8; 4], [0.0; 3])),
            Arc::new(turned),
            Arc::new(Resize::to(60, 400)),
            Arc::new(RandomApply::new(0.5).then(turned)),
            Arc::new(RandomApply::new(0.5).then(zoom_out())),
        ];
        let mut rng = SampleRng::new(crate::random::SampleKey::default(), 3);
        for _ in 0..300 {
            let input = Size::new(1 + rng.below(90) as u32, 1 + rng.below(90) as u32);
            let count = 1 + rng.below(7) as usize;
            let chosen: Inner = shuffled(7, count, &mut rng).map(|at| all[at].clone()).collect();
            let bound = order(chosen.clone()).largest_output(input);
            for _ in 0..20 {
                let some = 1 + rng.below(count as u64) as usize;
                let ran: Vec<usize> = shuffled(count, some, &mut rng).collect();
                let output = ran.iter().fold(input, |size, &at| chosen[at].largest_output(size));
                assert_eq!(larger(bound, output), bound, "{input}, {ran:?} of {chosen:?}");
            }
        }
    }
}
