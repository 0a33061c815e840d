//! Checks of operators on the CPU: fast paths are compared with reference implementations.

use std::collections::BTreeMap;
use std::sync::Arc;

use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::image::{Image, PixelType};
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::internals::testing::{Case, Kernels};
use feedwater::op::{Normalize, Operator};
use feedwater_tools::synth;

use super::{Check, Found};

/// Returns one check per operator, which compares the operator's fast path with its reference, on
/// bytes and on floats.
pub fn checks() -> Vec<Check> {
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for operator in feedwater::internals::op::examples() {
        let name = operator.name();
        let floats: Vec<Arc<dyn Operator>> = vec![Arc::new(Normalize::IMAGENET), operator.clone()];
        for chain in [vec![operator], floats] {
            let pixels = chain.iter().try_fold(PixelType::U8, |pixels, it| it.pixels(pixels));
            let Ok(pixels) = pixels else { continue };
            for (index, size) in (0..).zip(SIZES) {
                *counts.entry(name).or_default() += 1;
                if let Err(problem) = parity(&chain, index, size, pixels) {
                    found.insert(name, Err(problem));
                }
            }
        }
    }
    counts
        .into_iter()
        .map(|(name, count)| {
            let well = Ok(format!(
                "the fast path equals the reference implementation bit for bit in {count} cases"
            ));
            Check::new(format!("operator/{name}"), found.remove(name).unwrap_or(well))
        })
        .collect()
}

/// Sizes of the test images: odd, thin and ordinary ones.
const SIZES: [Size; 5] =
    [Size::new(61, 47), Size::new(1, 1), Size::new(3, 200), Size::new(333, 2), Size::new(128, 96)];

fn parity(
    operators: &[Arc<dyn Operator>],
    index: u64,
    size: Size,
    pixels: PixelType,
) -> Result<(), String> {
    let rgb = synth::image(1, index, size.width, size.height);
    let case = Case {
        operators,
        on_host: 0,
        stored: &Image::from_data(size.window(), rgb),
        orientation: Orientation::UPRIGHT,
        reduction: 1,
        dtype: if pixels == PixelType::U8 { DType::U8 } else { DType::F32 },
        layout: Layout::Nchw,
        key: SampleKey { seed: 1, epoch: 0, index },
        kernels: Kernels::None,
        known: &[],
        planes: None,
    };
    case.check().map_err(|error| error.to_string())
}
