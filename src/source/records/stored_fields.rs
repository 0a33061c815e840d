//! Names under which the samples of a file store fields. A scan collects them, so that a list of
//! all fields takes no read of the samples.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// Name under which samples store a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredField {
    /// The name: a feature, or the extension of a member.
    pub name: String,
    /// Whether the first value is a list of numbers.
    pub is_list: bool,
}

/// Names without repetition, in the order in which a scan finds them.
#[derive(Debug, Default)]
pub struct StoredFields {
    list: Vec<StoredField>,
    known: HashSet<String>,
}

/// Maximum number of fields that are listed.
pub const MOST_FIELDS: usize = 1000;

impl StoredFields {
    /// Whether [`add`](Self::add) would change nothing.
    pub fn has(&self, name: &str) -> bool {
        self.list.len() == MOST_FIELDS || self.known.contains(name)
    }

    /// Adds a name if it is new and there are fewer than [`MOST_FIELDS`].
    pub fn add(&mut self, field: StoredField) {
        if !self.has(&field.name) {
            self.known.insert(field.name.clone());
            self.list.push(field);
        }
    }

    /// All names that were added.
    pub fn finish(self) -> Vec<StoredField> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once_and_up_to_a_limit() {
        let mut fields = StoredFields::default();
        for number in 0..2 * MOST_FIELDS {
            for is_list in [true, false] {
                fields.add(StoredField { name: number.to_string(), is_list });
            }
            assert!(fields.has(&number.to_string()));
        }
        let list = fields.finish();
        assert_eq!(list.len(), MOST_FIELDS);
        assert_eq!(list[7], StoredField { name: "7".into(), is_list: true });
    }
}
