//! Checks of the settings of columns.

use std::collections::HashSet;

use super::{BoxFormat, ColumnKind, ColumnSettings};
use crate::error::{Error, Result};
use crate::field::{CellKind, DefaultValue, Step, TEXT_LEN_BYTES, TooLong};
use crate::plan::OnError;
use crate::tensor::ElementType;

/// Maximum number of columns: a set of columns (`ColumnSet`) has 64 bits.
const MOST_COLUMNS: usize = 64;

/// Maximum size of a column's values of one sample, in bytes.
const MOST_CELL_BYTES: usize = 1 << 28;

/// Maximum offset of points, in pixels: the default of `limits.max_side`.
const MOST_OFFSET: f64 = 65535.0;

/// Maximum number of axes of a sample or an entry.
const MOST_AXES: usize = 16;

/// Names of the columns that the user does not name.
pub(in crate::plan) const RESERVED_NAMES: [&str; 3] = ["image", "label", "target"];

impl ColumnSettings {
    /// Checks all columns.
    pub(in crate::plan) fn check_all(columns: &[Self], on_error: OnError) -> Result<()> {
        if columns.len() > MOST_COLUMNS {
            let problem = format!(
                "has {} entries, and may have at most {MOST_COLUMNS}; put several numbers into one \
                 field with a list or JSON such as [1, 2, 3], which one column of the kind array \
                 reads with shape = [3]",
                columns.len()
            );
            return Err(Error::config("column", problem));
        }
        for (number, column) in columns.iter().enumerate() {
            let wrong = |key: &str, problem: String| {
                Error::config(format!("column[{number}].{key}"), problem)
            };
            if columns[..number].iter().any(|it| it.name == column.name) {
                let problem = format!(
                    "is {:?}, like that of an earlier column; choose another name",
                    column.name
                );
                return Err(wrong("name", problem));
            }
            column.check(on_error).map_err(|(key, problem)| wrong(key, problem))?;
        }
        Ok(())
    }

    /// Checks one column. Returns the key with a message.
    fn check(&self, on_error: OnError) -> Result<(), (&'static str, String)> {
        let Self { name, kind, .. } = self;
        if name.is_empty() {
            return Err(("name", "is empty; name the column".into()));
        }
        if RESERVED_NAMES.contains(&name.as_str()) {
            let problem = format!(
                "is {name:?}, which is the name of another column of batches; choose another name, and set field = {name:?}"
            );
            return Err(("name", problem));
        }
        self.field_path().map_err(|problem| ("field", problem))?;
        self.check_used()?;
        if let Some(axis) = self.shape.iter().position(|&len| len == 0) {
            return Err((
                "shape",
                format!("is {:?}, but the length of axis {axis} must be at least 1", self.shape),
            ));
        }
        if self.shape.len() > MOST_AXES {
            let problem =
                format!("has {} axes, and may have at most {MOST_AXES}", self.shape.len());
            return Err(("shape", problem));
        }
        for (key, most) in [
            ("max_len", self.max_len),
            ("max_texts", self.max_texts),
            ("max_objects", self.max_objects),
        ] {
            if most == Some(0) {
                return Err((key, "is 0, but must be at least 1".into()));
            }
        }
        self.check_following()?;
        // Masks have the size of the chain's output, which is limited anyway.
        let format = self.cells(&[1, 1]);
        if format.cell_bytes() > MOST_CELL_BYTES {
            let key = match format.kind.is_ragged() {
                true if format.max_texts > MOST_CELL_BYTES / TEXT_LEN_BYTES / 2 => match kind {
                    ColumnKind::Runs => "max_objects",
                    _ => "max_texts",
                },
                true => "max_len",
                false => "shape",
            };
            return Err((
                key,
                format!(
                    "makes a column of {} bytes per sample; the maximum is {MOST_CELL_BYTES}; lower it",
                    format.cell_bytes()
                ),
            ));
        }
        let is_empty = matches!(&self.default, Some(DefaultValue::List(list)) if list.is_empty());
        if kind.has_outlines() && self.default.is_some() && !is_empty {
            return Err(("default", "must be [], for no objects".into()));
        }
        let has_numbers = self.one_hot.is_none() && !kind.has_outlines();
        if let Some(default) = self.default.as_ref().filter(|_| has_numbers) {
            let mut cell = vec![0; format.cell_bytes()];
            let written = format.write_default(default, &mut cell);
            let written = written.map_err(|error| ("default", error.problem))?;
            if written.truncated {
                let texts = match format.kind {
                    CellKind::Texts => ", or has more texts than max_texts",
                    _ => "",
                };
                let most = format.max_len;
                let problem =
                    format!("is longer than max_len = {most}{texts}; shorten it, or raise max_len");
                return Err(("default", problem));
            }
        }
        let is_integer = matches!(format.element, ElementType::U8 | ElementType::I64);
        if on_error == OnError::Substitute
            && *kind == ColumnKind::Array
            && is_integer
            && self.default.is_none()
        {
            let problem = "is not set, but loader.on_error = \"substitute\" needs a value for samples that fail; set it";
            return Err(("default", problem.into()));
        }
        Ok(())
    }

    /// Checks that keys are not set that have no effect on columns of this kind.
    fn check_used(&self) -> Result<(), (&'static str, String)> {
        use ColumnKind::{Array, Boxes, Bytes, Instances, List, Mask, Points, Runs, Text, Texts};
        let keys: [(&'static str, bool, &[ColumnKind]); 15] = [
            ("dtype", self.dtype.is_some(), &[Array, List, Mask, Points, Boxes]),
            ("shape", !self.shape.is_empty(), &[Array, List, Points]),
            (
                "max_len",
                self.max_len.is_some(),
                &[List, Text, Texts, Bytes, Points, Boxes, Runs, Instances],
            ),
            ("max_texts", self.max_texts.is_some(), &[Texts]),
            ("max_objects", self.max_objects.is_some(), &[Runs]),
            (
                "too_long",
                self.too_long != TooLong::Error,
                &[List, Text, Texts, Bytes, Points, Boxes, Runs, Instances],
            ),
            ("pick", self.pick.is_some(), &[Text]),
            ("like", self.like.is_some(), &[Mask, Points, Boxes, Runs, Instances]),
            ("one_hot", self.one_hot.is_some(), &[Mask]),
            ("fill", self.fill.is_some(), &[Mask]),
            ("turn", self.turn, &[Mask, Points, Boxes, Runs, Instances]),
            ("scale", self.scale, &[Mask]),
            ("format", self.format != BoxFormat::Xyxy, &[Boxes]),
            ("flip_pairs", !self.flip_pairs.is_empty(), &[Points]),
            ("offset", self.offset.is_some(), &[Points]),
        ];
        let needless =
            keys.into_iter().find(|(_, is_set, kinds)| *is_set && !kinds.contains(&self.kind));
        let Some((key, _, kinds)) = needless else { return Ok(()) };
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let problem = format!(
            "has no effect on a column of the kind {}, only on {}; remove it",
            self.kind.name(),
            kinds.join(", ")
        );
        Err((key, problem))
    }

    /// Checks the keys of columns that follow the image.
    fn check_following(&self) -> Result<(), (&'static str, String)> {
        if !self.kind.follows() {
            return Ok(());
        }
        let (kind, dtype) = (self.kind, self.dtype);
        let dtypes: &[ElementType] = match kind {
            ColumnKind::Mask if self.one_hot.is_some() => {
                &[ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::U8]
            }
            ColumnKind::Mask => &[ElementType::U8, ElementType::I64, ElementType::F32],
            _ => &[ElementType::F32],
        };
        if let Some(dtype) = dtype.filter(|it| !dtypes.contains(it)) {
            let dtypes: Vec<_> = dtypes.iter().map(ToString::to_string).collect();
            let (name, dtypes) = (kind.name(), dtypes.join(", "));
            let problem = match self.one_hot {
                Some(_) => format!(
                    "is {dtype}, but masks with one_hot may have {dtypes}; remove one_hot for \
                     numbers of classes"
                ),
                None => format!("is {dtype}, but columns of the kind {name} may have {dtypes}"),
            };
            return Err(("dtype", problem));
        }
        match kind {
            ColumnKind::Mask => {
                let path = self.field_path().map_err(|problem| ("field", problem))?;
                if !matches!(&path.steps[..], [] | [Step::Member(_)]) {
                    let problem = "has a path of JSON, but a mask is a file: only the name of an array may follow the colon, as in seg.npz:mask";
                    return Err(("field", problem.into()));
                }
                if let Some(classes) = self.one_hot {
                    return self.check_one_hot(classes);
                }
                let fill = DefaultValue::Float(self.fill());
                let written = self
                    .cells(&[1, 1])
                    .write_default(&fill, &mut [0; 8][..self.cells(&[1, 1]).cell_bytes()]);
                written.map(drop).map_err(|error| ("fill", error.problem))
            }
            ColumnKind::Points => self.check_points(),
            _ => Ok(()),
        }
    }

    /// Checks the keys of a mask with this number of classes.
    fn check_one_hot(&self, classes: u32) -> Result<(), (&'static str, String)> {
        if !(1..=u32::from(u16::MAX)).contains(&classes) {
            return Err(("one_hot", format!("must be 1 to 65535, is {classes}")));
        }
        let fill = self.fill();
        let numbers = f64::from(classes)..=f64::from(u16::MAX);
        if fill.fract() != 0.0 || !numbers.contains(&fill) {
            let problem = format!(
                "is {fill}, but with one_hot = {classes} it must be a number that is no class, \
                 {classes} to 65535, because pixels with this number have no class; set it to the \
                 number of ignored pixels"
            );
            return Err(("fill", problem));
        }
        let is_number = match &self.default {
            None => true,
            Some(DefaultValue::Integer(number)) => {
                (0..i64::from(classes)).contains(number) || *number == fill as i64
            }
            Some(_) => false,
        };
        if !is_number {
            let problem = format!(
                "must be the class of all pixels, 0 to {}, or {fill} for no class",
                classes - 1
            );
            return Err(("default", problem));
        }
        Ok(())
    }

    fn check_points(&self) -> Result<(), (&'static str, String)> {
        let dims = self.cells(&[1, 1]).dims;
        if !matches!(dims.last(), Some(2 | 3)) {
            let entry = match dims[..] {
                [numbers] if numbers > 3 && numbers % 3 == 0 => {
                    format!(", or [{}, 3] for {} points per entry", numbers / 3, numbers / 3)
                }
                [numbers] if numbers > 3 && numbers % 2 == 0 => {
                    format!(", or [{}, 2] for {} points per entry", numbers / 2, numbers / 2)
                }
                _ => String::new(),
            };
            let problem = format!(
                "is {dims:?}, but the last axis of points has 2 numbers (x, y) or 3 (x, y, \
                 visibility); set shape = [2] or [3]{entry}"
            );
            return Err(("shape", problem));
        }
        if let Some(offset) = self.offset.filter(|it| !(-MOST_OFFSET..=MOST_OFFSET).contains(it)) {
            let problem = format!(
                "is {offset}, but must be a number of pixels between -{MOST_OFFSET} and \
                 {MOST_OFFSET}, such as 0.5"
            );
            return Err(("offset", problem));
        }
        let [pairs @ .., _] = &dims[..] else { return Ok(()) };
        let points = pairs.last().copied().unwrap_or(1);
        let mut seen = HashSet::new();
        for pair in &self.flip_pairs {
            if let Some(point) = pair.iter().find(|&&point| point >= points) {
                let problem = format!(
                    "has the point {point}, but the shape {dims:?} has {points} points in one entry, counted from 0"
                );
                return Err(("flip_pairs", problem));
            }
            if let Some(point) = pair.iter().find(|&&point| !seen.insert(point)) {
                return Err((
                    "flip_pairs",
                    format!("has the point {point} more than once; list each point in one pair"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Pick;

    #[test]
    fn a_wrong_column_is_an_error_at_its_key() {
        let f32 = ElementType::F32;
        let array = |shape: &[usize]| ColumnSettings::array("a", f32, shape);
        let text = |name| ColumnSettings::text(name);
        let texts = || ColumnSettings::texts("a");
        let picking = || ColumnSettings { pick: Some(Pick::Random), ..text("a") };
        let list = |len, value: DefaultValue| DefaultValue::List(vec![value; len]);
        let word = || DefaultValue::Text("x".into());
        let nested = || list(1, word());
        let (mask, points) = (|| ColumnSettings::mask("a"), || ColumnSettings::points("a"));
        let five = || ColumnSettings { shape: vec![5, 3], ..points() };
        let with_default = |value| ColumnSettings { default: Some(value), ..array(&[]) };
        for (key, column) in [
            ("name", text("")),
            ("name", text("image")),
            ("name", text("label")),
            ("field", ColumnSettings { field: Some("a:".into()), ..text("a") }),
            ("field", ColumnSettings { field: Some(String::new()), ..text("a") }),
            ("max_len", ColumnSettings { max_len: Some(4), ..array(&[]) }),
            ("too_long", ColumnSettings { too_long: TooLong::Truncate, ..array(&[]) }),
            ("dtype", ColumnSettings { dtype: Some(f32), ..text("a") }),
            ("shape", ColumnSettings { shape: vec![1], ..text("a") }),
            ("shape", array(&[2, 0])),
            ("shape", array(&[1 << 20, 1 << 20])),
            ("shape", array(&[usize::MAX, 3])),
            ("max_len", ColumnSettings { max_len: Some(0), ..text("a") }),
            ("max_len", ColumnSettings { max_len: Some(usize::MAX), ..text("a") }),
            ("fill", ColumnSettings { fill: Some(0.0), ..array(&[]) }),
            ("turn", ColumnSettings { turn: true, ..text("a") }),
            ("flip_pairs", ColumnSettings { flip_pairs: vec![[0, 1]], ..mask() }),
            ("format", ColumnSettings { format: BoxFormat::Xywh, ..mask() }),
            ("offset", ColumnSettings { offset: Some(0.5), ..mask() }),
            ("offset", ColumnSettings { offset: Some(f64::NAN), ..points() }),
            ("offset", ColumnSettings { offset: Some(f64::INFINITY), ..five() }),
            ("like", ColumnSettings { like: Some("image".into()), ..text("a") }),
            ("fill", ColumnSettings { fill: Some(256.0), ..mask() }),
            ("fill", ColumnSettings { fill: Some(0.5), ..mask() }),
            ("field", ColumnSettings { field: Some("a:b.c".into()), ..mask() }),
            ("field", ColumnSettings { field: Some("a:[0]".into()), ..mask() }),
            ("max_objects", ColumnSettings { max_objects: Some(2), ..mask() }),
            ("max_objects", ColumnSettings { max_objects: Some(0), ..ColumnSettings::runs("a") }),
            (
                "max_objects",
                ColumnSettings { max_objects: Some(1 << 26), ..ColumnSettings::runs("a") },
            ),
            ("too_long", ColumnSettings { too_long: TooLong::Truncate, ..mask() }),
            (
                "default",
                ColumnSettings {
                    default: Some(DefaultValue::Integer(0)),
                    ..ColumnSettings::runs("a")
                },
            ),
            ("one_hot", ColumnSettings { one_hot: Some(2), ..points() }),
            ("one_hot", ColumnSettings { one_hot: Some(0), ..mask() }),
            ("one_hot", ColumnSettings { one_hot: Some(65536), ..mask() }),
            ("fill", ColumnSettings { one_hot: Some(256), ..mask() }),
            ("fill", ColumnSettings { one_hot: Some(2), fill: Some(2.5), ..mask() }),
            ("dtype", ColumnSettings { one_hot: Some(2), dtype: Some(ElementType::I64), ..mask() }),
            (
                "default",
                ColumnSettings {
                    one_hot: Some(2),
                    default: Some(DefaultValue::Integer(2)),
                    ..mask()
                },
            ),
            (
                "default",
                ColumnSettings {
                    one_hot: Some(2),
                    default: Some(DefaultValue::Float(1.0)),
                    ..mask()
                },
            ),
            ("pick", ColumnSettings { pick: Some(Pick::First), ..array(&[]) }),
            ("pick", ColumnSettings { pick: Some(Pick::Random), ..texts() }),
            ("max_texts", ColumnSettings { max_texts: Some(4), ..text("a") }),
            ("max_texts", ColumnSettings { max_texts: Some(0), ..texts() }),
            ("max_texts", ColumnSettings { max_texts: Some(usize::MAX), ..texts() }),
            ("max_texts", ColumnSettings { max_texts: Some(1 << 26), ..texts() }),
            ("max_len", ColumnSettings { max_len: Some(1 << 28), ..texts() }),
            ("default", ColumnSettings { default: Some(DefaultValue::Integer(1)), ..texts() }),
            ("default", ColumnSettings { default: Some(list(1, nested())), ..texts() }),
            ("default", ColumnSettings { default: Some(list(33, word())), ..texts() }),
            ("default", ColumnSettings { default: Some(list(1, word())), ..picking() }),
            ("dtype", ColumnSettings { dtype: Some(ElementType::F16), ..mask() }),
            ("default", ColumnSettings { default: Some(DefaultValue::Integer(-1)), ..mask() }),
            ("shape", ColumnSettings { shape: vec![2], ..mask() }),
            ("shape", ColumnSettings { shape: vec![4], ..points() }),
            ("dtype", ColumnSettings { dtype: Some(ElementType::I64), ..points() }),
            ("flip_pairs", ColumnSettings { flip_pairs: vec![[0, 1]], ..points() }),
            ("flip_pairs", ColumnSettings { flip_pairs: vec![[0, 5]], ..five() }),
            ("flip_pairs", ColumnSettings { flip_pairs: vec![[0, 1], [1, 2]], ..five() }),
            (
                "shape",
                ColumnSettings { shape: vec![4], ..ColumnSettings::boxes("a", BoxFormat::Xyxy) },
            ),
            ("default", with_default(DefaultValue::Text("x".into()))),
            ("default", with_default(DefaultValue::List(vec![]))),
            ("default", with_default(DefaultValue::Float(1e300))),
        ] {
            match ColumnSettings::check_all(std::slice::from_ref(&column), OnError::Stop) {
                Err(Error::Config(error)) => assert_eq!(error.key, format!("column[0].{key}")),
                other => panic!("{column:?}: {other:?}"),
            }
        }
        let many: Vec<_> =
            (0..65).map(|number| ColumnSettings::text(&format!("c{number}"))).collect();
        let error = ColumnSettings::check_all(&many, OnError::Stop).unwrap_err().to_string();
        assert!(error.contains("has 65 entries") && error.contains("shape = [3]"), "{error}");
        assert!(ColumnSettings::check_all(&many[1..], OnError::Stop).is_ok());
        let twice = [text("a"), array(&[])];
        assert!(ColumnSettings::check_all(&twice, OnError::Stop).is_err());
        let number = ColumnSettings::array("n", ElementType::I64, &[]);
        let numbers = std::slice::from_ref(&number);
        assert!(ColumnSettings::check_all(numbers, OnError::Substitute).is_err());
        assert!(ColumnSettings::check_all(numbers, OnError::Drop).is_ok());
        let good = [text("a"), array(&[3]), with_default(DefaultValue::Float(f64::NAN))];
        assert!(ColumnSettings::check_all(&good[..1], OnError::Substitute).is_ok());
        assert!(ColumnSettings::check_all(&good[1..2], OnError::Substitute).is_ok());
        assert!(ColumnSettings::check_all(&good[2..], OnError::Stop).is_ok());
    }
}
