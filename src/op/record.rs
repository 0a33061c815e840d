//! Drawn actions by name, for people and for programs that make an image again outside of feedwater.

use serde::Serialize;
use serde_json::{Value, json};

use crate::geometry::Size;

use super::action::What;
use super::formula::elastic::{Field, Smoothness};
use super::kind::mix::Mix;
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
    pub fn push(&mut self, what: &What, table: &[i32], output: Size) {
        let (kind, known) = named(what);
        let (formula, params) = match (self.next.take(), known) {
            (Some((formula, params)), None) => (Some(formula), params),
            (_, Some(params)) => (None, params),
            (None, None) => (None, entries(what, table)),
        };
        let size = [output.width, output.height];
        if let Some(operator) = self.operators.last_mut() {
            operator.actions.push(DrawnAction { op: self.drawing, kind, formula, params, size });
        }
    }
}

/// Kind of an action, and its parameters if the frame knows them by name.
fn named(what: &What) -> (&'static str, Option<Value>) {
    match what {
        What::Crop(params) => {
            let ((x, y), fill) = (params.position(), params.fill());
            ("crop", Some(json!({ "x": x, "y": y, "fill": fill })))
        }
        What::Flip(params) => {
            let (horizontal, vertical) = (params.horizontal(), params.vertical());
            ("flip", Some(json!({ "horizontal": horizontal, "vertical": vertical })))
        }
        What::Resample(params, Weights::Filter(filter)) => {
            let of = params.of();
            let of = [of.x, of.y, of.width, of.height];
            ("resample", Some(json!({ "box": of, "filter": filter })))
        }
        What::Resample(_, Weights::Blur(blur)) => {
            ("blur", Some(json!({ "kernel": blur.kernel, "sigma": blur.sigma })))
        }
        What::Warp(warp, _, Some(field)) => {
            let Field { smoothness: Smoothness { alpha, sigma }, key } = field;
            let (interpolation, fill) = (warp.interpolation(), warp.fill());
            let params = json!({ "alpha": alpha, "sigma": sigma, "key": key, "interpolation": interpolation, "fill": fill });
            ("displace", Some(params))
        }
        // A mix begins with the image's weight; the others end a chain that begins at the image.
        What::Mix(Mix::Begin { weight, .. }) => {
            ("mix", Some(json!({ "weight": weight, "at": "begin" })))
        }
        What::Mix(Mix::Add { weight, last }) => {
            let at = if *last { "end" } else { "next" };
            ("mix", Some(json!({ "weight": weight, "at": at })))
        }
        What::Warp(warp, _, None) => {
            let (interpolation, fill) = (warp.interpolation(), warp.fill());
            let matrix = warp.back().map(|plane| plane.matrix());
            let params = json!({ "matrix": matrix, "interpolation": interpolation, "fill": fill });
            ("warp", Some(params))
        }
        What::Table => ("table", None),
        What::FloatTable => ("float_table", None),
        What::Pixel(..) => ("pixel", None),
        What::Statistics(..) => ("statistics", None),
        What::Stencil(..) => ("stencil", None),
        What::Image(..) => ("image", None),
    }
}

/// Entries of a table without a formula, for each channel.
fn entries(what: &What, table: &[i32]) -> Value {
    match what {
        What::Table => json!({ "table": table::bytes(table).map(|row| row.to_vec()) }),
        What::FloatTable => json!({ "table": table::floats(table).map(|row| row.to_vec()) }),
        _ => Value::Null,
    }
}
