//! The ways to read files that `reads.rs` compares. Each way is a function that one thread runs.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use io_uring::{IoUring, opcode, types};

/// Number of places in the order between the current read and the read announced to the kernel.
const AHEAD: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    Pread,
    PreadAdvised,
    Mmap,
    Uring(u32),
}

/// A read: the range of a file that a thread reads. The first 8 bytes of the range are the number
/// `mark`.
pub struct Read {
    pub path: PathBuf,
    pub offset: u64,
    pub len: usize,
    pub mark: u64,
}

impl Way {
    pub fn name(self) -> String {
        match self {
            Self::Pread => "pread".into(),
            Self::PreadAdvised => "pread+advice".into(),
            Self::Mmap => "mmap".into(),
            Self::Uring(depth) => format!("io_uring depth {depth}"),
        }
    }
}

impl Read {
    /// Whether the range is the whole of a small file.
    fn small(&self) -> bool {
        self.path.extension().is_some_and(|it| it == "jpg")
    }
}

/// Takes reads from `reads` until none are left. `next` counts the reads that all threads have
/// taken. Returns the sum of the marks.
pub fn run(way: Way, reads: &[Read], next: &AtomicUsize) -> io::Result<u64> {
    match way {
        Way::Pread => pread(reads, next, false),
        Way::PreadAdvised => pread(reads, next, true),
        Way::Mmap => mmap(reads, next),
        Way::Uring(depth) => uring(reads, next, depth),
    }
}

/// Lets the kernel drop the cached pages of a file.
pub fn forget(file: &File) {
    advise(file, 0, 0, libc::POSIX_FADV_DONTNEED);
}

fn advise(file: &File, offset: u64, len: usize, advice: libc::c_int) {
    // SAFETY: the descriptor is open. No memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, len as i64, advice) };
}

/// Opens a small file, gets its length, reads and closes it, as `storage::File` does. Large files
/// are kept open.
fn pread(reads: &[Read], next: &AtomicUsize, advised: bool) -> io::Result<u64> {
    let mut open: HashMap<&Path, File> = HashMap::new();
    let (mut buffer, mut sum) = (Vec::new(), 0u64);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(read) = reads.get(number) else { return Ok(sum) };
        if advised && let Some(ahead) = reads.get(number + AHEAD) {
            if ahead.small() {
                advise(&File::open(&ahead.path)?, 0, 0, libc::POSIX_FADV_WILLNEED);
            } else if let Some(file) = open.get(ahead.path.as_path()) {
                advise(file, ahead.offset, ahead.len, libc::POSIX_FADV_WILLNEED);
            }
        }
        let opened;
        let file = if read.small() {
            opened = File::open(&read.path)?;
            &opened
        } else if let Some(file) = open.get(read.path.as_path()) {
            file
        } else {
            open.entry(&read.path).or_insert(File::open(&read.path)?)
        };
        let len = if read.small() { file.metadata()?.len() as usize } else { read.len };
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        file.read_exact_at(&mut buffer[..len], read.offset)?;
        sum = sum.wrapping_add(mark(&buffer[..len]));
    }
}

fn mark(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |it| u64::from_le_bytes(*it))
}

/// A memory-mapped file.
struct Map {
    start: *mut libc::c_void,
    len: usize,
}

impl Map {
    fn new(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len() as usize;
        let flags = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping of an open file. It is unmapped once, when this value is dropped.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, flags.0, flags.1, file.as_raw_fd(), 0) };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Self { start, len }),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`. The files do not change
        // meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this range. No slice of it outlives `self`.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn mmap(reads: &[Read], next: &AtomicUsize) -> io::Result<u64> {
    let mut maps: HashMap<&Path, Map> = HashMap::new();
    let (mut buffer, mut sum) = (Vec::new(), 0u64);
    while let Some(read) = reads.get(next.fetch_add(1, Ordering::Relaxed)) {
        if buffer.len() < read.len {
            buffer.resize(read.len, 0);
        }
        let made;
        let map = if read.small() {
            made = Map::new(&read.path)?;
            &made
        } else if let Some(map) = maps.get(read.path.as_path()) {
            map
        } else {
            maps.entry(&read.path).or_insert(Map::new(&read.path)?)
        };
        let start = read.offset as usize;
        buffer[..read.len].copy_from_slice(&map.bytes()[start..start + read.len]);
        sum = sum.wrapping_add(mark(&buffer));
    }
    Ok(sum)
}

/// State of one of the `depth` requests that a thread has in flight in io_uring. `Open` and `Read`
/// contain the index of the read. `Read` also contains the descriptor of a small file, which is
/// closed after the read, or -1 for a large file.
#[derive(Clone, Copy)]
enum ReadStep {
    Idle,
    Open(usize),
    Read(usize, i32),
    Close,
}

fn uring(reads: &[Read], next: &AtomicUsize, depth: u32) -> io::Result<u64> {
    let mut ring = IoUring::new(depth)?;
    let mut open: HashMap<&Path, File> = HashMap::new();
    let longest = reads.iter().map(|it| it.len).max().unwrap_or(0);
    // Requests in the ring contain addresses of these buffers and names, so a buffer or a name
    // changes only after the completion of its request.
    let mut buffers: Vec<Vec<u8>> = (0..depth).map(|_| vec![0; longest]).collect();
    let mut names: Vec<CString> = vec![CString::default(); depth as usize];
    let mut steps = vec![ReadStep::Idle; depth as usize];
    let (mut sum, mut busy) = (0u64, 0usize);
    let mut more = true;
    loop {
        for place in 0..steps.len() {
            if !more || !matches!(steps[place], ReadStep::Idle) {
                continue;
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(read) = reads.get(number) else {
                more = false;
                continue;
            };
            if read.small() {
                names[place] = CString::new(read.path.as_os_str().as_bytes())?;
                let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), names[place].as_ptr())
                    .flags(libc::O_RDONLY | libc::O_CLOEXEC)
                    .build();
                push(&mut ring, entry.user_data(place as u64))?;
                steps[place] = ReadStep::Open(number);
            } else {
                let file = match open.get(read.path.as_path()) {
                    Some(file) => file,
                    None => open.entry(&read.path).or_insert(File::open(&read.path)?),
                };
                let file = file.as_raw_fd();
                push(&mut ring, read_entry(file, read, &mut buffers[place], place))?;
                steps[place] = ReadStep::Read(number, -1);
            }
            busy += 1;
        }
        if busy == 0 {
            return Ok(sum);
        }
        ring.submit_and_wait(1)?;
        let done: Vec<_> =
            ring.completion().map(|it| (it.user_data() as usize, it.result())).collect();
        for (place, result) in done {
            if result < 0 {
                return finish(ring, buffers, io::Error::from_raw_os_error(-result));
            }
            match steps[place] {
                ReadStep::Open(number) => {
                    let entry = read_entry(result, &reads[number], &mut buffers[place], place);
                    push(&mut ring, entry)?;
                    steps[place] = ReadStep::Read(number, result);
                }
                ReadStep::Read(number, file) => {
                    if result as usize != reads[number].len {
                        return finish(ring, buffers, io::ErrorKind::UnexpectedEof.into());
                    }
                    sum = sum.wrapping_add(mark(&buffers[place]));
                    if file >= 0 {
                        let entry = opcode::Close::new(types::Fd(file)).build();
                        push(&mut ring, entry.user_data(place as u64))?;
                        steps[place] = ReadStep::Close;
                    } else {
                        steps[place] = ReadStep::Idle;
                        busy -= 1;
                    }
                }
                ReadStep::Close | ReadStep::Idle => {
                    steps[place] = ReadStep::Idle;
                    busy -= 1;
                }
            }
        }
    }
}

/// Returns the error. Leaks the buffers, because the kernel may still write into the buffers of
/// reads that are in flight.
fn finish(ring: IoUring, buffers: Vec<Vec<u8>>, error: io::Error) -> io::Result<u64> {
    drop(ring);
    std::mem::forget(buffers);
    Err(error)
}

fn read_entry(file: i32, read: &Read, buffer: &mut [u8], place: usize) -> io_uring::squeue::Entry {
    opcode::Read::new(types::Fd(file), buffer.as_mut_ptr(), read.len as u32)
        .offset(read.offset)
        .build()
        .user_data(place as u64)
}

fn push(ring: &mut IoUring, entry: io_uring::squeue::Entry) -> io::Result<()> {
    // SAFETY: the entry points to a name and a buffer that stay alive and do not move until the
    // completion of the entry has been received. Both are reused only after that.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)
}
