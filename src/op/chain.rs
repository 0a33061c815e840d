//! Chains: lists of operators of any type, each with its placement.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BatchOperator, Operator};

/// Where an operator (or the decoder) runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Placement {
    /// The operator runs on the CPU.
    Cpu,
    /// The operator runs on the GPU.
    Gpu,
    /// The operator runs on the GPU if there is one and the preceding operators allow it, else on
    /// the CPU.
    #[default]
    Auto,
}

/// Operators that every image passes through, in order, and then operators that the finished batch
/// passes through.
#[derive(Clone, Default)]
pub struct Chain {
    steps: Vec<ChainStep>,
    batch: Vec<Arc<dyn BatchOperator>>,
}

/// One operator of a chain.
#[derive(Clone)]
#[non_exhaustive]
pub struct ChainStep {
    /// Where the operator runs.
    pub placement: Placement,
    /// The operator.
    pub operator: Arc<dyn Operator>,
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
    pub fn then_any(mut self, placement: Placement, operator: Arc<dyn Operator>) -> Self {
        self.steps.push(ChainStep { placement, operator });
        self
    }

    /// Appends a batch operator, which runs on the device (CPU or GPU) that holds the finished
    /// batch. Batch operators produce soft targets. These need
    /// [`TargetSettings::classes`](crate::plan::TargetSettings::classes) and an even batch size. A
    /// [`Preprocessor`](crate::Preprocessor) skips batch operators.
    pub fn then_batch(self, operator: impl BatchOperator) -> Self {
        self.then_any_batch(Arc::new(operator))
    }

    /// Appends a batch operator of unknown type, such as one read from a file.
    pub fn then_any_batch(mut self, operator: Arc<dyn BatchOperator>) -> Self {
        self.batch.push(operator);
        self
    }

    /// Batch operators of the chain, in order.
    pub fn batch_operators(&self) -> &[Arc<dyn BatchOperator>] {
        &self.batch
    }

    /// The same chain without batch operators.
    pub(crate) fn without_batch_operators(self) -> Self {
        Self { batch: Vec::new(), ..self }
    }

    /// Steps of the chain, in order.
    pub fn steps(&self) -> &[ChainStep] {
        &self.steps
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        list.entries(self.steps.iter().map(|step| &step.operator)).entries(&self.batch).finish()
    }
}
