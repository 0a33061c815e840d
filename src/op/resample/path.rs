//! What the CPU has for forming sums.

/// How sums are formed, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Path {
    /// 32-bit multiplications, and what the compiler makes of them.
    Portable,
    /// 16-bit multiply-add: a 22-bit coefficient is `high * 2^11 + low`.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Dot products of four bytes, in 256 bits: a coefficient is three digits of 8 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// The same in 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Path {
    /// Fastest first.
    #[cfg(target_arch = "x86_64")]
    pub const ALL: &[Self] = &[Self::Avx512, Self::AvxVnni, Self::Avx2, Self::Portable];
    #[cfg(not(target_arch = "x86_64"))]
    pub const ALL: &[Self] = &[Self::Portable];

    /// Whether this CPU has it.
    pub fn is_here(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
        }
    }
}
