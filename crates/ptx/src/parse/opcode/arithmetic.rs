//! Arithmetic of integers and floating-point numbers.

use super::Decoder;
use crate::error::Result;
use crate::isa::{Class, Function, Instruction, Mode, Op, ProductPart, Rounding, Type};

const PARTS: [(&str, ProductPart); 3] =
    [("lo", ProductPart::Low), ("hi", ProductPart::High), ("wide", ProductPart::Wide)];

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Option<Instruction>> {
    Ok(Some(match d.opcode {
        "add" | "sub" | "addc" | "subc" => sum(d)?,
        "mul" | "mad" | "fma" => product(d)?,
        "mul24" | "mad24" => {
            let part = d.one(&PARTS[..2])?;
            let ty = d.ty_of(&[Type::U32, Type::S32])?;
            let mad = d.opcode == "mad24";
            let op = if mad { Op::Mad24(part) } else { Op::Mul24(part) };
            d.simple(op, ty, Mode::default(), 2 + usize::from(mad))?
        }
        "sad" => {
            let ty = d.ty_of(&INTEGERS)?;
            d.simple(Op::Sad, ty, Mode::default(), 3)?
        }
        "div" | "rem" => quotient(d)?,
        "min" | "max" => {
            let mode = d.mode();
            let ty = d.ty()?;
            d.refuse(mode.saturate || ty.bits() == 8, "this modifier or type")?;
            let op = if d.opcode == "min" { Op::Min } else { Op::Max };
            let sources = d.args.len().saturating_sub(1).clamp(2, 3);
            d.refuse(sources == 3 && ty != Type::F32, "a third operand")?;
            d.simple(op, ty, mode, sources)?
        }
        "abs" | "neg" => {
            let ftz = d.flag("ftz");
            let ty = d.ty()?;
            d.refuse(!(ty.is_signed() || ty.is_float()) || ty.bits() == 8, "this type")?;
            let op = if d.opcode == "abs" { Op::Abs } else { Op::Neg };
            d.simple(op, ty, Mode { ftz, ..Mode::default() }, 1)?
        }
        "copysign" => {
            let ty = d.ty_of(&[Type::F32, Type::F64])?;
            d.simple(Op::Copysign, ty, Mode::default(), 2)?
        }
        "testp" => {
            let class = d.one(&[
                ("finite", Class::Finite),
                ("infinite", Class::Infinite),
                ("number", Class::Number),
                ("notanumber", Class::NotANumber),
                ("normal", Class::Normal),
                ("subnormal", Class::Subnormal),
            ])?;
            let ty = d.ty_of(&[Type::F32, Type::F64])?;
            let mut instruction = Instruction::new(Op::Testp(class), ty);
            instruction.dst = d.dst(Type::Pred)?;
            instruction.src[0] = d.value(ty)?;
            instruction
        }
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => function(d)?,
        _ => return Ok(None),
    }))
}

const INTEGERS: [Type; 6] = [Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];

/// Parses `add`, `sub`, and their forms with a carry (PTX ISA, "Extended-Precision Arithmetic
/// Instructions").
fn sum(d: &mut Decoder<'_>) -> Result<Instruction> {
    let carry_in = d.opcode.ends_with('c');
    let carry_out = d.flag("cc");
    let mode = d.mode();
    let ty = d.ty()?;
    let op = match &d.opcode[..3] {
        "add" => Op::Add { carry_in, carry_out },
        _ => Op::Sub { carry_in, carry_out },
    };
    let carries = carry_in || carry_out;
    let plain = mode == Mode::default();
    if ty.is_float() {
        d.refuse(carries, "a carry")?;
        check_float(d, ty, mode)?;
    } else {
        let saturates = mode == Mode { saturate: true, ..Mode::default() } && ty == Type::S32;
        d.refuse(!plain && !saturates, "this modifier")?;
        d.refuse(carries && !matches!(ty.bits(), 32 | 64), "a carry of this type")?;
        d.refuse(matches!(ty, Type::Pred) || ty.bits() == 8, "this type")?;
    }
    d.simple(op, ty, mode, 2)
}

/// Refuses modifiers that are undefined or not implemented for a type.
fn check_float(d: &Decoder<'_>, ty: Type, mode: Mode) -> Result<()> {
    let directed = mode.rounding != Rounding::Nearest;
    d.refuse(mode.rounding == Rounding::NearestAway, "rna")?;
    d.refuse(directed && ty != Type::F32, "this rounding")?;
    d.refuse(mode.ftz && matches!(ty, Type::F64 | Type::Bf16 | Type::Bf16x2), "ftz")?;
    d.refuse(mode.saturate && ty == Type::F64, "sat")?;
    d.refuse(mode.relu && matches!(ty, Type::F32 | Type::F64), "relu")?;
    d.refuse(mode.nan || mode.approximate, "this modifier")
}

fn product(d: &mut Decoder<'_>) -> Result<Instruction> {
    let part = d.any(&PARTS);
    let mode = d.mode();
    let ty = d.ty()?;
    let sources = if d.opcode == "mul" { 2 } else { 3 };
    if ty.is_float() {
        d.refuse(part.is_some(), "a part of the product")?;
        check_float(d, ty, mode)?;
        let op = if d.opcode == "mul" { Op::Mul(ProductPart::Low) } else { Op::Fma };
        return d.simple(op, ty, mode, sources);
    }
    d.refuse(mode != Mode::default() || !INTEGERS.contains(&ty), "this modifier or type")?;
    let Some(part) = part else {
        return d.error(format!("{} needs a modifier lo, hi or wide", d.text));
    };
    d.refuse(d.opcode == "fma", "an integer type")?;
    let op = if d.opcode == "mul" { Op::Mul(part) } else { Op::Mad(part) };
    if part != ProductPart::Wide {
        return d.simple(op, ty, mode, sources);
    }
    let wide = match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return d.error(format!("{} has a type that is not supported", d.text)),
    };
    let mut instruction = Instruction::new(op, ty);
    instruction.dst = d.dst(wide)?;
    instruction.src[0] = d.value(ty)?;
    instruction.src[1] = d.value(ty)?;
    if sources == 3 {
        instruction.src[2] = d.value(wide)?;
    }
    Ok(instruction)
}

fn quotient(d: &mut Decoder<'_>) -> Result<Instruction> {
    let mode = d.mode();
    let ty = d.ty()?;
    if d.opcode == "rem" || !ty.is_float() {
        d.refuse(mode != Mode::default() || !INTEGERS.contains(&ty), "this modifier or type")?;
        let op = if d.opcode == "rem" { Op::Rem } else { Op::Div };
        return d.simple(op, ty, mode, 2);
    }
    d.refuse(!matches!(ty, Type::F32 | Type::F64), "this type")?;
    let exact = Mode { approximate: false, ..mode };
    check_float(d, ty, exact)?;
    d.refuse(mode.saturate || mode.relu, "this modifier")?;
    d.simple(Op::Div, ty, mode, 2)
}

/// Parses `rcp`, `sqrt`, and functions that a device approximates.
fn function(d: &mut Decoder<'_>) -> Result<Instruction> {
    let function = match d.opcode {
        "rcp" => Function::Reciprocal,
        "sqrt" => Function::SquareRoot,
        "rsqrt" => Function::ReciprocalSquareRoot,
        "sin" => Function::Sine,
        "cos" => Function::Cosine,
        "lg2" => Function::Log2,
        "ex2" => Function::Exp2,
        _ => Function::Tanh,
    };
    let mode = d.mode();
    let ty = d.ty()?;
    let doubles = matches!(function, Function::Reciprocal | Function::SquareRoot);
    d.refuse(ty == Type::F64 && (!doubles || mode.approximate), "this type")?;
    d.refuse(!matches!(ty, Type::F32 | Type::F64), "this type")?;
    d.refuse(!doubles && !mode.approximate, "an exact result")?;
    check_float(d, ty, Mode { approximate: false, ..mode })?;
    d.refuse(mode.saturate || mode.relu, "this modifier")?;
    d.simple(Op::Function(function), ty, mode, 1)
}
