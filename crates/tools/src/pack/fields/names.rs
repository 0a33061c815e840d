//! Names of fields in shards.

use feedwater::internals::source::records::{CLASSES_NAME, FIELDS_NAME, FORMS};

use crate::pack::layout::{FEATURES, LABEL_FILE, ShardFormat};

/// Longest name in a tar archive in bytes, so that a name with a key and a form fits a header.
const MOST_BYTES: usize = 60;

/// Extensions under which the source `webdataset` finds images.
const IMAGES: [&str; 11] =
    ["jpg", "jpeg", "png", "webp", "ppm", "pgm", "pbm", "bmp", "gif", "tif", "tiff"];

/// Returns for each field the name in shards, and whether its values are files with exactly this
/// name. Otherwise a form such as `.txt` is added to it. `files` are the names of the fields' files
/// in the source.
///
/// Names in tar archives are in lower case, because readers of WebDataset convert them. Characters
/// other than letters, digits, `_`, `-` and `.` become `_`. If two names collide, a number is added
/// to the later one.
pub fn bases(
    format: ShardFormat,
    names: &[String],
    files: &[Option<String>],
) -> Vec<(String, bool)> {
    let mut bases: Vec<Option<(String, bool)>> = vec![None; names.len()];
    // Names of files are used first, because they keep their extension.
    for (base, file) in bases.iter_mut().zip(files) {
        let Some(file) = file.as_ref().filter(|it| is_usable(format, it)) else { continue };
        *base = Some((file.clone(), true));
    }
    for number in 0..names.len() {
        let is_taken =
            bases[..number].iter().flatten().any(|it| Some(it) == bases[number].as_ref());
        if is_taken {
            bases[number] = None;
        }
    }
    for (number, name) in names.iter().enumerate() {
        if bases[number].is_some() {
            continue;
        }
        let wanted = match format {
            ShardFormat::WebDataset => cleaned(name),
            ShardFormat::TfRecord => name.clone(),
        };
        let mut base = wanted.clone();
        let mut count = 1;
        while bases.iter().flatten().any(|other| collide(&base, other))
            || is_reserved(format, &base)
        {
            count += 1;
            base = format!("{wanted}-{count}");
        }
        bases[number] = Some((base, false));
    }
    bases.into_iter().flatten().collect()
}

/// Whether files can have this name in a shard.
fn is_usable(format: ShardFormat, name: &str) -> bool {
    match format {
        ShardFormat::WebDataset => {
            cleaned(name) == name && name != LABEL_FILE && !IMAGES.contains(&name)
        }
        ShardFormat::TfRecord => !is_reserved(format, name),
    }
}

/// Whether a form may not be added to this name. In tar archives, the added form distinguishes the
/// name from those of the label and the image.
fn is_reserved(format: ShardFormat, name: &str) -> bool {
    match format {
        ShardFormat::WebDataset => false,
        ShardFormat::TfRecord => {
            FEATURES.contains(&name) || name == CLASSES_NAME || name == FIELDS_NAME
        }
    }
}

/// Whether one of two names may equal the other one with a form. Forms of two parts, such as
/// `flat.npy`, may also begin in one name.
fn collide(base: &str, (other, _): &(String, bool)) -> bool {
    let is_before = |a: &str, b: &str| {
        let rest = b.strip_prefix(a).and_then(|it| it.strip_prefix('.'));
        rest.is_some_and(|it| FORMS.contains(&it) || it == "flat" || it == "entries")
    };
    base == other || is_before(base, other) || is_before(other, base)
}

fn cleaned(name: &str) -> String {
    let allowed = |it: char| it.is_alphanumeric() || matches!(it, '_' | '-' | '.');
    let name = name.to_lowercase();
    let mut cleaned = String::new();
    for it in name.chars().map(|it| if allowed(it) { it } else { '_' }) {
        if cleaned.len() + it.len_utf8() > MOST_BYTES {
            break;
        }
        cleaned.push(it);
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(format: ShardFormat, fields: &[(&str, Option<&str>)]) -> Vec<(String, bool)> {
        let names: Vec<String> = fields.iter().map(|it| it.0.into()).collect();
        let files: Vec<_> = fields.iter().map(|it| it.1.map(String::from)).collect();
        bases(format, &names, &files)
    }

    #[test]
    fn names_are_distinct_and_files_keep_theirs() {
        let long = "x".repeat(99);
        let fields = [
            ("A b", None),
            ("a/b", None),
            ("cls", Some("cls")),
            ("jpg", Some("jpg")),
            ("mask", Some("mask.png")),
            ("seg", None),
            ("seg.png", Some("seg.png")),
            ("t", None),
            ("t.flat", None),
            ("Vtt", Some("Vtt")),
            (&long, None),
        ];
        let found = of(ShardFormat::WebDataset, &fields);
        let expected = [
            ("a_b", false),
            ("a_b-2", false),
            ("cls", false),
            ("jpg", false),
            ("mask.png", true),
            ("seg-2", false),
            ("seg.png", true),
            ("t", false),
            ("t.flat-2", false),
            ("vtt", false),
            (&long[..60], false),
        ];
        assert_eq!(found, expected.map(|(base, is_file)| (base.to_string(), is_file)));
        let found = of(ShardFormat::TfRecord, &[("image/format", None), ("A b/c", None)]);
        assert_eq!(found, [("image/format-2".to_string(), false), ("A b/c".to_string(), false)]);
    }
}
