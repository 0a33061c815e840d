//! What is on the device, and what else could be, where that is left to the loader.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::op::{Chain, Placement};

use super::{Place, Plan, Route};

/// What is on the device. It changes while the loader runs, and no pixel with it, since operators give the same bits on
/// both. The one that asks least of the device comes first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Offload {
    /// So many operators, the last ones of the chain. Without any, samples are finished on the CPU, and copied where batches
    /// are on a device.
    pub operators: usize,
    /// Decoding, by the routes that the balancer finds best, and all operators.
    pub decode: bool,
}

impl Offload {
    /// Everything is on the CPU.
    pub const NOTHING: Offload = Offload { operators: 0, decode: false };

    /// What the plan has on the device.
    pub(super) fn planned(plan: &Plan) -> Self {
        Self { operators: plan.steps.len() - plan.cpu_steps(), decode: plan.decode == Place::Gpu }
    }

    /// All that may be on the device, the least first and what is planned last. An operator, or decoding, leaves the device
    /// where no placement is written for it, and where the CPU is among the routes.
    pub(super) fn all(plan: &Plan, chain: &Chain, routes: &[Route]) -> Vec<Self> {
        let planned = Self::planned(plan);
        let decode = !planned.decode || plan.settings.decode.placement == Placement::Auto;
        let by_cpu = routes.contains(&Route::Cpu);
        let first = plan.cpu_steps();
        let last = chain.steps().len();
        let may = |operators: usize| {
            let leave = &chain.steps()[first..last - operators];
            decode && by_cpu && leave.iter().all(|step| step.placement == Placement::Auto)
        };
        let mut all: Vec<Self> = Vec::new();
        if plan.settings.loader.tune && planned != Self::NOTHING {
            let fewer = (0..=planned.operators).filter(|&operators| may(operators));
            all = fewer.map(|operators| Self { operators, decode: false }).collect();
            all.retain(|it| *it < planned);
        }
        all.push(planned);
        all
    }

    /// The number of the first operator on the device, of a chain of so many.
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
