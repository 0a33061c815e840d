//! Images of 8 bits with one and with four channels, with and without a background.

use feedwater::PixelFormat;
use feedwater::Size;
use feedwater::op::{Chain, Resize, View};

use super::drawn::{numbers, seeds, size};
use super::floats::{chained, drawn};
use super::{Files, common, run};

/// PNGs and JPEGs of these sizes. The PNGs have alpha.
fn files(sizes: &[Size]) -> Files {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/alpha")).unwrap();
    let files = files.map(|it| std::fs::read(it.unwrap().path()).unwrap());
    let drawn = sizes.iter().zip(0..).map(|(&Size { width, height }, seed)| match seed % 3 {
        0 => common::jpeg(seed, width, height),
        bits => {
            let bytes = bits as usize * 4 * (width * height) as usize;
            let samples: Vec<u8> = (0..bytes).map(|at| (at * 89 % 251) as u8).collect();
            common::png_of_channels(&samples, (width, height), 4, 8 * bits as u8)
        }
    });
    Files::new(drawn.chain(files))
}

/// Tests random chains, with and without views, on images of random sizes.
pub fn random_chains_of_gray_and_alpha_stay_within_the_footprint() {
    let mut count = 0;
    for seed in seeds(40) {
        let rng = &mut numbers(seed);
        let most = 23 + rng.below(180) as u32;
        let sizes: Vec<_> = (0..20).map(|_| size(rng, most)).collect();
        let formats = [PixelFormat::U8x4, PixelFormat::U8x4, PixelFormat::U8, PixelFormat::U8x3];
        let format = formats[rng.below(4) as usize];
        let background = (format != PixelFormat::U8x4 && rng.below(3) > 0).then_some([9, 8, 7]);
        let mut chain = match rng.below(4) {
            0 => Chain::new(),
            _ => chained(drawn(rng, &sizes, most, format)),
        };
        let views = if chain.steps().is_empty() { 1 } else { rng.below(3) };
        for number in 0..views {
            let view = View::new(&format!("{number}"), chained(drawn(rng, &sizes, most, format)));
            chain = chain.view(view.count(1 + rng.below(3) as u32));
        }
        let files = files(&sizes);
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
        count += 1;
    }
    eprintln!("{count} chains");
}

/// The decoded image is most of the memory: three bytes per pixel for colours and for alpha.
pub fn an_image_with_alpha_is_predicted_closely() {
    let samples = vec![77; 4 * 900 * 700];
    let file = common::png_of_channels(&samples, (900, 700), 4, 8);
    let files = Files::new((0..8).map(|_| file.clone()));
    let chain = Chain::new().then(Resize::to(16, 16));
    let loader = || {
        let loader = files.loader(chain).num_workers(2).batch_size(2);
        loader.configure(|it| it.decode.pixels = PixelFormat::U8x4)
    };
    let seen = run(loader, 2);
    seen.check("large images with alpha");
    let image = 2 * 900 * 700 * 6;
    assert!(seen.peak > image, "{} of {}", seen.peak, seen.predicted);
    assert!(seen.predicted < seen.peak * 3 / 2, "{} of {}", seen.peak, seen.predicted);
}
