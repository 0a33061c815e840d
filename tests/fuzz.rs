//! Fuzzes every target of `fuzz/targets.rs` with mutated and random files.
//!
//! No input may cause a panic, take longer than [`LIMIT_SECONDS`], or hold more than
//! [`allowed_bytes`] at once. A failing input is written to a file, whose path is printed. After
//! the bug is fixed, move it to `fuzz/corpus/TARGET/`. Later runs start with the files of that
//! folder.
//!
//! Environment variables:
//!
//! * `FEEDWATER_FUZZ_SECONDS`: time per target in seconds (default 0.1)
//! * `FEEDWATER_FUZZ_INPUTS`: maximum number of inputs per target (default: unlimited)
//! * `FEEDWATER_FUZZ_SEED`: seed of the mutations (default 0)
//! * `FEEDWATER_FUZZ_TARGET`: name of the only target to run (default: all)
//!
//! Example: one hour of one target. The run prints statistics every minute.
//!
//! ```text
//! FEEDWATER_FUZZ_TARGET=jpeg-decoders FEEDWATER_FUZZ_SECONDS=3600 \
//!     cargo test --release -p feedwater-tests --test fuzz -- --nocapture
//! ```

#![allow(unsafe_code, reason = "the allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

#[path = "common/random_jpeg.rs"]
mod random_jpeg;
#[path = "../fuzz/targets.rs"]
mod targets;

use feedwater_tests::jpeg_kernels::{self, COMPARISONS};
use targets::{TARGETS, Target};

/// The kernels of the JPEG decoder, compiled for the host. Only this program has them.
const KERNELS: Target = Target(
    "jpeg-kernels",
    &[("decode", ".jpg"), ("tolerated", ".jpg"), ("refused", ".jpg"), ("encoders", ".jpg")],
    jpeg_kernels::compare,
);

/// Maximum time for one input, in seconds. It is generous, because the machine may be busy.
const LIMIT_SECONDS: u64 = 20;

/// Maximum size of a mutated file, in bytes.
const MOST_BYTES: usize = 1 << 17;

/// Targets for which seven of eight inputs are random files, because mutated files rarely reach the
/// code under test.
const DRAWN: &[(&str, Draw)] = &[
    ("jpeg-decoders", random_jpeg::draw),
    ("jpeg-kernels", random_jpeg::draw),
    ("row-index", random_jpeg::draw),
];

/// A function that returns a random file.
type Draw = fn(&mut Random) -> Vec<u8>;

/// Maximum number of bytes that a target may allocate at once for an input of `input` bytes: 64 MiB
/// plus 16 times the size of the input.
fn allowed_bytes(input: usize) -> usize {
    (64 << 20) + 16 * input
}

#[global_allocator]
static ALLOCATOR: Counting = Counting { held: AtomicUsize::new(0), most: AtomicUsize::new(0) };

/// The system allocator with two counters: the number of bytes that are allocated now, and the
/// maximum of this number.
struct Counting {
    held: AtomicUsize,
    most: AtomicUsize,
}

impl Counting {
    fn add(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(held, Ordering::Relaxed);
    }

    /// Returns the maximum number of bytes that are allocated at once while `work` runs, without
    /// those allocated before.
    fn most_during(&self, work: impl FnOnce()) -> usize {
        let before = self.held.load(Ordering::Relaxed);
        self.most.store(before, Ordering::Relaxed);
        work();
        self.most.load(Ordering::Relaxed).saturating_sub(before)
    }
}

// SAFETY: all calls are forwarded to the system allocator; the counters touch no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: `layout` is the caller's, unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: `layout` is the caller's, unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.held.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller passes a pointer that this allocator returned, with its layout.
        unsafe { System.dealloc(place, layout) }
    }
}

/// The target and input that run now, with the time of their start. The thread in `watch` reads
/// them to end inputs that take too long.
static CURRENT: Mutex<Option<(&'static str, Vec<u8>, Instant)>> = Mutex::new(None);

#[test]
fn every_target_survives_any_input() {
    the_harness_detects_panics_and_memory();
    let number =
        |name: &str, default: f64| env::var(name).map_or(default, |it| it.parse().unwrap());
    let seconds = number("FEEDWATER_FUZZ_SECONDS", 0.1);
    let most = number("FEEDWATER_FUZZ_INPUTS", f64::INFINITY) as u64;
    let seed = number("FEEDWATER_FUZZ_SEED", 0.0) as u64;
    let only = env::var("FEEDWATER_FUZZ_TARGET").ok();
    thread::spawn(watch);
    let mut failures = Vec::new();
    let targets = TARGETS
        .iter()
        .chain([&KERNELS])
        .filter(|it| only.as_deref().is_none_or(|only| only == it.0));
    assert!(targets.clone().count() > 0, "FEEDWATER_FUZZ_TARGET is {only:?}, which is no target");
    for target in targets {
        match fuzz(target, Duration::from_secs_f64(seconds), most, seed) {
            Ok(tried) => tried.print(target),
            Err(failure) => failures.push(failure),
        }
    }
    assert!(failures.is_empty(), "seed {seed}\n{}", failures.join("\n"));
}

/// Statistics of fuzzing one target.
#[derive(Default)]
struct Tried {
    inputs: u64,
    outcomes: HashSet<u64>,
    /// Number of inputs of each kind. Some targets return an outcome such as `kind|details`; the
    /// kind is the text before the `|`.
    kinds: BTreeMap<String, u64>,
}

impl Tried {
    /// Counts an input with the outcome `words`. Returns whether no earlier input had this outcome.
    fn add(&mut self, words: &str) -> bool {
        self.inputs += 1;
        if let Some((kind, _)) = words.split_once('|') {
            match self.kinds.get_mut(kind) {
                Some(count) => *count += 1,
                None => drop(self.kinds.insert(kind.into(), 1)),
            }
        }
        self.outcomes.insert(outcome(words))
    }

    fn print(&self, target: &Target) {
        println!("{:22} {:8} inputs, {:4} outcomes", target.0, self.inputs, self.outcomes.len());
        for (kind, count) in &self.kinds {
            let share = 100.0 * *count as f64 / self.inputs as f64;
            println!("{:22} {count:8} inputs, {share:4.1} %: {kind}", "");
        }
        if target.0 == KERNELS.0 {
            let comparisons = COMPARISONS.load(Ordering::Relaxed);
            println!("{:22} {comparisons:8} comparisons of windows", "");
        }
    }
}

/// Fuzzes one target for `time` or until `most` inputs. Runs the seed files first, then mutations
/// of earlier inputs and, for the targets of [`DRAWN`], random files. Only seed files and inputs
/// with new outcomes are mutated.
fn fuzz(target: &'static Target, time: Duration, most: u64, seed: u64) -> Result<Tried, String> {
    const PROGRESS: Duration = Duration::from_secs(60);
    let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
    let draw = DRAWN.iter().find(|(name, _)| *name == target.0).map(|(_, draw)| draw);
    let mut pool: Vec<Vec<u8>> =
        targets::seeds(target).iter().map(|it| fs::read(it).unwrap()).collect();
    let mut tried = Tried::default();
    for input in &pool {
        tried.add(&attempt(target, input)?);
    }
    if pool.is_empty() {
        pool.push(Vec::new());
    }
    let begin = Instant::now();
    let mut progress = PROGRESS;
    while begin.elapsed() < time && tried.inputs < most {
        let drawn = draw.filter(|_| random.below(8) > 0).map(|draw| draw(&mut random));
        let input = drawn.unwrap_or_else(|| {
            let mut input = pool[random.below(pool.len())].clone();
            for _ in 0..1 << random.below(5) {
                let other = &pool[random.below(pool.len())];
                mutate(&mut input, other, &mut random);
            }
            input.truncate(MOST_BYTES);
            input
        });
        if tried.add(&attempt(target, &input)?) && pool.len() < 4096 {
            pool.push(input);
        }
        if begin.elapsed() > progress {
            println!("after {:.0} s, seed {seed}:", begin.elapsed().as_secs_f64());
            tried.print(target);
            progress += PROGRESS;
        }
    }
    Ok(tried)
}

/// Runs the target on one input and returns the outcome. An error names the file where the failing
/// input was saved.
fn attempt(target: &'static Target, input: &[u8]) -> Result<String, String> {
    let current = || CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    *current() = Some((target.0, input.to_vec(), Instant::now()));
    let mut result = Ok(String::new());
    let most = ALLOCATOR.most_during(|| {
        result = panic::catch_unwind(AssertUnwindSafe(|| (target.2)(input)));
    });
    *current() = None;
    let allowed = allowed_bytes(input.len());
    match result {
        Err(_) => Err(format!("{} panics: {}", target.0, keep(target.0, input).display())),
        Ok(_) if most > allowed => {
            let place = keep(target.0, input);
            Err(format!(
                "{} allocates {most} bytes, but may allocate {allowed}: {}",
                target.0,
                place.display()
            ))
        }
        Ok(outcome) => Ok(outcome),
    }
}

/// Returns a hash of the words of an outcome that have more than three letters. Quoted texts and
/// numbers are left out, so messages that differ only in values count as the same outcome.
fn outcome(words: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for piece in words.split('"').step_by(2) {
        let words = piece.split(|it: char| !it.is_ascii_alphabetic());
        words.filter(|word| word.len() > 3).for_each(|word| word.hash(&mut hasher));
    }
    hasher.finish()
}

/// Watches the running input. Ends the whole process if the input takes too long, because a thread
/// cannot be stopped.
fn watch() {
    loop {
        thread::sleep(Duration::from_millis(200));
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, input, since)) = &*current
            && since.elapsed().as_secs() > LIMIT_SECONDS
        {
            eprintln!("{name} takes more than {LIMIT_SECONDS} s: {}", keep(name, input).display());
            process::exit(1);
        }
    }
}

fn keep(name: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = folder.join(format!("{name}-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(&path, input).unwrap();
    path
}

/// Applies one random mutation: flips a bit, changes bytes, writes an extreme number, truncates the
/// input, or moves, repeats, removes or splices a piece of it.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const EDGES: [u64; 12] = [
        0,
        1,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        i64::MAX as u64,
        u64::MAX,
    ];
    let at = random.below(input.len() + 1);
    let piece = |bytes: &[u8], random: &mut Random| {
        let start = random.below(bytes.len() + 1);
        let most = 1 << random.below(12);
        let len = random.below((bytes.len() - start).min(most) + 1);
        bytes[start..start + len].to_vec()
    };
    match random.below(10) {
        0 | 1 if at < input.len() => input[at] ^= 1 << random.below(8),
        2 if at < input.len() => input[at] = random.next() as u8,
        3 if at < input.len() => {
            input[at] = input[at].wrapping_add([1, 255, 16, 240][random.below(4)])
        }
        4 | 5 => {
            let number = EDGES[random.below(EDGES.len())].wrapping_sub(random.below(3) as u64);
            let (little, len) =
                (number.to_le_bytes(), [1, 2, 4, 8][random.below(4)].min(input.len() - at));
            let bytes = if random.below(2) == 0 { little } else { number.to_be_bytes() };
            let from = if bytes == little { 0 } else { 8 - len };
            input[at..at + len].copy_from_slice(&bytes[from..from + len]);
        }
        6 => {
            let most = 1 << random.below(12);
            let count = random.below((input.len() - at).min(most) + 1);
            input.drain(at..at + count);
        }
        7 => {
            let bytes = piece(input, random);
            input.splice(at..at, bytes);
        }
        8 => {
            let bytes = piece(other, random);
            let end = if random.below(2) == 0 { at } else { (at + bytes.len()).min(input.len()) };
            input.splice(at..end, bytes);
        }
        9 if random.below(4) == 0 => input.truncate(at),
        _ => input.splice(at..at, [random.next() as u8]).for_each(drop),
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Checks that fuzzing detects a panic and an oversized allocation, with two targets that fail on
/// purpose.
fn the_harness_detects_panics_and_memory() {
    const PANICS: Target = Target("panics", &[("records", ".jpg")], |bytes| {
        assert!(!bytes.is_empty() && bytes[0] == 0xff, "on purpose");
        String::new()
    });
    const TAKES: Target = Target("takes", &[("records", ".jpg")], |bytes| {
        vec![1u8; (64 << 20) + 17 * bytes.len()].len().to_string()
    });
    let quiet = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    for (target, expected) in [(&PANICS, "panics panics: "), (&TAKES, "takes allocates 671")] {
        let failure = fuzz(target, Duration::from_secs(60), u64::MAX, 0).err().unwrap();
        let path = Path::new(failure.rsplit(": ").next().unwrap());
        assert!(failure.starts_with(expected) && path.is_file(), "{failure}");
        fs::remove_file(path).unwrap();
    }
    panic::set_hook(quiet);
}
