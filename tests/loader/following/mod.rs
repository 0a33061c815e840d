//! Columns that follow the geometry of the image: masks, points and boxes.

mod masks;
mod points;

use feedwater::Pipeline;
use feedwater::Source;
use feedwater::error::{DataError, Error, Result};
use feedwater::loader::{Batch, DeviceChoice, LoaderBuilder};
use feedwater::op::Chain;
use feedwater::plan::{ColumnSettings, LastBatch};
use feedwater::source::custom::{Fields, Page, PutField};
use feedwater::source::{Field, FieldKind, FieldValue, Memory};

/// Source in which each sample has an image, the file of a mask, and a list of numbers.
struct Annotated {
    images: Memory,
    masks: Vec<Vec<u8>>,
    numbers: Vec<Vec<f32>>,
}

impl Annotated {
    fn new(samples: impl IntoIterator<Item = (Vec<u8>, Vec<u8>, Vec<f32>)>) -> Self {
        let (mut images, mut masks, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (image, mask, list) in samples {
            images.push((image, 0));
            masks.push(mask);
            numbers.push(list);
        }
        Self { images: Memory::new(images).unwrap(), masks, numbers }
    }
}

impl Source for Annotated {
    fn len(&self) -> u64 {
        self.images.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.images.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.images.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.images.read(index, page, limit)
    }
    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
    }
}

impl Fields for Annotated {
    fn schema(&self) -> Vec<Field> {
        let field = |name: &str, kind| Field { name: name.into(), kind };
        vec![field("mask", FieldKind::Bytes), field("numbers", FieldKind::List)]
    }
    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        _: &mut Vec<u8>,
        _: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        for (number, &name) in wanted.iter().enumerate() {
            match name {
                "mask" => put(number, FieldValue::Bytes(&self.masks[index as usize]))?,
                _ => put(number, FieldValue::Floats(&self.numbers[index as usize]))?,
            }
        }
        Ok(())
    }
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
