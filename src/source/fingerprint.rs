//! Fingerprint of a combination of sources. Saved states contain it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Source;

/// Largest number of parts whose weights are stored.
const MOST_SHARES: usize = 16;

/// Largest number of indices of a combination that its fingerprint covers.
const INSPECTED: u64 = 1024;

/// Fingerprint of a combination of sources. It covers the length, the weights, and at most 1024
/// evenly spaced samples of the order. For each part it covers the length and the names of the
/// first and last sample. It detects other weights, parts and selections, but not every change. It
/// does not cover paths of folders, so a data set may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// CRC-32C of the arrangement and its parts.
    pub crc: u32,
    /// Number of draws of each part per period of a mixture. Empty for mixtures of more than 16
    /// parts, and for other combinations.
    #[serde(default, skip_serializing_if = "Shares::is_empty")]
    pub weights: Shares,
}

/// Weights of a mixture as whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    count: usize,
    shares: [u32; MOST_SHARES],
}

impl Fingerprint {
    /// Computes the fingerprint of an arrangement. `at` maps an index below `len` to a part and an
    /// index in this part.
    pub(super) fn of(
        len: u64,
        at: impl Fn(u64) -> (usize, u64),
        weights: &[u64],
        parts: impl Iterator<Item = u32>,
    ) -> Self {
        let taken = inspected(len).map(at);
        let mut crc = crc32c::crc32c(&len.to_le_bytes());
        let mut add = |number: u64| crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
        taken.for_each(|(part, index)| {
            add(part as u64);
            add(index);
        });
        weights.iter().for_each(|&weight| add(weight));
        parts.for_each(|part| add(part.into()));
        Self { crc, weights: Shares::of(weights) }
    }

    /// Describes how this fingerprint, which is from a saved state, differs from that of the
    /// current source.
    pub(crate) fn difference(&self, now: Option<&Self>) -> String {
        match now {
            None => "is from a combination of sources, but this source is not a combination".into(),
            Some(now)
                if now.weights != self.weights
                    && !now.weights.is_empty()
                    && !self.weights.is_empty() =>
            {
                format!(
                    "is from a mixture with the weights {}, but this mixture has the weights {}",
                    self.weights, now.weights
                )
            }
            Some(_) => {
                "is from other sources: their order, numbers of samples, names or selections differ"
                    .into()
            }
        }
    }
}

/// Returns the evenly spaced indices below `len` that a fingerprint covers.
pub fn inspected(len: u64) -> impl Iterator<Item = u64> {
    let step = len.div_ceil(INSPECTED).max(1);
    (0..len).step_by(usize::try_from(step).unwrap_or(usize::MAX))
}

/// Checksum of a part of a combination: the CRC of its fingerprint, or [`names_checksum`] if it has
/// none.
pub fn of_part(source: &dyn Source) -> u32 {
    source.fingerprint().map_or_else(|| names_checksum(source), |fingerprint| fingerprint.crc)
}

/// CRC-32C of the number of samples, and of the file names of the first and last sample without
/// their folders.
pub fn names_checksum(source: &dyn Source) -> u32 {
    let name = |index| {
        let location = source.location(index);
        // The query of a URL may be a signature, which is different each time the URL is signed.
        let path = match location.split_once('?') {
            Some((path, _)) if path.contains("://") => path,
            _ => &location,
        };
        path.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let names = source.len().checked_sub(1).map(|last| [name(0), name(last)]);
    let text = format!("{} {}", source.len(), names.unwrap_or_default().join("\n"));
    crc32c::crc32c(text.as_bytes())
}

impl Shares {
    fn of(shares: &[u64]) -> Self {
        let mut this = Self::default();
        if shares.len() <= MOST_SHARES {
            this.count = shares.len();
            for (to, &share) in this.shares.iter_mut().zip(shares) {
                *to = u32::try_from(share).unwrap_or(u32::MAX);
            }
        }
        this
    }

    /// Weights as a slice.
    pub fn as_slice(&self) -> &[u32] {
        &self.shares[..self.count]
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<_> = self.as_slice().iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(" : "))
    }
}

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shares = Vec::<u32>::deserialize(deserializer)?;
        if shares.len() > MOST_SHARES {
            let problem = format!(
                "the state has {} weights; at most {MOST_SHARES} are allowed",
                shares.len()
            );
            return Err(serde::de::Error::custom(problem));
        }
        Ok(Self::of(&shares.into_iter().map(u64::from).collect::<Vec<_>>()))
    }
}
