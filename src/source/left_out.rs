//! What a source met and left out of its samples, counted.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::beginning;

/// Kinds that are counted one by one for each reason; further ones are counted together.
const MOST_KINDS: usize = 24;
/// The kind of those.
const OTHER: &str = "other";
/// Bytes that are kept of a kind and of an example.
const MOST_KIND_BYTES: usize = 64;
const MOST_EXAMPLE_BYTES: usize = 512;

/// Things of one kind that a source met and that are none of its samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Why they are none.
    pub why: WhyLeftOut,
    /// What they are: mostly the extension of a name. Empty where there is but one kind.
    pub kind: String,
    /// How many there are.
    pub count: u64,
    /// The first that was met.
    pub example: String,
}

/// Why something is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyLeftOut {
    /// A key of an archive none of whose files is an image.
    NoImage,
    /// A file whose name does not end as an image's does.
    OtherExtension,
    /// A file beside the folders of the classes.
    BesideClasses,
    /// A folder that is no class, by `class_to_index`.
    OtherClass,
    /// A file of an archive whose name has no key, or no extension.
    NoKey,
    /// A symbolic link in an archive.
    SymbolicLink,
    /// A hard link in an archive to a file that is not before it.
    LostLink,
    /// A pipe, a socket or a device.
    Special,
    /// A key that `keys` does not match, or that `skip_keys` does.
    OtherKey,
    /// An image without annotations (`skip_empty`).
    NoAnnotation,
}

impl WhyLeftOut {
    /// What there is more than one of, and why it is no sample: the words after a number.
    pub const fn words(self) -> &'static str {
        match self {
            WhyLeftOut::NoImage => "keys have no image",
            WhyLeftOut::OtherExtension => "files have no image's extension",
            WhyLeftOut::BesideClasses => "files lie beside the class folders",
            WhyLeftOut::OtherClass => "folders are not in class_to_index",
            WhyLeftOut::NoKey => "files have no key and extension",
            WhyLeftOut::SymbolicLink => "symbolic links are not followed",
            WhyLeftOut::LostLink => "hard links lead to no file before them",
            WhyLeftOut::Special => "pipes, sockets or devices",
            WhyLeftOut::OtherKey => "keys are not wanted (source.keys, source.skip_keys)",
            WhyLeftOut::NoAnnotation => "images have no annotation (source.skip_empty)",
        }
    }
}

/// A line for each reason, for people: `3 keys have no image: tiff 2, seg.jpg 1 (the first: d.tiff)`.
pub fn left_out_lines(all: &[LeftOut]) -> Vec<String> {
    let mut by_reason: BTreeMap<WhyLeftOut, Vec<&LeftOut>> = BTreeMap::new();
    for one in all {
        by_reason.entry(one.why).or_default().push(one);
    }
    let lines = by_reason.into_iter().map(|(why, mut kinds)| {
        kinds.sort_by_key(|it| std::cmp::Reverse(it.count));
        let count: u64 = kinds.iter().map(|it| it.count).sum();
        let named = kinds.iter().filter(|it| !it.kind.is_empty());
        let named: Vec<_> = named.map(|it| format!("{} {}", it.kind, it.count)).collect();
        let kinds_text = match named.is_empty() {
            true => String::new(),
            false => format!(": {}", named.join(", ")),
        };
        format!("{count} {}{kinds_text} (the first: {})", why.words(), kinds[0].example)
    });
    lines.collect()
}

/// What is wrong where there are no samples, and what there is instead.
pub fn none_but(problem: String, left_out: &[LeftOut]) -> String {
    [vec![problem], left_out_lines(left_out)].concat().join("; ")
}

/// Counts what is left out.
#[derive(Debug, Default)]
pub struct LeftOuts(BTreeMap<(WhyLeftOut, String), (u64, String)>);

impl LeftOuts {
    /// Counts so many of a kind; `example` is kept where it is the first.
    pub fn add(&mut self, why: WhyLeftOut, kind: &str, count: u64, example: &str) {
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

    /// Counts what another source left out.
    pub fn join(&mut self, others: &[LeftOut]) {
        for LeftOut { why, kind, count, example } in others {
            self.add(*why, kind, *count, example);
        }
    }

    /// Counts what was left out of a file.
    pub fn join_file(&mut self, file: &Path, others: &[LeftOut]) {
        for LeftOut { why, kind, count, example } in others {
            self.add(*why, kind, *count, &format!("{}: {example}", file.display()));
        }
    }

    /// What was counted, in the order of the reasons and the kinds.
    pub fn into_list(self) -> Vec<LeftOut> {
        let one = |((why, kind), (count, example))| LeftOut { why, kind, count, example };
        self.0.into_iter().map(one).collect()
    }
}

/// The extension of a name in lower case, with its dot; `no extension` where it has none.
pub fn extension(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((_, extension)) => format!(".{}", extension.to_lowercase()),
        None => "no extension".into(),
    }
}

/// The text, or its beginning where it is longer.
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
    fn kinds_are_counted_and_named_by_reason_the_most_first() {
        let mut all = LeftOuts::default();
        for (name, kind) in [("d.tiff", "tiff"), ("f.seg.jpg", "seg.jpg"), ("e.tiff", "tiff")] {
            all.add(WhyLeftOut::NoImage, kind, 1, name);
        }
        all.add(WhyLeftOut::Special, "", 2, "pipe");
        let lines = left_out_lines(&all.into_list());
        assert_eq!(lines[0], "3 keys have no image: tiff 2, seg.jpg 1 (the first: d.tiff)");
        assert_eq!(lines[1], "2 pipes, sockets or devices (the first: pipe)");
    }

    #[test]
    fn kinds_and_names_are_bounded_and_no_count_is_lost() {
        let mut all = LeftOuts::default();
        let name = "日".repeat(100_000);
        for number in 0..1000 {
            all.add(WhyLeftOut::OtherExtension, &format!("{number}{name}"), 1, &name);
        }
        let all = all.into_list();
        assert_eq!(all.iter().map(|it| it.count).sum::<u64>(), 1000);
        assert_eq!((all.len(), all.iter().any(|it| it.kind == OTHER)), (MOST_KINDS + 1, true));
        assert!(serde_json::to_string(&all).unwrap().len() < 32 << 10);
    }
}
