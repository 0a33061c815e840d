//! CUDA implementations of kinds.

/// CUDA implementation of a kind of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cuda {
    /// Name of the C++ type that `text` declares.
    pub type_name: &'static str,
    /// CUDA text that declares `template <class Src> struct <type_name>`.
    pub text: &'static str,
    /// Role in the tiled kernel (`kernels/tile.cu`).
    pub(crate) tiling: Tiling,
}

impl Cuda {
    /// Type and the text that declares it. Pixels are evaluated one by one.
    pub const fn new(type_name: &'static str, text: &'static str) -> Self {
        Self { type_name, text, tiling: Tiling::None }
    }

    /// Sets the role in the tiled kernel.
    pub(crate) const fn tiled(self, tiling: Tiling) -> Self {
        Self { tiling, ..self }
    }
}

/// Role of a kind in the tiled kernel, in which a thread block computes a tile of the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiling {
    /// Pixels are evaluated one by one, as `at(x, y)`. Always possible.
    None,
    /// Resampling: the type is that of `kernels/resample.cu`.
    Resamples,
    /// Pixels move along the axes, are filled outside the image, or each channel's value is mapped by itself. The type
    /// has the members `resampled`, `columns`, `rows` and `of` (described in `kernels/image.cu`).
    Follows,
}
