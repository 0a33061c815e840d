//! Decoded instructions: operands and operations.

mod types;

pub(crate) use types::Type;

/// State space of an address (PTX ISA, "State Spaces").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

/// Register of the current frame. Predicates, registers of up to 32 bits, and 64-bit registers are
/// numbered separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    Pred(u32),
    Half(u32),
    Word(u32),
    Long(u32),
}

/// Source or destination of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// No operand, or `_` as a destination.
    None,
    Register(Register),
    /// Negated predicate.
    Not(u32),
    Immediate(u64),
    Special(Special),
    /// Offset of a variable in the frame's local memory.
    Local(u64),
    /// Offset after the start of dynamic shared memory.
    DynamicShared(u64),
}

/// Special register (PTX ISA, "Special Registers"). The numbers in the first four variants are
/// dimensions: 0 (x), 1 (y) or 2 (z).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(u8),
    ThreadCount(u8),
    Block(u8),
    BlockCount(u8),
    Lane,
    Warp,
    WarpCount,
    LaneMask(MaskOf),
    DynamicSharedBytes,
    TotalSharedBytes,
    /// Number of instructions that the warp has executed.
    Clock,
    /// Always 0: the number of the multiprocessor or of the grid.
    Zero,
    /// Always 1: the number of multiprocessors.
    One,
}

/// Lanes that a mask register selects, relative to the current lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskOf {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Rounding of a result to fewer digits (PTX ISA, "Rounding Modifiers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Rounding {
    #[default]
    Nearest,
    /// To nearest, ties away from zero.
    NearestAway,
    Zero,
    Down,
    Up,
}

/// Modifiers of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    /// Rounding to a floating-point number.
    pub rounding: Rounding,
    /// Rounding to an integer, used by `cvt`.
    pub integer: Option<Rounding>,
    /// Flush subnormal inputs and results to zero.
    pub ftz: bool,
    pub saturate: bool,
    /// Clamp negative results to zero.
    pub relu: bool,
    /// A NaN operand makes the result NaN (`min.NaN`).
    pub nan: bool,
    /// The instruction's result is an approximation on a device.
    pub approximate: bool,
}

/// Part of a product that a multiplication returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProductPart {
    Low,
    High,
    Wide,
}

/// Comparison. The unordered forms are true if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Number,
    NotANumber,
}

/// Logic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// Selection of bytes by `prmt` (PTX ISA, `prmt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permute {
    Index,
    Forward4,
    Backward4,
    Replicate8,
    EdgeClampLeft,
    EdgeClampRight,
    Replicate16,
}

/// Operation of an atomic instruction or of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exchange,
    CompareSwap,
}

/// Function of one floating-point number that a device approximates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Reciprocal,
    SquareRoot,
    ReciprocalSquareRoot,
    Sine,
    Cosine,
    Log2,
    Exp2,
    Tanh,
}

/// Lane from which `shfl` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Result of `vote`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// Behaviour of a block barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    Wait,
    Arrive,
    /// Waits, and combines a predicate of all threads.
    Count,
    All,
    Any,
}

/// Class of floating-point numbers for `testp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// Operation of an instruction. Operands are in [`Instruction`]. Targets of branches are
/// instruction indices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    // Arithmetic of integers and floating-point numbers. `Instruction::ty` is the type.
    Add {
        carry_in: bool,
        carry_out: bool,
    },
    Sub {
        carry_in: bool,
        carry_out: bool,
    },
    Mul(ProductPart),
    Mad(ProductPart),
    /// Product of 24-bit integers.
    Mul24(ProductPart),
    Mad24(ProductPart),
    Sad,
    Fma,
    Div,
    Rem,
    Min,
    Max,
    Abs,
    Neg,
    Copysign,
    Testp(Class),
    Function(Function),
    // Operations on bits: logic, shifts and bit fields.
    And,
    Or,
    Xor,
    Not,
    Cnot,
    Shl,
    Shr,
    Shf {
        left: bool,
        wrap: bool,
    },
    Prmt(Permute),
    Lop3,
    Bfe,
    Bfi,
    Bfind {
        shift: bool,
    },
    Bmsk {
        wrap: bool,
    },
    Szext {
        wrap: bool,
    },
    Popc,
    Clz,
    Brev,
    /// Sum of products of four bytes. `from` is the type of the second factor.
    Dp4a,
    /// Sum of products of two 16-bit numbers with two bytes of a word: the lower bytes, or the
    /// upper bytes if `high`.
    Dp2a {
        high: bool,
    },
    // Operations that compare values or select one of two values.
    Setp {
        compare: Compare,
        unordered: bool,
        combine: Option<Logic>,
    },
    Set {
        compare: Compare,
        unordered: bool,
        combine: Option<Logic>,
    },
    Selp,
    Slct,
    // Moves and conversions. `from` is the type of the source.
    Mov,
    /// Combines `list` into one register.
    Pack,
    /// Splits one register into `list`.
    Unpack,
    Cvt,
    /// Converts two numbers to the halves of a register.
    CvtPair,
    CvtPack,
    /// Adds or removes the first generic address of a state space, to convert between generic
    /// addresses and addresses in that space.
    Cvta {
        space: Space,
        to_space: bool,
    },
    Isspacep(Space),
    // Memory accesses.
    Load {
        space: Space,
        strong: bool,
        read_only: bool,
    },
    Store {
        space: Space,
        strong: bool,
    },
    Atom {
        space: Space,
        reduce: Reduce,
    },
    /// Asynchronous copy of `bytes` from global to shared memory.
    CopyAsync {
        bytes: u8,
    },
    CopyCommit,
    /// Waits until at most `pending` groups are pending. `u32::MAX` waits for all groups.
    CopyWait {
        pending: u32,
    },
    /// Loads or stores 8x8 matrices of 16-bit numbers.
    Matrix {
        count: u8,
        transposed: bool,
        store: bool,
    },
    MoveMatrix,
    Prefetch,
    // Operations that all lanes of a warp execute together.
    Mma {
        rows: u8,
        depth: u8,
        saturate: bool,
    },
    Shfl(Shuffle),
    Vote(Vote),
    Match {
        all: bool,
    },
    Redux(Reduce),
    Elect,
    ActiveMask,
    BarWarp,
    // Control flow.
    Bar {
        kind: Barrier,
        aligned: bool,
    },
    /// Memory fence or hint, which has no effect here.
    Nop,
    Bra {
        target: u32,
    },
    /// Branch to one of the targets in a branch table of the module.
    Brx {
        table: u32,
    },
    Call {
        call: u32,
    },
    Ret,
    Exit,
    Trap,
}

/// Predicate that must be true in a lane for the instruction to take effect there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub register: u32,
    pub negated: bool,
}

/// Decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub op: Op,
    pub ty: Type,
    /// Second type: the type of a conversion's source, or of a product's second factor.
    pub from: Type,
    pub mode: Mode,
    pub guard: Option<Guard>,
    pub dst: Operand,
    /// Second result: the predicate of `shfl`, or the second predicate of `setp`.
    pub dst2: Operand,
    pub src: [Operand; 4],
    /// Offset that is added to the address in `src[0]`.
    pub offset: i64,
    /// Offset that is added to the second address of an asynchronous copy.
    pub offset2: i64,
    /// Vector operands: loaded or stored registers, or fragments of matrices.
    pub list: Box<[Operand]>,
    /// For branches: the first instruction at which all lanes run together again, or [`NO_JOIN`].
    pub join: u32,
    /// Index of the opcode's text in the module.
    pub name: u32,
    /// Line in the PTX source.
    pub line: u32,
    /// File number and line in the CUDA source. 0 if unknown.
    pub source: (u32, u32),
}

/// Reconvergence point of a branch whose lanes join only at the function's end.
pub(crate) const NO_JOIN: u32 = u32::MAX;

impl Register {
    pub fn bits(self) -> u32 {
        match self {
            Self::Pred(_) => 1,
            Self::Half(_) => 16,
            Self::Word(_) => 32,
            Self::Long(_) => 64,
        }
    }
}

impl Instruction {
    /// Creates an instruction without operands.
    pub fn new(op: Op, ty: Type) -> Self {
        Self {
            op,
            ty,
            from: ty,
            mode: Mode::default(),
            guard: None,
            dst: Operand::None,
            dst2: Operand::None,
            src: [Operand::None; 4],
            offset: 0,
            offset2: 0,
            list: Box::default(),
            join: NO_JOIN,
            name: 0,
            line: 0,
            source: (0, 0),
        }
    }
}
