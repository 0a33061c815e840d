//! Views: further outputs of the image of a sample, each with a chain of its own.

use std::sync::Arc;

use crate::common;
use crate::with_fields::{Values, WithFields};
use feedwater::error::{Error, Result};
use feedwater::internals::random::SampleKey;
use feedwater::loader::{Batch, DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, View};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::Memory;
use feedwater::{Layout, Pipeline};
use proptest::prelude::*;

/// Operators for random chains: of all executors, with random numbers, combinators and floats.
const OPERATORS: [&str; 20] = [
    "op = \"center_crop\"\nwidth = 41\nheight = 19\nfill = [9, 8, 7]",
    "op = \"random_crop\"\nwidth = 22\nheight = 18\npadding = 4\nmode = \"reflect\"\npad_if_needed = true",
    "op = \"flip\"\nhorizontal = 0.5\nvertical = 0.5",
    "op = \"random_resized_crop\"\nwidth = 23\nheight = 21",
    "op = \"random_resized_crop\"\nwidth = 40\nheight = 50\nfilter = \"bicubic\"",
    "op = \"resize\"\nshorter = 30",
    "op = \"random_rotation\"\ndegrees = 180\nexpand = true\nfill = [5, 6, 7]",
    "op = \"random_affine\"\ndegrees = 20\ntranslate = [0.2, 0.1]\nscale = [0.6, 1.4]",
    "op = \"elastic\"\nalpha = 40\nsigma = 3",
    "op = \"pad\"\npadding = [3, 5, 1, 2]\nmode = \"symmetric\"",
    "op = \"random_zoom_out\"\nprobability = 0.5\nfill = [1, 2, 3]",
    "op = \"gaussian_blur\"\nkernel_size = 5",
    "op = \"color_jitter\"\nbrightness = 0.4\nhue = 0.1",
    "op = \"random_erasing\"\nprobability = 0.5",
    "op = \"aug_mix\"",
    "op = \"equalize\"",
    "op = \"solarize\"\nthreshold = 128",
    "op = \"grayscale\"",
    "op = \"random_apply\"\nprobability = 0.5\n[[OPERATORS]]\nop = \"gaussian_blur\"\nkernel_size = 3",
    "op = \"rand_augment\"",
];

const LAST: [&str; 3] = [
    "op = \"random_resized_crop\"\nwidth = 17\nheight = 12",
    "op = \"resize\"\nwidth = 25\nheight = 20",
    "op = \"center_crop\"\nwidth = 30\nheight = 31",
];

const NORMALIZE: &str = "op = \"normalize\"\nmean = [0.4, 0.5, 0.6]\nstd = [0.2, 0.3, 0.25]";

/// The chain with these tables of operators.
fn chain(operators: &[&str]) -> Chain {
    let table = |it: &&str| format!("[[chain]]\n{}\n", it.replace("OPERATORS", "chain.operators"));
    let text: String = operators.iter().map(table).collect();
    Pipeline::from_toml(&format!("[source]\ndirectory = \"d\"\n{text}"), "").unwrap().chain
}

fn builder(files: &[Vec<u8>], chain: Chain) -> LoaderBuilder {
    let source = Memory::new(files.iter().map(|it| (it.clone(), 3)).collect()).unwrap();
    let builder = LoaderBuilder::new(Arc::new(source), chain).num_workers(2);
    builder.batch_size(2).device(DeviceChoice::Cpu).epochs(Some(2)).configure(|it| {
        it.loader.last_batch = LastBatch::Partial;
    })
}

fn batches(builder: LoaderBuilder) -> Result<Vec<Batch>> {
    builder.add_batches(true).build()?.into_batches().collect()
}

/// Bytes of a column in all batches.
fn column<B: std::borrow::Borrow<Batch>>(batches: &[B], name: &str) -> Vec<u8> {
    let all = batches.iter().map(|it| it.borrow());
    all.flat_map(|it| it.column(name).unwrap().bytes().unwrap()).copied().collect()
}

/// Output `output` of a view, whose column has the bytes `all` with `each` bytes per output.
fn output(all: &[u8], (output, count): (u32, u32), each: usize) -> Vec<u8> {
    let outputs = all.chunks_exact(each).skip(output as usize).step_by(count as usize);
    outputs.flatten().copied().collect()
}

/// Images of several formats and orientations.
fn files(seed: u64) -> Vec<Vec<u8>> {
    let size = |at: u64| (seed.wrapping_mul(0x9e37_79b9) >> (5 * at)) as u32 % 90 + 1;
    let jpeg = |at: u64| common::sampled_jpeg(seed + at, size(at), size(at + 1), None);
    vec![
        jpeg(0),
        common::with_orientation(&jpeg(1), (seed % 8) as u16 + 1),
        common::png(seed, size(2), size(4)),
        common::progressive(seed, size(3), size(5)),
        jpeg(4),
    ]
}

fn operators() -> impl Strategy<Value = Vec<&'static str>> {
    let some = prop::collection::vec(prop::sample::select(&OPERATORS[..]), 0..4);
    (some, prop::sample::select(&LAST[..]), any::<bool>()).prop_map(|(mut all, last, floats)| {
        all.push(last);
        all.extend(floats.then_some(NORMALIZE));
        all
    })
}

/// Seed with which a loader of one image per sample draws what this output of a view draws.
fn seed_of(view: &str, output: u32) -> u64 {
    SampleKey { seed: 7, ..SampleKey::default() }.of_view(view, output).seed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if common::tests_all_cases() { 120 } else { 12 }, failure_persistence: None, ..Default::default() })]
    /// Each output of a view has the bytes of a loader that has only this chain, whatever other
    /// views there are.
    #[test]
    fn outputs_equal_those_of_loaders_with_one_chain(
        chains in prop::collection::vec((operators(), prop::option::of(1_u32..4)), 1..4),
        main in prop::option::of(operators()),
        (seed, prescale) in (0..10_000_u64, any::<bool>()),
        cache in 0..4_u8,
        layout in prop::sample::select(&[Layout::Nchw, Layout::Nhwc][..]),
    ) {
        let files = files(seed);
        let of_views = chains.iter().map(|(_, count)| count.unwrap_or(1));
        let outputs = of_views.sum::<u32>() + main.iter().len() as u32;
        let configured = |chain: Chain, seed| builder(&files, chain).seed(seed).configure(|it| {
            it.output.layout = layout;
            // All outputs share one reduction, so it can differ from that of a single output.
            it.decode.prescale = prescale && cache != 1 && outputs == 1;
            let bytes = 100_000;
            match cache {
                1 => it.cache.decoded = Some(bytes),
                2 => it.cache.encoded = Some(bytes),
                3 => it.cache.row_index = Some(bytes),
                _ => {}
            }
        });
        let mut all = main.as_ref().map_or_else(Chain::new, |it| chain(it));
        for (number, (operators, count)) in chains.iter().enumerate() {
            let mut view = View::new(&format!("v{number}"), chain(operators));
            view.count = *count;
            all = all.view(view);
        }
        let made = batches(configured(all, 7)).unwrap();
        prop_assert_eq!(made.len(), 6);
        if let Some(main) = &main {
            let alone = batches(configured(chain(main), 7)).unwrap();
            prop_assert!(column(&made, "image") == column(&alone, "image"), "main");
        }
        for (number, (operators, count)) in chains.iter().enumerate() {
            let name = format!("v{number}");
            let bytes = column(&made, &name);
            let outputs = count.unwrap_or(1);
            let shape = made[0].column(&name).unwrap().shape();
            prop_assert_eq!(shape.len(), if count.is_some() { 5 } else { 4 });
            for at in 0..outputs {
                let alone = batches(configured(chain(operators), seed_of(&name, at))).unwrap();
                let each = alone[0].shape().sample_bytes();
                prop_assert!(
                    output(&bytes, (at, outputs), each) == column(&alone, "image"),
                    "output {} of {}", at, name
                );
            }
        }
    }
}

/// A view like another one has its crops, also with more operators that move no pixels. The number
/// of workers and of samples per batch does not change views, and an epoch resumes exactly.
#[test]
fn views_do_not_depend_on_batches_and_workers() {
    let crop = [OPERATORS[3], OPERATORS[2]];
    let colours: Vec<_> = crop.iter().chain(&[OPERATORS[12]]).copied().collect();
    let all = || {
        chain(&crop)
            .view(View::new("teacher", chain(&crop)).like("image"))
            .view(View::new("student", chain(&colours)).count(2))
            .view(View::new("plain", chain(&crop)).count(2).like("student"))
    };
    let files: Vec<_> = (0..11).map(|seed| common::jpeg(seed, 60, 50)).collect();
    let make = |workers: usize, batch| {
        builder(&files, all()).num_workers(workers).batch_size(batch).shuffle(true).seed(7)
    };
    let expected = batches(make(1, 11)).unwrap();
    assert!(column(&expected, "teacher") == column(&expected, "image"));
    assert!(column(&expected, "plain") != column(&expected, "student"));
    let crops = Chain::new().view(View::new("student", chain(&crop)).count(2));
    let crops = batches(builder(&files, crops).batch_size(11).shuffle(true).seed(7)).unwrap();
    assert!(column(&crops, "student") == column(&expected, "plain"));
    for (workers, batch) in [(3, 4), (2, 1)] {
        let mut loader = make(workers, batch).build().unwrap();
        let first = loader.epoch().next().unwrap().unwrap();
        let state = loader.state();
        drop(loader);
        let rest = batches(make(workers, batch).resume(state)).unwrap();
        for name in ["teacher", "student", "plain"] {
            let resumed = [column(&[&first], name), column(&rest, name)].concat();
            assert!(resumed == column(&expected, name), "{name}");
        }
    }
}

/// The crops of one run of a chain have the same random numbers, also in the operators after the
/// crop.
#[test]
fn crops_of_one_run_are_of_one_image() {
    let ten = "op = \"ten_crop\"\nwidth = 17\nheight = 12";
    let around = |crop: &str| {
        chain(&[OPERATORS[4], OPERATORS[6], OPERATORS[2], crop, OPERATORS[12], NORMALIZE])
    };
    let files = files(3);
    let like = chain(&[OPERATORS[4]]);
    let both = Chain::new()
        .view(View::new("crops", around(ten)).count(20))
        .view(View::new("whole", like.clone()).count(2).like("crops"));
    let made = batches(builder(&files, both).seed(7)).unwrap();
    let shape = made[0].column("crops").unwrap().shape();
    assert_eq!(shape, [2, 20, 3, 12, 17]);
    for at in 0..20 {
        let one = format!("{ten}\ncrop = {}", at % 10);
        let one = around(&one);
        let alone = batches(builder(&files, one).seed(seed_of("crops", at / 10))).unwrap();
        let each = alone[0].shape().sample_bytes();
        let output = output(&column(&made, "crops"), (at, 20), each);
        assert!(output == column(&alone, "image"), "crop {at}");
    }
    for run in 0..2 {
        let alone = batches(builder(&files, like.clone()).seed(seed_of("crops", run))).unwrap();
        let each = alone[0].shape().sample_bytes();
        let output = output(&column(&made, "whole"), (run, 2), each);
        assert!(output == column(&alone, "image"), "run {run}");
    }
    let main = chain(&[OPERATORS[4], LAST[1]]);
    let five = chain(&[OPERATORS[4], "op = \"five_crop\"\nwidth = 9\nheight = 8"]);
    let made = batches(builder(&files, main.view(View::new("five", five).like("image")))).unwrap();
    let alone = chain(&[OPERATORS[4], "op = \"five_crop\"\nwidth = 9\nheight = 8\ncrop = 3"]);
    let alone = batches(builder(&files, alone)).unwrap();
    let each = alone[0].shape().sample_bytes();
    assert!(output(&column(&made, "five"), (3, 5), each) == column(&alone, "image"));
}

/// A sample that fails has zeros in all views, or another sample with its own views.
#[test]
fn views_of_samples_that_fail_are_replaced() {
    let mut files: Vec<_> = (0..6).map(|seed| common::jpeg(seed, 60, 50)).collect();
    files[2].truncate(300);
    let view = || Chain::new().view(View::new("view", chain(&[LAST[0]])).count(2));
    let make = |policy| batches(builder(&files, view()).batch_size(6).on_error(policy));
    assert!(make(OnError::Stop).is_err());
    let of = |batches: &[Batch], place: usize| {
        batches[0].column("view").unwrap().sample::<f32>(place).unwrap().to_vec()
    };
    let substituted = make(OnError::Substitute).unwrap();
    assert!(of(&substituted, 2).iter().all(|&it| it == 0.0));
    let dropped = make(OnError::Drop).unwrap();
    assert_eq!((dropped[0].len(), dropped[0].column("view").unwrap().shape()[0]), (5, 5));
    assert!(of(&dropped, 2) == of(&substituted, 3));
    let skipped = make(OnError::Skip).unwrap();
    let instead = skipped[0].samples()[2].index as usize;
    assert!(instead != 2 && of(&skipped, 2) == of(&substituted, instead));
}

/// Loader of images, each with the files of two other images as the fields `a` and `b`.
fn of_pairs(images: &[Vec<u8>], others: [Vec<Vec<u8>>; 2], chain: Chain) -> LoaderBuilder {
    let images = Memory::new(images.iter().map(|it| (it.clone(), 3)).collect()).unwrap();
    let [a, b] = others;
    let fields = vec![("a", Values::Files(a)), ("b", Values::Files(b))];
    let builder = LoaderBuilder::new(Arc::new(WithFields { images, fields }), chain).num_workers(2);
    builder.batch_size(2).device(DeviceChoice::Cpu).epochs(Some(2)).configure(|it| {
        it.loader.last_batch = LastBatch::Partial;
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if common::tests_all_cases() { 80 } else { 8 }, failure_persistence: None, ..Default::default()
    })]
    /// The views of an image in a field have the bytes of a loader of these images that has only
    /// this chain, whatever the sample's image is.
    #[test]
    fn views_of_fields_equal_those_of_loaders_of_their_images(
        chains in prop::collection::vec((operators(), 0..3_usize, prop::option::of(1_u32..3)), 1..4),
        main in prop::option::of(operators()),
        seed in 0..10_000_u64,
    ) {
        let images = [files(seed), files(seed + 100), files(seed + 200)];
        let mut all = main.as_ref().map_or_else(Chain::new, |it| chain(it));
        for (number, (operators, image, count)) in chains.iter().enumerate() {
            let mut view = View::new(&format!("v{number}"), chain(operators));
            view.count = *count;
            view.field = [None, Some("a"), Some("b")][*image].map(str::to_string);
            all = all.view(view);
        }
        let others = [images[1].clone(), images[2].clone()];
        let pairs = of_pairs(&images[0], others, all).seed(7);
        let pairs = pairs.configure(|it| it.cache.row_index = (seed % 2 == 0).then_some(100_000));
        let made = batches(pairs).unwrap();
        if let Some(main) = &main {
            let alone = batches(builder(&images[0], chain(main)).seed(7)).unwrap();
            prop_assert!(column(&made, "image") == column(&alone, "image"), "main");
        }
        for (number, (operators, image, count)) in chains.iter().enumerate() {
            let name = format!("v{number}");
            let (bytes, outputs) = (column(&made, &name), count.unwrap_or(1));
            for at in 0..outputs {
                let alone = builder(&images[*image], chain(operators)).seed(seed_of(&name, at));
                let alone = batches(alone).unwrap();
                let each = alone[0].shape().sample_bytes();
                prop_assert!(
                    output(&bytes, (at, outputs), each) == column(&alone, "image"),
                    "output {} of {}", at, name
                );
            }
        }
    }
}

/// Two images of the same size get the same crops. Images of other sizes, and files that are
/// missing or damaged, are errors of the sample that name the field.
#[test]
fn pairs_of_images_get_the_same_crops() {
    let crop = [OPERATORS[3], OPERATORS[2]];
    let like = || chain(&crop).view(View::new("right", chain(&crop)).field("a").like("image"));
    let images: Vec<_> = (0..4).map(|seed| common::png(seed, 60, 50)).collect();
    let others = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut files = images.clone();
        change(&mut files);
        [files, images.clone()]
    };
    let same = batches(of_pairs(&images, others(&|_| {}), like())).unwrap();
    assert!(column(&same, "right") == column(&same, "image"));
    let problem = |change: &dyn Fn(&mut Vec<Vec<u8>>)| match batches(of_pairs(
        &images,
        others(change),
        like(),
    )) {
        Err(Error::Sample(error)) => (error.index, error.reason.name(), error.problem),
        other => panic!("{:?}", other.map(|it| it.len())),
    };
    let (index, reason, text) = problem(&|it| it[2] = common::png(1, 50, 60));
    assert_eq!((index, reason), (2, "field"));
    assert!(text.contains("\"a\" has an image of 50x60") && text.contains("60x50"), "{text}");
    let (index, reason, text) = problem(&|it| it[1].clear());
    assert_eq!((index, reason, &*text), (1, "field", "the field \"a\" is missing"));
    let (index, _, text) = problem(&|it| it[3].truncate(60));
    assert!(index == 3 && text.starts_with("the field \"a\": "), "{text}");
    let (_, _, text) = problem(&|it| it[0] = b"no image".to_vec());
    assert!(text.starts_with("the field \"a\": "), "{text}");
    let wrong =
        of_pairs(&images, others(&|_| {}), like().view(View::new("c", chain(&crop)).field("c")));
    match wrong.build() {
        Err(Error::Config(error)) => {
            assert_eq!(error.key, "view[1].field");
            assert!(error.problem.contains("has the fields a, b"), "{error}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}
