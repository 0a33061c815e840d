//! Decoder that converts opcode, modifiers and operands to an [`Instruction`] (PTX ISA,
//! "Instruction Set").
//!
//! A modifier that no decoding function uses is an error. Unknown modifiers are therefore refused.

mod arithmetic;
mod bits;
mod control;
mod memory;
mod moves;
mod warp;

use std::collections::VecDeque;

use super::operand::{self, Arg};
use crate::error::{Error, Result};
use crate::isa::{Instruction, Mode, Op, Operand, Register, Rounding, Type};

/// Target of a branch.
pub(crate) enum Target<'a> {
    None,
    Label(&'a str),
    Table(&'a str),
}

/// Decodes an instruction. Guard, name and source position stay empty.
pub(crate) fn decode<'a>(
    text: &'a str,
    args: Vec<Arg<'a>>,
    line: u32,
) -> Result<(Instruction, Target<'a>)> {
    let mut words = text.split('.');
    let opcode = words.next().unwrap_or_default();
    let words = words.collect();
    let mut decoder = Decoder { text, opcode, words, args: args.into(), line };
    let d = &mut decoder;
    let mut target = Target::None;
    let found = match arithmetic::decode(d)? {
        Some(found) => Some(found),
        None => match bits::decode(d)? {
            Some(found) => Some(found),
            None => match moves::decode(d)? {
                Some(found) => Some(found),
                None => match memory::decode(d)? {
                    Some(found) => Some(found),
                    None => match warp::decode(d)? {
                        Some(found) => Some(found),
                        None => control::decode(d, &mut target)?,
                    },
                },
            },
        },
    };
    let Some(instruction) = found else {
        return decoder.error(format!("unknown opcode {text}"));
    };
    decoder.finish()?;
    Ok((instruction, target))
}

/// Modifiers and operands of an instruction that the decoder has not consumed yet.
struct Decoder<'a> {
    text: &'a str,
    opcode: &'a str,
    words: Vec<&'a str>,
    args: VecDeque<Arg<'a>>,
    line: u32,
}

impl<'a> Decoder<'a> {
    fn error<T>(&self, message: String) -> Result<T> {
        Err(Error::parse(self.line, message))
    }

    fn finish(&self) -> Result<()> {
        if let Some(word) = self.words.first() {
            return self.error(format!("unknown modifier .{word} of {}", self.text));
        }
        if let Some(arg) = self.args.front() {
            return self.error(format!("{} has too many operands: {arg:?}", self.text));
        }
        Ok(())
    }

    /// Consumes the modifier `word` if it is present. Returns whether it was present.
    fn flag(&mut self, word: &str) -> bool {
        let found = self.words.iter().position(|it| *it == word);
        found.map(|at| self.words.remove(at)).is_some()
    }

    /// Consumes the first modifier that is in the list. Returns the value that the list assigns to
    /// it.
    fn any<T: Copy>(&mut self, list: &[(&str, T)]) -> Option<T> {
        let at = self.words.iter().position(|word| list.iter().any(|it| it.0 == *word))?;
        let word = self.words.remove(at);
        list.iter().find(|it| it.0 == word).map(|it| it.1)
    }

    /// Consumes the first modifier that is in the list. Returns an error if there is none.
    fn one<T: Copy>(&mut self, list: &[(&str, T)]) -> Result<T> {
        match self.any(list) {
            Some(found) => Ok(found),
            None => self.error(format!(
                "{} lacks a required modifier, or has an unknown modifier",
                self.text
            )),
        }
    }

    /// Consumes the first modifier that names a type.
    fn ty(&mut self) -> Result<Type> {
        match self.try_ty() {
            Some(ty) => Ok(ty),
            None => self.error(format!("{} has no type or an unknown type", self.text)),
        }
    }

    fn try_ty(&mut self) -> Option<Type> {
        let at = self.words.iter().position(|word| Type::parse(word).is_some())?;
        Type::parse(self.words.remove(at))
    }

    /// Consumes the first modifier that names a type. The type must be in the list.
    fn ty_of(&mut self, list: &[Type]) -> Result<Type> {
        let ty = self.ty()?;
        if !list.contains(&ty) {
            return self.error(format!("{} has a type that is not supported", self.text));
        }
        Ok(ty)
    }

    /// Consumes the modifiers of floating-point arithmetic.
    fn mode(&mut self) -> Mode {
        let rounding = self.any(&ROUNDINGS);
        Mode {
            rounding: rounding.unwrap_or_default(),
            integer: None,
            ftz: self.flag("ftz"),
            saturate: self.flag("sat"),
            relu: self.flag("relu"),
            nan: self.flag("NaN"),
            approximate: self.flag("approx") || self.flag("full"),
        }
    }

    fn arg(&mut self) -> Result<Arg<'a>> {
        match self.args.pop_front() {
            Some(arg) => Ok(arg),
            None => self.error(format!("too few operands of {}", self.text)),
        }
    }

    /// Consumes a source operand of exactly the type's size.
    fn value(&mut self, ty: Type) -> Result<Operand> {
        let operand = self.wide_value(ty)?;
        self.check_size(operand, ty)?;
        Ok(operand)
    }

    fn check_size(&self, operand: Operand, ty: Type) -> Result<()> {
        let fits = match operand {
            Operand::Register(register) => register.bits() == ty.bits(),
            Operand::Not(_) => ty == Type::Pred,
            _ => true,
        };
        if !fits {
            return self.error(format!(
                "{} has a register whose size differs from the size of the instruction's type",
                self.text
            ));
        }
        Ok(())
    }

    /// Consumes a source operand whose register may be larger than the type.
    fn wide_value(&mut self, ty: Type) -> Result<Operand> {
        let arg = self.arg()?;
        self.operand(arg, ty)
    }

    fn operand(&self, arg: Arg<'a>, ty: Type) -> Result<Operand> {
        match arg {
            Arg::Value(operand) => {
                if let Operand::Register(register) = operand
                    && (register.bits() < ty.bits() || (register.bits() == 1) != (ty == Type::Pred))
                {
                    return self.error(format!(
                        "{} has a register whose size does not fit the instruction's type",
                        self.text
                    ));
                }
                Ok(operand)
            }
            Arg::Literal(literal) => Ok(Operand::Immediate(operand::immediate(literal, ty))),
            other => self.error(format!("bad operand of {}: {other:?}", self.text)),
        }
    }

    /// Consumes a destination of exactly the type's size, or `_`.
    fn dst(&mut self, ty: Type) -> Result<Operand> {
        let operand = self.wide_dst(ty)?;
        self.check_size(operand, ty)?;
        Ok(operand)
    }

    fn wide_dst(&mut self, ty: Type) -> Result<Operand> {
        match self.wide_value(ty)? {
            found @ (Operand::Register(_) | Operand::None) => Ok(found),
            other => self.error(format!("bad result of {}: {other:?}", self.text)),
        }
    }

    /// Consumes a destination that may be a pair `d|p`.
    fn dst_pair(&mut self, ty: Type, second: Type) -> Result<(Operand, Operand)> {
        if !matches!(self.args.front(), Some(Arg::Pair(..))) {
            return Ok((self.dst(ty)?, Operand::None));
        }
        let Arg::Pair(first, other) = self.arg()? else { unreachable!("looked at before") };
        self.check_size(first, ty)?;
        self.check_size(other, second)?;
        Ok((first, other))
    }

    /// Consumes an operand that is a vector of `count` registers or values.
    fn list(&mut self, count: usize, ty: Type) -> Result<Vec<Operand>> {
        let list = match self.arg()? {
            Arg::Vector(list) => list,
            single if count == 1 => vec![single],
            other => return self.error(format!("{} needs a vector, not {other:?}", self.text)),
        };
        if list.len() != count {
            return self.error(format!("{} needs a vector of {count}", self.text));
        }
        list.into_iter().map(|arg| self.operand(arg, ty)).collect()
    }

    /// Consumes an operand that is an address. Returns its base and its offset.
    fn address(&mut self) -> Result<(Operand, i64)> {
        match self.arg()? {
            Arg::Address(base, offset) => Ok((base, offset)),
            other => self.error(format!("{} needs an address, but has {other:?}", self.text)),
        }
    }

    /// Consumes the destination and `sources` source operands, which all have one type.
    fn simple(&mut self, op: Op, ty: Type, mode: Mode, sources: usize) -> Result<Instruction> {
        let mut instruction = Instruction { mode, ..Instruction::new(op, ty) };
        instruction.dst = self.dst(ty)?;
        for source in &mut instruction.src[..sources] {
            *source = self.value(ty)?;
        }
        Ok(instruction)
    }

    /// Returns an error for an unsupported modifier if `refused` is true.
    fn refuse(&self, refused: bool, what: &str) -> Result<()> {
        if refused {
            return self.error(format!("{what} is not supported in {}", self.text));
        }
        Ok(())
    }
}

const ROUNDINGS: [(&str, Rounding); 5] = [
    ("rn", Rounding::Nearest),
    ("rna", Rounding::NearestAway),
    ("rz", Rounding::Zero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
];

/// Modifiers that round to an integer in a floating-point format.
const INTEGER_ROUNDINGS: [(&str, Rounding); 4] = [
    ("rni", Rounding::Nearest),
    ("rzi", Rounding::Zero),
    ("rmi", Rounding::Down),
    ("rpi", Rounding::Up),
];

/// Whether an operand is a predicate register.
fn is_pred(operand: Operand) -> bool {
    matches!(operand, Operand::Register(Register::Pred(_)) | Operand::Not(_))
}
