//! Columns that follow the geometry of the image: masks, points and boxes.

mod elastic;
mod masks;
mod one_hot;
mod outlines;
mod points;

use crate::with_fields::{Values, WithFields};
use feedwater::Pipeline;
use feedwater::Source;
use feedwater::error::{Error, Result};
use feedwater::loader::{Batch, DeviceChoice, LoaderBuilder};
use feedwater::op::Chain;
use feedwater::plan::{ColumnSettings, LastBatch};
use feedwater::source::Memory;

/// Source in which each sample has an image, the file of a mask, and a list of numbers.
fn annotated(samples: impl IntoIterator<Item = (Vec<u8>, Vec<u8>, Vec<f32>)>) -> WithFields {
    let (mut images, mut masks, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    for (image, mask, list) in samples {
        images.push((image, 0));
        masks.push(mask);
        lists.push(list);
    }
    let fields = vec![("mask", Values::Files(masks)), ("numbers", Values::Lists(lists))];
    WithFields { images: Memory::new(images).unwrap(), fields }
}

/// The chain with these tables of operators, each without the header `[[chain]]`.
fn chain(operators: &[&str]) -> Chain {
    let tables = operators.iter().map(|it| format!("[[chain]]\n{it}\n")).collect::<String>();
    Pipeline::from_toml(&format!("[source]\ndirectory = \"d\"\n{tables}"), "").unwrap().chain
}

/// Builder for bytes of the layout NHWC, without shuffling.
fn builder(
    source: impl Source + 'static,
    chain: Chain,
    columns: Vec<ColumnSettings>,
) -> LoaderBuilder {
    let builder = LoaderBuilder::new(std::sync::Arc::new(source), chain);
    builder.batch_size(4).device(DeviceChoice::Cpu).epochs(Some(1)).configure(|it| {
        it.loader.last_batch = LastBatch::Partial;
        it.output.dtype = feedwater::DType::U8;
        it.output.layout = feedwater::Layout::Nhwc;
        it.columns = columns;
    })
}

fn batches(builder: LoaderBuilder) -> Result<Vec<Batch>> {
    builder.add_batches(true).build()?.into_batches().collect()
}

/// The error of the first sample that fails.
fn problem(builder: LoaderBuilder) -> String {
    match batches(builder) {
        Err(Error::Sample(error)) => error.problem,
        other => panic!("{:?}", other.map(|it| it.len())),
    }
}

fn numbers(settings: ColumnSettings) -> ColumnSettings {
    ColumnSettings { field: Some("numbers".into()), ..settings }
}
