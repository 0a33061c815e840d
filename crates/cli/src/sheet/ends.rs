//! Which tensor values are shown black and white.

use feedwater::PixelFormat;
use feedwater::internals::geometry::Size;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::op::kind::table;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::CHANNELS;
use feedwater::op::Kind;
use feedwater::op::custom::Trace;
use feedwater::plan::Plan;

/// For each channel, the tensor values that are shown black and white.
pub type Ends = [[f32; 2]; CHANNELS];

/// Returns the tensor values that stand for the smallest and the largest number of a decoded image:
/// 0 and 255, or 0 and 65535. `None` if the chain does not normalize bytes, so tensor values are 0
/// to 255. NaN if the decoded numbers have no known range. One channel of 16 bits has none, because
/// depth maps use a small part of it. Infinite for indices, which are shown as colours.
pub fn normalization(plan: &Plan) -> Option<Ends> {
    match plan.settings.decode.pixels {
        PixelFormat::Indices => Some([[f32::INFINITY; 2]; CHANNELS]),
        PixelFormat::U16 => Some([[f32::NAN; 2]; CHANNELS]),
        format if !format.is_floats() => of_bytes(plan),
        format if format.is_as_stored() => Some([[f32::NAN; 2]; CHANNELS]),
        format => Some(of_floats(plan, format)),
    }
}

/// Replaces ends of NaN by the smallest and the largest of these values that are finite.
pub fn with_range(ends: Ends, values: impl Iterator<Item = f32> + Clone) -> Ends {
    if !ends[0][0].is_nan() {
        return ends;
    }
    let finite = values.filter(|it| it.is_finite());
    let low = finite.clone().fold(f32::INFINITY, f32::min);
    [[low, finite.fold(f32::NEG_INFINITY, f32::max)]; CHANNELS]
}

/// Ends of the chain's last table that maps bytes to floats, if there is one.
fn of_bytes(plan: &Plan) -> Option<Ends> {
    plan.steps.iter().rev().find_map(|step| {
        let (mut actions, size) = (Actions::default(), Size::new(1, 1));
        actions.draw([&*step.operator], SampleKey::default(), size, &mut Trace::new(size));
        actions.demand(actions.list.last()?.output);
        let place = actions.list.iter().rposition(|it| it.params.kind().is(Kind::FloatTable))?;
        Some(table::floats(actions.table_of(place)).map(|of| [of[0], of[255]]))
    })
}

/// Results of `normalize` for 0 and the largest number, or these numbers without `normalize`.
fn of_floats(plan: &Plan, format: PixelFormat) -> Ends {
    let normalize = plan.steps.iter().find(|step| step.operator.name() == "normalize");
    let [low, high] = [0.0, format.scale()].map(|number| {
        let (mut actions, size) = (Actions::default(), Size::new(1, 1));
        actions.format = format;
        let operators = normalize.iter().map(|step| &*step.operator);
        actions.draw(operators, SampleKey::default(), size, &mut Trace::new(size));
        let pixel = Image::from_data(size.window(), vec![number; CHANNELS]);
        match actions.reference(&HostImage::F32(pixel)) {
            HostImage::F32(image) => image.pixel(0, 0),
            HostImage::U8(_) => unreachable!("no operator makes bytes of floats"),
        }
    });
    std::array::from_fn(|channel| [low[channel], high[channel]])
}
