//! Compares feedwater's own kernels, as compiled by NVRTC (`fixtures/`), with plain Rust.
//!
//! The fixtures are the chains `Normalize<Flip<Crop<Roi>>>` and `Flip<Resample<Roi>>` with line
//! numbers (`-lineinfo`) and without debug sections. `tile_u8_sm90.ptx` was compiled by NVRTC 13.5,
//! and lacks the kernel `fused`.

use feedwater_ptx::{Access, FaultKind, Launch, Memory, Module, Options, Outcome};

/// A window of an image, and the size to which it is resampled.
#[derive(Clone, Copy)]
struct Case {
    /// Size of the whole image.
    stored: (usize, usize),
    /// Left, top, width, height.
    window: (usize, usize, usize, usize),
    size: (usize, usize),
    /// Width of the filter, relative to that of a bilinear filter.
    blur: f64,
    grid: [u32; 3],
}

const SMALL: Case =
    Case { stored: (100, 80), window: (11, 5, 60, 47), size: (64, 48), blur: 1.0, grid: [1, 3, 1] };

/// Case in which the columns at the right border have coefficients for many pixels beyond the
/// window.
const WIDE: Case =
    Case { stored: (700, 60), window: (0, 0, 640, 37), size: (32, 9), blur: 3.0, grid: [2, 1, 1] };

/// Size of the crop within the small window.
const CROP: (usize, usize) = (56, 40);

fn pixel(x: usize, y: usize, channel: usize) -> u8 {
    (x * 7 + y * 13 + channel * 101 + x * y / 3) as u8
}

impl Case {
    /// Bytes per row. Rows consist of whole groups of 16 pixels.
    fn pitch(&self) -> usize {
        (3 * self.window.2).next_multiple_of(48)
    }

    /// Returns the pixels of the window with padded rows.
    fn pixels(&self) -> Vec<u8> {
        let ((left, top, width, height), pitch) = (self.window, self.pitch());
        let mut rows = vec![0xee; pitch * height];
        for (at, byte) in rows.iter_mut().enumerate() {
            let (x, y) = (at % pitch / 3, at / pitch);
            if x < width {
                *byte = pixel(left + x, top + y, at % 3);
            }
        }
        rows
    }

    /// Returns the filters for columns and rows.
    fn filters(&self) -> (Filter, Filter) {
        let ((_, _, width, height), (columns, rows)) = (self.window, self.size);
        (Filter::new(width, columns, self.blur), Filter::new(height, rows, self.blur))
    }

    /// Returns the tensor that the tile kernel must produce: mirrored bytes, channels last.
    fn resampled(&self) -> Vec<u8> {
        let ((left, top, ..), (across, down)) = (self.window, self.filters());
        let mut expected = Vec::new();
        for y in 0..self.size.1 {
            for x in (0..self.size.0).rev() {
                for channel in 0..3 {
                    let row = |y: usize| across.apply(x, |x| pixel(left + x, top + y, channel));
                    expected.push(down.apply(y, row));
                }
            }
        }
        expected
    }
}

fn ints(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|it| (*it as i32).to_le_bytes()).collect()
}

/// Returns the parameters of `Roi`, the innermost type of a chain: tensor, window, no orientation.
fn roi(case: &Case, out: u64, window: u64) -> Vec<u8> {
    let ((left, top, width, height), stored) = (case.window, case.stored);
    let numbers = ints(&[case.pitch(), left, top, width, height, stored.0, stored.1, 0]);
    [out.to_le_bytes().to_vec(), window.to_le_bytes().to_vec(), numbers].concat()
}

/// A launch for one sample, with its tensor.
struct Job {
    module: Module,
    memory: Memory,
    launch: Launch,
    out: u64,
    out_bytes: usize,
}

impl Job {
    fn new(
        text: &str,
        case: &Case,
        size: (usize, usize),
        out_bytes: usize,
        missing: usize,
        operators: impl FnOnce(&mut Memory) -> Vec<u8>,
    ) -> Self {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let out = memory.allocate("tensor", out_bytes - missing, Access::ReadWrite);
        let window = memory.allocate_with("window", &case.pixels(), Access::ReadOnly);
        let operators = operators(&mut memory);
        let sample = [roi(case, out, window), operators].concat();
        let samples = memory.allocate_with("samples", &sample, Access::ReadOnly);
        let params = [samples.to_le_bytes().to_vec(), ints(&[1, size.0, size.1])].concat();
        let launch = Launch { params, ..Launch::default() };
        Self { module, memory, launch, out, out_bytes }
    }

    /// Prepares a launch of the chain `Normalize<Flip<Crop<Roi>>>` that mirrors the image and
    /// writes f16.
    fn pointwise(text: &str) -> Self {
        let mut job = Self::new(text, &SMALL, CROP, CROP.0 * CROP.1 * 6, 0, |_| {
            let ((left, top, ..), stored) = (SMALL.window, SMALL.stored);
            let crop =
                [ints(&[left, top, CROP.0, CROP.1, stored.0, stored.1]), vec![0; 16]].concat();
            let flip = ints(&[CROP.0, CROP.1, 1, 0]);
            let normalize: Vec<u8> =
                MEAN.iter().chain(&STD).flat_map(|it| it.to_le_bytes()).collect();
            [crop, flip, normalize].concat()
        });
        let grid = [CROP.0.div_ceil(32) as u32, CROP.1.div_ceil(8) as u32, 1];
        job.launch = Launch { kernel: "fused".into(), grid, block: [32, 8, 1], ..job.launch };
        job
    }

    /// Prepares a launch of the chain `Flip<Resample<Roi>>` that mirrors the image and writes
    /// bytes. The memory of the tensor is `missing` bytes too short.
    fn tile(case: &Case, missing: usize) -> Self {
        let text = include_str!("fixtures/tile_u8_sm90.ptx");
        let size = case.size;
        let mut job = Self::new(text, case, size, size.0 * size.1 * 3, missing, |memory| {
            let ((left, top, width, height), (across, down)) = (case.window, case.filters());
            let parts = [across.bounds(left), across.taps(), down.bounds(top), down.taps()];
            let starts = [parts[0].len(), parts[0].len() + parts[1].len()];
            let starts = [starts[0] / 4, starts[1] / 4, (starts[1] + parts[2].len()) / 4];
            let table = memory.allocate_with("table", &parts.concat(), Access::ReadOnly);
            let resample = ints(&[
                0,
                0,
                size.0,
                size.1,
                0,
                starts[0],
                across.width,
                starts[1],
                starts[2],
                down.width,
                0,
                0,
                width,
                height,
                size.0,
                size.1,
            ]);
            [table.to_le_bytes().to_vec(), resample, ints(&[size.0, size.1, 1, 0])].concat()
        });
        let shared_bytes = 56 << 10;
        job.launch.params.extend((shared_bytes as u32).to_le_bytes());
        let (kernel, grid, block) = ("tiled".into(), case.grid, [128, 1, 1]);
        job.launch = Launch { kernel, grid, block, shared_bytes, ..job.launch };
        job
    }

    fn run(&mut self, options: &Options) -> Outcome {
        self.module.run(&mut self.memory, &self.launch, options).unwrap()
    }

    fn tensor(&self) -> Vec<u8> {
        self.memory.read(self.out, self.out_bytes).unwrap()
    }
}

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Rounds a number in the normal range of f16 to nearest even.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits + 0xfff + (bits >> 13 & 1) - (112 << 23);
    (bits >> 16 & 0x8000) as u16 | (rounded >> 13 & 0x7fff) as u16
}

#[test]
fn pointwise_chains_give_the_expected_bits() {
    for text in [
        include_str!("fixtures/pointwise_f16_sm75.ptx"),
        include_str!("fixtures/pointwise_f16_sm100.ptx"),
    ] {
        let mut job = Job::pointwise(text);
        let (left, top, ..) = SMALL.window;
        let mut expected = Vec::new();
        for channel in 0..3 {
            for y in 0..CROP.1 {
                for x in (0..CROP.0).rev() {
                    let value = f32::from(pixel(left + x, top + y, channel)) / 255.0;
                    let value = (value - MEAN[channel]) / STD[channel];
                    expected.extend(half(value).to_le_bytes());
                }
            }
        }
        let comparison =
            job.module.compare(&mut job.memory, &job.launch, &Options::every_schedule(1)).unwrap();
        assert_eq!(comparison.difference, None);
        for outcome in comparison.outcomes {
            assert!(outcome.expect_clean().instructions > 1000);
        }
        assert!(job.tensor() == expected);
    }
}

/// Pillow's coefficients of a bilinear or wider filter, with 22 bits.
struct Filter {
    width: usize,
    windows: Vec<(usize, Vec<i32>)>,
}

impl Filter {
    fn new(from: usize, to: usize, blur: f64) -> Self {
        let scale = from as f64 / to as f64;
        let support = scale.max(1.0) * blur;
        let window = |at: usize| {
            let center = (at as f64 + 0.5) * scale;
            let first = (center - support + 0.5).max(0.0) as usize;
            let count = ((center + support + 0.5) as usize).min(from) - first;
            let tap =
                |n: usize| (1.0 - (((n + first) as f64 - center + 0.5) / support).abs()).max(0.0);
            let sum: f64 = (0..count).map(tap).sum();
            let taps =
                (0..count).map(|n| (tap(n) / sum * f64::from(1 << 22) + 0.5) as i32).collect();
            (first, taps)
        };
        Self { width: support.ceil() as usize * 2 + 1, windows: (0..to).map(window).collect() }
    }

    fn bounds(&self, offset: usize) -> Vec<u8> {
        self.windows.iter().flat_map(|it| ints(&[it.0 + offset, it.1.len()])).collect()
    }

    fn taps(&self) -> Vec<u8> {
        let padded = self
            .windows
            .iter()
            .flat_map(|it| it.1.iter().copied().chain([0].into_iter().cycle()).take(self.width));
        padded.flat_map(i32::to_le_bytes).collect()
    }

    fn apply(&self, at: usize, value: impl Fn(usize) -> u8) -> u8 {
        let (first, taps) = &self.windows[at];
        let sum: i32 =
            taps.iter().enumerate().map(|(n, tap)| tap * i32::from(value(first + n))).sum();
        ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8
    }
}

#[test]
fn the_tile_kernel_gives_pillows_pixels_under_every_schedule() {
    for case in [SMALL, WIDE] {
        let mut job = Job::tile(&case, 0);
        let runs = Options::every_schedule(2);
        let comparison = job.module.compare(&mut job.memory, &job.launch, &runs).unwrap();
        assert_eq!(comparison.difference, None);
        assert!(job.tensor() == case.resampled());
        for outcome in comparison.outcomes {
            assert!(outcome.expect_clean().mma > 100);
        }
    }
}

#[test]
fn a_missing_barrier_is_found() {
    let text = include_str!("fixtures/tile_u8_sm90.ptx");
    let lines = text.lines().enumerate().filter(|it| it.1.contains("bar.sync"));
    let lines: Vec<u32> = lines.map(|it| it.0 as u32 + 1).collect();
    assert_eq!(lines.len(), 3);
    for line in lines {
        let faults = Job::tile(&SMALL, 0)
            .run(&Options { skip_line: Some(line), ..Options::default() })
            .faults;
        let races = faults.iter().filter(|it| it.kind == FaultKind::SharedRace);
        assert!(races.count() > 0, "barrier in line {line}");
    }
}

#[test]
fn a_tensor_that_is_a_row_short_is_found() {
    let faults = Job::tile(&SMALL, SMALL.size.0 * 3).run(&Options::default()).faults;
    let found = faults.iter().find(|it| it.kind == FaultKind::OutOfBounds).expect("a fault");
    assert!(
        found.message.contains("of the range tensor") && found.opcode.starts_with("st."),
        "{found}"
    );
    assert!(found.source.is_some() && found.kernel == "tiled");
}
