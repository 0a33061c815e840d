//! Element types of columns.

use std::fmt;

use bytemuck::Pod;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::DType;

/// Element type of a column. All types are in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ElementType {
    /// Unsigned integer of 8 bits.
    U8,
    /// Signed integer of 64 bits.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16 (the upper half of an f32).
    BF16,
    /// IEEE 754 binary32.
    F32,
}

impl ElementType {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::U8 => 1,
            ElementType::F16 | ElementType::BF16 => 2,
            ElementType::F32 => 4,
            ElementType::I64 => 8,
        }
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            ElementType::U8 => "u8",
            ElementType::I64 => "i64",
            ElementType::F16 => "f16",
            ElementType::BF16 => "bf16",
            ElementType::F32 => "f32",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::U8 => ElementType::U8,
            DType::F16 => ElementType::F16,
            DType::BF16 => ElementType::BF16,
            DType::F32 => ElementType::F32,
        }
    }
}

/// Rust type of the elements of a column.
pub trait Element: Pod + Send + Sync + private::Sealed {
    /// Element type of columns with this Rust type.
    const TYPE: ElementType;
}

mod private {
    pub trait Sealed {}
}

/// Implements [`Element`] for Rust types.
macro_rules! elements {
    ($($rust:ty: $name:ident,)*) => {
        $(
            impl private::Sealed for $rust {}
            impl Element for $rust {
                const TYPE: ElementType = ElementType::$name;
            }
        )*
    };
}

elements! {
    u8: U8,
    i64: I64,
    f16: F16,
    bf16: BF16,
    f32: F32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_have_the_names_and_sizes_of_dtypes_and_of_rust_types() {
        for dtype in DType::ALL {
            let element = ElementType::from(dtype);
            assert_eq!((element.name(), element.bytes()), (dtype.name(), dtype.bytes()));
        }
        fn same<T: Element>() {
            assert_eq!(size_of::<T>(), T::TYPE.bytes(), "{}", T::TYPE);
        }
        same::<u8>();
        same::<i64>();
        same::<f16>();
        same::<bf16>();
        same::<f32>();
    }
}
