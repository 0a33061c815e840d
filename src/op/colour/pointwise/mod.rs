//! `pointwise`: computes each channel with an expression.

use serde::{Deserialize, Serialize};

use crate::op::kind::table::{self, Bytes};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};
use crate::tensor::CHANNELS;

use expression::Expression;

mod expression;

/// Computes each channel of each pixel from its value, with an expression such as
/// `clamp(x * 1.1 - 0.05, 0, 1)`.
///
/// * `x` is the byte of the channel divided by 255, so it is from 0 to 1. `c` is the number of the
///   channel: 0 red, 1 green, 2 blue.
/// * Operators and functions are `+ - * /`, parentheses, `abs`, `clamp(v, low, high)`, `exp`,
///   `floor`, `if(condition, then, else)`, `log` (natural), `max(a, b)`, `min(a, b)`,
///   `pow(base, exponent)`, `round` (half away from 0) and `sqrt`. Comparisons (`< <= > >= == !=`)
///   give 1 or 0.
///
/// The result is clamped to 0..=1, and the new byte is `round(255 * result)`. The expression is
/// evaluated in f64, once for each byte and channel, when the operator is created. A result that is
/// not a number is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Text", into = "Text")]
pub struct Pointwise {
    text: Text,
    table: Result<Box<Bytes>, FieldError>,
}

/// Settings of `pointwise` as TOML has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Expression, at most 4096 characters.
    expr: String,
}

impl Pointwise {
    /// Parses an expression. The error names the character at which parsing fails, and what is
    /// expected there.
    pub fn new(expr: impl Into<String>) -> Result<Self, FieldError> {
        let made = Self::from(Text { expr: expr.into() });
        made.check().map(|()| made)
    }

    /// The expression.
    pub fn expr(&self) -> &str {
        &self.text.expr
    }
}

impl From<Text> for Pointwise {
    fn from(text: Text) -> Self {
        Self { table: table_of(&text.expr), text }
    }
}

impl From<Pointwise> for Text {
    fn from(made: Pointwise) -> Self {
        made.text
    }
}

impl Operator for Pointwise {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.note_text("Pointwise", "expr", &self.text.expr);
        match &self.table {
            Ok(table) => draw.table(|channel, byte| table[channel][usize::from(byte)]),
            Err(_) => draw.table(|_, byte| byte),
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        self.table.as_ref().map(|_| ()).map_err(FieldError::clone)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        match self.table.as_deref() {
            Ok([red, green, blue]) if input == 1 && (red != green || green != blue) => {
                Err("expr of pointwise depends on c, but its input has only one channel; remove c"
                    .into())
            }
            _ => Ok(input),
        }
    }
}

impl BuiltIn for Pointwise {
    const NAME: &'static str = "pointwise";

    fn examples() -> Vec<Self> {
        ["clamp(x * 1.1 - 0.05, 0, 1)", "if(c == 1, pow(x, 0.5), 1 - x)", "x + (c - 1) / 7"]
            .map(|expr| Self::from(Text { expr: expr.into() }))
            .to_vec()
    }
}

fn table_of(expr: &str) -> Result<Box<Bytes>, FieldError> {
    let wrong = |problem: String| FieldError::new("expr", format!("is {expr:?}; {problem}"));
    let expression = Expression::parse(expr).map_err(|error| wrong(error.to_string()))?;
    let value = |channel, byte: u8| expression.evaluate(channel, f64::from(byte) / 255.0);
    for channel in 0..CHANNELS {
        if let Some(byte) = (0..=255).find(|byte| value(channel, *byte).is_nan()) {
            let problem =
                format!("its result for x = {byte} / 255 and c = {channel} is not a number (NaN)");
            return Err(wrong(problem));
        }
    }
    let byte = |channel, byte| (255.0 * value(channel, byte)).round() as u8;
    Ok(Box::new(table::of(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(expr: &str, channel: usize, byte: u8) -> u8 {
        Pointwise::new(expr).unwrap().table.unwrap()[channel][usize::from(byte)]
    }

    #[test]
    fn results_are_cut_and_rounded_half_up() {
        assert_eq!([0, 7, 255].map(|it| byte("x", 0, it)), [0, 7, 255]);
        assert_eq!([1, 2, 255].map(|it| byte("x / 2", 2, it)), [1, 1, 128]);
        assert_eq!(
            [byte("-1e300", 0, 9), byte("(x + 1) / 0", 0, 9), byte("2 * x", 1, 200)],
            [0, 255, 255]
        );
        assert_eq!([0, 1, 2].map(|channel| byte("c / 2", channel, 3)), [0, 128, 255]);
    }

    #[test]
    fn wrong_expressions_are_refused_with_the_character() {
        let error = Pointwise::new("clamp(x, 0").unwrap_err();
        assert_eq!(error.field, "expr");
        assert!(error.problem.contains("character 11"), "{}", error.problem);
        let error = Pointwise::new("log(x - 0.5)").unwrap_err();
        assert!(error.problem.contains("x = 0 / 255 and c = 0"), "{}", error.problem);
        let read: Pointwise = serde_json::from_str(r#"{"expr": "x +"}"#).unwrap();
        assert_eq!(read.check().unwrap_err().field, "expr");
        assert!(serde_json::from_str::<Pointwise>(r#"{"expr": "x", "y": 1}"#).is_err());
        let valid = Pointwise::new("x * 0.5").unwrap();
        assert_eq!(serde_json::to_string(&valid).unwrap(), r#"{"expr":"x * 0.5"}"#);
    }
}
