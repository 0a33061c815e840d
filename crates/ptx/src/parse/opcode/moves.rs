//! Comparison, selection, moves and conversions.

use super::super::operand::Arg;
use super::{Decoder, INTEGER_ROUNDINGS};
use crate::error::Result;
use crate::isa::{Compare, Instruction, Logic, Mode, Op, Operand, Register, Rounding, Type};

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Option<Instruction>> {
    Ok(Some(match d.opcode {
        "setp" | "set" => comparison(d)?,
        "selp" => {
            let ty = d.ty()?;
            d.refuse(matches!(ty.bits(), 1 | 8), "this type")?;
            let mut instruction = d.simple(Op::Selp, ty, Mode::default(), 2)?;
            instruction.src[2] = d.value(Type::Pred)?;
            instruction
        }
        "slct" => {
            let ftz = d.flag("ftz");
            let ty = d.ty()?;
            let from = d.ty_of(&[Type::S32, Type::F32])?;
            let mode = Mode { ftz, ..Mode::default() };
            let mut instruction = d.simple(Op::Slct, ty, mode, 2)?;
            instruction.from = from;
            instruction.src[2] = d.value(from)?;
            instruction
        }
        "mov" => mov(d)?,
        "cvt" => {
            if d.flag("pack") {
                pack(d)?
            } else {
                conversion(d)?
            }
        }
        _ => return Ok(None),
    }))
}

/// Parses `setp` and `set` (PTX ISA, "Comparison and Selection Instructions").
fn comparison(d: &mut Decoder<'_>) -> Result<Instruction> {
    use Compare::*;
    let (compare, unordered) = d.one(&[
        ("eq", (Equal, false)),
        ("ne", (NotEqual, false)),
        ("lt", (Less, false)),
        ("le", (LessEqual, false)),
        ("gt", (Greater, false)),
        ("ge", (GreaterEqual, false)),
        ("lo", (Less, false)),
        ("ls", (LessEqual, false)),
        ("hi", (Greater, false)),
        ("hs", (GreaterEqual, false)),
        ("equ", (Equal, true)),
        ("neu", (NotEqual, true)),
        ("ltu", (Less, true)),
        ("leu", (LessEqual, true)),
        ("gtu", (Greater, true)),
        ("geu", (GreaterEqual, true)),
        ("num", (Number, false)),
        ("nan", (NotANumber, false)),
    ])?;
    let combine = d.any(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
    let ftz = d.flag("ftz");
    let dst_ty =
        if d.opcode == "set" { d.ty_of(&[Type::U32, Type::S32, Type::F32])? } else { Type::Pred };
    let ty = d.ty()?;
    let is_unordered = unordered || matches!(compare, Number | NotANumber);
    d.refuse(is_unordered && !ty.is_float(), "an unordered comparison of integers")?;
    d.refuse(matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::Pred) || ty.bits() == 8, "this type")?;
    d.refuse(ftz && !matches!(ty, Type::F32 | Type::F16), "ftz")?;
    let op = if d.opcode == "setp" {
        Op::Setp { compare, unordered, combine }
    } else {
        Op::Set { compare, unordered, combine }
    };
    let mut instruction = Instruction::new(op, ty);
    instruction.mode.ftz = ftz;
    if d.opcode == "setp" {
        (instruction.dst, instruction.dst2) = d.dst_pair(Type::Pred, Type::Pred)?;
    } else {
        instruction.from = dst_ty;
        instruction.dst = d.dst(dst_ty)?;
    }
    instruction.src[0] = d.value(ty)?;
    instruction.src[1] = d.value(ty)?;
    if combine.is_some() {
        instruction.src[2] = d.value(Type::Pred)?;
    }
    Ok(instruction)
}

fn mov(d: &mut Decoder<'_>) -> Result<Instruction> {
    let ty = d.ty()?;
    d.refuse(ty.bits() == 8, "this type")?;
    let part = |count: usize| match ty.bits() / count as u32 {
        16 => Some(Type::B16),
        32 => Some(Type::B32),
        _ => None,
    };
    let lengths = [0, 1].map(|at| match d.args.get(at) {
        Some(Arg::Vector(list)) => list.len(),
        _ => 0,
    });
    let [unpacked, packed] = lengths;
    if unpacked == 0 && packed == 0 {
        let mut instruction = Instruction::new(Op::Mov, ty);
        instruction.dst = d.dst(ty)?;
        instruction.src[0] = d.value(ty)?;
        return Ok(instruction);
    }
    let Some(part) = part(unpacked.max(packed)) else {
        return d.error(format!(
            "{} has a vector whose size does not fit the instruction's type",
            d.text
        ));
    };
    let mut instruction = Instruction::new(if packed > 0 { Op::Pack } else { Op::Unpack }, ty);
    instruction.from = part;
    if packed > 0 {
        instruction.dst = d.dst(ty)?;
        instruction.list = d.list(packed, part)?.into();
    } else {
        instruction.list = d.list(unpacked, part)?.into();
        instruction.src[0] = d.value(ty)?;
    }
    for operand in &instruction.list {
        d.check_size(*operand, part)?;
    }
    Ok(instruction)
}

/// Parses `cvt` between numbers, and from two numbers to halves.
fn conversion(d: &mut Decoder<'_>) -> Result<Instruction> {
    let integer = d.any(&INTEGER_ROUNDINGS);
    // `cvt.rni` and similar modifiers round to an integer. `cvt.rn` and similar modifiers do not.
    let rounding = d.words.iter().any(|word| matches!(*word, "rn" | "rna" | "rz" | "rm" | "rp"));
    let mut mode = d.mode();
    mode.integer = integer;
    let (ty, from) = (d.ty()?, d.ty()?);
    d.refuse(mode.nan || mode.approximate, "this modifier")?;
    d.refuse(ty == Type::Pred || from == Type::Pred, "this type")?;
    d.refuse(mode.rounding == Rounding::NearestAway, "rna")?;
    if matches!(ty, Type::F16x2 | Type::Bf16x2) {
        let directed = !matches!(mode.rounding, Rounding::Nearest | Rounding::Zero);
        d.refuse(from != Type::F32 || directed || !rounding, "this type or rounding")?;
        d.refuse(mode.ftz || mode.saturate || integer.is_some(), "this modifier")?;
        return Ok(Instruction { from, ..pair(d, ty, mode)? });
    }
    d.refuse(matches!(from, Type::F16x2 | Type::Bf16x2), "this type")?;
    let narrows = ty.is_float() && (!from.is_float() || ty.bits() < from.bits());
    let to_integer = from.is_float() && !ty.is_float();
    d.refuse(narrows != rounding && narrows, "a conversion without a rounding")?;
    d.refuse(rounding && !narrows && ty.bits() != from.bits(), "a rounding")?;
    d.refuse(to_integer && integer.is_none(), "a conversion without a rounding")?;
    d.refuse(integer.is_some() && !from.is_float(), "an integer rounding")?;
    d.refuse(mode.ftz && ty != Type::F32 && from != Type::F32, "ftz")?;
    d.refuse(mode.relu && !matches!(ty, Type::F16 | Type::Bf16), "relu")?;
    d.refuse(mode.saturate && matches!(ty, Type::Bf16), "sat")?;
    let mut instruction = Instruction { from, mode, ..Instruction::new(Op::Cvt, ty) };
    instruction.dst = d.wide_dst(ty)?;
    instruction.src[0] = d.wide_value(from)?;
    if let (Operand::Register(Register::Long(_)), true) = (instruction.dst, ty.is_float()) {
        d.check_size(instruction.dst, ty)?;
    }
    Ok(instruction)
}

/// Parses `cvt.rn.f16x2.f32 d, a, b`. `a` becomes the upper half.
fn pair(d: &mut Decoder<'_>, ty: Type, mode: Mode) -> Result<Instruction> {
    let mut instruction = Instruction { mode, ..Instruction::new(Op::CvtPair, ty) };
    instruction.dst = d.dst(ty)?;
    instruction.src[0] = d.value(Type::F32)?;
    instruction.src[1] = d.value(Type::F32)?;
    Ok(instruction)
}

/// Parses `cvt.pack.sat.u8.s32.b32 d, a, b, c` and `cvt.pack.sat.u16.s32 d, a, b`.
fn pack(d: &mut Decoder<'_>) -> Result<Instruction> {
    let saturates = d.flag("sat");
    d.refuse(!saturates, "packing without sat")?;
    let ty = d.ty_of(&[Type::U8, Type::S8, Type::U16, Type::S16])?;
    let from = d.ty_of(&[Type::S32])?;
    let mut instruction = Instruction { from, ..Instruction::new(Op::CvtPack, ty) };
    let third = if ty.bits() == 8 { Some(d.ty_of(&[Type::B32])?) } else { None };
    instruction.dst = d.dst(Type::B32)?;
    instruction.src[0] = d.value(from)?;
    instruction.src[1] = d.value(from)?;
    if let Some(third) = third {
        instruction.src[2] = d.value(third)?;
    }
    Ok(instruction)
}
