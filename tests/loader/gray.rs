//! Images with one channel.

use crate::common;
use crate::common::config_error;
use feedwater::loader::{Batch, DeviceChoice, LoaderBuilder};
use feedwater::op::{
    Chain, Flip, Grayscale, MixupOrCutMix, Normalize, RandomApply, RandomResizedCrop, View,
};
use feedwater::plan::LastBatch;
use feedwater::source::Memory;
use feedwater::{DType, Layout, Pipeline, Preprocessor};
use std::sync::Arc;

const SIDE: u32 = 20;

/// Chain of training, whose grayscale has this many channels.
fn chain(channels: u32) -> Chain {
    Chain::new()
        .then(RandomResizedCrop::to(SIDE, SIDE))
        .then(Grayscale { channels })
        .then(Flip { horizontal: 0.5, vertical: 0.0 })
}

fn files() -> Vec<Vec<u8>> {
    vec![
        common::jpeg(1, 60, 50),
        common::png(2, 31, 42),
        common::progressive(3, 44, 45),
        common::with_orientation(&common::jpeg(4, 33, 70), 6),
        common::jpeg(5, 50, 50),
    ]
}

fn batches(chain: Chain, change: impl FnOnce(&mut feedwater::plan::Settings)) -> Vec<Batch> {
    let source = Memory::new(files().into_iter().map(|it| (it, 1)).collect()).unwrap();
    let builder = LoaderBuilder::new(Arc::new(source), chain).num_workers(2).batch_size(2);
    let builder = builder.device(DeviceChoice::Cpu).epochs(Some(2)).configure(|it| {
        it.loader.last_batch = LastBatch::Partial;
        change(it);
    });
    builder.add_batches(true).build().unwrap().into_batches().map(Result::unwrap).collect()
}

/// Bytes of the first of three channels in all batches.
fn first_channel(batches: &[Batch], column: &str, (dtype, layout): (DType, Layout)) -> Vec<u8> {
    let pixels = (SIDE * SIDE) as usize;
    let mut bytes = Vec::new();
    for batch in batches {
        let all = batch.column(column).unwrap().bytes().unwrap();
        for sample in all.chunks_exact(3 * pixels * dtype.bytes()) {
            match layout {
                Layout::Nchw => bytes.extend_from_slice(&sample[..pixels * dtype.bytes()]),
                Layout::Nhwc => {
                    let pixels = sample.chunks_exact(3 * dtype.bytes());
                    bytes.extend(pixels.flat_map(|pixel| &pixel[..dtype.bytes()]));
                }
            }
        }
    }
    bytes
}

fn bytes(batches: &[Batch], column: &str) -> Vec<u8> {
    let all = batches.iter().flat_map(|it| it.column(column).unwrap().bytes().unwrap());
    all.copied().collect()
}

/// A tensor with one channel is the first channel of the tensor with three equal channels, for all
/// element types and layouts, in views, and after batch operators.
#[test]
fn one_channel_is_the_first_of_three() {
    for (dtype, layout) in DType::ALL.into_iter().flat_map(|it| Layout::ALL.map(|to| (it, to))) {
        let all = |channels| {
            let end = |chain: Chain| match dtype {
                DType::U8 => chain,
                _ => chain.then(Normalize { mean: [0.4; 3], std: [0.25; 3] }),
            };
            let colours = Chain::new().then(RandomResizedCrop::to(SIDE, SIDE));
            colours.view(View::new("gray", end(chain(channels))).count(2))
        };
        let made = |channels| {
            batches(all(channels), |it| (it.output.dtype, it.output.layout) = (dtype, layout))
        };
        let (gray, three) = (made(1), made(3));
        let side = SIDE as usize;
        let expected = match layout {
            Layout::Nchw => [2, 2, 1, side, side],
            Layout::Nhwc => [2, 2, side, side, 1],
        };
        assert_eq!(gray[0].column("gray").unwrap().shape(), expected);
        assert!(bytes(&gray, "gray") == first_channel(&three, "gray", (dtype, layout)));
        assert!(bytes(&gray, "image") == bytes(&three, "image"));
        let mixed = |channels| {
            let mixed = chain(channels).then_batch(MixupOrCutMix::default());
            batches(mixed, |it| {
                it.targets.classes = Some(3);
                (it.output.dtype, it.output.layout) = (dtype, layout);
                it.loader.last_batch = LastBatch::Drop;
            })
        };
        let (gray, three) = (mixed(1), mixed(3));
        assert_eq!(gray[0].shape().dims()[if layout == Layout::Nchw { 1 } else { 3 }], 1);
        assert!(bytes(&gray, "image") == first_channel(&three, "image", (dtype, layout)));
        assert_eq!(gray.len(), 4);
    }
    let chain = Chain::new()
        .then(feedwater::op::Resize::to(SIDE, SIDE))
        .then(Grayscale { channels: 1 })
        .then(Normalize { mean: [0.0; 3], std: [1.0; 3] });
    let tensor = Preprocessor::builder(chain).build().unwrap().run(&files()[0]).unwrap();
    assert_eq!(tensor.array_shape(), [1, 1, 20, 20]);
}

/// Operators and settings that have no meaning for one channel are errors, with their place.
#[test]
fn colours_after_gray_are_errors() {
    let planned = |operators: &str| {
        let text = format!("[source]\ndirectory = \"d\"\n{operators}");
        let pipeline = Pipeline::from_toml(&text, "")?;
        let facts = feedwater::internals::plan::Facts::default();
        feedwater::plan::Plan::new(&pipeline.chain, &pipeline.settings, &facts)
    };
    let crop = "[[chain]]\nop = \"center_crop\"\nwidth = 8\nheight = 8\n";
    let gray = "[[chain]]\nop = \"grayscale\"\nchannels = 1\n";
    let with = |operator: &str| planned(&format!("{crop}{gray}[[chain]]\n{operator}"));
    for (operator, words) in [
        ("op = \"hue\"\nshift = 0.1", "hue changes colours, but its input has only one channel"),
        ("op = \"to_ycbcr\"", "put it before grayscale"),
        ("op = \"center_crop\"\nwidth = 9\nheight = 9\nfill = [1, 2, 3]", "[1.0, 2.0, 3.0]"),
        ("op = \"random_erasing\"\nvalue = [0, 0, 1]", "value of random_erasing"),
        ("op = \"normalize\"\nmean = [0.5, 0.5, 0.4]\nstd = 1", "mean of normalize"),
        ("op = \"normalize\"\nmean = [0.5]\nstd = [1, 1, 2]", "std of normalize"),
        ("op = \"pointwise\"\nexpr = \"x + c\"", "remove c"),
        (
            "op = \"random_apply\"\n[[chain.operators]]\nop = \"saturation\"\nfactor = 2",
            "saturation",
        ),
    ] {
        let error = config_error(with(operator));
        assert_eq!(error.key, "chain[2]", "{operator}");
        assert!(error.problem.contains(words), "{words}: {error}");
    }
    let inner = "op = \"one_of\"\n[[chain.operators]]\nop = \"grayscale\"\nchannels = 1";
    let error = config_error(planned(&format!("{crop}[[chain]]\n{inner}")));
    assert!(
        error.key == "chain[1]"
            && error
                .problem
                .contains("operators[0], grayscale, changes the number of channels from 3 to 1"),
        "{error}"
    );
    let three = with("op = \"random_apply\"\n[[chain.operators]]\nop = \"grayscale\"");
    assert!(config_error(three).problem.contains("from 1 to 3"));
    let error = config_error(planned(&format!("{crop}{}", gray.replace("= 1", "= 2"))));
    assert_eq!((&*error.key, &*error.problem), ("chain[1].channels", "must be 1 or 3, is 2"));
    let colours = planned(&format!("{crop}{gray}[[chain]]\nop = \"grayscale\"\n")).unwrap();
    assert_eq!(colours.shape.dims()[1], 3);
    for accepted in
        ["op = \"normalize\"\nmean = [0.5]\nstd = 0.5", "op = \"color_jitter\"\nhue = 0.1"]
    {
        assert_eq!(with(accepted).unwrap().shape.dims()[1], 1);
    }
    let nested = RandomApply::new(0.5).then(Grayscale { channels: 1 });
    let chain = Chain::new().then(feedwater::op::CenterCrop::to(8, 8)).then(nested);
    assert!(Preprocessor::builder(chain).build().is_err());
}
