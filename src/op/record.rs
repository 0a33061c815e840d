//! Drawn actions by name, for people, and for programs that reproduce an image without feedwater.

use serde::Serialize;
use serde_json::{Value, json};

use crate::geometry::Size;

use super::ActionParams;

/// Actions that one operator of the chain drew for one sample.
#[derive(Clone, Debug, Serialize)]
pub struct DrawnOperator {
    /// Name of the operator.
    pub op: &'static str,
    /// Actions of this operator, in order.
    pub actions: Vec<DrawnAction>,
}

/// One action that was drawn for one sample.
#[derive(Clone, Debug, Serialize)]
pub struct DrawnAction {
    /// Name of the operator that drew the action. For an action of a combinator, the name of the
    /// inner operator.
    pub op: &'static str,
    /// Kind of the action: `crop`, `flip`, `resample`, `blur`, `warp`, `displace`, `mix`, `table`,
    /// `float_table`, `pixel`, `statistics`, `stencil` or `image`.
    pub kind: &'static str,
    /// Formula of the action, for kinds that have several formulas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Parameters of the action by name.
    pub params: Value,
    /// Width and height of the action's output.
    pub size: [u32; 2],
}

/// Record of the actions of a chain while they are drawn.
#[derive(Debug, Default)]
pub struct Record {
    /// Operators of the chain that have drawn so far.
    pub operators: Vec<DrawnOperator>,
    /// Operator that is drawing: the last one of `operators`, or an inner operator if the last one
    /// is a combinator.
    drawing: &'static str,
    /// Formula and parameters of the next action, if they are known.
    next: Option<(String, Value)>,
}

impl Record {
    /// Begins the record of the next operator of the chain.
    pub fn begin(&mut self, op: &'static str) {
        self.operators.push(DrawnOperator { op, actions: Vec::new() });
        self.drawing = op;
    }

    /// Sets the operator that is drawing. Returns the previous one.
    pub fn enter(&mut self, operator: &'static str) -> &'static str {
        std::mem::replace(&mut self.drawing, operator)
    }

    /// Sets the formula of the next action and the numbers that it depends on.
    pub fn note(&mut self, formula: &str, numbers: &[(&str, &[f64])]) {
        let value = |numbers: &[f64]| match numbers {
            [number] => json!(number),
            numbers => json!(numbers),
        };
        let params = numbers.iter().map(|(name, numbers)| ((*name).into(), value(numbers)));
        self.next = Some((formula.into(), Value::Object(params.collect())));
    }

    /// Sets the formula of the next action and the text that it depends on.
    pub fn text(&mut self, formula: &str, name: &str, text: &str) {
        let params = [(name.to_owned(), Value::from(text))].into_iter().collect();
        self.next = Some((formula.into(), Value::Object(params)));
    }

    /// Sets the formula of the next action and its parameters. `path` is the path of the formula's
    /// type.
    pub fn formula(&mut self, path: &str, params: &impl Serialize) {
        let name = path.rsplit("::").next().unwrap_or(path);
        // Parameters that JSON cannot represent become null.
        self.next = Some((name.into(), serde_json::to_value(params).unwrap_or_default()));
    }

    /// Adds an action whose output has the size `output`. `table` is empty if the action has no
    /// table.
    pub fn push(&mut self, action: &ActionParams, table: &[i32], output: Size) {
        let (kind, known) = action.named();
        let (formula, params) = match (self.next.take(), known) {
            (Some((formula, params)), None) => (Some(formula), params),
            (_, Some(params)) => (None, params),
            (None, None) => (None, action.named_table(table)),
        };
        let size = [output.width, output.height];
        if let Some(operator) = self.operators.last_mut() {
            operator.actions.push(DrawnAction { op: self.drawing, kind, formula, params, size });
        }
    }
}
