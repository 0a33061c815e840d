//! Compares the images that operators produce with those of other libraries.
//! `tests/golden/operators/images.py` writes the expected results.

use feedwater::internals::image::HostImage;
use serde_json::{Value, json};

use super::pictures::{Applied, bytes};
use crate::golden::{digest, picture, size};

fn rows(table: &str) -> Vec<Value> {
    crate::golden::rows(include_str!("../../golden/operators/images.json"), table)
}

#[test]
fn compressed_images_are_pillows() {
    for row in rows("jpegs") {
        let source = HostImage::U8(picture(size(&row["source"]), 31));
        let settings = json!({"quality": row["quality"]});
        let applied = Applied::new("jpeg_distortion", &settings, &source);
        assert_eq!(row["sha256"], digest(bytes(&applied.reference())), "{row}");
        assert_eq!(row["sha256"], digest(bytes(&applied.transformed())), "{row}");
    }
}
