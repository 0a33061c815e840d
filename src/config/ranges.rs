//! Ranges of integers in settings, for messages about values that are not even integers from 0 up.
//! The checks of the settings define the ranges.

use super::former;

/// Largest integer that TOML can represent.
const MOST: u64 = i64::MAX as u64;

/// Settings with their smallest and largest values, if they are not 0 and [`MOST`].
const RANGES: [(&str, u64, u64); 17] = [
    ("loader.batch_size", 1, 1 << 20),
    ("loader.seed", 0, MOST),
    ("loader.shuffle_window", 1, MOST),
    ("loader.repeats", 1, 256),
    ("loader.world_size", 1, MOST),
    ("decode.max_cpu_threads", 1, MOST),
    ("decode.hardware_group", 1, 1024),
    ("targets.classes", 1, 1 << 24),
    ("cache.presize", 1, 32_767),
    ("limits.max_pixels", 1, MOST),
    ("limits.max_side", 1, u32::MAX as u64),
    ("limits.cpu_threads", 1, MOST),
    ("storage.connections", 1, 4096),
    ("storage.retries", 0, 100),
    ("storage.timeout", 1, 3600),
    ("storage.open_timeout", 1, 86_400),
    ("storage.max_listed", 1, MOST),
];

/// Settings in the tables of lists, with their smallest and largest values.
const IN_LISTS: [(&str, u64, u64); 4] = [
    ("column.max_len", 1, MOST),
    ("column.max_texts", 1, MOST),
    ("column.shape", 1, MOST),
    ("view.count", 1, 1024),
];

/// Text for the values of a setting that is an integer. `None` if the setting is not in the lists.
/// `key` may have numbers of tables and entries in brackets, such as `column[1].shape[0]`.
pub fn wanted(key: &str) -> Option<String> {
    let (section, name) = key.split_once('.')?;
    let without_number = |part: &str| part.split('[').next().unwrap_or_default().to_string();
    let (list, entry) = (without_number(section), without_number(name));
    let name = former::name(name);
    let is_it = |it: &&(&str, u64, u64)| it.0.split_once('.') == Some((section, name));
    let is_in_list = |it: &&(&str, u64, u64)| {
        section != list && it.0.split_once('.') == Some((list.as_str(), entry.as_str()))
    };
    let found = RANGES.iter().find(is_it).or_else(|| IN_LISTS.iter().find(is_in_list));
    found.map(|(_, low, high)| match *high {
        MOST if *low > 0 => format!("an integer from {low} up"),
        high => format!("an integer from {low} to {high}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pipeline;

    /// Settings in tables of lists have ranges too. The check of a column refuses 0 for the same
    /// keys.
    #[test]
    fn a_negative_number_in_a_list_names_the_range() {
        let problem = |table: &str| {
            let text = format!("[source]\ndirectory = \"a\"\n{table}\n");
            match Pipeline::from_toml(&text, "") {
                Err(crate::Error::Config(error)) => format!("{}: {}", error.key, error.problem),
                other => panic!("{table}: {:?}", other.err()),
            }
        };
        let chain = "[[view.chain]]\nop = \"resize\"\nwidth = 8\nheight = 8";
        for (table, key) in [
            ("[[column]]\nname = \"a\"\nkind = \"list\"\nmax_len = -1", "column[0].max_len"),
            ("[[column]]\nname = \"a\"\nkind = \"texts\"\nmax_texts = -1", "column[0].max_texts"),
            ("[[column]]\nname = \"a\"\nshape = [2, -1]", "column[0].shape[1]"),
        ] {
            let expected = format!("{key}: must be an integer from 1 up, is integer `-1`");
            assert_eq!(problem(table), expected);
            let zero = problem(&table.replace("-1", "0"));
            assert!(zero.contains("must be at least 1"), "{zero}");
        }
        let view = |count: i64| format!("[[view]]\nname = \"a\"\ncount = {count}\n{chain}");
        let expected = "view[0].count: must be an integer from 1 to 1024, is integer `-1`";
        assert_eq!(problem(&view(-1)), expected);
    }

    #[test]
    fn the_checks_have_the_same_ranges() {
        for (key, low, high) in RANGES {
            let (section, name) = key.split_once('.').unwrap();
            let other = match section {
                "cache" => "decoded = 1\n",
                _ if name == "shuffle_window" || name == "repeats" => "shuffle = true\n",
                _ => "",
            };
            let is_accepted = |value: u64| {
                let text =
                    format!("[source]\ndirectory = \"a\"\n[{section}]\n{other}{name} = {value}\n");
                // The smallest world size has one rank.
                let text = match name {
                    "world_size" => format!("{text}rank = 0\n"),
                    _ => text,
                };
                Pipeline::from_toml(&text, "").is_ok()
            };
            assert!(is_accepted(low) && is_accepted(high), "{key}");
            assert!(low == 0 || !is_accepted(low - 1), "{key}");
            assert!(!is_accepted(high + 1), "{key}");
        }
    }
}
