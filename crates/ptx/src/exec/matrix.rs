//! Matrix products, and matrices in shared memory.

use super::Machine;
use super::access::{LaneAccess, resolve};
use super::block::Block;
use super::registers::{ALL, Lanes};
use super::step::{At, registers};
use crate::fault::FaultKind;
use crate::isa::{Instruction, Op, Operand, Space, Type};

impl Machine<'_> {
    pub(super) fn matrix(&mut self, block: &mut Block, at: At, i: &Instruction) {
        if at.on != ALL {
            self.fault(block, at, FaultKind::IncompleteWarp, None, || {
                format!(
                    "only the lanes {:#010x} execute this instruction, which needs all 32 lanes",
                    at.on
                )
            });
        }
        match i.op {
            Op::Mma { rows, depth, saturate } => {
                self.multiply(block, at, i, rows.into(), depth.into(), saturate);
            }
            Op::Matrix { count, transposed, store } => {
                self.move_matrices(block, at, i, count.into(), transposed, store);
            }
            _ => {
                let words: Lanes<u32> = self.read(block, at, |r| r.get(i.src[0]));
                registers(block, at).set(i.dst, &transpose(&words));
            }
        }
    }

    /// Multiplies matrices of bytes (PTX ISA, "Matrix Fragments for mma.m8n8k16", "mma.m16n8k16"
    /// and "mma.m16n8k32").
    ///
    /// Lane `4 r + q` holds words `q` and `q + 4` of rows `r` and `r + 8` of the left matrix, and
    /// of column `r` of the right matrix. It also holds the sums of columns `2 q` and `2 q + 1` of
    /// these rows.
    fn multiply(
        &mut self,
        block: &mut Block,
        at: At,
        i: &Instruction,
        rows: usize,
        depth: usize,
        saturate: bool,
    ) {
        let (sums, left, right) = (rows / 4, rows / 8 * depth / 16, depth / 16);
        let (results, sources) = i.list.split_at(sums);
        let mut words = [[0u32; 32]; 10];
        self.read(block, at, |r| {
            for (word, operand) in words.iter_mut().zip(sources) {
                *word = r.get(*operand);
            }
        });
        let (a, rest) = words.split_at(left);
        let (b, c) = rest.split_at(right);
        // The bytes are converted to numbers, as rows of the left matrix and columns of the right
        // matrix.
        let mut left_rows = [[0i16; 32]; 16];
        let mut right_columns = [[0i16; 32]; 8];
        let row_groups = rows / 8;
        for (number, fragment) in a.iter().enumerate() {
            let (row, column) = (number % row_groups * 8, number / row_groups * 16);
            for lane in 0..32 {
                let to = &mut left_rows[row + lane / 4][column + lane % 4 * 4..][..4];
                unpack(fragment[lane], i.ty, to);
            }
        }
        for (number, fragment) in b.iter().enumerate() {
            for lane in 0..32 {
                let to = &mut right_columns[lane / 4][number * 16 + lane % 4 * 4..][..4];
                unpack(fragment[lane], i.from, to);
            }
        }
        let mut r = registers(block, at);
        for (number, result) in results.iter().enumerate() {
            let mut sums: Lanes<i32> = [0; 32];
            for (lane, sum) in sums.iter_mut().enumerate() {
                let row = &left_rows[number / 2 * 8 + lane / 4];
                let column = &right_columns[lane % 4 * 2 + number % 2];
                let pairs = row.iter().zip(column);
                let product: i32 = pairs.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                let start = c[number][lane] as i32;
                *sum = if saturate {
                    start.saturating_add(product)
                } else {
                    start.wrapping_add(product)
                };
            }
            r.set(*result, &sums);
        }
    }

    /// Executes `ldmatrix` and `stmatrix`. Lanes `8 n` to `8 n + 7` have the addresses of the rows
    /// of matrix `n`.
    fn move_matrices(
        &mut self,
        block: &mut Block,
        at: At,
        i: &Instruction,
        count: usize,
        transposed: bool,
        store: bool,
    ) {
        let addresses = self.addresses(block, at, i);
        let generic = i.src[3] == Operand::Immediate(1);
        let space = if generic { Space::Generic } else { Space::Shared };
        for (number, operand) in i.list.iter().enumerate().take(count) {
            let mut words: Lanes<u32> = [0; 32];
            if store {
                words = self.read(block, at, |r| r.get(*operand));
                if transposed {
                    words = transpose(&words);
                }
            }
            for row in 0..8 {
                let lane = number * 8 + row;
                let (space, address) = resolve(space, addresses[lane]);
                if space != Space::Shared {
                    self.fault(block, at, FaultKind::OutOfBounds, Some(lane as u32), || {
                        format!(
                            "the row of a matrix is at {address:#x}, which is not in shared memory"
                        )
                    });
                    continue;
                }
                let mut data = [0; 16];
                let access = LaneAccess { lane, address, bytes: 16, atomic: false };
                if store {
                    for column in 0..4 {
                        let word = words[4 * row + column].to_le_bytes();
                        data[4 * column..][..4].copy_from_slice(&word);
                    }
                    self.store_lane(block, at, space, access, &data);
                } else {
                    self.load_lane(block, at, space, access, &mut data);
                    for column in 0..4 {
                        let word = data[4 * column..][..4].try_into().expect("four bytes");
                        words[4 * row + column] = u32::from_le_bytes(word);
                    }
                }
            }
            if !store {
                let words = if transposed { transpose(&words) } else { words };
                registers(block, at).set(*operand, &words);
            }
        }
        let lanes = ALL >> (32 - 8 * count);
        self.count(At { on: lanes, ..at }, Space::Shared, &addresses, 16);
    }
}

fn unpack(word: u32, ty: Type, into: &mut [i16]) {
    for (byte, number) in word.to_le_bytes().into_iter().zip(into) {
        *number = if ty.is_signed() { i16::from(byte as i8) } else { i16::from(byte) };
    }
}

/// Transposes an 8x8 matrix of 16-bit numbers. Lane `4 r + q` holds columns `2 q` and `2 q + 1` of
/// row `r`.
fn transpose(words: &Lanes<u32>) -> Lanes<u32> {
    let half =
        |row: usize, column: usize| words[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        half(column, row) | half(column + 1, row) << 16
    })
}
