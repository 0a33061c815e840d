//! The kernels of the JPEG decoder, compiled for the host, give the same pixels as libjpeg-turbo,
//! with a row index and without one.

use feedwater::internals::decode::{
    Decoders, DeviceProblem, DeviceRefusal, Fingerprint, JpegDecoder, RowIndex, RowIndexOutcome,
    RowIndexTask, Rows,
};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::Header;
use feedwater_tests::jpeg_kernels::{Failure, JpegKernels, Wanted, pixels};

use crate::decoders::{S420, S444, SAMPLINGS, decoded};
use crate::jpeg::Recipe;
use crate::scripts::Random;

/// Returns the row index of an intact file, or `None` if this CPU's decoder makes none.
fn index_of(file: &[u8]) -> Option<RowIndex> {
    let header = Header::parse_as(file, false).ok()?;
    let names = Decoders::jpeg_instructions();
    let mut ours = Decoders::new().with_jpeg_instructions(names.last()?)?;
    ours.set_row_index(RowIndexTask::Make(Fingerprint::of(file, 1)));
    ours.decode(file, &header, header.size.window(), 1, &mut |_: Rows<'_>| ()).ok()?;
    match ours.row_index() {
        RowIndexOutcome::Made(_, bytes) => RowIndex::read(bytes.to_vec().into()),
        _ => None,
    }
}

/// Returns images of every chroma subsampling, with restart markers at several distances. Large
/// coefficients occur only in damaged images, so images with them may be refused.
fn recipes() -> Vec<Recipe> {
    let sizes =
        [(8u16, 8u16), (33, 70), (70, 33), (100, 100), (17, 200), (640, 50), (1, 1), (3, 5)];
    let mut recipes = Vec::new();
    for sampling in SAMPLINGS {
        for (at, (width, height)) in (0u16..).zip(sizes) {
            for restart in [0, 1, 3, width.div_ceil(16), 1000] {
                for most_bits in [4, 10] {
                    let seed = u64::from(at + restart);
                    let recipe = Recipe::new(width, height, sampling);
                    recipes.push(Recipe { restart, seed, most_bits, ..recipe });
                }
            }
        }
    }
    recipes
}

fn random_window(random: &mut Random, Size { width, height }: Size) -> Roi {
    let mut below = |end: u32| random.below(end as usize) as u32;
    let [x, y] = [below(width), below(height)];
    let [width, height] = [width - x, height - y].map(|most| 1 + below(most));
    Roi::new(x, y, width, height)
}

#[test]
fn every_window_and_reduction_equals_libjpeg() {
    let kernels = JpegKernels::new();
    let libjpeg = &mut Decoders::new().jpeg(JpegDecoder::Libjpeg);
    let random = &mut Random(1);
    let (mut equal, mut with_index, mut out_of_range) = (0, 0, 0);
    for recipe in recipes() {
        let file = recipe.make();
        let size = Size::new(recipe.width.into(), recipe.height.into());
        let index = index_of(&file);
        for reduction in [1, 1, 2, 4, 8] {
            let size = size.reduced(reduction);
            for window in [size.window(), random_window(random, size)] {
                let what = format!("{window:?} of {size:?}, 1/{reduction}, {recipe:?}");
                let wanted = (&file[..], window, reduction);
                let expected = decoded(libjpeg, &file, window, reduction).0.unwrap();
                match kernels.decode(wanted, None) {
                    Ok(found) => assert!(found == expected, "{what}"),
                    Err(Failure::Refused(DeviceRefusal::Jpeg(_))) => continue,
                    Err(Failure::Problem(DeviceProblem::Range)) if recipe.most_bits > 4 => {
                        out_of_range += 1;
                        continue;
                    }
                    other => panic!("{other:?}: {what}"),
                }
                equal += 1;
                let Some(index) = &index else { continue };
                assert!(kernels.decode(wanted, Some(index)) == Ok(expected), "index, {what}");
                with_index += 1;
            }
        }
    }
    assert!(equal > 2 * out_of_range, "{equal} {out_of_range}");
    assert!(with_index == equal || with_index == 0, "{with_index} {equal}");
}

/// The kernels make the same index as the CPU decoder, whatever the window is.
#[test]
fn the_kernels_make_the_cpus_row_index() {
    let kernels = JpegKernels::new();
    let random = &mut Random(3);
    let mut made = 0;
    for recipe in recipes() {
        let file = recipe.make();
        let size = Size::new(recipe.width.into(), recipe.height.into());
        let Some(expected) = index_of(&file) else { continue };
        for window in [size.window(), random_window(random, size)] {
            let Some(found) = kernels.index((&file, window, 1), Fingerprint::of(&file, 1)) else {
                assert_eq!(recipe.most_bits, 10, "{recipe:?}");
                continue;
            };
            assert!(found == **expected.bytes(), "{window:?} {recipe:?}");
            made += 1;
        }
    }
    assert!(made > 400 || index_of(&Recipe::new(16, 16, S420).make()).is_none(), "{made}");
}

/// Images that are much larger than a block of threads decodes.
#[test]
fn large_images_equal_libjpeg() {
    let kernels = JpegKernels::new();
    let libjpeg = &mut Decoders::new().jpeg(JpegDecoder::Libjpeg);
    for (sampling, restart) in [(S420, 0), (S444, 0), (S444, 301)] {
        let recipe = Recipe { restart, most_bits: 6, step: 1, ..Recipe::new(2100, 1500, sampling) };
        let file = recipe.make();
        assert!(file.len() > 2 << 20, "{}", file.len());
        let window = Roi::new(700, 900, 300, 400);
        let expected = decoded(libjpeg, &file, window, 1).0.unwrap();
        assert!(kernels.decode((&file, window, 1), None) == Ok(expected.clone()), "{recipe:?}");
        if let Some(index) = index_of(&file) {
            assert!(kernels.decode((&file, window, 1), Some(&index)) == Ok(expected));
        }
    }
}

#[test]
fn images_of_all_sizes_share_their_launches_and_a_damaged_one_harms_no_other() {
    let kernels = JpegKernels::new();
    let files: Vec<_> = SAMPLINGS
        .iter()
        .zip([(40, 30), (500, 300), (9, 80), (64, 64), (200, 10), (31, 33)])
        .map(|(sampling, (width, height))| {
            let recipe = Recipe::new(width, height, sampling);
            (recipe.make(), Size::new(width.into(), height.into()).window())
        })
        .collect();
    let indexes: Vec<_> = files.iter().map(|(file, _)| index_of(file)).collect();
    let mut damaged = files[1].0.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(0xfe);
    let mut images: Vec<(Wanted<'_>, Option<&RowIndex>)> = Vec::new();
    for (at, (file, window)) in files.iter().enumerate() {
        images.push(((file, *window, 1), None));
        images.push(((&damaged, files[1].1, 1), None));
        images.push(((file, *window, 1), indexes[at].as_ref()));
        images.push(((&damaged, files[1].1, 1), indexes[1].as_ref()));
    }
    let results = kernels.planes(&images);
    for (((file, window, _), index), result) in images.into_iter().zip(results) {
        if file == damaged {
            assert!(matches!(result, Err(Failure::Problem(_))), "{:?}", result.err());
            continue;
        }
        let (planes, samples) = result.unwrap();
        let alone = kernels.decode((file, window, 1), index).unwrap();
        assert!(pixels(&planes, &samples, window) == alone, "{window:?}");
    }
}

/// Whatever the data is, the kernels return the pixels of the CPU decoder, or a failure. If the CPU
/// decoder leaves an image to libjpeg-turbo, the kernels fail too.
#[test]
fn damaged_data_gives_the_cpus_pixels_or_a_failure() {
    let kernels = JpegKernels::new();
    let ours = &mut Decoders::new().jpeg(JpegDecoder::Feedwater);
    let random = &mut Random(7);
    let (mut equal, mut failed, mut missed) = (0, 0, 0);
    for recipe in recipes().iter().filter(|it| it.most_bits == 4 && it.width > 3) {
        let file = recipe.make();
        let size = Size::new(recipe.width.into(), recipe.height.into());
        let Some(index) = index_of(&file) else { return };
        for round in 0..8 {
            let mut bad = file.clone();
            let header = file.windows(2).position(|it| it == [0xff, 0xda]).unwrap() + 12;
            for _ in 0..1 + random.below(3) {
                let at = header + random.below(bad.len() - header - 2);
                bad[at] = random.below(256) as u8;
            }
            let window = random_window(random, size);
            let expected = decoded(ours, &bad, window, 1).0;
            let index = (round % 2 == 1).then_some(&index);
            match (kernels.decode((&bad, window, 1), index), expected) {
                (Ok(found), Ok(expected)) => {
                    // With an index, damage outside of the window's rows is not seen, and damage
                    // that ends before the end of a row may be.
                    if found == expected {
                        equal += 1;
                    } else {
                        assert!(index.is_some(), "{recipe:?}");
                    }
                }
                (Ok(_), Err(_)) => assert!(index.is_some(), "{recipe:?}"),
                (Err(_), Ok(_)) => missed += 1,
                (Err(_), Err(_)) => failed += 1,
            }
        }
    }
    assert!(equal > 30 && failed > 500, "{equal} {failed} {missed}");
}
