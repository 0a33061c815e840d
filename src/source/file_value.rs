//! Values of fields that are files, by the extension of the file.

use crate::field::{FieldKind, FieldValue};

/// Kind of the field whose files have this extension, such as `json` or `meta.json`.
pub fn kind(extension: &str) -> FieldKind {
    match last(extension).to_ascii_lowercase().as_str() {
        "json" => FieldKind::Json,
        "npy" | "npz" => FieldKind::List,
        "txt" | "caption" => FieldKind::Text,
        _ => FieldKind::Bytes,
    }
}

/// Value of the field that is the file `bytes` with this extension.
pub fn value<'a>(extension: &str, bytes: &'a [u8]) -> FieldValue<'a> {
    match kind(extension) {
        FieldKind::Json => FieldValue::Json(bytes),
        FieldKind::List if last(extension).eq_ignore_ascii_case("npz") => FieldValue::Npz(bytes),
        FieldKind::List => FieldValue::Npy(bytes),
        _ => FieldValue::of_bytes(bytes),
    }
}

/// The part after the last dot.
fn last(extension: &str) -> &str {
    extension.rsplit('.').next().unwrap_or(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_extension_counts() {
        let kinds = ["json", "meta.JSON", "emb.npy", "a.NPZ", "txt", "seg.png", "npy.gz", ""];
        use FieldKind::{Bytes, Json, List, Text};
        assert_eq!(kinds.map(kind), [Json, Json, List, List, Text, Bytes, Bytes, Bytes]);
        assert_eq!(value("cls", b"7"), FieldValue::Text("7"));
        assert_eq!(value("bin", &[255]), FieldValue::Bytes(&[255]));
        assert_eq!(value("a.npy", b"7"), FieldValue::Npy(b"7"));
        assert_eq!(value("a.NpZ", b"7"), FieldValue::Npz(b"7"));
    }
}
