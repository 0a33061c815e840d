//! Lexer of PTX source.

use crate::error::{Error, Result};

/// Token of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// Identifier, register, directive or opcode, including its dots.
    Word(&'a str),
    Number(Literal),
    /// Quoted text without the quotes.
    Quoted(&'a str),
    Symbol(char),
}

/// Number in the source (PTX ISA, "Constants").
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Literal {
    Integer(u64),
    /// `0f` and eight hexadecimal digits.
    Single(u32),
    /// `0d` and sixteen hexadecimal digits, or a decimal number.
    Double(u64),
}

impl Literal {
    pub fn negated(self) -> Self {
        match self {
            Self::Integer(value) => Self::Integer(value.wrapping_neg()),
            Self::Single(bits) => Self::Single(bits ^ 1 << 31),
            Self::Double(bits) => Self::Double(bits ^ 1 << 63),
        }
    }
}

/// Splits a source into tokens, each with its line.
pub(crate) fn lex(text: &str) -> Result<Vec<(Token<'_>, u32)>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            byte if byte.is_ascii_whitespace() => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at..].find("*/");
                let end = end.ok_or_else(|| Error::parse(line, "unclosed comment"))?;
                line += text[at..at + end].matches('\n').count() as u32;
                at += end + 2;
            }
            b'"' => {
                let end = text[at + 1..].find('"');
                let end = end.ok_or_else(|| Error::parse(line, "unclosed quote"))?;
                tokens.push((Token::Quoted(&text[at + 1..at + 1 + end]), line));
                at += end + 2;
            }
            byte if byte.is_ascii_digit() => {
                let mut exponent = false;
                while at < bytes.len() {
                    let sign = exponent && matches!(bytes[at], b'+' | b'-');
                    if !(bytes[at].is_ascii_alphanumeric() || bytes[at] == b'.' || sign) {
                        break;
                    }
                    let hex = text[start..at].starts_with("0x") || is_float_bits(&text[start..at]);
                    exponent = matches!(bytes[at], b'e' | b'E') && !hex;
                    at += 1;
                }
                let word = &text[start..at];
                let number = number(word);
                let number =
                    number.ok_or_else(|| Error::parse(line, format!("bad number {word}")))?;
                tokens.push((Token::Number(number), line));
            }
            byte if is_word(byte) => {
                while at < bytes.len() {
                    if bytes[at..].starts_with(b"::") {
                        at += 2;
                    } else if is_word(bytes[at]) {
                        at += 1;
                    } else {
                        break;
                    }
                }
                tokens.push((Token::Word(&text[start..at]), line));
            }
            byte if byte.is_ascii() => {
                tokens.push((Token::Symbol(byte as char), line));
                at += 1;
            }
            _ => return Err(Error::parse(line, "a character outside ASCII")),
        }
    }
    Ok(tokens)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn is_float_bits(word: &str) -> bool {
    matches!(word.get(..2), Some("0f" | "0F" | "0d" | "0D"))
}

fn number(word: &str) -> Option<Literal> {
    let integer = word.strip_suffix('U').unwrap_or(word);
    Some(match word.get(..2) {
        Some("0x" | "0X") => Literal::Integer(u64::from_str_radix(&integer[2..], 16).ok()?),
        Some("0b" | "0B") => Literal::Integer(u64::from_str_radix(&integer[2..], 2).ok()?),
        Some("0f" | "0F") => Literal::Single(u32::from_str_radix(&word[2..], 16).ok()?),
        Some("0d" | "0D") => Literal::Double(u64::from_str_radix(&word[2..], 16).ok()?),
        _ if word.contains(['.', 'e', 'E']) => Literal::Double(word.parse::<f64>().ok()?.to_bits()),
        _ if integer.len() > 1 && integer.starts_with('0') => {
            Literal::Integer(u64::from_str_radix(&integer[1..], 8).ok()?)
        }
        _ => Literal::Integer(integer.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_comments_are_split() {
        let text = "/* a\n */ @!%p1 ld.shared::cta.u32 %r1, [%rd2+-4]; // b\n0x1FU 0f3F800000 1.5 017 \"c\"";
        let tokens = lex(text).unwrap();
        let words: Vec<&str> = tokens
            .iter()
            .filter_map(|it| if let Token::Word(word) = it.0 { Some(word) } else { None })
            .collect();
        assert_eq!(words, ["%p1", "ld.shared::cta.u32", "%r1", "%rd2"]);
        let numbers: Vec<Literal> = tokens
            .iter()
            .filter_map(|it| if let Token::Number(number) = it.0 { Some(number) } else { None })
            .collect();
        let expected = [
            Literal::Integer(4),
            Literal::Integer(31),
            Literal::Single(0x3f80_0000),
            Literal::Double(1.5f64.to_bits()),
            Literal::Integer(15),
        ];
        assert_eq!(numbers, expected);
        assert_eq!(tokens.last().unwrap(), &(Token::Quoted("c"), 3));
        assert_eq!(tokens[0], (Token::Symbol('@'), 2));
    }

    #[test]
    fn a_bad_number_is_an_error_with_its_line() {
        assert_eq!(lex("\n0xg").unwrap_err(), Error::parse(2, "bad number 0xg"));
    }
}
