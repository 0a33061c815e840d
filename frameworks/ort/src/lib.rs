//! Batches of feedwater in host memory as inputs of ONNX Runtime, without a copy.
//!
//! The input borrows the batch, which must live until the session has finished its run. The example
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

/// The images of a batch: four axes in the order of the loader's layout.
///
/// # Errors
/// If the batch has another element type or is in device memory, or ONNX Runtime fails.
///
/// # Panics
/// If ONNX Runtime cannot be opened. Call `ort::init_from` before to get an error instead.
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
    /// The values of a batch with this element type in host memory.
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
