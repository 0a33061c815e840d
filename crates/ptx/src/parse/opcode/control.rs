//! Branches, barriers, fences.

use super::super::operand::Arg;
use super::{Decoder, Target};
use crate::error::Result;
use crate::isa::{Barrier, Instruction, Op, Operand, Type};

pub(super) fn decode<'a>(
    d: &mut Decoder<'a>,
    target: &mut Target<'a>,
) -> Result<Option<Instruction>> {
    let plain = |op| Instruction::new(op, Type::B32);
    Ok(Some(match d.opcode {
        "bra" => {
            d.flag("uni");
            *target = Target::Label(label(d)?);
            plain(Op::Bra { target: 0 })
        }
        "brx" => {
            let indexed = d.flag("idx");
            d.flag("uni");
            d.refuse(!indexed, "this form")?;
            let mut instruction = plain(Op::Brx { table: 0 });
            instruction.src[0] = d.value(Type::U32)?;
            *target = Target::Table(label(d)?);
            instruction
        }
        "ret" => {
            d.flag("uni");
            plain(Op::Ret)
        }
        "exit" => plain(Op::Exit),
        "trap" => plain(Op::Trap),
        "bar" | "barrier" => barrier(d)?,
        "membar" => {
            d.one(&[("cta", ()), ("gl", ()), ("gpu", ()), ("sys", ())])?;
            plain(Op::Nop)
        }
        "fence" => {
            d.any(&[("sc", ()), ("acq_rel", ()), ("acquire", ()), ("release", ())]);
            d.one(&[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())])?;
            plain(Op::Nop)
        }
        "nanosleep" => {
            let ty = d.ty_of(&[Type::U32])?;
            let mut instruction = plain(Op::Nop);
            instruction.src[0] = d.value(ty)?;
            instruction
        }
        "griddepcontrol" => {
            d.one(&[("launch_dependents", ()), ("wait", ())])?;
            plain(Op::Nop)
        }
        _ => return Ok(None),
    }))
}

fn label<'a>(d: &mut Decoder<'a>) -> Result<&'a str> {
    match d.arg()? {
        Arg::Name(label) => Ok(label),
        other => d.error(format!("{} needs a label, not {other:?}", d.text)),
    }
}

/// Parses `bar` and `barrier` (PTX ISA, "Parallel Synchronization and Communication Instructions").
fn barrier(d: &mut Decoder<'_>) -> Result<Instruction> {
    if d.flag("warp") {
        let sync = d.flag("sync");
        d.refuse(!sync, "a form without sync")?;
        let mut instruction = Instruction::new(Op::BarWarp, Type::B32);
        instruction.src[0] = d.value(Type::B32)?;
        return Ok(instruction);
    }
    d.flag("cta");
    // `bar` is always aligned, and `barrier` only with the modifier `aligned`.
    let aligned = d.flag("aligned") | (d.opcode == "bar");
    let kind =
        d.one(&[("sync", Barrier::Wait), ("arrive", Barrier::Arrive), ("red", Barrier::Count)])?;
    let mut instruction = Instruction::new(Op::Bar { kind, aligned }, Type::B32);
    if kind != Barrier::Count {
        instruction.src[0] = d.value(Type::B32)?;
        if !d.args.is_empty() {
            instruction.src[1] = d.value(Type::B32)?;
        }
        let counts = instruction.src[1] != Operand::None;
        d.refuse(kind == Barrier::Arrive && !counts, "an arrival without a count")?;
        return Ok(instruction);
    }
    let kind = d.one(&[("popc", Barrier::Count), ("and", Barrier::All), ("or", Barrier::Any)])?;
    let types = if kind == Barrier::Count { [Type::U32] } else { [Type::Pred] };
    let ty = d.ty_of(&types)?;
    instruction.op = Op::Bar { kind, aligned };
    instruction.dst = d.dst(ty)?;
    instruction.src[0] = d.value(Type::B32)?;
    if d.args.len() > 1 {
        instruction.src[1] = d.value(Type::B32)?;
    }
    instruction.src[2] = d.value(Type::Pred)?;
    Ok(instruction)
}
