//! Instructions that a warp executes together.

use super::Decoder;
use crate::error::Result;
use crate::isa::{Instruction, Op, Operand, Reduce, Shuffle, Type, Vote};

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Option<Instruction>> {
    Ok(Some(match d.opcode {
        "mma" => mma(d)?,
        "shfl" => {
            needs_sync(d)?;
            let shuffle = d.one(&[
                ("up", Shuffle::Up),
                ("down", Shuffle::Down),
                ("bfly", Shuffle::Butterfly),
                ("idx", Shuffle::Index),
            ])?;
            let ty = d.ty_of(&[Type::B32])?;
            let mut instruction = Instruction::new(Op::Shfl(shuffle), ty);
            (instruction.dst, instruction.dst2) = d.dst_pair(ty, Type::Pred)?;
            for source in &mut instruction.src {
                *source = d.value(ty)?;
            }
            instruction
        }
        "vote" => {
            needs_sync(d)?;
            let vote = d.one(&[
                ("all", Vote::All),
                ("any", Vote::Any),
                ("uni", Vote::Uniform),
                ("ballot", Vote::Ballot),
            ])?;
            let ty = d.ty_of(&[if vote == Vote::Ballot { Type::B32 } else { Type::Pred }])?;
            let mut instruction = Instruction::new(Op::Vote(vote), ty);
            instruction.dst = d.dst(ty)?;
            instruction.src[0] = d.value(Type::Pred)?;
            instruction.src[1] = d.value(Type::B32)?;
            instruction
        }
        "match" => {
            let all = d.one(&[("all", true), ("any", false)])?;
            needs_sync(d)?;
            let ty = d.ty_of(&[Type::B32, Type::B64])?;
            let mut instruction = Instruction::new(Op::Match { all }, ty);
            (instruction.dst, instruction.dst2) = d.dst_pair(Type::B32, Type::Pred)?;
            instruction.src[0] = d.value(ty)?;
            instruction.src[1] = d.value(Type::B32)?;
            instruction
        }
        "redux" => {
            needs_sync(d)?;
            let reduce = d.one(&[
                ("add", Reduce::Add),
                ("min", Reduce::Min),
                ("max", Reduce::Max),
                ("and", Reduce::And),
                ("or", Reduce::Or),
                ("xor", Reduce::Xor),
            ])?;
            let logic = matches!(reduce, Reduce::And | Reduce::Or | Reduce::Xor);
            let types: &[Type] = if logic { &[Type::B32] } else { &[Type::U32, Type::S32] };
            let ty = d.ty_of(types)?;
            let mut instruction = Instruction::new(Op::Redux(reduce), ty);
            instruction.dst = d.dst(ty)?;
            instruction.src[0] = d.value(ty)?;
            instruction.src[1] = d.value(Type::B32)?;
            instruction
        }
        "elect" => {
            needs_sync(d)?;
            let mut instruction = Instruction::new(Op::Elect, Type::B32);
            (instruction.dst, instruction.dst2) = d.dst_pair(Type::B32, Type::Pred)?;
            instruction.src[1] = d.value(Type::B32)?;
            instruction
        }
        "activemask" => {
            let ty = d.ty_of(&[Type::B32])?;
            d.simple(Op::ActiveMask, ty, Default::default(), 0)?
        }
        "movmatrix" => {
            let complete = ["sync", "aligned", "m8n8", "trans"].map(|word| d.flag(word));
            d.refuse(complete != [true; 4], "this shape")?;
            d.ty_of(&[Type::B16])?;
            let mut instruction = Instruction::new(Op::MoveMatrix, Type::B32);
            instruction.dst = d.dst(Type::B32)?;
            instruction.src[0] = d.value(Type::B32)?;
            instruction
        }
        _ => return Ok(None),
    }))
}

/// Requires `.sync`. Since sm_70, these instructions do not exist without `.sync`.
fn needs_sync(d: &mut Decoder<'_>) -> Result<()> {
    let sync = d.flag("sync");
    d.refuse(!sync, "a form without sync")
}

/// Parses `mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 d, a, b, c`.
fn mma(d: &mut Decoder<'_>) -> Result<Instruction> {
    needs_sync(d)?;
    let complete = d.flag("aligned") && d.flag("row") && d.flag("col");
    d.refuse(!complete, "this layout")?;
    let shape = d.any(&[("m8n8k16", (8, 16)), ("m16n8k16", (16, 16)), ("m16n8k32", (16, 32))]);
    let Some((rows, depth)) = shape else {
        return d.error(format!("{} has a matrix shape that is not supported", d.text));
    };
    let saturate = d.flag("satfinite");
    let bytes = [Type::U8, Type::S8];
    d.ty_of(&[Type::S32])?;
    let (ty, from) = (d.ty_of(&bytes)?, d.ty_of(&bytes)?);
    d.ty_of(&[Type::S32])?;
    let op = Op::Mma { rows, depth, saturate };
    let mut instruction = Instruction { from, ..Instruction::new(op, ty) };
    let sums = usize::from(rows) / 4;
    let left = usize::from(rows) / 8 * usize::from(depth) / 16;
    let right = usize::from(depth) / 16;
    let mut list: Vec<Operand> = Vec::new();
    for count in [sums, left, right, sums] {
        list.extend(d.list(count, Type::B32)?);
    }
    for operand in &list {
        d.check_size(*operand, Type::B32)?;
    }
    instruction.list = list.into();
    Ok(instruction)
}
