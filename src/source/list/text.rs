//! Lines of path and label.

use super::{FileListSettings, LabelSort, Samples, Wrong, Written};

pub fn read(content: &str, settings: &FileListSettings, samples: &mut Samples) -> Result<(), Wrong> {
    let sort = match settings.labels {
        LabelSort::Auto => LabelSort::Integer,
        sort => sort,
    };
    for (line, text) in (1..).zip(content.split('\n')) {
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.trim().is_empty() {
            continue;
        }
        let (path, label) = split(text);
        samples.push(line, path, label, sort)?;
    }
    Ok(())
}

/// Path and label of a line.
fn split(line: &str) -> (&str, Written<'_>) {
    if let Some((path, label)) = line.split_once('\t') {
        return (path, Written::Either(label));
    }
    if let Some((path, label)) = line.rsplit_once(' ')
        && label.parse::<i64>().is_ok()
    {
        return (path.trim_end(), Written::Either(label));
    }
    (line, Written::None)
}
