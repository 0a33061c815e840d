//! What the kernels find wrong in an image.

/// Reason why an image that the kernels have begun must be decoded on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceProblem {
    /// A row does not end where the row index says that the next row begins.
    Index,
    /// The states of the subsequences did not become consistent within the allowed rounds.
    Synchronization,
    /// The data has more or fewer blocks than the image.
    Count,
    /// A marker within the coded data.
    Marker,
    /// Bits that are no Huffman code, or a coefficient beyond the 64th.
    Code,
    /// The data ends too early, or goes on after the last block.
    End,
    /// Coefficients that no intact image has.
    Range,
}

impl DeviceProblem {
    /// Problems in the order of their numbers, which begin with 1 (`Problem` in
    /// `kernels/jpeg/image.cu`).
    const ALL: [Self; 7] = [
        Self::Range,
        Self::Count,
        Self::Code,
        Self::End,
        Self::Synchronization,
        Self::Index,
        Self::Marker,
    ];

    /// Returns the problem with the number that the kernels have stored, or `None` for 0.
    pub fn of(number: u32) -> Option<Self> {
        // A number that is no problem means that the device wrote something else; the image is not
        // used then.
        let at = (number as usize).checked_sub(1)?;
        Some(Self::ALL.get(at).copied().unwrap_or(Self::Code))
    }

    /// Reason in reports, such as "its coded data ends too early or too late".
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Index => "its row index does not match its coded data",
            Self::Synchronization => "its coded data does not synchronize",
            Self::Count => "its coded data has another number of blocks than the image",
            Self::Marker => "its coded data contains a marker",
            Self::Code => "its coded data contains an invalid code",
            Self::End => "its coded data ends too early or too late",
            Self::Range => "its coefficients are out of range",
        }
    }
}
