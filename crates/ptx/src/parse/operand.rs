//! Operands of instructions.

use super::lex::{Literal, Token};
use super::scope::Body;
use crate::error::{Error, Result};
use crate::isa::{Operand, Register, Type};

/// Operand as written in the source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg<'a> {
    Value(Operand),
    Literal(Literal),
    /// `{a, b}`.
    Vector(Vec<Arg<'a>>),
    /// `[a+4]`.
    Address(Operand, i64),
    /// `p|q`.
    Pair(Operand, Operand),
    /// Label, branch table or function.
    Name(&'a str),
}

/// Returns the bits of a number as an operand of type `ty`.
pub(crate) fn immediate(literal: Literal, ty: Type) -> u64 {
    match literal {
        Literal::Integer(value) => value,
        Literal::Single(bits) if ty.bits() == 64 => f64::from(f32::from_bits(bits)).to_bits(),
        Literal::Single(bits) => u64::from(bits),
        Literal::Double(bits) if ty.bits() == 64 => bits,
        Literal::Double(bits) => u64::from((f64::from_bits(bits) as f32).to_bits()),
    }
}

impl<'a> Body<'_, 'a> {
    /// Parses operands up to the semicolon.
    pub fn arguments(&mut self) -> Result<Vec<Arg<'a>>> {
        let mut found = Vec::new();
        while !self.parser.eat(';') {
            found.push(self.argument()?);
            if !self.parser.is(';') {
                self.parser.expect(',')?;
            }
        }
        Ok(found)
    }

    fn argument(&mut self) -> Result<Arg<'a>> {
        if self.parser.eat('{') {
            let mut list = Vec::new();
            while !self.parser.eat('}') {
                list.push(self.argument()?);
                self.parser.eat(',');
            }
            return Ok(Arg::Vector(list));
        }
        if self.parser.eat('[') {
            let (base, offset) = match self.argument()? {
                Arg::Value(base) => (base, 0),
                Arg::Address(base, offset) => (base, offset),
                Arg::Literal(Literal::Integer(address)) => (Operand::Immediate(address), 0),
                other => return self.error(format!("bad address {other:?}")),
            };
            let offset = offset + self.added()?;
            self.parser.expect(']')?;
            return Ok(Arg::Address(base, offset));
        }
        if self.parser.eat('!') {
            return match self.argument()? {
                Arg::Value(Operand::Register(Register::Pred(at))) => {
                    Ok(Arg::Value(Operand::Not(at)))
                }
                other => self.error(format!(
                    "only a predicate can be negated, but the operand is {other:?}"
                )),
            };
        }
        if self.parser.eat('-') {
            return Ok(Arg::Literal(self.parser.literal()?.negated()));
        }
        let word = match self.parser.advance()? {
            Token::Number(number) => return Ok(Arg::Literal(number)),
            Token::Word("WARP_SZ") => return Ok(Arg::Literal(Literal::Integer(32))),
            Token::Word("_") if self.parser.eat('|') => {
                let Arg::Value(second) = self.argument()? else {
                    return self.error("bad pair of results".into());
                };
                return Ok(Arg::Pair(Operand::None, second));
            }
            Token::Word("_") => return Ok(Arg::Value(Operand::None)),
            Token::Word(word) => word,
            other => return self.error(format!("bad operand {other:?}")),
        };
        let Some(operand) = self.symbol(word) else {
            if word.starts_with('%') {
                return self.error(format!("unknown register {word}"));
            }
            return Ok(Arg::Name(word));
        };
        if self.parser.eat('|') {
            let Arg::Value(second) = self.argument()? else {
                return self.error("bad pair of results".into());
            };
            return Ok(Arg::Pair(operand, second));
        }
        // The operand may be the address of a variable plus an offset, without brackets.
        let offset = if matches!(operand, Operand::Register(_)) { 0 } else { self.added()? };
        Ok(match operand {
            _ if offset == 0 => Arg::Value(operand),
            Operand::Immediate(address) => {
                Arg::Value(Operand::Immediate(address.wrapping_add_signed(offset)))
            }
            Operand::DynamicShared(address) => {
                Arg::Value(Operand::DynamicShared(address.wrapping_add_signed(offset)))
            }
            Operand::Local(address) => {
                Arg::Value(Operand::Local(address.wrapping_add_signed(offset)))
            }
            other => Arg::Address(other, offset),
        })
    }

    /// Parses `+4`, `+-4` or `-4`. Returns 0 if there is no offset.
    fn added(&mut self) -> Result<i64> {
        let plus = self.parser.eat('+');
        let minus = self.parser.eat('-');
        if !plus && !minus {
            return Ok(0);
        }
        let value = self.parser.integer()? as i64;
        Ok(if minus { value.wrapping_neg() } else { value })
    }

    fn error<T>(&self, message: String) -> Result<T> {
        Err(Error::parse(self.parser.line(), message))
    }
}
