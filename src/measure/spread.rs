//! Bounded, evenly spread selection from a stream of items.

/// Keeps every item, or every second, fourth, ... item, so that it never holds more than `MOST`
/// items.
#[derive(Clone, Debug)]
pub struct Spread<T, const MOST: usize> {
    kept: Vec<T>,
    /// One item in `2^stride` is kept.
    stride: u32,
    seen: u64,
}

impl<T, const MOST: usize> Default for Spread<T, MOST> {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 0, seen: 0 }
    }
}

impl<T, const MOST: usize> Spread<T, MOST> {
    /// The kept items, in order.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    /// Adds an item. The item is created only if it is kept.
    pub fn add(&mut self, make: impl FnOnce() -> T) {
        let number = self.seen;
        self.seen += 1;
        if !number.is_multiple_of(1 << self.stride) {
            return;
        }
        if self.kept.len() == MOST {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride += 1;
            if !number.is_multiple_of(1 << self.stride) {
                return;
            }
        }
        self.kept.push(make());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_items_are_bounded_and_evenly_spread() {
        for all in [1u64, 511, 512, 513, 5000, 100_000] {
            let mut spread = Spread::<u64, 512>::default();
            for number in 0..all {
                spread.add(|| number);
            }
            let kept = spread.kept();
            let stride = kept.get(1).unwrap_or(&1);
            assert!(kept.len() <= 512 && kept.len() as u64 >= all.min(256), "{all}");
            assert!(kept.iter().enumerate().all(|(at, it)| *it == at as u64 * stride), "{all}");
        }
    }
}
