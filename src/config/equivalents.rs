//! Equivalents for names of torchvision, DALI, albumentations and PyTorch's `DataLoader`.
//!
//! To add a name, add an entry to `equivalents/tables.rs`, or to `equivalents/keys.rs` for a
//! setting. The tests parse every suggestion as a pipeline file.

use crate::error::nearest;
use crate::op::NAMES;
use crate::op::combine::NAMES as COMBINATORS;
use keys::{KEYS, Key};
use tables::{CHOICES, OPERATORS, Operator};

mod keys;
mod tables;
#[cfg(test)]
mod tests;

/// Suggestion for an operator name of another library. `None` if no library has the name, or if one
/// of our operator names is nearer.
pub fn operator(name: &str) -> Option<String> {
    let wanted = plain(name);
    let named = |wanted: &str| {
        let is_named = |it: &&Operator| it.names.iter().any(|name| plain(name) == wanted);
        OPERATORS.iter().find(is_named)
    };
    if let Some(operator) = named(&wanted) {
        return Some(operator.words());
    }
    let own = NAMES.iter().chain(COMBINATORS).find(|it| plain(it) == wanted);
    if let Some(own) = own {
        return Some(format!("did you mean {own}?"));
    }
    if nearest(name, NAMES).is_some() {
        return None;
    }
    let names: Vec<(String, &str)> = OPERATORS
        .iter()
        .flat_map(|operator| operator.names.iter().map(|name| (plain(name), *name)))
        .collect();
    let plain_names: Vec<&str> = names.iter().map(|(plain, _)| plain.as_str()).collect();
    let near = nearest(&wanted, &plain_names)?;
    let (_, name) = names.iter().find(|(plain, _)| plain == near)?;
    Some(format!("did you mean {name}? {}", named(near)?.words()))
}

/// Suggestion for a setting of another library. `operator` is the operator whose table contains the
/// setting; `None` if a section contains it.
pub fn key(name: &str, operator: Option<&str>) -> Option<String> {
    let wanted = plain(name);
    let is_named = |it: &&Key| it.names.iter().any(|name| plain(name) == wanted);
    let mut keys = KEYS.iter().filter(is_named);
    let of_operator = |it: &Key| operator.is_some_and(|name| it.of.contains(&name));
    let key =
        keys.clone().find(|it| of_operator(it)).or_else(|| keys.find(|it| it.of.is_empty()))?;
    Some(key.words())
}

/// Choice among `known` that is equivalent to another library's choice `name`.
pub fn choice<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted = plain(name);
    let means = |names: &[&str]| names.iter().any(|name| plain(name) == wanted);
    let is_known = |choice: &str| known.iter().copied().find(|known| *known == choice);
    CHOICES.iter().filter(|(_, names)| means(names)).find_map(|(choice, _)| is_known(choice))
}

impl Operator {
    fn words(&self) -> String {
        let steps: Vec<_> = self.write.iter().map(|step| step.replace('\n', ", ")).collect();
        words(&steps.join(", then a [[chain]] with "), self.note)
    }
}

impl Key {
    fn words(&self) -> String {
        let mut lines = self.write.replace('\n', " and ");
        if !self.section.is_empty() {
            lines = format!("{lines} under [{}]", self.section);
        }
        words(&lines, self.note)
    }
}

fn words(write: &str, note: &str) -> String {
    match (write, note) {
        ("", note) => note.into(),
        (write, "") => format!("write {write}"),
        (write, note) => format!("write {write} ({note})"),
    }
}

/// Normalized name: without module path and arguments, in American spelling, only lower-case
/// letters and digits.
fn plain(name: &str) -> String {
    let name = name.split('(').next().unwrap_or_default();
    let name = name.rsplit('.').next().unwrap_or_default();
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let american =
        [("colour", "color"), ("grey", "gray"), ("centre", "center"), ("normalis", "normaliz")];
    american.into_iter().fold(plain, |plain, (british, american)| plain.replace(british, american))
}
