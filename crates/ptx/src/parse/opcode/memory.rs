//! Loads, stores, atomics, asynchronous copies and addresses.

use super::super::operand::Arg;
use super::Decoder;
use crate::error::Result;
use crate::isa::{Instruction, Op, Operand, Reduce, Space, Type};

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Option<Instruction>> {
    Ok(Some(match d.opcode {
        "ld" | "ldu" => load(d)?,
        "st" => store(d)?,
        "atom" | "red" => atomic(d)?,
        "cvta" => {
            let to_space = d.flag("to");
            let space = space(d)?;
            d.refuse(space == Space::Generic, "this space")?;
            let ty = d.ty_of(&[Type::U32, Type::U64])?;
            d.refuse(ty != Type::U64, "a 32-bit address")?;
            d.simple(Op::Cvta { space, to_space }, ty, Default::default(), 1)?
        }
        "isspacep" => {
            let space = space(d)?;
            let mut instruction = Instruction::new(Op::Isspacep(space), Type::U64);
            instruction.dst = d.dst(Type::Pred)?;
            instruction.src[0] = d.value(Type::U64)?;
            instruction
        }
        "cp" => copy(d)?,
        "ldmatrix" | "stmatrix" => matrix(d)?,
        "prefetch" | "prefetchu" | "applypriority" | "discard" => {
            space(d)?;
            hints(d);
            let level = d.any(&[("L1", ()), ("L2", ())]);
            d.refuse(level.is_none() && d.opcode != "discard", "no level")?;
            d.flag("L2");
            let mut instruction = Instruction::new(Op::Prefetch, Type::B8);
            (instruction.src[0], instruction.offset) = d.address()?;
            instruction
        }
        _ => return Ok(None),
    }))
}

/// Consumes the modifier for the state space. Without this modifier, the space is generic.
fn space(d: &mut Decoder<'_>) -> Result<Space> {
    let found = d.any(&[
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("local", Space::Local),
        ("param", Space::Param),
        ("param::entry", Space::Param),
        ("param::func", Space::Param),
        ("const", Space::Const),
    ]);
    Ok(found.unwrap_or(Space::Generic))
}

/// Consumes cache hints, which have no effect here.
fn hints(d: &mut Decoder<'_>) {
    const HINTS: [(&str, ()); 20] = [
        ("ca", ()),
        ("cg", ()),
        ("cs", ()),
        ("lu", ()),
        ("cv", ()),
        ("wb", ()),
        ("wt", ()),
        ("L1::evict_normal", ()),
        ("L1::evict_unchanged", ()),
        ("L1::evict_first", ()),
        ("L1::evict_last", ()),
        ("L1::no_allocate", ()),
        ("L2::evict_normal", ()),
        ("L2::evict_first", ()),
        ("L2::evict_last", ()),
        ("L2::64B", ()),
        ("L2::128B", ()),
        ("L2::256B", ()),
        ("L2::cache_hint_none", ()),
        ("weak", ()),
    ];
    while d.any(&HINTS).is_some() {}
}

/// Consumes the modifiers for the scope and the order of an access. Returns whether the access is
/// strong (PTX ISA, "Memory Consistency Model").
fn strength(d: &mut Decoder<'_>) -> bool {
    d.any(&[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())]);
    let orders =
        [("volatile", ()), ("relaxed", ()), ("acquire", ()), ("release", ()), ("acq_rel", ())];
    d.any(&orders).is_some()
}

fn vector(d: &mut Decoder<'_>) -> usize {
    d.any(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1)
}

fn load(d: &mut Decoder<'_>) -> Result<Instruction> {
    let space = space(d)?;
    hints(d);
    let strong = strength(d);
    let read_only = d.flag("nc");
    let count = vector(d);
    let ty = d.ty()?;
    d.refuse(ty == Type::Pred || count * ty.bytes() > 32, "this type")?;
    let mut instruction = Instruction::new(Op::Load { space, strong, read_only }, ty);
    instruction.list = d.list(count, ty)?.into();
    (instruction.src[0], instruction.offset) = d.address()?;
    Ok(instruction)
}

fn store(d: &mut Decoder<'_>) -> Result<Instruction> {
    let space = space(d)?;
    hints(d);
    let strong = strength(d);
    let count = vector(d);
    let ty = d.ty()?;
    d.refuse(ty == Type::Pred || count * ty.bytes() > 32, "this type")?;
    d.refuse(space == Space::Const, "constant memory")?;
    let mut instruction = Instruction::new(Op::Store { space, strong }, ty);
    (instruction.src[0], instruction.offset) = d.address()?;
    instruction.list = d.list(count, ty)?.into();
    Ok(instruction)
}

fn atomic(d: &mut Decoder<'_>) -> Result<Instruction> {
    let space = space(d)?;
    strength(d);
    d.refuse(!matches!(space, Space::Generic | Space::Global | Space::Shared), "this space")?;
    let returns = d.opcode == "atom";
    let reduce = d.one(&[
        ("add", Reduce::Add),
        ("min", Reduce::Min),
        ("max", Reduce::Max),
        ("inc", Reduce::Inc),
        ("dec", Reduce::Dec),
        ("and", Reduce::And),
        ("or", Reduce::Or),
        ("xor", Reduce::Xor),
        ("exch", Reduce::Exchange),
        ("cas", Reduce::CompareSwap),
    ])?;
    // Atomic additions of f16 and bf16 keep subnormals, so the modifier `noftz` changes nothing.
    d.flag("noftz");
    let ty = d.ty()?;
    use Type::*;
    let types: &[Type] = match reduce {
        Reduce::Add => &[U32, S32, U64, S64, F32, F64, F16, F16x2, Bf16, Bf16x2],
        Reduce::Min | Reduce::Max => &[U32, S32, U64, S64],
        Reduce::Inc | Reduce::Dec => &[U32],
        Reduce::And | Reduce::Or | Reduce::Xor => &[B32, B64],
        Reduce::Exchange => &[B32, B64],
        Reduce::CompareSwap => &[B16, B32, B64],
    };
    d.refuse(!types.contains(&ty), "this type")?;
    let swaps = matches!(reduce, Reduce::Exchange | Reduce::CompareSwap);
    d.refuse(swaps && !returns, "this operation")?;
    let mut instruction = Instruction::new(Op::Atom { space, reduce }, ty);
    if returns {
        instruction.dst = d.dst(ty)?;
    }
    (instruction.src[0], instruction.offset) = d.address()?;
    instruction.src[1] = d.value(ty)?;
    if reduce == Reduce::CompareSwap {
        instruction.src[2] = d.value(ty)?;
    }
    Ok(instruction)
}

/// Parses `cp.async` and its wait instructions.
fn copy(d: &mut Decoder<'_>) -> Result<Instruction> {
    if !d.flag("async") {
        return d.error(format!("unknown opcode {}", d.text));
    }
    if d.flag("commit_group") {
        return Ok(Instruction::new(Op::CopyCommit, Type::B32));
    }
    if d.flag("wait_all") {
        return Ok(Instruction::new(Op::CopyWait { pending: u32::MAX }, Type::B32));
    }
    if d.flag("wait_group") {
        let Operand::Immediate(pending) = d.value(Type::U32)? else {
            return d.error(format!("{} needs a number", d.text));
        };
        return Ok(Instruction::new(Op::CopyWait { pending: pending as u32 }, Type::B32));
    }
    let cached = d.one(&[("ca", true), ("cg", false)])?;
    let to = d.one(&[("shared", ()), ("shared::cta", ())]);
    let from = d.flag("global");
    d.refuse(to.is_err() || !from, "this space")?;
    hints(d);
    let mut instruction = Instruction::new(Op::CopyAsync { bytes: 0 }, Type::B8);
    (instruction.src[0], instruction.offset) = d.address()?;
    (instruction.src[1], instruction.offset2) = d.address()?;
    let Operand::Immediate(bytes) = d.value(Type::U32)? else {
        return d.error(format!("{} needs a size", d.text));
    };
    let sizes: &[u64] = if cached { &[4, 8, 16] } else { &[16] };
    d.refuse(!sizes.contains(&bytes), "this size")?;
    instruction.op = Op::CopyAsync { bytes: bytes as u8 };
    // If the source is smaller than the target, the rest of the target is filled with zeros.
    // Instead of a size, the operand may be a predicate. If the predicate is true, the source is
    // ignored.
    instruction.src[2] = match d.args.front() {
        None => Operand::Immediate(bytes),
        Some(Arg::Value(operand)) if super::is_pred(*operand) => d.value(Type::Pred)?,
        Some(_) => d.value(Type::U32)?,
    };
    Ok(instruction)
}

/// Parses `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {a, b, c, d}, [p]`.
fn matrix(d: &mut Decoder<'_>) -> Result<Instruction> {
    let complete = d.flag("sync") && d.flag("aligned") && d.flag("m8n8");
    let count: u8 = d.one(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
    let transposed = d.flag("trans");
    let space = space(d)?;
    d.refuse(!complete || !matches!(space, Space::Shared | Space::Generic), "this shape")?;
    d.ty_of(&[Type::B16])?;
    let store = d.opcode == "stmatrix";
    let mut instruction = Instruction::new(Op::Matrix { count, transposed, store }, Type::B32);
    // The last operand is 1 if the address is generic, and 0 if it is an address in shared memory.
    instruction.src[3] = Operand::Immediate(u64::from(space == Space::Generic));
    if store {
        (instruction.src[0], instruction.offset) = d.address()?;
        instruction.list = d.list(count.into(), Type::B32)?.into();
    } else {
        instruction.list = d.list(count.into(), Type::B32)?.into();
        (instruction.src[0], instruction.offset) = d.address()?;
    }
    Ok(instruction)
}
