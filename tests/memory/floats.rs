//! Images of 16 bits and of floats: chains and views of operators that take them.

use std::sync::Arc;

use feedwater::PixelFormat;
use feedwater::Size;
use feedwater::internals::image::PixelType;
use feedwater::internals::random::SampleRng;
use feedwater::op::{Chain, Crop, Normalize, Operator, Placement, Resize, View};

use super::drawn::{chain, numbers, seeds, size};
use super::{Files, common, run};

/// Draws operators that take decoded pixels of this format, and one with a fixed output.
fn drawn(
    rng: &mut SampleRng,
    sizes: &[Size],
    most: u32,
    format: PixelFormat,
) -> Vec<Arc<dyn Operator>> {
    let within = |size: Size, it: &Arc<dyn Operator>| {
        Some(it.largest_output(size)).filter(|output| output.pixels() <= 1_000_000)
    };
    let mut operators = loop {
        let mut drawn = chain(rng, Size::new(most, most), 700_000);
        drawn.retain(|it| {
            let keeps = format.is_floats() || it.pixels(PixelType::U8) == Ok(PixelType::U8);
            matches!(it.for_format(format), Ok(None)) && it.channels(1).is_ok() && keeps
        });
        let fits = sizes.iter().all(|&size| drawn.iter().try_fold(size, within).is_some());
        // Most drawn operators change bytes.
        if fits && (!drawn.is_empty() || rng.below(8) == 0) {
            break drawn;
        }
    };
    operators.push(match rng.below(2) {
        0 => Arc::new(Resize::to(32, 24)),
        _ => Arc::new(Crop { x: 0, y: 0, width: 37, height: 29 }),
    });
    if rng.below(2) == 0 {
        operators.push(Arc::new(Normalize { mean: [0.5; 3], std: [0.25; 3] }));
    }
    operators
}

fn chained(operators: Vec<Arc<dyn Operator>>) -> Chain {
    operators.into_iter().fold(Chain::new(), |chain, it| chain.then_any(Placement::Auto, it))
}

/// PNGs of 16 bits, also interlaced ones, and PNMs, of these sizes.
pub fn files(sizes: &[Size], channels: usize) -> Files {
    Files::new(sizes.iter().zip(0..).map(|(&Size { width, height }, seed)| {
        let pixels = channels * (width * height) as usize;
        let words: Vec<u8> =
            (0..pixels).flat_map(|at| (at as u16).wrapping_mul(77).to_be_bytes()).collect();
        match seed % 3 {
            0 if channels < 4 => {
                let kind = if channels == 1 { 5 } else { 6 };
                [format!("P{kind} {width} {height} 65535\n").as_bytes(), &words].concat()
            }
            _ => common::png_of_channels(&words, (width, height), channels, 16),
        }
    }))
}

/// Tests random chains, with and without views, on images of random sizes.
pub fn random_chains_of_floats_stay_within_the_footprint() {
    let formats = [PixelFormat::U16, PixelFormat::U16x3, PixelFormat::F32, PixelFormat::F32x3];
    run_random_chains(formats, 30, |sizes, format| files(sizes, format.channels()), |_, _| None);
}

/// Runs random chains on sets of `count` images of random sizes, which `files` encodes for one of
/// the formats. `background` draws the colour under transparent images.
pub fn run_random_chains(
    formats: [PixelFormat; 4],
    count: usize,
    files: impl Fn(&[Size], PixelFormat) -> Files,
    background: impl Fn(PixelFormat, &mut SampleRng) -> Option<[u8; 3]>,
) {
    let mut chains = 0;
    for seed in seeds(40) {
        let rng = &mut numbers(seed);
        let most = 23 + rng.below(180) as u32;
        let sizes: Vec<_> = (0..count).map(|_| size(rng, most)).collect();
        let format = formats[rng.below(4) as usize];
        let background = background(format, rng);
        let mut chain = match rng.below(4) {
            0 => Chain::new(),
            _ => chained(drawn(rng, &sizes, most, format)),
        };
        let views = if chain.steps().is_empty() { 1 } else { rng.below(3) };
        for number in 0..views {
            let view = View::new(&format!("{number}"), chained(drawn(rng, &sizes, most, format)));
            chain = chain.view(view.count(1 + rng.below(3) as u32));
        }
        let files = files(&sizes, format);
        let (workers, batch) = (1 + rng.below(3) as usize, 1 + rng.below(8) as usize);
        let case = format!("FEEDWATER_CHAIN_SEED={seed}: {format:?}, {workers} workers, {chain:?}");
        let loader = || {
            let loader = files.loader(chain).num_workers(workers).batch_size(batch).seed(seed);
            loader.configure(|it| {
                (it.decode.pixels, it.decode.background) = (format, background);
            })
        };
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{case}: {:?}", seen.problem);
        assert_eq!(seen.errors.values().sum::<u64>(), 0, "{case}: {:?}", seen.errors);
        seen.check(&case);
        chains += 1;
    }
    eprintln!("{chains} chains");
}

/// The decoded image is most of the memory, with four bytes for each of three channels.
pub fn an_image_of_floats_is_predicted_closely() {
    let sizes = [Size::new(900, 700); 8];
    let files = files(&sizes, 1);
    check_prediction(files, PixelFormat::U16, 900 * 700 * 12);
}

/// Runs two workers on large images of this format, whose decoded image has `bytes` bytes and is
/// most of the memory.
pub fn check_prediction(files: Files, format: PixelFormat, bytes: u64) {
    let chain = Chain::new().then(Resize::to(16, 16));
    let loader = || {
        let loader = files.loader(chain).num_workers(2).batch_size(2);
        loader.configure(|it| it.decode.pixels = format)
    };
    let seen = run(loader, 2);
    seen.check(format.name());
    assert!(seen.peak > 2 * bytes, "{} of {}", seen.peak, seen.predicted);
    assert!(seen.predicted < seen.peak * 3 / 2, "{} of {}", seen.peak, seen.predicted);
}
