//! Chains: operators of any type in order, each with its placement.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, PixelType};
use crate::random::SampleRng;

use super::{Bounds, Cuda, FieldError, Fusion, MAX_PARAMS_BYTES, Operator, Trace, Wanted};

/// Where an operator (or the decoder) runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Placement {
    /// On the CPU.
    Cpu,
    /// On the GPU.
    Gpu,
    /// On the GPU if there is one and the preceding operators allow it, else on the CPU.
    #[default]
    Auto,
}

/// Operators that an image passes through, in order.
#[derive(Clone, Default)]
pub struct Chain {
    steps: Vec<ChainStep>,
}

/// One operator of a chain.
#[derive(Clone)]
#[non_exhaustive]
pub struct ChainStep {
    /// Where the operator runs.
    pub placement: Placement,
    /// The operator.
    pub operator: Arc<dyn AnyOperator>,
}

impl Chain {
    /// A chain without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an operator with [`Placement::Auto`].
    pub fn then(self, operator: impl Operator) -> Self {
        self.then_on(Placement::Auto, operator)
    }

    /// Appends an operator that runs at `placement`.
    pub fn then_on(self, placement: Placement, operator: impl Operator) -> Self {
        self.then_any(placement, Arc::new(operator))
    }

    /// Appends an operator of unknown type, such as one read from a file.
    pub fn then_any(mut self, placement: Placement, operator: Arc<dyn AnyOperator>) -> Self {
        self.steps.push(ChainStep { placement, operator });
        self
    }

    /// Steps of the chain, in order.
    pub fn steps(&self) -> &[ChainStep] {
        &self.steps
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| &step.operator)).finish()
    }
}

/// Parameters of one operator for one sample, as bytes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct ParamBytes {
    bytes: [u8; MAX_PARAMS_BYTES],
    len: usize,
}

impl ParamBytes {
    /// The bytes of `params`.
    pub fn new<P: Pod>(params: &P) -> Self {
        const {
            assert!(size_of::<P>() <= MAX_PARAMS_BYTES && size_of::<P>().is_multiple_of(8));
            assert!(align_of::<P>() <= 16);
        }
        let mut bytes = [0; MAX_PARAMS_BYTES];
        bytes[..size_of::<P>()].copy_from_slice(bytemuck::bytes_of(params));
        Self { bytes, len: size_of::<P>() }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn get<P: Pod>(&self) -> &P {
        bytemuck::from_bytes(self.as_bytes())
    }

    fn get_mut<P: Pod>(&mut self) -> &mut P {
        bytemuck::from_bytes_mut(&mut self.bytes[..self.len])
    }
}

impl fmt::Debug for ParamBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParamBytes({})", self.len)
    }
}

/// Type-erased [`Operator`]. Implemented for every operator and nothing else.
pub trait AnyOperator: Sealed + fmt::Debug + Send + Sync {
    /// [`Operator::NAME`].
    fn name(&self) -> &'static str;
    /// [`Operator::CUDA`].
    fn cuda(&self) -> Option<Cuda>;
    /// Size of the operator's parameters, in bytes.
    fn params_bytes(&self) -> usize;
    /// [`Operator::check`].
    fn check(&self) -> Result<(), FieldError>;
    /// [`Operator::pixels`].
    fn pixels(&self, input: PixelType) -> Result<PixelType, String>;
    /// [`Operator::fixed_output`].
    fn fixed_output(&self, input: Option<Size>) -> Option<Size>;
    /// [`Spatial::table_len`](super::Spatial::table_len).
    fn table_len(&self, bounds: Bounds) -> usize;
    /// [`Operator::prepare`].
    fn prepare(&self, input: Size, rng: &mut SampleRng) -> (Size, ParamBytes);
    /// [`Operator::is_random`].
    fn is_random(&self) -> bool;
    /// [`Spatial::demand`](super::Spatial::demand), or `wanted.output` if pixels keep their position.
    fn demand(&self, params: &mut ParamBytes, wanted: Wanted, table: &mut Vec<i32>) -> Roi;
    /// [`Spatial::set_table`](super::Spatial::set_table).
    fn set_table(&self, params: &mut ParamBytes, address: u64);
    /// [`Spatial::trace`](super::Spatial::trace).
    fn trace(&self, params: &ParamBytes, trace: &mut Trace);
    /// [`Operator::reference`].
    fn reference(&self, params: &ParamBytes, table: &[i32], src: &HostImage, out: &mut HostImage);
    /// [`FastPath::apply`](super::FastPath::apply), or the reference.
    fn apply(&self, params: &ParamBytes, table: &[i32], src: &HostImage, out: &mut HostImage);
    /// [`FastPath::fusion`](super::FastPath::fusion).
    fn fusion(&self, params: &ParamBytes) -> Fusion;
}

/// Restricts implementations of [`AnyOperator`] to operators.
pub trait Sealed {}

impl<T: Operator> Sealed for T {}

impl<T: Operator> AnyOperator for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn cuda(&self) -> Option<Cuda> {
        T::CUDA
    }

    fn params_bytes(&self) -> usize {
        size_of::<T::Params>()
    }

    fn check(&self) -> Result<(), FieldError> {
        Operator::check(self)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        Operator::pixels(self, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        Operator::fixed_output(self, input)
    }

    fn table_len(&self, bounds: Bounds) -> usize {
        self.spatial().map_or(0, |it| it.table_len(bounds))
    }

    fn prepare(&self, input: Size, rng: &mut SampleRng) -> (Size, ParamBytes) {
        let (size, params) = Operator::prepare(self, input, rng);
        (size, ParamBytes::new(&params))
    }

    fn is_random(&self) -> bool {
        Operator::is_random(self)
    }

    fn demand(&self, params: &mut ParamBytes, wanted: Wanted, table: &mut Vec<i32>) -> Roi {
        match self.spatial() {
            Some(it) => it.demand(params.get_mut(), wanted, table),
            None => wanted.output,
        }
    }

    fn set_table(&self, params: &mut ParamBytes, address: u64) {
        if let Some(it) = self.spatial() {
            it.set_table(params.get_mut(), address);
        }
    }

    fn trace(&self, params: &ParamBytes, trace: &mut Trace) {
        if let Some(it) = self.spatial() {
            it.trace(params.get(), trace);
        }
    }

    fn reference(&self, params: &ParamBytes, table: &[i32], src: &HostImage, out: &mut HostImage) {
        T::reference(params.get(), table, src, out);
    }

    fn apply(&self, params: &ParamBytes, table: &[i32], src: &HostImage, out: &mut HostImage) {
        match self.fast_path() {
            Some(it) => it.apply(params.get(), table, src, out),
            None => T::reference(params.get(), table, src, out),
        }
    }

    fn fusion(&self, params: &ParamBytes) -> Fusion {
        self.fast_path().map_or(Fusion::None, |it| it.fusion(params.get()))
    }
}
