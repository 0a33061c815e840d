//! Mapped files. Reads return the same bytes as `pread`, and truncating a file does not end the
//! process with SIGBUS. Tests that end the process start this program again as a child process.
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{env, mem, process, ptr, thread};

use feedwater::error::Reason;
use feedwater::internals::source::Configured;
use feedwater::source::custom::HostPage;
use feedwater::source::settings::{BetonSettings, LmdbSettings, NpySettings};
use feedwater::source::{Beton, Lmdb, Npy, Source};
use feedwater::storage::File;
use feedwater::storage::{Storage, StorageSettings};
use proptest::prelude::*;
use tempfile::TempDir;

/// Number of reads after which most reads of a file copy from its mapping, if the file is in the
/// page cache.
const READS: usize = 200;

/// Returns a handle that maps files if `map` is true. Returns `None` if the file system does not
/// report cached pages, because then no file is mapped.
fn mapping(map: bool) -> Option<Storage> {
    let (_root, path) = file(b"a");
    let file = fs::File::open(path).unwrap();
    let mut byte = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the buffer has one byte and lives during the call.
    let told = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, 0, libc::RWF_NOWAIT) };
    if told < 0 {
        println!("skipped: {}", io::Error::last_os_error());
    }
    let storage = Storage::new(&StorageSettings { map, ..Default::default() }).unwrap();
    (told >= 0).then_some(storage)
}

fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Creates a file in the build directory. The file system there reports cached pages, unlike some
/// that are used for `/tmp`.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = root.path().join("file");
    fs::write(&path, bytes).unwrap();
    (root, path)
}

/// Opens and maps a file, and reads it until its reads copy from the mapping.
fn mapped(path: &Path) -> File {
    let storage = Storage::default();
    let file = storage.map(storage.open(path).unwrap());
    assert!(file.memory_bytes() > 0, "the file system of {} does not map", path.display());
    trust(&file);
    file
}

fn trust(file: &File) {
    let mut byte = [0];
    // Reads 1, 3, 7, 15, 31 and 63, and then every 64th read, check whether the pages are cached.
    // The reads between them rely on the last check.
    for _ in 0..65 {
        file.read_exact_at(&mut byte, 0).unwrap();
    }
}

fn cut(path: &Path, len: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

proptest! {
    #[test]
    fn windows_are_those_of_pread(
        len in 1_usize..100_000,
        windows in prop::collection::vec((0_u64..110_000, 0_usize..50_000), 1..100),
    ) {
        let Some(storage) = mapping(true) else { return Ok(()) };
        let (_root, path) = file(&content(len));
        let mapped = storage.map(storage.open(&path).unwrap());
        let plain = fs::File::open(&path).unwrap();
        for (offset, count) in windows {
            let (mut own, mut other) = (vec![1; count], vec![1; count]);
            let read = mapped.read_at(&mut own, offset).unwrap();
            prop_assert_eq!(read, plain.read_at(&mut other, offset).unwrap());
            prop_assert_eq!(&own, &other);
            let all = mapped.read_exact_at(&mut own, offset).map_err(|error| error.kind());
            let expected = if read == count { Ok(()) } else { Err(ErrorKind::UnexpectedEof) };
            prop_assert_eq!(all, expected);
        }
    }
}

#[test]
fn files_that_cannot_be_mapped_are_read_anyway() {
    let Some(storage) = mapping(true) else { return };
    let open = |path: &Path| storage.map(storage.open(path).unwrap());
    let (_root, path) = file(b"");
    let empty = open(&path);
    assert_eq!((empty.memory_bytes(), empty.read_at(&mut [0; 4], 0).unwrap()), (0, 0));
    let bytes = content(10_000);
    // The pages of files in /proc cannot be mapped.
    let odd = open(Path::new("/proc/self/status"));
    let mut buffer = [0; 5];
    odd.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!((&buffer, odd.memory_bytes()), (b"Name:", 0));
    // The file grows after it was mapped, so it is longer than its mapping.
    let file = mapped_of(&path, &bytes[..5000]);
    fs::write(&path, &bytes).unwrap();
    let mut all = vec![0; bytes.len()];
    file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(all, bytes);
    let mut last = [0; 2];
    assert_eq!(file.read_at(&mut last, 9_999).unwrap(), 1);
    for beyond in [10_000, 1 << 32, 1 << 40] {
        assert_eq!(file.read_at(&mut last, beyond).unwrap(), 0, "{beyond}");
    }
    assert!(file.read_at(&mut last, u64::MAX - 1).is_err());
}

fn mapped_of(path: &Path, bytes: &[u8]) -> File {
    fs::write(path, bytes).unwrap();
    mapped(path)
}

#[test]
fn settings_and_file_systems_decide_what_is_mapped() {
    let (_root, path) = file(&content(1 << 20));
    let Some((on, off)) = mapping(true).zip(mapping(false)) else { return };
    let open = |storage: &Storage| storage.open(&path).unwrap();
    assert_eq!(off.map(open(&off)).memory_bytes(), 0);
    assert_eq!(open(&on).memory_bytes(), 0);
    let mapped = on.map(open(&on));
    assert_eq!(mapped.memory_bytes(), (1 << 20) / 512);
    assert_eq!(mapped.stamp().unwrap(), open(&on).stamp().unwrap());
    assert!(!mapped.is_remote());
}

/// Without feedwater's handler for SIGBUS, this test would end the program.
#[test]
fn a_file_truncated_while_mapped_gives_short_reads_and_the_process_survives() {
    let Some(_on) = mapping(true) else { return };
    let bytes = content(300_000);
    for len in [0, 1, 4096, 8192, 200_000] {
        let (_root, path) = file(&bytes);
        let (mapped, sound) = (mapped(&path), self::file(&bytes));
        let other = self::mapped(&sound.1);
        cut(&path, len);
        let mut buffer = vec![1; 150_000];
        let error = mapped.read_exact_at(&mut buffer, 150_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        // After it was truncated, the file is not mapped again. The remaining bytes are read with
        // `pread`.
        for _ in 0..READS {
            let count = mapped.read_at(&mut buffer, 100).unwrap();
            assert_eq!(count as u64, len.saturating_sub(100).min(150_000));
            assert_eq!(buffer[..count], bytes[100..100 + count]);
        }
        fs::write(&path, &bytes).unwrap();
        mapped.read_exact_at(&mut buffer, 150_000).unwrap();
        assert_eq!(buffer, bytes[150_000..]);
        // The mappings of other files still work.
        other.read_exact_at(&mut buffer, 150_000).unwrap();
        assert_eq!(buffer, bytes[150_000..]);
        let again = self::mapped(&path);
        again.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer, bytes[..150_000]);
    }
}

/// When a file is truncated, zeros replace the missing pages. No read may return these zeros.
#[test]
fn threads_that_fault_at_once_all_survive() {
    let Some(_on) = mapping(true) else { return };
    const THREADS: usize = 4;
    let bytes = content(1 << 20);
    let short = AtomicUsize::new(0);
    for _ in 0..50 {
        let (_root, path) = file(&bytes);
        let mapped = mapped(&path);
        let ready = Barrier::new(THREADS + 1);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (mapped, ready, short, bytes) = (&mapped, &ready, &short, &bytes);
                scope.spawn(move || {
                    let mut buffer = vec![1; 100_000];
                    let offset = number * 200_000;
                    ready.wait();
                    for _ in 0..READS {
                        let count = mapped.read_at(&mut buffer, offset as u64).unwrap();
                        assert_eq!(buffer[..count], bytes[offset..offset + count]);
                        short.fetch_add(usize::from(count == 0), Ordering::Relaxed);
                    }
                });
            }
            ready.wait();
            cut(&path, 0);
        });
        assert!(mapped.read_exact_at(&mut [0], 0).is_err());
    }
    assert_ne!(short.into_inner(), 0, "no thread read after the truncation");
}

/// This test opens more files than the table of mappings has entries. So entries of closed files
/// must be used again.
#[test]
fn entries_of_mappings_are_reused_when_files_are_closed() {
    let Some(storage) = mapping(true) else { return };
    let (_root, path) = file(&content(1000));
    for _ in 0..5000 {
        let file = storage.map(storage.open(&path).unwrap());
        assert!(file.memory_bytes() > 0);
        file.read_exact_at(&mut [0], 0).unwrap();
    }
}

/// Runs one test of this program in a child process.
fn child(name: &str) -> ExitStatus {
    let program = env::current_exe().unwrap();
    let arguments = ["--exact", name, "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).env("MAPPED_CHILD", name).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("a mapping was read"), "{told}");
    output.status
}

fn is_child(name: &str) -> bool {
    env::var("MAPPED_CHILD").is_ok_and(|it| it == name)
}

/// Reads a mapped file. The first such read installs the signal handler.
fn read_mapped() -> (TempDir, File) {
    let (root, path) = file(&content(10_000));
    let file = mapped(&path);
    println!("a mapping was read");
    (root, file)
}

/// Reads a mapping that feedwater did not register, beyond the end of its truncated file. The
/// mapping is between two registered ones.
fn fault() {
    let _above = read_mapped();
    let (_root, path) = file(&content(10_000));
    let file = fs::File::open(&path).unwrap();
    // SAFETY: this is a new mapping. Reading it beyond the end of its file causes the fault that
    // the test needs.
    unsafe {
        let (flags, descriptor) = (libc::MAP_SHARED, file.as_raw_fd());
        let start = libc::mmap(ptr::null_mut(), 10_000, libc::PROT_READ, flags, descriptor, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let _below = read_mapped();
        cut(&path, 0);
        start.cast::<u8>().add(5000).read_volatile();
    }
}

/// Sets the process's action for SIGBUS.
fn set(action: usize, flags: libc::c_int) {
    // SAFETY: a zeroed `sigaction` is valid. The flags match the type of the handlers in this file.
    unsafe {
        let mut new: libc::sigaction = mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &new, ptr::null_mut()), 0);
    }
}

fn raise() {
    // SAFETY: raising a signal is always allowed. The test checks its effect.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
fn an_unrelated_fault_ends_the_process_as_before() {
    let name = "mapped::an_unrelated_fault_ends_the_process_as_before";
    if is_child(name) {
        read_mapped();
        fault();
        process::exit(0);
    }
    assert_eq!(child(name).signal(), Some(libc::SIGBUS));
}

#[test]
fn a_sent_signal_ends_a_process_without_a_handler() {
    let name = "mapped::a_sent_signal_ends_a_process_without_a_handler";
    if is_child(name) {
        set(libc::SIG_DFL, 0);
        read_mapped();
        raise();
        process::exit(0);
    }
    assert_eq!(child(name).signal(), Some(libc::SIGBUS));
}

#[test]
fn an_ignored_signal_is_ignored_and_an_ignored_fault_ends_the_process() {
    let name = "mapped::an_ignored_signal_is_ignored_and_an_ignored_fault_ends_the_process";
    if is_child(name) {
        set(libc::SIG_IGN, 0);
        read_mapped();
        raise();
        if env::var("MAPPED_FAULT").is_ok() {
            fault();
        }
        process::exit(7);
    }
    assert_eq!(child(name).code(), Some(7));
    let program = env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", name]).env("MAPPED_CHILD", name).env("MAPPED_FAULT", "1");
    assert_eq!(command.output().unwrap().status.signal(), Some(libc::SIGBUS));
}

#[test]
fn an_earlier_handler_gets_unrelated_faults() {
    extern "C" fn told(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes valid pointers to a handler. The process ends here.
        unsafe {
            libc::_exit(if (*info).si_signo == signal && (*info).si_code > 0 { 8 } else { 9 })
        }
    }
    let name = "mapped::an_earlier_handler_gets_unrelated_faults";
    if is_child(name) {
        set(told as *const () as usize, libc::SA_SIGINFO);
        read_mapped();
        fault();
        process::exit(0);
    }
    assert_eq!(child(name).code(), Some(8));
}

#[test]
fn an_earlier_plain_handler_gets_signals_and_runs_once_with_resethand() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    static NUMBER: AtomicBool = AtomicBool::new(false);
    extern "C" fn count(signal: libc::c_int) {
        NUMBER.store(signal == libc::SIGBUS, Ordering::Relaxed);
        RUNS.fetch_add(1, Ordering::Relaxed);
    }
    let name = "mapped::an_earlier_plain_handler_gets_signals_and_runs_once_with_resethand";
    if is_child(name) {
        let once = env::var("MAPPED_ONCE").is_ok();
        set(count as *const () as usize, if once { libc::SA_RESETHAND } else { 0 });
        read_mapped();
        raise();
        assert!(NUMBER.load(Ordering::Relaxed));
        raise();
        process::exit(10 + RUNS.load(Ordering::Relaxed) as i32);
    }
    assert_eq!(child(name).code(), Some(12));
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name]).env("MAPPED_CHILD", name).env("MAPPED_ONCE", "1");
    assert_eq!(command.output().unwrap().status.signal(), Some(libc::SIGBUS));
}

/// If a thread blocks SIGBUS, the kernel would kill the process at a fault. So such a thread reads
/// with `pread`.
#[test]
fn a_thread_that_blocks_the_signal_does_not_use_the_mapping() {
    let Some(_on) = mapping(true) else { return };
    let bytes = content(100_000);
    let (_root, path) = file(&bytes);
    let mapped = mapped(&path);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the calls only change integers and the signal mask of this thread.
            unsafe {
                let mut set = mem::zeroed();
                libc::sigfillset(&mut set);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
            }
            let mut buffer = vec![0; bytes.len()];
            mapped.read_exact_at(&mut buffer, 0).unwrap();
            assert_eq!(buffer, bytes);
            cut(&path, 0);
            for _ in 0..READS {
                assert_eq!(mapped.read_at(&mut buffer, 0).unwrap(), 0);
            }
        });
    });
}

/// Returns the bytes of all samples, the source's memory in bytes, and the reason of a read that
/// fails because the file was truncated.
fn samples<S: Configured>(
    path: &Path,
    settings: &S::Settings,
    storage: &Storage,
) -> (Vec<Vec<u8>>, u64, Reason) {
    let source = S::open_with(&[path.into()], settings, storage).unwrap();
    let mut page = HostPage::default();
    let mut all = Vec::new();
    for index in (0..source.len()).cycle().take(READS) {
        source.read(index, &mut page, 1 << 30).unwrap();
        all.push(page.bytes().to_vec());
    }
    let bytes = fs::read(path).unwrap();
    // Truncates the file at a page boundary. Otherwise the rest of the page would read as zeros,
    // and the error would be that the file has changed.
    cut(path, (bytes.len() as u64 / 3) & !4095);
    let last = source.len() - 1;
    let fault = source.read(last, &mut page, 1 << 30).unwrap_err();
    fs::write(path, bytes).unwrap();
    (all, (&source as &dyn Source).memory_bytes(), fault.reason)
}

fn same_either_way<S: Configured>(golden: &str, settings: S::Settings) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(golden);
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = root.path().join(golden.file_name().unwrap());
    fs::copy(golden, &path).unwrap();
    let read = |map| {
        let storage = mapping(map)?;
        Some(samples::<S>(&path, &settings, &storage))
    };
    let Some((with, without)) = read(true).zip(read(false)) else { return };
    assert!(with.0 == without.0, "the samples differ");
    assert_eq!((with.2, without.2), (Reason::Truncated, Reason::Truncated));
    assert!(with.1 > without.1, "the source's memory must include the page tables of the mapping");
}

#[test]
fn samples_and_errors_are_the_same_with_and_without_mapping() {
    let images = LmdbSettings { keys: "image-*".into(), ..Default::default() };
    same_either_way::<Lmdb>("lmdb/image/data.mdb", images);
    same_either_way::<Beton>("beton/raw.beton", BetonSettings::default());
    same_either_way::<Npy>("npy/rgb-1.npy", NpySettings::default());
}

#[test]
fn a_sample_truncated_within_a_page_is_an_error_too() {
    let Some(_on) = mapping(true) else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/npy/rgb-1.npy");
    let (_root, path) = file(&fs::read(golden).unwrap());
    let npy = Npy::open(std::slice::from_ref(&path), &NpySettings::default()).unwrap();
    let mut page = HostPage::default();
    let last = npy.len() - 1;
    for _ in 0..65 {
        npy.read(last, &mut page, 1 << 30).unwrap();
    }
    cut(&path, fs::metadata(&path).unwrap().len() - 1);
    let fault = npy.read(last, &mut page, 1 << 30).unwrap_err();
    assert_eq!(fault.reason, Reason::Unreadable);
    // The read itself succeeded, so the error has no system error as its source.
    assert_eq!(fault.source, None, "{fault}");
}
