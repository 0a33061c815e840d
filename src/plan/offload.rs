//! Division of work between CPU and GPU, which the loader may change while it runs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::op::{Chain, Placement};

use super::{Place, Plan, Route};

/// Part of the work that runs on the GPU. It may change while the loader runs. The pixels stay the
/// same, because operators produce the same bits on CPU and GPU. Values are ordered by the amount
/// of GPU work.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Offload {
    /// Number of operators on the GPU: the last ones of the chain, and those of the views on the
    /// GPU, which are there only with the whole chain. With 0, the CPU runs all operators, and
    /// finished samples are uploaded if batches are in device memory.
    pub operators: usize,
    /// Whether decoding and all operators are on the GPU. The balancer chooses the decode route of
    /// each image.
    pub decode: bool,
}

impl Offload {
    /// Nothing runs on the GPU.
    pub const NOTHING: Offload = Offload { operators: 0, decode: false };

    /// Returns the division of work that the plan starts with.
    pub(super) fn planned(plan: &Plan) -> Self {
        let operators = plan.steps.len() - plan.cpu_steps() + plan.device_view_operators();
        Self { operators, decode: plan.decode == Place::Gpu }
    }

    /// All allowed divisions of work. The first one has the least GPU work, and the last one is the
    /// planned one. An operator or decoding may leave the GPU if its placement is `auto` and the
    /// route `cpu` is allowed.
    pub(super) fn all(plan: &Plan, chain: &Chain, routes: &[Route]) -> Vec<Self> {
        let planned = Self::planned(plan);
        let decode = !planned.decode || plan.settings.decode.placement == Placement::Auto;
        let by_cpu = routes.contains(&Route::Cpu);
        let views = plan.device_views().map(|(number, _)| &chain.views()[number].chain);
        let steps = &chain.steps()[plan.cpu_steps()..];
        let steps: Vec<_> = steps.iter().chain(views.flat_map(Chain::steps)).collect();
        let may = |operators: usize| {
            let leave = &steps[..steps.len() - operators];
            decode && by_cpu && leave.iter().all(|step| step.placement == Placement::Auto)
        };
        let mut all: Vec<Self> = Vec::new();
        if plan.settings.loader.tune && planned != Self::NOTHING {
            // Kernels of views read decoded windows, so the views leave the GPU with the whole
            // chain.
            let is_possible = |operators: &usize| {
                !plan.has_device_views() || [0, planned.operators].contains(operators)
            };
            let fewer = (0..=planned.operators).filter(is_possible);
            let fewer = fewer.filter(|&operators| may(operators));
            all = fewer.map(|operators| Self { operators, decode: false }).collect();
            all.retain(|it| *it < planned);
        }
        all.push(planned);
        all
    }

    /// Index of the first operator on the GPU, for a chain of `steps` operators.
    pub fn first(self, steps: usize) -> usize {
        steps.saturating_sub(self.operators)
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.decode, self.operators) {
            (true, _) => f.write_str("everything"),
            (false, 0) => f.write_str("nothing"),
            (false, 1) => f.write_str("the last operator"),
            (false, many) => write!(f, "the last {many} operators"),
        }
    }
}
