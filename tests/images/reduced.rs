//! If the decoder reduces images, feedwater's JPEG decoder gives the same rows as libjpeg-turbo.

use feedwater::internals::decode::{JpegBy, JpegRefusal};
use feedwater::internals::geometry::{Roi, Size};

use crate::decoders::{
    GRAY, S420, S422, S440, SAMPLINGS, compare_reduced, damaged, extreme, is_vector_code,
};
use crate::jpeg::{Recipe, Scans};

/// Tests the recipes of `decoders.rs` whose coefficients exceed all normal bounds.
#[test]
fn any_coefficients_have_the_same_pixels() {
    if !is_vector_code() {
        return;
    }
    let (mut refused, mut all) = (0, 0);
    for recipe in extreme() {
        let bytes = recipe.make();
        let size = Size::new(recipe.width.into(), recipe.height.into());
        for reduction in [2, 4, 8] {
            let window = size.reduced(reduction).window();
            let by = compare_reduced(&recipe, &bytes, window, reduction);
            refused += u32::from(by == JpegBy::Refused(JpegRefusal::Data));
            all += 1;
        }
    }
    assert!(refused > 0 && refused < all * 2 / 3, "{refused} of {all}");
}

/// Tests every width from 5 to 40, each with one height, for sequential and progressive JPEGs, with
/// windows in every corner.
#[test]
fn every_size_has_the_same_pixels() {
    for sampling in SAMPLINGS {
        for width in 5..=40 {
            let height = 1 + (width * 7) % 40;
            for reduction in [2, 4, 8] {
                let progressive = (width + reduction as u16 / 2).is_multiple_of(3);
                let scans = if progressive { Scans::Progressive } else { Scans::Interleaved };
                let recipe =
                    Recipe { restart: width % 4, scans, ..Recipe::new(width, height, sampling) };
                let bytes = recipe.make();
                let size = Size::new(width.into(), height.into()).reduced(reduction);
                let by = compare_reduced(&recipe, &bytes, size.window(), reduction);
                // In two cases, libjpeg-turbo upsamples chroma in another way than usual: if chroma
                // has at most two samples per row, or only one sample per block. feedwater leaves
                // these images to libjpeg-turbo.
                let few = u32::from(width).div_ceil(2 * reduction) <= 2;
                let single = reduction == 8 && (sampling == S422 || sampling == S440);
                let expected = match sampling == S422 && few || single {
                    true => JpegBy::Refused(JpegRefusal::Reduction),
                    false => JpegBy::Feedwater,
                };
                assert_eq!(by, expected, "1/{reduction} {recipe:?}");
                let Size { width, height } = size;
                let (x, y) = (width / 2, height / 2);
                for window in [
                    Roi::new(x, 0, width - x, height - y),
                    Roi::new(0, y, x + 1, height - y),
                    Roi::new(x, y, 1, 1),
                    Roi::new(width - 1, height - 1, 1, 1),
                ] {
                    compare_reduced(&recipe, &bytes, window, reduction);
                }
            }
        }
    }
}

/// Truncates a file after every byte, and changes each of its bytes. feedwater's decoder and
/// libjpeg-turbo give the same rows or the same error, and tolerate the same damage.
#[test]
fn damage_is_judged_by_libjpeg_turbo() {
    if !is_vector_code() {
        return;
    }
    for (sampling, reduction) in [(S420, 2), (S440, 2), (S420, 4), (GRAY, 8)] {
        let recipe = Recipe { restart: 3, ..Recipe::new(40, 35, sampling) };
        let bytes = recipe.make();
        let size = Size::new(40, 35).reduced(reduction);
        let top = Roi::new(0, 0, size.width, size.height / 2);
        for window in [size.window(), top] {
            let refused = damaged(&bytes, window, reduction);
            assert!(refused > 20, "{refused} of 1/{reduction} {recipe:?}");
        }
    }
}
