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

/// Role of a kind in the program kernel (`kernels/program.cu`), which executes actions as data.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRole {
    /// Whether the kernel has the kind's CUDA text in any case.
    pub(crate) is_built_in: bool,
    /// Code of the kernel's own reader for the kind, one of `ReadCode` in `kernels/steps.cu`. `None` for the code of the
    /// formula.
    pub(crate) reader: Option<i32>,
    /// Adds the kind's cases to the functions of the kernel that depend on the chain.
    pub(crate) cases: fn(&Codes, &mut Cases),
}

impl ProgramRole {
    /// A kind for which the kernel has all it needs.
    pub(crate) const BUILT_IN: Self = Self { is_built_in: true, reader: None, cases: |_, _| {} };

    /// A kind whose CUDA text is added, with these cases.
    pub(crate) const fn added(cases: fn(&Codes, &mut Cases)) -> Self {
        Self { is_built_in: false, reader: None, cases }
    }
}

/// Codes of a kind in the text of one program kernel.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// [`Cuda::type_name`].
    pub(crate) type_name: &'static str,
    /// Code for pixels of bytes, if the kind accepts them.
    pub(crate) bytes: Option<i32>,
    /// Code for pixels of floats, if the kind accepts them.
    pub(crate) floats: Option<i32>,
}

/// Cases of the program kernel's functions that depend on the chain, as C++.
#[derive(Debug, Default)]
pub struct Cases {
    /// Of `read_formula`, which reads a pixel through a pass's reader.
    pub(crate) reads: String,
    /// Of `change`, which changes a pixel's value.
    pub(crate) changes: String,
    /// Of `entry`, which makes an entry of a table from histograms.
    pub(crate) entries: String,
}
