//! Counts items that a source skips.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{beginning, escaped};
use crate::header::program_for;

/// Number of kinds, such as file extensions, that are counted separately for each reason. Items of
/// further kinds are counted together as [`OTHER`].
const MOST_KINDS: usize = 24;
/// Name of the kind that stands for all further kinds.
const OTHER: &str = "other";
/// Lengths in bytes to which kinds and examples are shortened.
const MOST_KIND_BYTES: usize = 64;
const MOST_EXAMPLE_BYTES: usize = 512;

/// Items of one kind that a source skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exclusion {
    /// Reason why the items were skipped.
    pub why: ExclusionReason,
    /// Kind of the items, usually a file extension. Empty if the reason has only one kind.
    pub kind: String,
    /// Number of items.
    pub count: u64,
    /// First skipped item of this kind.
    pub example: String,
}

/// Reason why a source skipped an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExclusionReason {
    /// Key of an archive (a file name without extensions) that has no image file.
    NoImage,
    /// File whose extension is not an image extension.
    OtherExtension,
    /// File next to the class folders.
    BesideClasses,
    /// Folder of a class that is not in `class_to_index`.
    OtherClass,
    /// File in an archive whose name has no key or no extension.
    NoKey,
    /// Symbolic link in an archive.
    SymbolicLink,
    /// Hard link in an archive whose target does not precede the link.
    LostLink,
    /// Pipe, socket or device.
    Special,
    /// Key excluded by `keys` or `skip_keys`.
    OtherKey,
    /// Image without annotations (`skip_empty`).
    NoAnnotation,
    /// RecordIO record that consists only of a header.
    EmptyRecord,
    /// Annotation of an image that the file does not list.
    OrphanAnnotation,
    /// Sample of a class that is not in the table of classes (`classes`).
    UnknownClass,
    /// Object of a category that is not in the table of classes (`classes`).
    UnknownCategory,
    /// Sample whose key no sample of the second source has (`missing = "drop"`).
    NoPartner,
    /// Byte after the end mark of a tar file, unless it belongs to another archive that follows.
    AfterEnd,
    /// Object of 0 bytes that is named like an image. It marks a folder, as consoles of object
    /// stores do, or results from a failed upload.
    EmptyObject,
    /// Shard that is damaged or cannot be opened (`on_bad_shard`).
    BadShard,
    /// Intact sample before the damage of a skipped shard.
    InBadShard,
    /// Byte of a bad shard that may belong to samples.
    LostBytes,
}

impl ExclusionReason {
    /// Text that follows the count in a message: the skipped items in the plural, and why they were
    /// skipped.
    pub const fn words(self) -> &'static str {
        match self {
            ExclusionReason::NoImage => "keys have no image",
            ExclusionReason::OtherExtension => "files have no image's extension",
            ExclusionReason::BesideClasses => "files are next to the class folders",
            ExclusionReason::OtherClass => "folders are not in class_to_index",
            ExclusionReason::NoKey => "files have no key and extension",
            ExclusionReason::SymbolicLink => "symbolic links are not followed",
            ExclusionReason::LostLink => "hard links have no earlier target",
            ExclusionReason::Special => "pipes, sockets or devices",
            ExclusionReason::OtherKey => "keys are excluded (source.keys, source.skip_keys)",
            ExclusionReason::EmptyObject => "objects named like images are empty",
            ExclusionReason::BadShard => {
                "shards are damaged or cannot be read (source.on_bad_shard)"
            }
            ExclusionReason::InBadShard => "intact samples are in skipped shards",
            ExclusionReason::LostBytes => "bytes of bad shards are lost, with the samples in them",
            ExclusionReason::AfterEnd => "bytes after the end mark are not in a tar archive",
            ExclusionReason::NoAnnotation => "images have no annotation (source.skip_empty)",
            ExclusionReason::EmptyRecord => "records have no image",
            ExclusionReason::OrphanAnnotation => {
                "annotations are of images that the file does not list"
            }
            ExclusionReason::UnknownClass => {
                "samples are of classes that are not in the table (source.classes)"
            }
            ExclusionReason::NoPartner => {
                "samples have no partner in the second source (source.join.missing)"
            }
            ExclusionReason::UnknownCategory => {
                "objects are of categories that are not in the table (source.classes)"
            }
        }
    }
}

/// Returns one line per reason, such as `3 keys have no image: tiff 2, seg.jpg 1 (the first:
/// d.tiff)`.
pub fn exclusion_lines(all: &[Exclusion]) -> Vec<String> {
    let mut by_reason: BTreeMap<ExclusionReason, Vec<&Exclusion>> = BTreeMap::new();
    for one in all {
        by_reason.entry(one.why).or_default().push(one);
    }
    let lines = by_reason.into_iter().map(|(why, mut kinds)| {
        kinds.sort_by_key(|it| std::cmp::Reverse(it.count));
        let count: u64 = kinds.iter().map(|it| it.count).sum();
        let named = kinds.iter().filter(|it| !it.kind.is_empty());
        let named: Vec<_> = named.map(|it| format!("{} {}", escaped(&it.kind), it.count)).collect();
        let kinds_text = match named.is_empty() {
            true => String::new(),
            false => format!(": {}", named.join(", ")),
        };
        let programs: BTreeSet<_> = kinds.iter().filter_map(|it| program_for(&it.kind)).collect();
        let advice: Vec<_> =
            programs.into_iter().map(|it| format!("; convert with `{it}`")).collect();
        let first = escaped(&kinds[0].example);
        format!("{count} {}{kinds_text} (the first: {first}){}", words(why, count), advice.concat())
    });
    lines.collect()
}

/// Returns the text after a count, in the singular if the count is 1: `key has no image`.
fn words(why: ExclusionReason, count: u64) -> Cow<'static, str> {
    let verbs = [(" have ", " has "), (" are ", " is ")];
    let split = verbs.iter().find_map(|(many, one)| Some((why.words().split_once(many)?, one)));
    match split {
        Some(((items, rest), verb)) if count == 1 => {
            format!("{}{verb}{rest}", items.trim_end_matches('s')).into()
        }
        _ => why.words().into(),
    }
}

/// Returns the error message for a source without samples, which lists the skipped items.
pub fn none_but(problem: String, excluded: &[Exclusion]) -> String {
    [vec![problem], exclusion_lines(excluded)].concat().join("; ")
}

/// Counter of skipped items.
#[derive(Debug, Default)]
pub struct Exclusions(BTreeMap<(ExclusionReason, String), (u64, String)>);

impl Exclusions {
    /// Counts items of a kind. `example` is stored if it is the first item of the kind.
    pub fn add(&mut self, why: ExclusionReason, kind: &str, count: u64, example: &str) {
        let mut key = (why, start(kind, MOST_KIND_BYTES));
        if !self.0.contains_key(&key) {
            let kinds = self.0.keys().filter(|(other, _)| *other == why).count();
            if kinds >= MOST_KINDS {
                key.1 = OTHER.into();
            }
        }
        let example = || (0, start(example, MOST_EXAMPLE_BYTES));
        self.0.entry(key).or_insert_with(example).0 += count;
    }

    /// Adds the counts of another source.
    pub fn join(&mut self, others: &[Exclusion]) {
        for Exclusion { why, kind, count, example } in others {
            self.add(*why, kind, *count, example);
        }
    }

    /// Adds the counts of one file, with its path before each example.
    pub fn join_file(&mut self, file: &Path, others: &[Exclusion]) {
        for Exclusion { why, kind, count, example } in others {
            self.add(*why, kind, *count, &format!("{}: {example}", file.display()));
        }
    }

    /// Returns the counts, ordered by reason and kind.
    pub fn into_list(self) -> Vec<Exclusion> {
        let one = |((why, kind), (count, example))| Exclusion { why, kind, count, example };
        self.0.into_iter().map(one).collect()
    }
}

/// Extension of a file name in lower case, with its dot, or `no extension`.
pub fn extension(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((_, extension)) => format!(".{}", extension.to_lowercase()),
        None => "no extension".into(),
    }
}

/// Returns the text, shortened to at most `most` bytes and an ellipsis.
fn start(text: &str, most: usize) -> String {
    match text.len() > most {
        true => format!("{}…", beginning(text, most)),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_group_kinds_by_reason_with_the_most_frequent_first() {
        let mut all = Exclusions::default();
        for (name, kind) in [("d.tiff", "tiff"), ("f.seg.jpg", "seg.jpg"), ("e.tiff", "tiff")] {
            all.add(ExclusionReason::NoImage, kind, 1, name);
        }
        all.add(ExclusionReason::Special, "", 2, "fifo");
        let lines = exclusion_lines(&all.into_list());
        let [first, second] = &lines[..] else { panic!("{lines:?}") };
        for value in ["3", ExclusionReason::NoImage.words(), "tiff 2, seg.jpg 1", "d.tiff"] {
            assert!(first.contains(value), "{value}: {first}");
        }
        assert!(second.contains('2') && second.contains("fifo"), "{second}");
    }

    #[test]
    fn names_are_escaped_and_one_item_is_singular() {
        let mut all = Exclusions::default();
        all.add(ExclusionReason::OtherExtension, "x\x1b[1m", 1, "a\nwarning: b.x");
        assert_eq!(
            exclusion_lines(&all.into_list()),
            ["1 file has no image's extension: x\\u{1b}[1m 1 (the first: a\\nwarning: b.x)"]
        );
        assert_eq!(words(ExclusionReason::SymbolicLink, 1), "symbolic link is not followed");
        assert_eq!(words(ExclusionReason::SymbolicLink, 2), "symbolic links are not followed");
    }

    #[test]
    fn lines_name_the_program_that_converts_heic_and_avif() {
        let mut all = Exclusions::default();
        all.add(ExclusionReason::OtherExtension, ".heic", 3, "a.heic");
        all.add(ExclusionReason::OtherExtension, ".txt", 1, "b.txt");
        all.add(ExclusionReason::NoImage, "avif", 1, "c.avif");
        let lines = exclusion_lines(&all.into_list());
        let [keys, files] = &lines[..] else { panic!("{lines:?}") };
        assert!(keys.contains("avifdec") && !keys.contains("heif-convert"), "{keys}");
        assert!(files.contains("heif-convert") && !files.contains("avifdec"), "{files}");
    }

    #[test]
    fn kinds_and_names_are_bounded_and_every_item_is_counted() {
        let mut all = Exclusions::default();
        let name = "日".repeat(100_000);
        for number in 0..1000 {
            all.add(ExclusionReason::OtherExtension, &format!("{number}{name}"), 1, &name);
        }
        let all = all.into_list();
        assert_eq!(all.iter().map(|it| it.count).sum::<u64>(), 1000);
        assert_eq!((all.len(), all.iter().any(|it| it.kind == OTHER)), (MOST_KINDS + 1, true));
        assert!(serde_json::to_string(&all).unwrap().len() < 32 << 10);
    }
}
