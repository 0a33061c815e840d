//! Other names of keys: former ones, which are accepted until 1.0, and `transform` for `chain`.

/// Section, other name and key. A section itself is in the section "".
const KEYS: [(&str, &str, &str); 5] = [
    ("", "transform", "chain"),
    ("loader", "batch", "batch_size"),
    ("loader", "workers", "num_workers"),
    ("loader", "last", "last_batch"),
    ("loader", "world", "world_size"),
];

/// Today's name of a key that has a former name, or the key itself.
pub fn name(key: &'static str) -> &'static str {
    KEYS.iter().find(|(_, former, _)| *former == key).map_or(key, |(_, _, name)| name)
}

/// Whether this is the former name of a section.
pub fn is_section(name: &str) -> bool {
    KEYS.iter().any(|(section, former, _)| section.is_empty() && *former == name)
}

/// Former name of a key in a section.
pub fn former(section: &str, key: &str) -> Option<&'static str> {
    let of_key = |(within, _, name): &&(&str, &str, &str)| *within == section && *name == key;
    KEYS.iter().find(of_key).map(|(_, former, _)| *former)
}

/// Problem of a key that a table has by both names.
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
