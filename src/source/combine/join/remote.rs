//! Prefetching of a joined source.

use std::sync::Arc;

use super::Joined;
use super::key::MOST_FIELD_BYTES;
use crate::source::{Expected, RemoteReads, Source};

impl Joined {
    /// Whether the partner of a sample can be found without a request, and its fields can be
    /// prefetched.
    pub(super) fn prefetches_second(
        first: &dyn Source,
        second: &dyn Source,
        keys: [bool; 2],
    ) -> bool {
        let [first_in_field, second_in_field] = keys;
        let sends = |source: &dyn Source, in_field| in_field && source.is_remote();
        second.largest_with_fields().is_some()
            && !sends(first, first_in_field)
            && !sends(second, second_in_field)
    }

    /// Prefetches the fields of the partner of a sample.
    fn expect_partner(&self, index: u64, limit: u64) -> Option<Expected> {
        let mut buffer = Vec::new();
        // An error occurs again when the fields are read.
        let key = self.first_key(index, &mut buffer, MOST_FIELD_BYTES).ok()??;
        let partner = self.partner(&key, &mut buffer, MOST_FIELD_BYTES).ok()??;
        self.second.expect_with_fields(partner, false, limit)
    }
}

/// Prefetches the samples of the first source, and the fields of both.
impl RemoteReads for Joined {
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        self.first.expect(index, limit)
    }

    fn expect_with_fields(&self, index: u64, image: bool, limit: u64) -> Option<Expected> {
        let first = self.first.expect_with_fields(index, image, limit);
        let second = match self.prefetches_second {
            true => self.expect_partner(index, limit),
            false => None,
        };
        let Some(second) = second else { return first };
        let source = Arc::clone(&self.first);
        Some(Box::new(move |page, most| {
            // The fields have been read.
            drop(second);
            match first {
                Some(first) => first(page, most),
                None => source.read(index, page, most),
            }
        }))
    }

    fn largest_with_fields(&self) -> Option<u64> {
        let second = self.second.largest_with_fields().filter(|_| self.prefetches_second);
        let first = self.first.largest_with_fields();
        match (first.or_else(|| self.first.largest_bytes()), second) {
            (Some(first), Some(second)) => Some(first.saturating_add(second)),
            _ => first.or(second),
        }
    }
}
