//! Registers of a function call, for all lanes of a warp.

use super::lane_memory::LaneMemory;
use crate::isa::{Instruction, MaskOf, Operand, Register, Special};
use crate::module::Function;

/// One value for each lane of a warp.
pub(crate) type Lanes<T> = [T; 32];

/// Mask of all lanes.
pub(crate) const ALL: u32 = u32::MAX;

/// Registers and memory of one call of a function by one warp.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Index of the function in the module.
    pub function: u32,
    /// Whether the function is the kernel itself, not a function that it calls.
    pub outermost: bool,
    pub preds: Box<[u32]>,
    pub words: Box<[Lanes<u32>]>,
    pub longs: Box<[Lanes<u64>]>,
    /// Lanes in which each predicate was written.
    pred_lanes: Box<[u32]>,
    /// Lanes in which each 32-bit register was written.
    word_lanes: Box<[u32]>,
    /// Lanes in which each 64-bit register was written.
    long_lanes: Box<[u32]>,
    /// Carry flag of each lane.
    pub carry: u32,
    /// Offset of the frame's variables in local memory.
    pub local_base: u64,
    /// Parameter space: results, parameters of a called function, and arguments of calls.
    pub params: LaneMemory,
}

impl Frame {
    pub fn new(
        number: u32,
        function: &Function,
        outermost: bool,
        local_base: u64,
        fill: u64,
    ) -> Self {
        let boxed = |count: u32| vec![0; count as usize].into_boxed_slice();
        Self {
            function: number,
            outermost,
            preds: vec![fill as u32; function.preds as usize].into(),
            words: vec![[fill as u32; 32]; function.words as usize].into(),
            longs: vec![[fill; 32]; function.longs as usize].into(),
            pred_lanes: boxed(function.preds),
            word_lanes: boxed(function.words),
            long_lanes: boxed(function.longs),
            carry: 0,
            local_base,
            params: LaneMemory::new(function.param_space, fill),
        }
    }

    fn lanes_of(&mut self, register: Register) -> &mut u32 {
        match register {
            Register::Pred(at) => &mut self.pred_lanes[at as usize],
            Register::Half(at) | Register::Word(at) => &mut self.word_lanes[at as usize],
            Register::Long(at) => &mut self.long_lanes[at as usize],
        }
    }

    /// Returns the first register that the instruction reads although it was not written in some
    /// lane of `on`.
    pub fn unwritten(&mut self, instruction: &Instruction, on: u32) -> Option<Register> {
        let guard = instruction.guard.map(|it| Operand::Register(Register::Pred(it.register)));
        let sources =
            guard.into_iter().chain(instruction.src).chain(instruction.list.iter().copied());
        for operand in sources {
            let register = match operand {
                Operand::Register(register) => register,
                Operand::Not(at) => Register::Pred(at),
                _ => continue,
            };
            if on & !*self.lanes_of(register) != 0 {
                return Some(register);
            }
        }
        None
    }
}

/// Values of special registers in a warp.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    pub threads: [Lanes<u32>; 3],
    pub block_size: [u32; 3],
    pub block: [u32; 3],
    pub grid: [u32; 3],
    pub warp: u32,
    pub warps: u32,
    pub dynamic_shared: u64,
    pub dynamic_shared_bytes: u64,
    pub clock: u64,
}

/// Access of an instruction to the registers of the current frame.
pub(crate) struct Registers<'a> {
    pub frame: &'a mut Frame,
    pub ids: &'a Ids,
    /// Lanes in which the instruction takes effect.
    pub on: u32,
    /// Lanes that have read a register before it was written.
    pub missing: u32,
}

/// Type of a value in a lane.
pub(crate) trait Lane: Copy + Default {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! lanes {
    ($($ty:ty: $unsigned:ty),*) => {
        $(impl Lane for $ty {
            #[inline(always)]
            fn of(bits: u64) -> Self {
                bits as $unsigned as $ty
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                self as $unsigned as u64
            }
        })*
    };
}
lanes!(u8: u8, i8: u8, u16: u16, i16: u16, u32: u32, i32: u32, u64: u64, i64: u64);

impl Lane for f32 {
    #[inline(always)]
    fn of(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn of(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Registers<'_> {
    /// Returns the values of an operand in all lanes.
    #[inline(always)]
    pub fn get<T: Lane>(&mut self, operand: Operand) -> Lanes<T> {
        match operand {
            Operand::Register(Register::Word(at) | Register::Half(at)) => {
                self.missing |= self.on & !self.frame.word_lanes[at as usize];
                each(&self.frame.words[at as usize], |word| T::of(u64::from(word)))
            }
            Operand::Register(Register::Long(at)) => {
                self.missing |= self.on & !self.frame.long_lanes[at as usize];
                each(&self.frame.longs[at as usize], T::of)
            }
            Operand::Immediate(value) => [T::of(value); 32],
            other => self.get_rare(other),
        }
    }

    #[inline(never)]
    fn get_rare<T: Lane>(&mut self, operand: Operand) -> Lanes<T> {
        let ids = self.ids;
        let same = |value: u64| [T::of(value); 32];
        let own =
            |value: &dyn Fn(u32) -> u64| std::array::from_fn(|lane| T::of(value(lane as u32)));
        match operand {
            Operand::Register(Register::Pred(_)) | Operand::Not(_) => {
                let mask = self.get_mask(operand);
                own(&|lane| u64::from(mask >> lane & 1))
            }
            Operand::Local(offset) => same(self.frame.local_base + offset),
            Operand::DynamicShared(offset) => same(ids.dynamic_shared + offset),
            Operand::Special(special) => match special {
                Special::Thread(d) => ids.threads[d as usize].map(|it| T::of(u64::from(it))),
                Special::ThreadCount(d) => same(ids.block_size[d as usize].into()),
                Special::Block(d) => same(ids.block[d as usize].into()),
                Special::BlockCount(d) => same(ids.grid[d as usize].into()),
                Special::Lane => own(&|lane| lane.into()),
                Special::Warp => same(ids.warp.into()),
                Special::WarpCount => same(ids.warps.into()),
                Special::LaneMask(of) => own(&|lane| {
                    let equal = 1u32 << lane;
                    let less = equal - 1;
                    u64::from(match of {
                        MaskOf::Equal => equal,
                        MaskOf::Less => less,
                        MaskOf::LessEqual => less | equal,
                        MaskOf::Greater => !(less | equal),
                        MaskOf::GreaterEqual => !less,
                    })
                }),
                Special::DynamicSharedBytes => same(ids.dynamic_shared_bytes),
                Special::TotalSharedBytes => same(ids.dynamic_shared + ids.dynamic_shared_bytes),
                Special::Clock => same(ids.clock),
                Special::Zero => same(0),
                Special::One => same(1),
            },
            _ => same(0),
        }
    }

    /// Returns the lanes in which a predicate is true.
    #[inline]
    pub fn get_mask(&mut self, operand: Operand) -> u32 {
        let (at, flip) = match operand {
            Operand::Register(Register::Pred(at)) => (at as usize, 0),
            Operand::Not(at) => (at as usize, ALL),
            Operand::Immediate(value) => return if value & 1 == 1 { ALL } else { 0 },
            _ => return 0,
        };
        self.missing |= self.on & !self.frame.pred_lanes[at];
        self.frame.preds[at] ^ flip
    }

    /// Writes a register in the lanes in which the instruction takes effect.
    #[inline(always)]
    pub fn set<T: Lane>(&mut self, operand: Operand, values: &Lanes<T>) {
        match operand {
            Operand::Register(Register::Word(at)) => {
                let values = each(values, |it| it.bits() as u32);
                merge(&mut self.frame.words[at as usize], &values, self.on);
                self.frame.word_lanes[at as usize] |= self.on;
            }
            Operand::Register(Register::Half(at)) => {
                let values = each(values, |it| u32::from(it.bits() as u16));
                merge(&mut self.frame.words[at as usize], &values, self.on);
                self.frame.word_lanes[at as usize] |= self.on;
            }
            Operand::Register(Register::Long(at)) => {
                let values = each(values, Lane::bits);
                merge(&mut self.frame.longs[at as usize], &values, self.on);
                self.frame.long_lanes[at as usize] |= self.on;
            }
            Operand::Register(Register::Pred(_)) => {
                let ones = (0..32).filter(|lane| values[*lane].bits() & 1 == 1);
                let mask = ones.fold(0, |mask, lane| mask | 1 << lane);
                self.set_mask(operand, mask);
            }
            _ => {}
        }
    }

    /// Writes a predicate in the lanes in which the instruction takes effect.
    #[inline]
    pub fn set_mask(&mut self, operand: Operand, mask: u32) {
        let Operand::Register(Register::Pred(at)) = operand else { return };
        let at = at as usize;
        self.frame.preds[at] = self.frame.preds[at] & !self.on | mask & self.on;
        self.frame.pred_lanes[at] |= self.on;
    }

    /// Computes `dst = f(src0)` in every lane.
    #[inline(always)]
    pub fn map1<A: Lane, D: Lane>(&mut self, i: &Instruction, f: impl Fn(A) -> D) {
        let a: Lanes<A> = self.get(i.src[0]);
        self.set(i.dst, &each(&a, f));
    }

    /// Computes `dst = f(src0, src1)` in every lane.
    #[inline(always)]
    pub fn map2<A: Lane, B: Lane, D: Lane>(&mut self, i: &Instruction, f: impl Fn(A, B) -> D) {
        let (a, b): (Lanes<A>, Lanes<B>) = (self.get(i.src[0]), self.get(i.src[1]));
        self.set(i.dst, &each2(&a, &b, f));
    }

    /// Computes `dst = f(src0, src1, src2)` in every lane.
    #[inline(always)]
    pub fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(
        &mut self,
        i: &Instruction,
        f: impl Fn(A, B, C) -> D,
    ) {
        let (a, b): (Lanes<A>, Lanes<B>) = (self.get(i.src[0]), self.get(i.src[1]));
        let c: Lanes<C> = self.get(i.src[2]);
        let mut values = [D::default(); 32];
        for lane in 0..32 {
            values[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.set(i.dst, &values);
    }
}

#[inline(always)]
fn merge<T: Copy>(into: &mut Lanes<T>, values: &Lanes<T>, on: u32) {
    if on == ALL {
        *into = *values;
        return;
    }
    for lane in 0..32 {
        if on >> lane & 1 == 1 {
            into[lane] = values[lane];
        }
    }
}

/// Applies `f` to each lane. Unlike `array::map`, compilers vectorize this loop.
#[inline(always)]
pub(super) fn each<A: Copy, D: Copy + Default>(a: &Lanes<A>, f: impl Fn(A) -> D) -> Lanes<D> {
    let mut values = [D::default(); 32];
    for (value, a) in values.iter_mut().zip(a) {
        *value = f(*a);
    }
    values
}

/// Applies `f` to each lane of two values.
#[inline(always)]
pub(super) fn each2<A: Copy, B: Copy, D: Copy + Default>(
    a: &Lanes<A>,
    b: &Lanes<B>,
    f: impl Fn(A, B) -> D,
) -> Lanes<D> {
    let mut values = [D::default(); 32];
    for (value, (a, b)) in values.iter_mut().zip(a.iter().zip(b)) {
        *value = f(*a, *b);
    }
    values
}
