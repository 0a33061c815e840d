//! Other names under which keys are accepted: former names, until version 1.0, and `transform` for
//! `chain`.

/// Section, other name and current name of a key. Names of sections have the section "".
const KEYS: [(&str, &str, &str); 5] = [
    ("", "transform", "chain"),
    ("loader", "batch", "batch_size"),
    ("loader", "workers", "num_workers"),
    ("loader", "last", "last_batch"),
    ("loader", "world", "world_size"),
];

/// Returns the current name of a key that has a former name, or the key itself.
pub fn name(key: &'static str) -> &'static str {
    KEYS.iter().find(|(_, former, _)| *former == key).map_or(key, |(_, _, name)| name)
}

/// Whether a name is the former name of a section.
pub fn is_section(name: &str) -> bool {
    KEYS.iter().any(|(section, former, _)| section.is_empty() && *former == name)
}

/// Former name of a key in a section.
pub fn former(section: &str, key: &str) -> Option<&'static str> {
    let of_key = |(within, _, name): &&(&str, &str, &str)| *within == section && *name == key;
    KEYS.iter().find(of_key).map(|(_, former, _)| *former)
}

/// Returns the error message for a table that contains a key under both of its names.
pub fn twice(key: &str) -> String {
    match KEYS.iter().find(|(_, _, name)| *name == key) {
        Some((_, former, _)) => {
            format!(
                "is given twice, by its former name {former} and by its name {key}; write only \
                 {key}"
            )
        }
        None => "is given twice".into(),
    }
}
