//! Lists of the latest items.

/// Maximum number of stored decisions of each tuner of a loader.
pub const DECISIONS: usize = 100;

/// Maximum number of epochs whose counts are stored.
pub const EPOCHS: usize = 100;

/// Appends an item to a list that holds at most the latest `most` items.
pub fn push_latest<T>(kept: &mut Vec<T>, most: usize, item: T) {
    if kept.len() >= most {
        kept.drain(..=kept.len() - most);
    }
    kept.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_latest_drops_the_oldest() {
        let mut kept = Vec::new();
        for item in 0..10 {
            push_latest(&mut kept, 3, item);
            assert_eq!(kept, ((item - 2).max(0)..=item).collect::<Vec<i32>>());
        }
    }
}
