//! Other names under which keys and choices are accepted: former names, until version 1.0, and
//! `transform` for `chain`.

use crate::plan::Route;

/// Section, other name and current name of a key. Names of sections have the section "".
const KEYS: [(&str, &str, &str); 5] = [
    ("", "transform", "chain"),
    ("loader", "batch", "batch_size"),
    ("loader", "workers", "num_workers"),
    ("loader", "last", "last_batch"),
    ("loader", "world", "world_size"),
];

/// Returns the current name of a key that has another name, or the key itself.
pub fn name(key: &str) -> &str {
    KEYS.iter().find(|(_, other, _)| *other == key).map_or(key, |(_, _, name)| name)
}

/// Whether a name is the other name of a section.
pub fn is_section(name: &str) -> bool {
    KEYS.iter().any(|(section, other, _)| section.is_empty() && *other == name)
}

/// Other name of a key in a section.
pub fn former(section: &str, key: &str) -> Option<&'static str> {
    let of_key = |(within, _, name): &&(&str, &str, &str)| *within == section && *name == key;
    KEYS.iter().find(of_key).map(|(_, other, _)| *other)
}

/// Returns the current name of a choice among `known` that has a former name, or the choice itself.
pub fn choice<'a>(choice: &'a str, known: &[&str]) -> &'a str {
    let is_former = |route: &Route| route.former_name() == Some(choice);
    let route = Route::ALL.into_iter().find(is_former).map(Route::name);
    route.filter(|name| known.contains(name)).unwrap_or(choice)
}

/// Choices without those that are former names.
pub fn current<'a>(known: &[&'a str]) -> Vec<&'a str> {
    known.iter().copied().filter(|it| choice(it, known) == *it).collect()
}

/// Returns the error message for a table that contains a key under both of its names.
pub fn twice(key: &str) -> String {
    match KEYS.iter().find(|(_, _, name)| *name == key) {
        Some(("", other, _)) => {
            format!("is given twice, as {other} and as {key}; write all of them as {key}")
        }
        Some((_, former, _)) => {
            format!(
                "is given twice, by its former name {former} and by its name {key}; write only \
                 {key}"
            )
        }
        None => "is given twice; remove one of the two".into(),
    }
}
