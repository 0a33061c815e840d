//! CUDA implementations of the kinds of actions.

/// CUDA implementation of a kind of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cuda {
    /// Name of the C++ type that `text` declares.
    pub type_name: &'static str,
    /// CUDA text that declares the type. For a formula, it is a struct with a static function `of`.
    /// For other kinds, it is `template <class Src> struct <type_name>`, where `Src` is the type of
    /// the image that the action reads.
    pub text: &'static str,
    /// Role of the type in the tiled kernel (`kernels/tile.cu`).
    pub(crate) tiling: Tiling,
}

impl Cuda {
    /// Creates an implementation from the name of a type and the CUDA text that declares the type.
    /// Kernels evaluate the pixels of this type one by one, not in tiles.
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
    /// Pixels of the kind are evaluated one by one, by `at(x, y)`, not in tiles. Every kind may
    /// have this role.
    None,
    /// The kind resamples. Its C++ type is in `kernels/resample.cu`.
    Resamples,
    /// The kind may follow the resampling in a tile: it moves pixels along the axes, fills pixels
    /// outside the image, or maps the value of each channel separately. The type has the members
    /// `resampled`, `columns`, `rows` and `of`, which `kernels/image.cu` describes.
    Follows,
}

/// Role of a kind in the program kernel (`kernels/program.cu`), which reads the actions of each
/// sample as data.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRole {
    /// Whether the program kernel executes the kind with text that it always contains. Otherwise
    /// the kind's CUDA text is added.
    pub(crate) is_built_in: bool,
    /// Code of the kernel's own function that reads pixels for the kind, one of `ReadCode` in
    /// `kernels/steps.cu`. `None` if the kernel reads pixels through the kind's formula.
    pub(crate) reader: Option<i32>,
    /// Adds the kind's C++ `case` labels to those functions of the kernel that are generated for
    /// each chain.
    pub(crate) cases: fn(&Codes, &mut Cases),
}

impl ProgramRole {
    /// Role of a kind that the kernel executes without added text.
    pub(crate) const BUILT_IN: Self = Self { is_built_in: true, reader: None, cases: |_, _| {} };

    /// Role of a kind whose CUDA text is added to the kernel. `cases` adds the `case` labels that
    /// call this text.
    pub(crate) const fn added(cases: fn(&Codes, &mut Cases)) -> Self {
        Self { is_built_in: false, reader: None, cases }
    }
}

/// Numbers by which the text of one program kernel refers to a kind.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// Name of the kind's C++ type ([`Cuda::type_name`]).
    pub(crate) type_name: &'static str,
    /// Code of the kind for pixels of bytes. `None` if the kind does not accept bytes.
    pub(crate) bytes: Option<i32>,
    /// Code of the kind for pixels of floats. `None` if the kind does not accept floats.
    pub(crate) floats: Option<i32>,
}

/// C++ `case` labels for the functions of the program kernel that are generated for each chain.
#[derive(Debug, Default)]
pub struct Cases {
    /// Cases of the function `read_formula`, which reads a pixel for a pass.
    pub(crate) reads: String,
    /// Cases of the function `change`, which changes the value of a pixel.
    pub(crate) changes: String,
    /// Cases of the function `entry`, which computes one entry of a look-up table from histograms.
    pub(crate) entries: String,
}
