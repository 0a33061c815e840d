//! Facts about machine code, from the log of NVIDIA's assembler.

/// Parses the assembler's log. Returns registers, bytes of stack, spill stores and spill loads of
/// each kernel. In the log, the functions that a kernel calls have entries of their own, without
/// registers. The bytes of these functions are added to those of the kernel.
pub fn facts(log: &str) -> Vec<(String, [u64; 4])> {
    let mut all: Vec<(String, [u64; 4])> = Vec::new();
    let before = |line: &str, what: &str| -> Option<u64> {
        line[..line.find(what)?].trim_end().rsplit([' ', ',']).next()?.parse().ok()
    };
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            all.push((rest.split('\'').next().unwrap_or_default().to_owned(), [0; 4]));
        }
        let Some((_, facts)) = all.last_mut() else { continue };
        if let Some(registers) = before(line, " registers") {
            facts[0] = registers;
        }
        for (at, what) in
            [(1, " bytes stack frame"), (2, " bytes spill stores"), (3, " bytes spill loads")]
        {
            facts[at] += before(line, what).unwrap_or(0);
        }
    }
    all
}
