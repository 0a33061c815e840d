//! Random numbers that depend only on seed, epoch, sample index and operator. Threads, batches,
//! shards and the reading order do not change them.
//!
//! Random numbers come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1,
//! 2, 3", SC 2011), a counter-based generator. The key is the seed, and the counter is (draw,
//! operator, epoch, index). The order of an epoch is a keyed permutation that is computed on the
//! fly, without a table.

/// Key of the random numbers of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct SampleKey {
    /// `loader.seed`.
    pub seed: u64,
    /// Epoch, from 0.
    pub epoch: u32,
    /// Index of the sample in its source.
    pub index: u64,
}

impl SampleKey {
    /// Key of repeat `repeat` of the sample within the epoch. Repeat 0 has the same random numbers
    /// as the sample without repeats.
    pub fn of_repeat(self, repeat: u32) -> Self {
        match repeat {
            0 => self,
            repeat => Self { seed: mix(self.seed ^ mix(repeat.into())), ..self },
        }
    }

    /// Random bits with which the column `name` picks one of several texts of the sample.
    pub fn draw_of_column(self, name: &str) -> u64 {
        let OperatorPath(column) = OperatorPath::COLUMN.child(name, 0);
        let key = Self { seed: mix(self.seed ^ column), ..self };
        let mut rng = SampleRng::new(key, COLUMNS);
        u64::from(rng.bits()) << 32 | u64::from(rng.bits())
    }

    /// Key of run `run` of the chain of the view `name` for the sample.
    pub fn of_view(self, name: &str, run: u32) -> Self {
        let OperatorPath(view) = OperatorPath::VIEW.child(name, run as usize);
        Self { seed: mix(self.seed ^ view), ..self }
    }
}

/// Stream of random numbers for one operator and one sample.
#[derive(Clone, Debug)]
pub struct SampleRng {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl SampleRng {
    /// Creates stream `number` of a sample.
    pub fn new(sample: SampleKey, number: u16) -> Self {
        Self {
            key: [sample.seed as u32, (sample.seed >> 32) as u32],
            counter: [
                u32::from(number) << 16,
                sample.epoch,
                sample.index as u32,
                (sample.index >> 32) as u32,
            ],
            block: [0; 4],
            used: 4,
        }
    }

    /// Creates the stream of the operator at `path` for a sample.
    pub fn of_operator(sample: SampleKey, path: OperatorPath) -> Self {
        Self::new(SampleKey { seed: sample.seed ^ path.0, ..sample }, OPERATORS)
    }

    /// Returns 32 uniform bits.
    pub fn bits(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox4x32_10(self.counter, self.key);
            // The low half of this word counts blocks of random numbers. No operator draws nearly
            // as many as 65536 blocks.
            self.counter[0] = (self.counter[0] & 0xffff_0000) | ((self.counter[0] + 1) & 0xffff);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// Whether any bits have been drawn.
    pub(crate) fn has_drawn(&self) -> bool {
        self.counter[0] & 0xffff != 0
    }

    /// Returns a uniform number in `[0, 1)` with 53 bits.
    pub fn uniform(&mut self) -> f64 {
        let high = u64::from(self.bits()) << 32;
        ((high | u64::from(self.bits())) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform number in `[low, high)`, or `low` if `low` and `high` are equal.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns a uniform integer in `0..n`. `n` must not be 0. For `n` below 2^32 the bias is below
    /// 2^-32.
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        let high = u64::from(self.bits()) << 32;
        let bits = high | u64::from(self.bits());
        ((u128::from(bits) * u128::from(n)) >> 64) as u64
    }

    /// Returns true with probability `p`: always for 1, never for 0.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }
}

/// Position of an operator in a chain: its name, and the number of operators with this name before
/// it. For a nested operator, the path also includes name and number of each enclosing operator.
/// Inserting or removing operators with other names does not change the path, so the operator's
/// random numbers stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct OperatorPath(u64);

impl OperatorPath {
    /// Path at which the paths of a chain's operators begin.
    pub const CHAIN: Self = Self(0x6665_6564);

    /// Path at which the paths of batch operators begin. Batch operators draw random numbers for
    /// pairs of samples.
    pub const BATCH: Self = Self(0x7061_6972);

    /// Path at which the paths of views begin.
    const VIEW: Self = Self(0x7669_6577);

    /// Path at which the paths of columns begin.
    const COLUMN: Self = Self(0x636f_6c75);

    /// Path of an operator `name` that is nested in this one. `before` is the number of operators
    /// with this name before it.
    pub fn child(self, name: &str, before: usize) -> Self {
        let step = |hash: u64, byte: u8| mix(hash ^ u64::from(byte));
        Self(mix(name.bytes().fold(mix(self.0), step) ^ (before as u64) << 8))
    }
}

/// Stream number for choosing the replacement of an unusable sample.
const REPLACEMENT: u16 = u16::MAX;

/// Stream number of all operators. Their streams differ by the key.
const OPERATORS: u16 = u16::MAX - 1;

/// Stream number of the columns that pick one of several texts. Their streams differ by the key.
const COLUMNS: u16 = u16::MAX - 2;

/// Returns the candidates to replace an unusable sample: all other samples, in an order that
/// depends on (seed, epoch, index) of this sample.
#[doc(hidden)]
pub fn replacements(sample: SampleKey, samples: u64) -> impl Iterator<Item = u64> {
    let mut rng = SampleRng::new(sample, REPLACEMENT);
    let seed = u64::from(rng.bits()) << 32 | u64::from(rng.bits());
    let permutation = Permutation::new(seed, sample.epoch, samples);
    (0..samples).map(move |position| permutation.at(position)).filter(move |&it| it != sample.index)
}

/// Permutation of `0..len`, keyed by (seed, epoch), in constant memory for any length.
///
/// * Up to 1024 elements, the permutation is 80 rounds of swap-or-not (Hoang, Morris and Rogaway,
///   "An enciphering scheme based on a card shuffle", CRYPTO 2012). In each round every element has
///   a partner, and a keyed random bit decides whether the two are swapped. Swap-or-not needs no
///   table and no power of two, and can produce every order. A chi-square test over several hundred
///   thousand keys finds all orders of up to seven elements equally frequent, even with only 16
///   rounds.
/// * Above 1024 elements, the permutation is a balanced Feistel network of eight rounds over the
///   next power of four, iterated until the result is in range (Black and Rogaway, "Ciphers with
///   arbitrary finite domains", CT-RSA 2002). A Feistel network takes less work than swap-or-not.
///   It is unsuitable for small ranges: its halves have too few values to produce all orders
///   equally often.
///
/// The key consists of 64 bits and an epoch number. Therefore not every order of more than about
/// twenty elements can occur. This is so for every generator with such a key.
///
/// `tests/loader/order.rs` tests that orders are uniform, and that neighbours, epochs and seeds are
/// not correlated.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; Permutation::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 8;
    /// Largest length that is permuted by swap-or-not.
    const SMALL: u64 = 1024;
    /// Eight rounds for each of the ten bits of 1024.
    const SMALL_ROUNDS: u64 = 80;

    /// Creates the permutation of `0..len` for one epoch.
    pub fn new(seed: u64, epoch: u32, len: u64) -> Self {
        let mut keys = [0; Self::ROUNDS];
        for (round, key) in keys.iter_mut().enumerate() {
            let counter = [round as u32, epoch, 0x6f72_6465, 0x7200_0000];
            let block = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
            *key = u64::from(block[0]) << 32 | u64::from(block[1]);
        }
        Self { len, half_bits: half_bits(len), keys }
    }

    /// Creates a permutation of `0..len` that also depends on the block number `number`, for sets
    /// that are shuffled block by block.
    pub fn block(&self, number: u64, len: u64) -> Self {
        let tweak = mix(number.wrapping_add(1));
        Self { len, half_bits: half_bits(len), keys: self.keys.map(|key| mix(key ^ tweak)) }
    }

    /// Returns the element at `position`, which must be below the length.
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.len);
        if self.len <= Self::SMALL {
            return self.swap_or_not(position);
        }
        let mut value = position;
        loop {
            value = self.encrypt(value);
            if value < self.len {
                return value;
            }
        }
    }

    fn swap_or_not(&self, mut value: u64) -> u64 {
        for round in 0..Self::SMALL_ROUNDS {
            let key = mix(self.keys[0].wrapping_add(round.wrapping_mul(GOLDEN)));
            // Uniform in 0..len with a bias below 2^-54.
            let offset = ((u128::from(key) * u128::from(self.len)) >> 64) as u64;
            let partner = if offset >= value { offset - value } else { offset + self.len - value };
            // Both elements of a pair use the same random bit, which depends on the larger element.
            if mix(value.max(partner) ^ key) >> 63 == 1 {
                value = partner;
            }
        }
        value
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// Half the number of bits of the smallest power of four that is not below `len`.
fn half_bits(len: u64) -> u32 {
    let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
    bits.div_ceil(2).max(1)
}

/// Increment of SplitMix64: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finalizer of SplitMix64 (Steele et al., OOPSLA 2014) with the constants of Stafford's variant
/// 13.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(GOLDEN);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Computes Philox4x32-10: four words of random bits for a counter and a key.
#[inline(always)]
pub(crate) fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        let a = u64::from(counter[0]) * 0xd251_1f53;
        let b = u64::from(counter[2]) * 0xcd9e_8d57;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known-answer vectors of the Random123 library by the authors of Philox.
    #[test]
    fn philox_matches_the_published_vectors() {
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_permutation_visits_every_index_once() {
        for len in [1, 2, 3, 4, 5, 16, 17, 1000, 1024, 1025, 4096, 4097] {
            let permutation = Permutation::new(42, 3, len).block(len, len);
            let mut seen = vec![false; len as usize];
            for position in 0..len {
                let index = permutation.at(position) as usize;
                assert!(!seen[index], "{index} twice in 0..{len}");
                seen[index] = true;
            }
        }
    }

    #[test]
    fn every_other_sample_is_a_replacement_once_in_a_keyed_order() {
        let sample = SampleKey { seed: 1, epoch: 2, index: 7 };
        let order: Vec<u64> = replacements(sample, 20).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).filter(|&it| it != 7).collect::<Vec<_>>());
        let other: Vec<u64> = replacements(SampleKey { index: 8, ..sample }, 20).collect();
        assert_ne!(order, other);
        assert_eq!(replacements(SampleKey { index: 0, ..sample }, 1).count(), 0);
    }

    #[test]
    fn each_part_of_the_key_changes_the_stream() {
        let sample = SampleKey { seed: 1, epoch: 2, index: 3 };
        let first = |key, operator| SampleRng::new(key, operator).bits();
        let base = first(sample, 0);
        assert_eq!(base, first(sample, 0));
        assert_ne!(base, first(SampleKey { seed: 2, ..sample }, 0));
        assert_ne!(base, first(SampleKey { epoch: 3, ..sample }, 0));
        assert_ne!(base, first(SampleKey { index: 4, ..sample }, 0));
        assert_ne!(base, first(sample, 1));
        assert_eq!(base, first(sample.of_repeat(0), 0));
        assert_ne!(base, first(sample.of_repeat(1), 0));
        assert_ne!(first(sample.of_repeat(1), 0), first(sample.of_repeat(2), 0));
    }

    #[test]
    fn columns_draw_by_name_and_by_each_part_of_the_key() {
        let sample = SampleKey { seed: 1, epoch: 2, index: 3 };
        let mut draws = vec![
            sample.draw_of_column("a"),
            sample.draw_of_column("b"),
            SampleKey { seed: 2, ..sample }.draw_of_column("a"),
            SampleKey { epoch: 3, ..sample }.draw_of_column("a"),
            SampleKey { index: 4, ..sample }.draw_of_column("a"),
            sample.of_repeat(1).draw_of_column("a"),
            sample.of_repeat(2).draw_of_column("a"),
            sample.of_view("a", 0).draw_of_column("a"),
        ];
        assert_eq!(draws[0], sample.of_repeat(0).draw_of_column("a"));
        draws.sort_unstable();
        assert!(draws.is_sorted_by(|a, b| a < b), "{draws:?}");
    }

    #[test]
    fn operators_draw_by_name_and_place_in_the_tree() {
        let sample = SampleKey { seed: 1, epoch: 2, index: 3 };
        let chain = OperatorPath::CHAIN;
        let apply = chain.child("random_apply", 0);
        let paths = [
            chain,
            apply,
            chain.child("flip", 0),
            chain.child("flip", 1),
            apply.child("flip", 0),
            apply.child("flip", 1),
            chain.child("random_apply", 1).child("flip", 0),
            apply.child("flip", 0).child("flip", 0),
        ];
        let mut first = paths.map(|path| SampleRng::of_operator(sample, path).bits());
        first.sort_unstable();
        assert!(first.is_sorted_by(|a, b| a < b), "{first:?}");
    }

    #[test]
    fn draws_stay_in_their_range() {
        let mut rng = SampleRng::new(SampleKey::default(), 0);
        for _ in 0..10_000 {
            assert!((0.0..1.0).contains(&rng.uniform()));
            assert!(rng.below(7) < 7);
            assert!(rng.chance(1.0) && !rng.chance(0.0));
        }
    }
}
