//! Logic, shifts and bit fields.

use super::Decoder;
use crate::error::Result;
use crate::isa::{Instruction, Mode, Op, Permute, Type};

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Option<Instruction>> {
    let mode = Mode::default();
    Ok(Some(match d.opcode {
        "and" | "or" | "xor" | "not" => {
            let ty = d.ty_of(&[Type::Pred, Type::B16, Type::B32, Type::B64])?;
            let op = match d.opcode {
                "and" => Op::And,
                "or" => Op::Or,
                "xor" => Op::Xor,
                _ => Op::Not,
            };
            d.simple(op, ty, mode, if op == Op::Not { 1 } else { 2 })?
        }
        "cnot" => {
            let ty = d.ty_of(&[Type::B16, Type::B32, Type::B64])?;
            d.simple(Op::Cnot, ty, mode, 1)?
        }
        "shl" | "shr" => {
            let ty = d.ty()?;
            d.refuse(ty.is_float() || ty.bits() < 16, "this type")?;
            let op = if d.opcode == "shl" { Op::Shl } else { Op::Shr };
            let mut instruction = d.simple(op, ty, mode, 1)?;
            instruction.src[1] = d.value(Type::U32)?;
            instruction
        }
        "shf" => {
            let left = d.one(&[("l", true), ("r", false)])?;
            let wrap = d.one(&[("wrap", true), ("clamp", false)])?;
            let ty = d.ty_of(&[Type::B32])?;
            d.simple(Op::Shf { left, wrap }, ty, mode, 3)?
        }
        "prmt" => {
            let ty = d.ty_of(&[Type::B32])?;
            let permute = d.any(&[
                ("f4e", Permute::Forward4),
                ("b4e", Permute::Backward4),
                ("rc8", Permute::Replicate8),
                ("ecl", Permute::EdgeClampLeft),
                ("ecr", Permute::EdgeClampRight),
                ("rc16", Permute::Replicate16),
            ]);
            d.simple(Op::Prmt(permute.unwrap_or(Permute::Index)), ty, mode, 3)?
        }
        "lop3" => {
            let ty = d.ty_of(&[Type::B32])?;
            d.simple(Op::Lop3, ty, mode, 4)?
        }
        "bfe" => {
            let ty = d.ty_of(&[Type::U32, Type::U64, Type::S32, Type::S64])?;
            let mut instruction = d.simple(Op::Bfe, ty, mode, 1)?;
            instruction.src[1] = d.value(Type::U32)?;
            instruction.src[2] = d.value(Type::U32)?;
            instruction
        }
        "bfi" => {
            let ty = d.ty_of(&[Type::B32, Type::B64])?;
            let mut instruction = d.simple(Op::Bfi, ty, mode, 2)?;
            instruction.src[2] = d.value(Type::U32)?;
            instruction.src[3] = d.value(Type::U32)?;
            instruction
        }
        "bfind" | "popc" | "clz" => {
            let shift = d.flag("shiftamt");
            let ty = d.ty()?;
            d.refuse(ty.is_float() || !matches!(ty.bits(), 32 | 64), "this type")?;
            let op = match d.opcode {
                "bfind" => Op::Bfind { shift },
                "popc" => Op::Popc,
                _ => Op::Clz,
            };
            d.refuse(shift && d.opcode != "bfind", "shiftamt")?;
            let mut instruction = Instruction::new(op, ty);
            instruction.dst = d.dst(Type::U32)?;
            instruction.src[0] = d.value(ty)?;
            instruction
        }
        "bmsk" | "szext" => {
            let wrap = d.one(&[("wrap", true), ("clamp", false)])?;
            let ty = d.ty_of(&[Type::B32, Type::U32, Type::S32])?;
            let op = if d.opcode == "bmsk" { Op::Bmsk { wrap } } else { Op::Szext { wrap } };
            d.simple(op, ty, mode, 2)?
        }
        "brev" => {
            let ty = d.ty_of(&[Type::B32, Type::B64])?;
            d.simple(Op::Brev, ty, mode, 1)?
        }
        "dp4a" | "dp2a" => {
            let high = if d.opcode == "dp4a" {
                None
            } else {
                Some(d.one(&[("lo", false), ("hi", true)])?)
            };
            let (ty, from) = (d.ty_of(&[Type::U32, Type::S32])?, d.ty_of(&[Type::U32, Type::S32])?);
            let op = high.map_or(Op::Dp4a, |high| Op::Dp2a { high });
            Instruction { from, ..d.simple(op, ty, mode, 3)? }
        }
        _ => return Ok(None),
    }))
}
