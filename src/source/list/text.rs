//! Reads text lists: lines with a path and a label.

use memchr::{memchr, memchr_iter};

use super::blocks::Blocks;
use super::{FileListSettings, LineError, Samples, Written, label};
use crate::source::label::LabelSort;

pub fn read(
    blocks: &mut Blocks,
    settings: &FileListSettings,
    samples: &mut Samples,
) -> Result<(), LineError> {
    let sort = match settings.labels {
        LabelSort::Auto => LabelSort::Integer,
        sort => sort,
    };
    let mut line = 0;
    while let Some(lines) = blocks.lines() {
        let mut begin = 0;
        let last = (!lines.ends_with('\n')).then_some(lines.len());
        for end in memchr_iter(b'\n', lines.as_bytes()).chain(last) {
            line += 1;
            let text = &lines[begin..end];
            begin = end + 1;
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.chars().all(char::is_whitespace) {
                continue;
            }
            let (path, label) = split(text);
            samples.push(line, path, label, sort)?;
        }
        samples.reserve(blocks.whole());
    }
    Ok(())
}

/// Splits a line into path and label.
fn split(line: &str) -> (&str, Written<'_>) {
    if let Some(tab) = memchr(b'\t', line.as_bytes()) {
        return (&line[..tab], Written::Text(&line[tab + 1..]));
    }
    if let Some((path, label)) = line.rsplit_once(' ')
        && label::number(label).is_some()
    {
        return (path.trim_end(), Written::Text(label));
    }
    (line, Written::None)
}
