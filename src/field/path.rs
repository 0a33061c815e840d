//! Paths into JSON values, such as `boxes[*].x`.

use std::fmt;
use std::str::FromStr;

/// Reference to a field of a source, with a path into its value if the value is JSON:
/// `NAME` or `NAME:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    /// Name of the field.
    pub name: String,
    /// Steps from the field's value to the column's value.
    pub steps: Vec<Step>,
}

/// Step of a path into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The member of an object: `name`, or `["name"]` if the name contains other characters than
    /// letters, digits, `_` and `-`.
    Member(String),
    /// An entry of an array, from 0: `[3]`.
    Entry(usize),
    /// All entries of an array: `[*]`. The column gets a list.
    All,
}

impl FieldPath {
    /// The whole value of a field.
    pub fn whole(name: &str) -> Self {
        Self { name: name.into(), steps: Vec::new() }
    }

    /// Path to the first entry of the list at the end of the path, or of the list that a step `[*]`
    /// makes.
    pub fn first_entry(&self) -> Self {
        let mut steps = self.steps.clone();
        match steps.iter_mut().find(|step| **step == Step::All) {
            Some(all) => *all = Step::Entry(0),
            None => steps.push(Step::Entry(0)),
        }
        Self { name: self.name.clone(), steps }
    }
}

impl FromStr for FieldPath {
    type Err = String;

    /// Parses `NAME` or `NAME:PATH`. The name ends before the first colon.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err("names no field".into());
        }
        if text.ends_with(':') {
            return Err(format!(
                "is {text:?}, without a path after the colon; an example is {text}score"
            ));
        }
        Ok(Self { name: name.into(), steps: steps(path)? })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (number, step) in self.steps.iter().enumerate() {
            f.write_str(if number == 0 { ":" } else { "" })?;
            match step {
                Step::Member(name) if is_plain(name) => {
                    write!(f, "{}{name}", if number == 0 { "" } else { "." })?;
                }
                Step::Member(name) => write!(f, "[\"{name}\"]")?,
                Step::Entry(entry) => write!(f, "[{entry}]")?,
                Step::All => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

/// Whether the name of a member needs no quotes.
fn is_plain(name: &str) -> bool {
    let plain = |it: char| it.is_alphanumeric() || "_-".contains(it);
    !name.is_empty() && name.chars().all(plain)
}

/// Parses a path, such as `meta.score` or `boxes[*].x`.
fn steps(path: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (step, after) = brackets(inside)
                .ok_or_else(|| format!("has {rest:?}; write [3], [*] or [\"name\"] in brackets"))?;
            steps.push(step);
            rest = after;
            continue;
        }
        if !steps.is_empty() {
            rest = rest
                .strip_prefix('.')
                .ok_or_else(|| format!("has {rest:?}; write a dot before the name of a member"))?;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if !is_plain(name) {
            return Err(format!(
                "has the name {name:?} after the colon; write [\"{}\"] for a name with other characters than \
                 letters, digits, _ and -; for a field with a colon in its own name, give the column this name, without field",
                name.trim_matches(['"', '\''])
            ));
        }
        steps.push(Step::Member(name.into()));
        rest = after;
    }
    Ok(steps)
}

/// Parses the text after an opening bracket. Returns the step and the text after the closing
/// bracket.
fn brackets(inside: &str) -> Option<(Step, &str)> {
    if let Some(quoted) = inside.strip_prefix('"') {
        let (name, after) = quoted.split_once("\"]")?;
        return Some((Step::Member(name.into()), after));
    }
    let (step, after) = inside.split_once(']')?;
    match step {
        "*" => Some((Step::All, after)),
        entry if entry.bytes().all(|it| it.is_ascii_digit()) => {
            Some((Step::Entry(entry.parse().ok()?), after))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_and_written_the_same() {
        let member = |name: &str| Step::Member(name.into());
        for (text, name, steps) in [
            ("score", "score", vec![]),
            ("json:meta.score", "json", vec![member("meta"), member("score")]),
            ("json:boxes[*].x", "json", vec![member("boxes"), Step::All, member("x")]),
            ("json:[0][12]", "json", vec![Step::Entry(0), Step::Entry(12)]),
            ("a b:[\"c.d\"].é", "a b", vec![member("c.d"), member("é")]),
            ("json:[*]", "json", vec![Step::All]),
        ] {
            let path: FieldPath = text.parse().unwrap();
            assert_eq!((path.name.as_str(), &path.steps), (name, &steps), "{text}");
            assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn a_wrong_path_is_an_error() {
        for text in [
            "",
            ":a",
            "a:",
            "a:b..c",
            "a:b.",
            "a:.b",
            "a:b[",
            "a:b[x]",
            "a:b[-1]",
            "a:b[*",
            "a:b c",
            "a:[0]b",
            "a:[\"b]",
            "a:[]",
            "a:[99999999999999999999]",
        ] {
            assert!(text.parse::<FieldPath>().is_err(), "{text}");
        }
    }
}
