//! Batches of feedwater in host memory as inputs of ONNX Runtime, without a copy.
//!
//! An input borrows the batch, which must live until `Session::run` returns. The example
//! `ort-inference` classifies images.
//!
//! ```no_run
//! # fn run(loader: &mut feedwater::loader::Loader, session: &mut ort::session::Session) -> Result<(), Box<dyn std::error::Error>> {
//! for batch in loader {
//!     let batch = batch?;
//!     let outputs = session.run(ort::inputs!["images" => feedwater_ort::images::<f32>(&batch)?])?;
//!     println!("{:?}", outputs["scores"].try_extract_tensor::<f32>()?);
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt::Debug;

use feedwater::half::{bf16, f16};
use feedwater::loader::Batch;
use ort::value::{PrimitiveTensorElementType, TensorRef};

/// Returns the images of a batch as an input. Its four axes are in the order of the loader's
/// layout.
///
/// # Errors
/// Fails if the batch has another element type than `T`, if it is in device memory, or if ONNX
/// Runtime fails.
///
/// # Panics
/// Panics if the library of ONNX Runtime cannot be opened. To get an error instead, call
/// `ort::init_from` first.
pub fn images<T: Element>(batch: &Batch) -> ort::Result<TensorRef<'_, T>> {
    let Some(values) = T::values(batch) else {
        let dtype = batch.shape().dtype;
        let expected = std::any::type_name::<T>();
        return Err(ort::Error::new(match batch.host() {
            Some(_) => {
                format!("`output.dtype` is {dtype}, but the input has elements of {expected}")
            }
            None => "the batch is in device memory: build the loader on the CPU".to_string(),
        }));
    };
    TensorRef::from_array_view((batch.array_shape(), values))
}

/// Element type of a batch: u8, f16, bf16 or f32.
pub trait Element: PrimitiveTensorElementType + Debug + Clone + 'static {
    /// Returns the values of a batch, or `None` if it has another element type or is in device
    /// memory.
    fn values(batch: &Batch) -> Option<&[Self]>;
}

macro_rules! element {
    ($type:ty, $values:ident) => {
        impl Element for $type {
            fn values(batch: &Batch) -> Option<&[Self]> {
                batch.$values()
            }
        }
    };
}

element!(u8, as_u8);
element!(f16, as_f16);
element!(bf16, as_bf16);
element!(f32, as_f32);
