//! Drawn actions by name, for people and for programs that make an image again outside of feedwater.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::geometry::Size;

use super::action::What;
use super::kind::table;
use super::resample::Weights;

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
    /// What is done: `crop`, `flip`, `resample`, `blur`, `warp`, `table`, `float_table`, `pixel`, `statistics`, `stencil`
    /// or `image`.
    pub kind: &'static str,
    /// Parameters by name.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

/// Actions of a chain while they are drawn.
#[derive(Debug, Default)]
pub struct Record {
    /// Operators of the chain so far.
    pub operators: Vec<DrawnOperator>,
    /// Operator that draws now: the last one, or one inside of it.
    drawing: &'static str,
    /// Parameters of the next action that are known already.
    params: Map<String, Value>,
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
        self.params.insert("formula".into(), formula.into());
        for (name, numbers) in numbers {
            let value = match numbers {
                [number] => json!(number),
                numbers => json!(numbers),
            };
            self.params.insert((*name).into(), value);
        }
    }

    /// Sets the formula of the next action by the path of its type, and its parameters.
    pub fn formula(&mut self, path: &str, params: &impl Serialize) {
        let name = path.rsplit("::").next().unwrap_or(path);
        self.params.insert("formula".into(), name.into());
        // Numbers that JSON has no form for become null.
        match serde_json::to_value(params).unwrap_or_default() {
            Value::Object(params) => self.params.extend(params),
            params => {
                self.params.insert("params".into(), params);
            }
        }
    }

    /// Sets the entries of the next action's table, if no formula says what it is.
    pub fn table(&mut self, what: &What, entries: &[i32]) {
        if self.params.contains_key("formula") {
            return;
        }
        let values = match what {
            What::FloatTable => json!(table::floats(entries).map(|row| row.to_vec())),
            _ => json!(table::bytes(entries).map(|row| row.to_vec())),
        };
        self.params.insert("table".into(), values);
    }

    /// Adds an action whose output has the size `output`.
    pub fn push(&mut self, what: &What, output: Size) {
        let (kind, params) = named(what, output);
        self.params.extend(params.as_object().cloned().unwrap_or_default());
        let params = std::mem::take(&mut self.params);
        if let Some(operator) = self.operators.last_mut() {
            operator.actions.push(DrawnAction { op: self.drawing, kind, params });
        }
    }
}

/// Kind of an action, and those parameters that the frame knows.
fn named(what: &What, output: Size) -> (&'static str, Value) {
    let size = [output.width, output.height];
    match what {
        What::Crop(params) => {
            let ((x, y), fill) = (params.position(), params.fill());
            ("crop", json!({ "x": x, "y": y, "size": size, "fill": fill }))
        }
        What::Flip(params) => {
            let (horizontal, vertical) = (params.horizontal(), params.vertical());
            ("flip", json!({ "horizontal": horizontal, "vertical": vertical }))
        }
        What::Resample(params, Weights::Filter(filter)) => {
            let of = params.of();
            let of = [of.x, of.y, of.width, of.height];
            ("resample", json!({ "box": of, "size": size, "filter": filter }))
        }
        What::Resample(_, Weights::Blur(blur)) => {
            ("blur", json!({ "kernel": blur.kernel, "sigma": blur.sigma }))
        }
        What::Warp(warp, _) => {
            let (interpolation, fill) = (warp.interpolation(), warp.fill());
            let matrix = warp.back().map(|plane| plane.matrix());
            let params = json!({ "size": size, "matrix": matrix, "interpolation": interpolation, "fill": fill });
            ("warp", params)
        }
        What::Table => ("table", Value::Null),
        What::FloatTable => ("float_table", Value::Null),
        What::Pixel(..) => ("pixel", Value::Null),
        What::Statistics(..) => ("statistics", Value::Null),
        What::Stencil(..) => ("stencil", Value::Null),
        What::Image(..) => ("image", json!({ "size": size })),
    }
}
