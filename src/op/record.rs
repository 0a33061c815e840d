//! Drawn actions by name, for people and for programs that make an image again outside of feedwater.

use serde::Serialize;
use serde_json::{Value, json};

use crate::geometry::Size;

use super::ActionParams;

/// What an operator of the chain drew for one sample.
#[derive(Clone, Debug, Serialize)]
pub struct DrawnOperator {
    /// Name of the operator.
    pub op: &'static str,
    /// Its actions in order.
    pub actions: Vec<DrawnAction>,
}

/// One action of one sample.
#[derive(Clone, Debug, Serialize)]
pub struct DrawnAction {
    /// Name of the operator that drew it: inside of a combinator, the inner one.
    pub op: &'static str,
    /// What is done: `crop`, `flip`, `resample`, `blur`, `warp`, `displace`, `mix`, `table`, `float_table`, `pixel`,
    /// `statistics`, `stencil` or `image`.
    pub kind: &'static str,
    /// Which formula, for kinds that have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Parameters by name.
    pub params: Value,
    /// Width and height of the output.
    pub size: [u32; 2],
}

/// Actions of a chain while they are drawn.
#[derive(Debug, Default)]
pub struct Record {
    /// Operators of the chain so far.
    pub operators: Vec<DrawnOperator>,
    /// Operator that draws now: the last one, or one inside of it.
    drawing: &'static str,
    /// Formula of the next action and its parameters, if they are known.
    next: Option<(String, Value)>,
}

impl Record {
    /// Begins the next operator of the chain.
    pub fn begin(&mut self, op: &'static str) {
        self.operators.push(DrawnOperator { op, actions: Vec::new() });
        self.drawing = op;
    }

    /// Sets the operator that draws. Returns the one before.
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

    /// Sets the formula of the next action by the path of its type, and its parameters.
    pub fn formula(&mut self, path: &str, params: &impl Serialize) {
        let name = path.rsplit("::").next().unwrap_or(path);
        // Parameters that JSON has no form for become null.
        self.next = Some((name.into(), serde_json::to_value(params).unwrap_or_default()));
    }

    /// Adds an action whose output has the size `output`. `table` is its table, if it has one.
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
