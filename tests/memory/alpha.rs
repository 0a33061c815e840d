//! Images of 8 bits with one and with four channels, with and without a background.

use feedwater::PixelFormat;
use feedwater::Size;

use super::floats::{self, check_prediction, run_random_chains};
use super::{Files, common};

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
    let formats = [PixelFormat::U8x4, PixelFormat::U8x4, PixelFormat::U8, PixelFormat::U8x3];
    run_random_chains(
        formats,
        20,
        |sizes, _| files(sizes),
        |format, rng| (format != PixelFormat::U8x4 && rng.below(3) > 0).then_some([9, 8, 7]),
    );
}

/// Tests random chains on images of 16 bits and of floats with alpha.
pub fn random_chains_of_alpha_in_floats_stay_within_the_footprint() {
    let formats = [PixelFormat::U16x4, PixelFormat::F32x4].repeat(2).try_into().unwrap();
    run_random_chains(formats, 20, |sizes, _| floats::files(sizes, 4), |_, _| None);
}

/// The decoded image is most of the memory: three bytes per pixel for colours and for alpha.
pub fn an_image_with_alpha_is_predicted_closely() {
    let samples = vec![77; 4 * 900 * 700];
    let file = common::png_of_channels(&samples, (900, 700), 4, 8);
    let files = Files::new((0..8).map(|_| file.clone()));
    check_prediction(files, PixelFormat::U8x4, 900 * 700 * 6);
}
