//! Source of images in memory, with fields.

use feedwater::Source;
use feedwater::error::{DataError, Result};
use feedwater::source::custom::{Fields, Page, PutField};
use feedwater::source::{Field, FieldKind, FieldValue, Memory};

/// Images with labels, and fields with a value for each sample.
pub struct WithFields {
    pub images: Memory,
    pub fields: Vec<(&'static str, Values)>,
}

/// Values of a field.
pub enum Values {
    /// A sample whose file is empty has none.
    Files(Vec<Vec<u8>>),
    Texts(Vec<String>),
    Lists(Vec<Vec<f32>>),
}

impl Source for WithFields {
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

impl Fields for WithFields {
    fn schema(&self) -> Vec<Field> {
        let kind = |values: &Values| match values {
            Values::Files(_) => FieldKind::Bytes,
            Values::Texts(_) => FieldKind::Text,
            Values::Lists(_) => FieldKind::List,
        };
        let fields = self.fields.iter();
        fields.map(|(name, values)| Field { name: (*name).into(), kind: kind(values) }).collect()
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
            let values = self.fields.iter().find(|it| it.0 == name).map(|it| &it.1);
            match values {
                Some(Values::Files(files)) if !files[index as usize].is_empty() => {
                    put(number, FieldValue::Bytes(&files[index as usize]))?;
                }
                Some(Values::Texts(texts)) => {
                    put(number, FieldValue::Text(&texts[index as usize]))?
                }
                Some(Values::Lists(lists)) => {
                    put(number, FieldValue::Floats(&lists[index as usize]))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
