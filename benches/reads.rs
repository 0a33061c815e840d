//! Compares ways to read local files: `pread` in threads, which feedwater uses, `mmap`, and
//! io_uring.
//!
//! Run it with `cargo bench --bench reads -- --data FOLDER`. The benchmark has two sets, which it
//! creates if they are missing: many files of 50 kB, and the same bytes as records in a few large
//! files. All ways read in the same shuffled order. Every thread takes the next read of this order,
//! and copies the bytes into its own memory.
//!
//! With `mmap`, a thread maps a small file for each read, maps a large file only once, and copies
//! from the mapping. With io_uring, each thread keeps `depth` reads in flight, and also opens and
//! closes small files with io_uring. With `pread+advice`, a thread announces to the kernel the read
//! that is 64 places ahead in the order (`posix_fadvise`).
//!
//! Before cold reads, the kernel is asked to drop the cached pages of the files (`posix_fadvise`).
//! The kernel then still knows the names and locations of the files. With `--drop-caches`, which
//! needs root, the kernel drops these names and locations too. The ways alternate in every round,
//! and a cell of the table is the median of the rounds. If the kernel rejects a way, the cell shows
//! the error message instead.
#![allow(unsafe_code, reason = "mmap and io_uring have no safe interface")]

mod common;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Instant;

use clap::Parser;

use ways::{Read, Way};

#[path = "reads/ways.rs"]
mod ways;

#[derive(Parser)]
struct Arguments {
    /// Folder for the files, on the disk to measure
    #[arg(long)]
    data: Option<PathBuf>,
    /// Number of small files, and of records in large files
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Numbers of threads to measure, with one column each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 16])]
    threads: Vec<usize>,
    /// Drop all caches of the machine before cold reads
    #[arg(long)]
    drop_caches: bool,
    /// Number of measurements per cell of the tables
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Ignored. `cargo bench` passes this flag
    #[arg(long, hide = true)]
    bench: bool,
}

/// Mean length of a small file or a record in bytes, like that of JPEGs of 500x375.
const BYTES: usize = 50_000;
/// Number of records in a large file.
const RECORDS: usize = 2500;

/// A cell of the table: thousand reads per second and microseconds of processor time per read, or
/// the error message.
type Cell = Result<(f64, f64), String>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let data = arguments.data.clone();
    let data = data.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("reads"));
    match run(&arguments, &data) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", data.display());
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, data: &Path) -> io::Result<()> {
    println!("{}, {} cores; {}", common::cpu(), common::cores(), kernel());
    let ways =
        [Way::Pread, Way::PreadAdvised, Way::Mmap, Way::Uring(1), Way::Uring(16), Way::Uring(64)];
    for (name, reads) in [
        ("small files", small(data, arguments.files)?),
        ("records in large files", large(data, arguments.files)?),
    ] {
        let bytes: usize = reads.iter().map(|it| it.len).sum();
        for cold in [false, true] {
            let state = if cold { "cold" } else { "warm" };
            println!(
                "\n{} {name}, {} MB, {state}: thousand reads/s (CPU microseconds a read)",
                reads.len(),
                bytes / 1_000_000
            );
            let heads: String = arguments.threads.iter().fold(String::new(), |mut text, it| {
                let _ = write!(text, "{:>18}", format!("{it} threads"));
                text
            });
            println!("{:<18}{heads}", "");
            let mut cells: HashMap<(Way, usize), Vec<Cell>> = HashMap::new();
            for round in 0..arguments.rounds {
                for turn in 0..ways.len() {
                    let way = ways[(round + turn) % ways.len()];
                    for &threads in &arguments.threads {
                        prepare(&reads, cold, arguments.drop_caches)?;
                        let figures = measure(way, &reads, threads);
                        let figures = figures.map_err(|error| error.to_string());
                        cells.entry((way, threads)).or_default().push(figures);
                    }
                }
            }
            for way in ways {
                let mut line = format!("{:<18}", way.name());
                for &threads in &arguments.threads {
                    let runs: Result<Vec<_>, _> = cells[&(way, threads)].iter().cloned().collect();
                    let cell = match runs {
                        Ok(runs) => {
                            let rates: Vec<_> = runs.iter().map(|it| it.0).collect();
                            let costs: Vec<_> = runs.iter().map(|it| it.1).collect();
                            format!("{:.1} ({:.0})", common::median(&rates), common::median(&costs))
                        }
                        Err(words) => format!("skipped: {words}"),
                    };
                    let _ = write!(line, "{cell:>18}");
                }
                println!("{line}");
            }
        }
    }
    Ok(())
}

/// Returns thousand reads per second, and microseconds of processor time per read.
fn measure(way: Way, reads: &[Read], threads: usize) -> io::Result<(f64, f64)> {
    let next = AtomicUsize::new(0);
    let (begin, busy) = (Instant::now(), cpu_seconds());
    let sums: Vec<io::Result<u64>> = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| ways::run(way, reads, &next))).collect();
        workers.into_iter().map(|it| it.join().expect("a worker does not panic")).collect()
    });
    let (wall, busy) = (begin.elapsed().as_secs_f64(), cpu_seconds() - busy);
    let mut sum = 0u64;
    for part in sums {
        sum = sum.wrapping_add(part?);
    }
    let expected = reads.iter().fold(0u64, |sum, read| sum.wrapping_add(read.mark));
    assert_eq!(sum, expected, "{} read other bytes", way.name());
    Ok((reads.len() as f64 / wall / 1e3, busy / reads.len() as f64 * 1e6))
}

/// Loads all pages of the files into the page cache, or, if `cold`, drops them.
fn prepare(reads: &[Read], cold: bool, all: bool) -> io::Result<()> {
    if !cold {
        let mut buffer = vec![0; BYTES * 2];
        for read in reads {
            File::open(&read.path)?.read_exact_at(&mut buffer[..read.len], read.offset)?;
        }
        return Ok(());
    }
    // The kernel drops only unmodified pages from the page cache. So modified pages are written to
    // the disk first.
    for read in reads.iter().filter(|read| read.offset == 0) {
        let file = File::open(&read.path)?;
        file.sync_data()?;
        ways::forget(&file);
    }
    if all { fs::write("/proc/sys/vm/drop_caches", "3") } else { Ok(()) }
}

/// Creates missing small files. Returns one read for each file, in the order that all ways share.
fn small(data: &Path, files: usize) -> io::Result<Vec<Read>> {
    let folder = data.join(format!("small-{files}"));
    fs::create_dir_all(&folder)?;
    let reads: Vec<Read> = (0..files)
        .map(|number| {
            let path = folder.join(format!("{:02x}/{number:06}.jpg", number % 256));
            Read { path, offset: 0, len: len(number), mark: number as u64 }
        })
        .collect();
    for read in &reads {
        if fs::metadata(&read.path).map_or(0, |it| it.len()) != read.len as u64 {
            fs::create_dir_all(read.path.parent().expect("the path has a parent folder"))?;
            fs::write(&read.path, content(read.mark, read.len))?;
        }
    }
    Ok(shuffled(reads))
}

/// Creates missing large files, whose records have the same bytes as the small files. Returns one
/// read for each record, in the order that all ways share.
fn large(data: &Path, files: usize) -> io::Result<Vec<Read>> {
    let folder = data.join(format!("large-{files}"));
    fs::create_dir_all(&folder)?;
    let mut reads: Vec<Read> = Vec::with_capacity(files);
    for number in 0..files {
        let path = folder.join(format!("{:04}.records", number / RECORDS));
        let before = reads.last().filter(|it| it.path == path);
        let offset = before.map_or(0, |it| it.offset + it.len as u64);
        reads.push(Read { path, offset, len: len(number), mark: number as u64 });
    }
    for part in reads.chunks(RECORDS) {
        let bytes: usize = part.iter().map(|it| it.len).sum();
        if fs::metadata(&part[0].path).map_or(0, |it| it.len()) != bytes as u64 {
            let parts: Vec<_> = part.iter().map(|it| content(it.mark, it.len)).collect();
            fs::write(&part[0].path, parts.concat())?;
        }
    }
    Ok(shuffled(reads))
}

/// Returns a length between half and one and a half times the mean.
fn len(number: usize) -> usize {
    BYTES / 2 + number * 7919 % BYTES
}

/// Returns the content of a file or record, which begins with `mark`. Readers sum up the marks, so
/// that the program can check what they read.
fn content(mark: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| ((at as u64 * (mark + 3)) >> 5) as u8).collect();
    bytes[..8].copy_from_slice(&mark.to_le_bytes());
    bytes
}

fn shuffled(mut reads: Vec<Read>) -> Vec<Read> {
    let mut state = 88_172_645_463_325_252u64;
    for last in (1..reads.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        reads.swap(last, state as usize % (last + 1));
    }
    reads
}

fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "not Linux".into(), |it| format!("Linux {}", it.trim()))
}
