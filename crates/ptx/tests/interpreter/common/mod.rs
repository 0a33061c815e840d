//! Builds small kernels and runs them.

use feedwater_ptx::{Access, Fault, FaultKind, Launch, Memory, Module, Options, Outcome};

/// Returns a module with a kernel `test` that has the parameters `in` and `out` and this body.
///
/// Registers: `%p0..9` (predicates), `%h0..9` (16 bits), `%r0..31` (32 bits), `%f0..9` (f32),
/// `%d0..9` (64 bits), `%x0..9` (f64). `%d0` and `%d1` contain the addresses of `in` and `out`.
/// `%r0` contains the index of the thread in the block.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"test.cu\"\n\
         .extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry test(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<32>; .reg .f32 %f<10>;\n\
         .reg .b64 %d<10>; .reg .f64 %x<10>;\n\
         .shared .align 16 .b8 shared[4096];\n\
         .local .align 16 .b8 local[64];\n\
         .loc 1 7 0\n\
         ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x;\n\
         {body}\nret;\n}}\n"
    )
}

/// A module, its memory, and the addresses of `in` and `out`.
pub struct Setup {
    pub module: Module,
    pub memory: Memory,
    pub launch: Launch,
    pub output: u64,
    pub output_bytes: usize,
}

impl Setup {
    /// Prepares one block of `threads` threads. `out` has 16 bytes for each thread. `in` is
    /// read-only.
    pub fn new(body: &str, threads: u32, input: &[u8]) -> Self {
        let module = Module::parse(&kernel(body)).unwrap_or_else(|error| panic!("{error}"));
        let mut memory = Memory::new();
        let input = memory.allocate_with("in", input, Access::ReadOnly);
        let output_bytes = threads as usize * 16;
        let output = memory.allocate("out", output_bytes, Access::ReadWrite);
        let params = [input.to_le_bytes(), output.to_le_bytes()].concat();
        let (kernel, block) = ("test".to_string(), [threads, 1, 1]);
        let launch = Launch { kernel, grid: [1; 3], block, shared_bytes: 1024, params };
        Self { module, memory, launch, output, output_bytes }
    }

    pub fn run(&mut self, options: &Options) -> Outcome {
        self.module.run(&mut self.memory, &self.launch, options).unwrap()
    }

    pub fn words(&self) -> Vec<u32> {
        let bytes = self.memory.read(self.output, self.output_bytes).unwrap();
        bytes.chunks(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect()
    }
}

/// Runs a body that must have no faults. Returns `out` as words: word `n` is what thread `n`
/// stores.
pub fn words(body: &str, threads: u32) -> Vec<u32> {
    let mut setup = Setup::new(body, threads, &[0; 64]);
    setup.run(&Options::default()).expect_clean();
    setup.words()[..threads as usize].to_vec()
}

/// Runs a body with 64 threads and returns its faults.
pub fn faults(body: &str) -> Vec<Fault> {
    faults_of(body, 64)
}

pub fn faults_of(body: &str, threads: u32) -> Vec<Fault> {
    Setup::new(body, threads, &[7; 64]).run(&Options::default()).faults
}

/// Checks that a body has faults, that all are of one kind, and that they name the source line.
pub fn assert_fault(body: &str, kind: FaultKind) -> Fault {
    let found = faults(body);
    assert!(!found.is_empty(), "no fault found, but {kind:?} is planted in {body}");
    for fault in &found {
        assert_eq!(fault.kind, kind, "{fault}");
        assert_eq!((fault.kernel.as_str(), &fault.source), ("test", &Some(("test.cu".into(), 7))));
    }
    found[0].clone()
}

/// Instructions with which thread `n` stores `%r2` as word `n` of `out`.
pub const STORE: &str =
    "mul.wide.u32 %d8, %r0, 4; add.s64 %d8, %d1, %d8; st.global.u32 [%d8], %r2;";

/// Evaluates one instruction for many operands. `kind` (`r`, `f`, `d`, `x`, `h`) selects the
/// registers of the operands `a`, `b` and `c`: `%r1..3`, `%f1..3`, `%d2..4`, `%x1..3` or `%h1..3`.
/// The result is in register 4 (5 for `d`) of the kind `result`.
pub fn evaluate(text: &str, kind: char, result: char, inputs: &[[u64; 3]]) -> Vec<u64> {
    let mut body = "mul.wide.u32 %d9, %r0, 24; add.s64 %d9, %d0, %d9;".to_string();
    for operand in 0..3 {
        let (ty, first) = match kind {
            'r' => ("u32", 1),
            'f' => ("f32", 1),
            'x' => ("f64", 1),
            'h' => ("u16", 1),
            _ => ("u64", 2),
        };
        body += &format!("ld.global.{ty} %{kind}{}, [%d9+{}];", first + operand, 8 * operand);
    }
    body += text;
    body += "mul.wide.u32 %d9, %r0, 8; add.s64 %d9, %d1, %d9;";
    body += match result {
        'r' => "mov.u32 %r5, 0; st.global.v2.u32 [%d9], {%r4, %r5};",
        'f' => "mov.b32 %r4, %f4; mov.u32 %r5, 0; st.global.v2.u32 [%d9], {%r4, %r5};",
        'h' => "cvt.u64.u16 %d5, %h4; st.global.u64 [%d9], %d5;",
        'x' => "st.global.f64 [%d9], %x4;",
        'p' => "selp.u32 %r4, 1, 0, %p4; cvt.u64.u32 %d5, %r4; st.global.u64 [%d9], %d5;",
        _ => "st.global.u64 [%d9], %d5;",
    };
    let mut results = Vec::new();
    for chunk in inputs.chunks(512) {
        let input: Vec<u8> = chunk.iter().flatten().flat_map(|it| it.to_le_bytes()).collect();
        let mut setup = Setup::new(&body, chunk.len() as u32, &input);
        setup.run(&Options::default()).expect_clean();
        let words = setup.words();
        results.extend(
            words.chunks(2).take(chunk.len()).map(|it| u64::from(it[1]) << 32 | u64::from(it[0])),
        );
    }
    results
}

/// Returns random operands. A third of them are small or special values.
pub fn operands(count: usize, seed: u64) -> Vec<[u64; 3]> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 6 {
            0 => state >> 58,
            1 => [0, u64::MAX, 1 << 31, 0x8000_0000_0000_0000, 0x7f80_0000_3f80_0000, 0x7fff_ffff]
                [(state >> 40) as usize % 6],
            _ => state.rotate_left(23),
        }
    };
    (0..count).map(|_| [next(), next(), next()]).collect()
}
