//! Parts of a chain between displacements.

use crate::geometry::{Displaced, DisplacedPart, Mapping, PointMap, Size};

use crate::op::kind::mix::Inside;
use crate::op::{Action, ActionParams, Trace};

/// Parts of a sample's chain that end with displacements ([`elastic`](crate::op::Elastic)), and the
/// part after them. The memory is reused for the next sample.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    displaced: Vec<DisplacedPart>,
    /// For each part, the number of the action that displaces the pixels at its end.
    actions: Vec<usize>,
    /// Mapping of the actions after the last displacements.
    last: Mapping,
}

impl Parts {
    /// Finds the parts of a chain for an image of size `input`. The displacements of a mix do not
    /// count, because the mix also contains the image that was not displaced.
    pub fn find(&mut self, actions: &[Action], input: Size) {
        self.displaced.clear();
        self.actions.clear();
        let (mut trace, mut mixes, mut first) = (Trace::new(input), Inside::default(), 0);
        for (number, action) in actions.iter().enumerate() {
            if mixes.pass(&action.params) || !is_displaced(&action.params) {
                continue;
            }
            Action::trace_all(&actions[first..number], &mut trace);
            let mapping = trace.mapping;
            self.displaced.push(DisplacedPart { mapping, table: 0..0, reach: [0.0; 2] });
            self.actions.push(number);
            (trace, first) = (Trace::new(action.whole), number + 1);
        }
        if first > 0 {
            Action::trace_all(&actions[first..], &mut trace);
            self.last = trace.mapping;
        }
    }

    /// Finds the displacements of each part, after the tables of the actions were computed.
    pub fn find_displacements(&mut self, actions: &[Action], table: &[i32]) {
        for (part, &number) in self.displaced.iter_mut().zip(&self.actions) {
            part.table = actions[number].table.clone();
            part.reach = Displaced::new(&table[part.table.clone()], part.mapping.size).reach();
        }
    }

    /// Whether the chain displaces pixels.
    pub fn are_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    /// Map of a sample. `whole` is the mapping of all actions, without displacements.
    pub fn map<'a>(&'a self, whole: &'a Mapping, table: &'a [i32]) -> PointMap<'a> {
        let last = if self.are_displaced() { &self.last } else { whole };
        PointMap { parts: &self.displaced, last, table }
    }
}

fn is_displaced(params: &ActionParams) -> bool {
    matches!(params, ActionParams::Warp(warp) if warp.field.is_some())
}
