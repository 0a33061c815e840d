//! Caffe's `Datum` (src/caffe/proto/caffe.proto):
//!
//! ```text
//! Datum { int32 channels = 1, height = 2, width = 3; bytes data = 4; int32 label = 5;
//!         repeated float float_data = 6; bool encoded = 7 [default = false] }
//! ```

use std::ops::Range;

use crate::source::records::protobuf::{Fields, Value};
use crate::source::records::{Window, Wrong};

const OTHERWISE: &str = "the value is no Datum of Caffe; write source.values = \"image\" where values are pictures, \
    or leave the key out (source.skip)";

/// The bytes of the picture in a value, and the label.
pub fn find(window: &mut Window, value: Range<u64>) -> Result<(Range<u64>, i64), Wrong> {
    let start = value.start;
    let (mut data, mut label, mut encoded) = (None, 0, false);
    let mut fields = Fields::of(value, OTHERWISE);
    while let Some(field) = fields.next(window)? {
        match field {
            (4, Value::Bytes(bytes)) => data = Some(bytes),
            // An int32: the upper bits say nothing.
            (5, Value::Number(number)) => label = i64::from(number as i32),
            (7, Value::Number(number)) => encoded = number != 0,
            _ => {}
        }
    }
    let Some(data) = data else {
        let problem = "the Datum has no data: floats (float_data) are not read; write encoded pictures \
                       (convert_imageset --encoded)";
        return Err(Wrong::new(start, problem));
    };
    if !encoded {
        let problem = "the Datum holds plain pixels: these are not read; write encoded pictures \
                       (convert_imageset --encoded)";
        return Err(Wrong::new(start, problem));
    }
    Ok((data, label))
}

/// Whether a value begins with one of a Datum's fields, which no picture does.
pub fn is_datum(window: &mut Window, value: Range<u64>) -> Result<bool, Wrong> {
    let first = window.at(value.start, (value.end - value.start).min(1))?;
    Ok(matches!(first, [0x08 | 0x10 | 0x18 | 0x22 | 0x28 | 0x32 | 0x35 | 0x38]))
}
