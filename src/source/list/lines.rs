//! Reads lists in JSON lines.

use serde_json::{Map, Value};

use super::blocks::Blocks;
use super::rows::Rows;
use super::{FileListSettings, LineError, Samples, Written, label};

pub fn read(
    blocks: &mut Blocks,
    settings: &FileListSettings,
    samples: &mut Samples,
) -> Result<(), LineError> {
    let names = settings.images();
    // Whether the first line has a label. If so, every line must have a label. If not, no line may
    // have one.
    let mut labelled = None;
    let mut line = 0;
    let mut rows = Rows::of_json();
    let mut blocks_begin = 0;
    while let Some(lines) = blocks.lines() {
        for text in lines.lines() {
            line += 1;
            if text.trim().is_empty() {
                continue;
            }
            let object: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| LineError::new(line, error.to_string()))?;
            let path = names.iter().find_map(|name| object.get(*name).map(|value| (name, value)));
            let path = match path {
                Some((_, Value::String(path))) => path,
                _ if samples.for_fields && !settings.needs_path() => "",
                Some((name, other)) => {
                    return Err(LineError::new(
                        line,
                        format!("the value of {name:?} must be a path, is {other}"),
                    ));
                }
                None => {
                    let problem = format!(
                        "must have the path under one of the keys {}, but has the keys {}; name \
                         the key of the path with image = \"…\" under [source]",
                        names.join(", "),
                        object.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
                    );
                    return Err(LineError::new(line, problem));
                }
            };
            let label = match settings.label() {
                _ if samples.for_fields => Written::None,
                None => Written::None,
                Some((name, must)) => {
                    let value = object.get(name);
                    if labelled.is_none() && value.is_none() {
                        samples.unlabelled = settings.unlabelled(object.keys().map(String::as_str));
                    }
                    let labelled = *labelled.get_or_insert(must || value.is_some());
                    written(name, value, labelled)
                        .map_err(|problem| LineError::new(line, problem))?
                }
            };
            samples.push(line, path, label, settings.labels)?;
            rows.add_keys(object.keys());
            rows.push((blocks_begin + text.as_ptr().addr() - lines.as_ptr().addr()) as u64);
        }
        blocks_begin += lines.len();
        samples.reserve(blocks.whole());
    }
    let own = 1 + usize::from(labelled == Some(true));
    samples.rows = Some(rows).filter(|rows| samples.for_fields || rows.len() > own);
    Ok(())
}

fn written<'a>(
    name: &str,
    value: Option<&'a Value>,
    labelled: bool,
) -> Result<Written<'a>, String> {
    match value {
        None if !labelled => Ok(Written::None),
        None => Err(format!("has no {name:?}")),
        Some(_) if !labelled => {
            Err(format!("has the key {name:?}, but earlier lines do not have it"))
        }
        Some(Value::String(text)) if text.is_empty() => Err("the label is empty".into()),
        Some(Value::String(text)) => Ok(Written::Text(text)),
        Some(Value::Number(number)) => match label::of_json(number) {
            Ok(label) => Ok(Written::Number(label)),
            Err(why) => Err(format!("the label {number} {why}")),
        },
        Some(value) => Err(format!("the label must be a whole number or a text, is {value}")),
    }
}
