//! Expressions of `pointwise`: arithmetic on one channel of a pixel.
//!
//! ```text
//! comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
//! sum        = product {("+" | "-") product}
//! product    = factor {("*" | "/") factor}
//! factor     = "-" factor | "(" comparison ")" | number | "x" | "c" | function "(" comparison {"," comparison} ")"
//! ```

use std::fmt;

/// An expression, compiled to steps of a stack machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    steps: Vec<Instruction>,
}

/// Error of an expression that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Number of the character at which parsing fails, from 1 on. One more than the length of the
    /// expression if it ends too early.
    pub character: usize,
    /// What the parser expects at this character.
    pub expected: String,
    /// Text that the parser finds at this character. `None` at the end of the expression.
    pub found: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Instruction {
    Number(f64),
    /// Pushes the value of the channel, the variable `x`.
    Value,
    /// Pushes the number of the channel, the variable `c`.
    Channel,
    /// Calls a function: replaces its arguments on the stack by its result. Binary operators are
    /// functions too.
    Call(Function),
}

/// A function with its name and number of arguments.
#[derive(Clone, Copy, Debug)]
struct Function {
    name: &'static str,
    arguments: usize,
    of: fn(&[f64]) -> f64,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

const fn function(name: &'static str, arguments: usize, of: fn(&[f64]) -> f64) -> Function {
    Function { name, arguments, of }
}

/// Functions that expressions can call.
const FUNCTIONS: [Function; 11] = [
    function("abs", 1, |a| a[0].abs()),
    // `clamp`, `max` and `min` return NaN if an argument is NaN.
    function("clamp", 3, |a| lesser(greater(a[0], a[1]), a[2])),
    function("exp", 1, |a| libm::exp(a[0])),
    function("floor", 1, |a| a[0].floor()),
    function("if", 3, |a| if a[0] != 0.0 { a[1] } else { a[2] }),
    function("log", 1, |a| libm::log(a[0])),
    function("max", 2, |a| greater(a[0], a[1])),
    function("min", 2, |a| lesser(a[0], a[1])),
    function("pow", 2, |a| libm::pow(a[0], a[1])),
    function("round", 1, |a| a[0].round()),
    function("sqrt", 1, |a| a[0].sqrt()),
];

/// Binary operators with their precedence. `<=` is listed before its prefix `<`, and `>=` before
/// `>`, because the parser takes the first operator that matches.
const OPERATORS: [(u8, Function); 10] = [
    (0, function("<=", 2, |a| f64::from(a[0] <= a[1]))),
    (0, function(">=", 2, |a| f64::from(a[0] >= a[1]))),
    (0, function("==", 2, |a| f64::from(a[0] == a[1]))),
    (0, function("!=", 2, |a| f64::from(a[0] != a[1]))),
    (0, function("<", 2, |a| f64::from(a[0] < a[1]))),
    (0, function(">", 2, |a| f64::from(a[0] > a[1]))),
    (1, function("+", 2, |a| a[0] + a[1])),
    (1, function("-", 2, |a| a[0] - a[1])),
    (2, function("*", 2, |a| a[0] * a[1])),
    (2, function("/", 2, |a| a[0] / a[1])),
];

/// Precedence of comparisons, which cannot follow each other without parentheses.
const COMPARISON: u8 = 0;

const NEGATION: Function = function("-", 1, |a| -a[0]);

fn lesser(a: f64, b: f64) -> f64 {
    if b < a || b.is_nan() { b } else { a }
}

fn greater(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

impl Expression {
    /// Maximum length of an expression, in characters.
    pub const MAX_CHARACTERS: usize = 4096;
    /// Maximum nesting depth of parentheses, function calls and minus signs.
    pub const MAX_DEPTH: usize = 64;

    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut parser =
            Parser { text: text.chars().collect(), at: 0, depth: 0, steps: Vec::new() };
        if parser.text.len() > Self::MAX_CHARACTERS {
            parser.at = Self::MAX_CHARACTERS;
            return Err(parser.expected(format!(
                "an expression of at most {} characters",
                Self::MAX_CHARACTERS
            )));
        }
        parser.operation(COMPARISON)?;
        match parser.peek() {
            None => Ok(Self { steps: parser.steps }),
            Some(_) => Err(parser.expected("an operator or the end of the expression")),
        }
    }

    /// Result of the expression for a channel with this number and value.
    pub fn evaluate(&self, channel: usize, value: f64) -> f64 {
        let mut stack = Vec::new();
        for step in &self.steps {
            let result = match step {
                Instruction::Number(number) => *number,
                Instruction::Value => value,
                Instruction::Channel => channel as f64,
                Instruction::Call(function) => {
                    let first = stack.len() - function.arguments;
                    let result = (function.of)(&stack[first..]);
                    stack.truncate(first);
                    result
                }
            };
            stack.push(result);
        }
        stack[0]
    }
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
    steps: Vec<Instruction>,
}

impl Parser {
    /// Parses operands and the operators between them whose precedence is at least `precedence`.
    fn operation(&mut self, precedence: u8) -> Result<(), ExpressionError> {
        self.factor()?;
        let mut compared = false;
        while let Some((found, operator)) = self.operator(precedence) {
            if found == COMPARISON && compared {
                return Err(self.expected("at most one comparison without parentheses"));
            }
            compared |= found == COMPARISON;
            self.at += operator.name.len();
            self.operation(found + 1)?;
            self.steps.push(Instruction::Call(operator));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<(), ExpressionError> {
        const OPERAND: &str = "a number, x, c, a function, - or (";
        match self.peek() {
            Some('-') => {
                self.nested(|parser| parser.factor())?;
                self.steps.push(Instruction::Call(NEGATION));
            }
            Some('(') => {
                self.nested(|parser| parser.operation(COMPARISON))?;
                self.close("an operator or )")?;
            }
            Some('0'..='9' | '.') => return self.number(),
            Some(first) if first.is_ascii_alphabetic() => return self.name(),
            _ => return Err(self.expected(OPERAND)),
        }
        Ok(())
    }

    /// Skips the character that begins a nested part, then parses the part. Fails if parts are
    /// nested too deeply.
    fn nested(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<(), ExpressionError>,
    ) -> Result<(), ExpressionError> {
        if self.depth == Expression::MAX_DEPTH {
            let most = Expression::MAX_DEPTH;
            return Err(self.expected(format!("at most {most} nested parentheses and signs")));
        }
        self.at += 1;
        self.depth += 1;
        part(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn number(&mut self) -> Result<(), ExpressionError> {
        let start = self.at;
        self.skip(|next| next.is_ascii_digit() || next == '.');
        if matches!(self.text.get(self.at), Some('e' | 'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some('+' | '-')) {
                self.at += 1;
            }
            self.skip(|next| next.is_ascii_digit());
        }
        let text: String = self.text[start..self.at].iter().collect();
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                self.steps.push(Instruction::Number(number));
                Ok(())
            }
            _ => Err(self.wrong(start, "a number such as 0.5 or 1e-3")),
        }
    }

    /// Parses a variable or a function call.
    fn name(&mut self) -> Result<(), ExpressionError> {
        let start = self.at;
        self.skip(|next| next.is_ascii_alphanumeric() || next == '_');
        let name: String = self.text[start..self.at].iter().collect();
        match name.as_str() {
            "x" => self.steps.push(Instruction::Value),
            "c" => self.steps.push(Instruction::Channel),
            name => {
                let Some(function) = FUNCTIONS.iter().find(|it| it.name == name) else {
                    let names = FUNCTIONS.map(|it| it.name).join(", ");
                    return Err(self.wrong(start, format!("x, c or one of {names}")));
                };
                return self.call(*function);
            }
        }
        Ok(())
    }

    fn call(&mut self, function: Function) -> Result<(), ExpressionError> {
        let Function { name, arguments, .. } = function;
        if self.peek() != Some('(') {
            return Err(self.expected(format!("( after {name}")));
        }
        self.nested(|parser| parser.operation(COMPARISON))?;
        for _ in 1..arguments {
            if self.peek() != Some(',') {
                return Err(
                    self.expected(format!("a comma, because {name} takes {arguments} numbers"))
                );
            }
            self.nested(|parser| parser.operation(COMPARISON))?;
        }
        self.close(&format!("an operator or ), because {name} takes {arguments} number(s)"))?;
        self.steps.push(Instruction::Call(function));
        Ok(())
    }

    fn close(&mut self, expected: &str) -> Result<(), ExpressionError> {
        if self.peek() != Some(')') {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// The next operator, if its precedence is at least `precedence`. It is not consumed.
    fn operator(&mut self, precedence: u8) -> Option<(u8, Function)> {
        self.peek();
        let rest = &self.text[self.at..];
        let is_next = |name: &str| {
            name.len() <= rest.len() && name.chars().zip(rest).all(|(one, other)| one == *other)
        };
        let found = OPERATORS.into_iter().find(|(_, operator)| is_next(operator.name))?;
        (found.0 >= precedence).then_some(found)
    }

    /// Skips spaces and returns the next character, without consuming it.
    fn peek(&mut self) -> Option<char> {
        self.skip(char::is_whitespace);
        self.text.get(self.at).copied()
    }

    fn skip(&mut self, of: impl Fn(char) -> bool) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|next| of(**next)).count();
    }

    /// Error at the next character, where `what` is expected.
    fn expected(&mut self, what: impl fmt::Display) -> ExpressionError {
        self.peek();
        let found = self.text.get(self.at).map(char::to_string);
        ExpressionError { character: self.at + 1, expected: what.to_string(), found }
    }

    /// Error for the text from `start` to the current position, where `what` is expected.
    fn wrong(&self, start: usize, what: impl fmt::Display) -> ExpressionError {
        let found = Some(self.text[start..self.at].iter().collect());
        ExpressionError { character: start + 1, expected: what.to_string(), found }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { character, expected, found } = self;
        match found {
            Some(found) => write!(f, "character {character}: expected {expected}, found {found:?}"),
            None => write!(
                f,
                "character {character}: expected {expected}, found the end of the expression"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{SampleKey, SampleRng};

    #[test]
    fn operators_and_functions_have_their_usual_meaning() {
        for (text, expected) in [
            ("1 + 2 * 3 - 4 / 8", 6.5),
            ("-x * -2", 1.0),
            ("2 - 1 - 1", 0.0),
            ("8 / 4 / 2", 1.0),
            ("--2", 2.0),
            ("(1 + 2) * 3", 9.0),
            ("c + x", 2.5),
            ("clamp(x * 3, 0, 1)", 1.0),
            ("min(x, c) + max(x, c)", 2.5),
            ("abs(-3) + sqrt(4) + pow(2, 3)", 13.0),
            ("log(exp(2))", 2.0),
            ("floor(-1.5) + round(2.5)", 1.0),
            ("if(x <= 0.5, 10, 20) + if(c != 2, 1, 2)", 12.0),
            ("1 < 2", 1.0),
            ("(1 == 2) + (2 >= 2) + (1 > 2)", 1.0),
            (" 1.5e1+.5 ", 15.5),
        ] {
            assert_eq!(Expression::parse(text).unwrap().evaluate(2, 0.5), expected, "{text}");
        }
        assert!(Expression::parse("clamp(0 / 0, 0, 1)").unwrap().evaluate(0, 0.0).is_nan());
        assert!(Expression::parse("min(1, log(-1))").unwrap().evaluate(0, 0.0).is_nan());
    }

    #[test]
    fn errors_have_the_place_and_what_is_there() {
        for (text, character, found) in [
            ("", 1, None),
            ("x * ", 5, None),
            ("x * * 2", 5, Some("*")),
            ("(x + 1", 7, None),
            ("x + 1)", 6, Some(")")),
            ("clamp(x, 0)", 11, Some(")")),
            ("sqrt(x, 1)", 7, Some(",")),
            ("sqrt x", 6, Some("x")),
            ("2 + sinus(x)", 5, Some("sinus")),
            ("1.2.3", 1, Some("1.2.3")),
            ("1 + 1e", 5, Some("1e")),
            ("1e999", 1, Some("1e999")),
            ("0 < x < 1", 7, Some("<")),
            ("x y", 3, Some("y")),
            ("äx", 1, Some("ä")),
            ("x = 1", 3, Some("=")),
        ] {
            let error = Expression::parse(text).unwrap_err();
            let expected = (character, found.map(str::to_string));
            assert_eq!((error.character, error.found), expected, "{text}");
        }
    }

    #[test]
    fn depth_and_length_are_limited() {
        let most = Expression::MAX_DEPTH;
        let nested = |depth| format!("{}x{}", "(".repeat(depth), ")".repeat(depth));
        assert!(Expression::parse(&nested(most)).is_ok());
        assert_eq!(Expression::parse(&nested(most + 1)).unwrap_err().character, most + 1);
        assert_eq!(Expression::parse(&"-".repeat(4000)).unwrap_err().character, most + 1);
        assert_eq!(Expression::parse(&"abs(".repeat(1000)).unwrap_err().character, 4 * most + 4);
        let long = |terms| format!("x{}", "+x".repeat(terms));
        assert_eq!(Expression::parse(&long(2047)).unwrap().evaluate(0, 1.0), 2048.0);
        assert_eq!(Expression::parse(&long(2048)).unwrap_err().character, 4097);
    }

    /// Every text is parsed or refused. A parsed expression can be evaluated. The position of an
    /// error is in the text or just behind its end.
    #[test]
    fn any_sequence_of_words_is_read_or_refused() {
        const WORDS: [&str; 26] = [
            "x", "c", "1", "0.5", "1e3", ".", "e", "+", "-", "*", "/", "(", ")", ",", "<", ">=",
            "=", "!", "clamp(", "min(", "if(", "sqrt(", "pow", "ä", " ", "\n",
        ];
        let mut read = 0;
        for index in 0..20_000 {
            let mut rng = SampleRng::new(SampleKey { index, ..SampleKey::default() }, 0);
            let count = rng.below(12);
            let text: String =
                (0..count).map(|_| WORDS[rng.below(WORDS.len() as u64) as usize]).collect();
            match Expression::parse(&text) {
                Ok(expression) => {
                    expression.evaluate(1, 0.25);
                    read += 1;
                }
                Err(error) => {
                    assert!((1..=text.chars().count() + 1).contains(&error.character), "{text}");
                }
            }
        }
        assert!(read > 300, "{read}");
    }
}
