//! Wide and tall images. The predicted memory is close to the measured peak: never below it, and
//! not much above it.

use std::sync::Arc;

use feedwater::Size;
use feedwater::op::{self, Chain, Operator, Placement, Resize};

use super::drawn::{numbers, seeds};
use super::{Files, MIB, common, run};

/// Returns operators whose memory depends on the shape of an image.
fn operators(sides: Size) -> Vec<Arc<dyn Operator>> {
    let Size { width, height } = sides;
    vec![
        Arc::new(op::Elastic::default()),
        Arc::new(op::GaussianBlur { kernel_size: [23, 5], sigma: [1.0, 2.0] }),
        Arc::new(Resize::to(width.div_ceil(3), height.div_ceil(3))),
        Arc::new(Resize::longer(700)),
        Arc::new(op::Letterbox::to(300, 200)),
        Arc::new(op::RandomResizedCrop::to(160, 160)),
        Arc::new(op::RandomAffine::within(20.0)),
        Arc::new(op::JpegDistortion { quality: [20, 90] }),
        Arc::new(op::Equalize {}),
        Arc::new(op::Pad::with(op::PadMode::Reflect, [9; 4])),
    ]
}

/// Tests images of random shapes, from a square to 400 times as wide as high (such as a line of
/// text), and the same shapes upright.
pub fn the_prediction_for_wide_and_tall_images_is_close_to_their_peak() {
    let mut count = 0;
    for seed in seeds(10) {
        let rng = &mut numbers(seed);
        let ratio = 400f64.powf(rng.uniform());
        let pixels = 15_000.0 * 20f64.powf(rng.uniform());
        let long = (pixels * ratio).sqrt() as u32;
        let short = (pixels / f64::from(long)).max(1.0) as u32;
        let number = rng.below(10) as usize;
        for size in [Size::new(long, short), Size::new(short, long)] {
            let first = operators(size).swap_remove(number);
            let chain = Chain::new().then_any(Placement::Cpu, first.clone());
            let chain = chain.then(Resize::to(256, 64));
            let files = Files::new((0..3).map(|seed| common::png(seed, size.width, size.height)));
            let seen = run(|| files.loader(chain).num_workers(1).batch_size(1), 3);
            let case = format!("FEEDWATER_CHAIN_SEED={seed}: {size}, {first:?}");
            assert!(seen.errors.is_empty() || seen.errors.values().all(|&it| it == 0), "{case}");
            seen.check(&case);
            // The prediction covers the buffers of every instruction set. This processor uses one.
            let most = seen.peak * 3 / 2 + 2 * MIB;
            let (predicted, peak) = (seen.predicted, seen.peak);
            assert!(predicted <= most, "{case}: {predicted}, peak {peak}\n{}", seen.plan);
            count += 1;
        }
    }
    eprintln!("{count} images");
}

pub fn a_line_of_text_is_not_refused() {
    let files = Files::new([common::png(1, 8000, 32)]);
    let chain = Chain::new().then(op::Elastic::default()).then(Resize::to(512, 32));
    let seen = run(|| files.loader(chain), 1);
    assert!(seen.errors.is_empty() || seen.errors["oversized"] == 0, "{}", seen.plan);
    assert!(seen.predicted < 24 * MIB, "{}", seen.plan);
    seen.check("8000x32");
}
