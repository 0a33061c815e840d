//! CUDA code on a real GPU. If there is no GPU, these tests print a note and pass. With the
//! environment variable `REQUIRE_GPU=1`, they fail instead. `feedwater selftest` checks
//! decoded pixels and the order of the engines' writes, so these tests do not.

use std::sync::Arc;

use feedwater::Error;
use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::{Device, Event, Stream};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::gpu::nvjpeg::{
    self, Backend, BatchDecoder, BatchJob, HostIdle, Jpeg, Window,
};
use feedwater::internals::gpu::{
    DeviceBuffer, DevicePool, Kernel, PinnedPool, Staged, TensorSlot, fill, read_back,
};
use feedwater::internals::ring::Slot;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// A kernel that waits in a loop, and then adds a number to every byte. A reader that does not wait
/// for the kernel sees the old bytes. The simulated compiler builds the kernel for the host,
/// without the idle loop.
const KERNEL: &str = r#"
#ifndef __CUDACC__
#define __global__
static thread_local struct { unsigned x, y, z; } threadIdx, blockIdx, blockDim;
#endif
struct Sample { unsigned char* out; const unsigned char* in; int add, rounds; };
extern "C" __global__ void fused(const Sample* samples, int count, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height || (int)blockIdx.z >= count) return;
    const Sample& sample = samples[blockIdx.z];
#ifdef __CUDACC__
    volatile int idle = 0;
    for (int i = 0; i < sample.rounds; i++) idle = idle + i;
#endif
    sample.out[y * width + x] = sample.in[y * width + x] + sample.add;
}
#ifndef __CUDACC__
extern "C" void fused__host(void** params, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz) {
    blockDim = {bx, by, bz};
    for (unsigned block = 0; block < gx * gy * gz; block++)
        for (unsigned thread = 0; thread < bx * by * bz; thread++) {
            blockIdx = {block % gx, block / gx % gy, block / gx / gy};
            threadIdx = {thread % bx, thread / bx % by, thread / bx / by};
            fused(*(const Sample**)params[0], *(int*)params[1], *(int*)params[2], *(int*)params[3]);
        }
}
#endif
"#;
const SAMPLE_BYTES: usize = 24;

/// Opens the first GPU. Without a GPU, prints a note and returns `None`.
fn device() -> Option<Arc<Device>> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("REQUIRE_GPU").is_some_and(|it| it == "1") => {
            panic!("{error}")
        }
        Err(error) => {
            eprintln!("SKIPPED, no GPU: {error}");
            None
        }
    }
}

#[test]
fn slots_order_two_streams_on_the_device() {
    let Some(device) = device() else { return };
    const BYTES: usize = 256 * 1024;
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "slots", BYTES as u64, 3, "");
    footprint.add(Memory::Device, "samples", 256, 2, "");
    footprint.add(Memory::Pinned, "samples", 256, 2, "");
    let memory = DevicePool::take(&device, &footprint).unwrap();
    let pinned = PinnedPool::take(&device, &footprint).unwrap();
    let producer = Arc::new(Stream::new(&device).unwrap());
    let consumer = Arc::new(Stream::new(&device).unwrap());
    let [source, copy, buffer] = [(); 3].map(|()| memory.buffer("slots", BYTES).unwrap());
    let mut slot = TensorSlot::new(buffer, producer.clone(), consumer.clone()).unwrap();
    let kernel = Kernel::load(&device, KERNEL, "fused", SAMPLE_BYTES).unwrap();
    let mut staged = [(); 2].map(|()| {
        let host = pinned.buffer("samples", 256).unwrap();
        Staged::new(host, memory.buffer("samples", 256).unwrap()).unwrap()
    });
    let describe = |samples: &mut Staged, out: u64, input: u64, add: i32, rounds: i32| {
        let bytes = samples.bytes().unwrap();
        bytes[..8].copy_from_slice(&out.to_le_bytes());
        bytes[8..16].copy_from_slice(&input.to_le_bytes());
        bytes[16..20].copy_from_slice(&add.to_le_bytes());
        bytes[20..24].copy_from_slice(&rounds.to_le_bytes());
    };
    for round in 0..20u8 {
        // The producer is slow and the consumer is fast. Without events, the copy would read the
        // bytes of the previous round.
        describe(&mut staged[0], slot.buffer().address(), source.address(), round.into(), 100_000);
        describe(&mut staged[1], copy.address(), slot.buffer().address(), 1, 0);
        fill(&producer, &source, 0..BYTES, 100).unwrap();
        staged[0].upload(&producer, 0..SAMPLE_BYTES).unwrap();
        slot.begin_fill().unwrap();
        kernel.launch(&producer, staged[0].device(), 0, 1, 512, 512).unwrap();
        slot.end_fill().unwrap();
        slot.begin_use().unwrap();
        staged[1].upload(&consumer, 0..SAMPLE_BYTES).unwrap();
        kernel.launch(&consumer, staged[1].device(), 0, 1, 512, 512).unwrap();
        slot.end_use().unwrap();
        let mut seen = vec![0; BYTES];
        read_back(&consumer, &copy, 0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 101 + round), "round {round}");
    }
}

const IMAGE: Size = Size::new(320, 200);
const PAGE_BYTES: usize = 1 << 20;

/// Returns a pixel of a smooth gradient, which JPEG compression changes by only a few levels.
fn pixel(x: u32, y: u32) -> [u8; 3] {
    [x / 2 + 20, y + 30, (x + y) / 4 + 50].map(|value| value as u8)
}

fn encoded() -> Vec<u8> {
    encoded_as(SamplingFactor::F_2_2, ColorType::Rgb)
}

fn encoded_as(sampling: SamplingFactor, color: ColorType) -> Vec<u8> {
    let channels = if color == ColorType::Luma { 1 } else { 3 };
    let rgb: Vec<u8> = (0..IMAGE.height)
        .flat_map(|y| (0..IMAGE.width).flat_map(move |x| pixel(x, y).into_iter().take(channels)))
        .collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 95);
    encoder.set_sampling_factor(sampling);
    encoder.encode(&rgb, IMAGE.width as u16, IMAGE.height as u16, color).unwrap();
    file
}

/// The JPEG engines with their memory, ready to decode.
struct Ready {
    jpeg: Arc<Jpeg>,
    stream: Stream,
    memory: DevicePool,
    pinned: PinnedPool,
}

fn ready(device: &Arc<Device>) -> Option<Ready> {
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "pages", PAGE_BYTES as u64, 8, "");
    footprint.add(Memory::Device, "nvjpeg", 64 << 20, 1, "");
    footprint.add(Memory::Pinned, "nvjpeg", 64 << 20, 1, "");
    footprint.add(Memory::Pinned, "encoded", PAGE_BYTES as u64, 1, "");
    let memory = DevicePool::take(device, &footprint).unwrap();
    let pinned = PinnedPool::take(device, &footprint).unwrap();
    let source =
        nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
    let jpeg = match Jpeg::open(device, Backend::Hardware, &source) {
        // Not every GPU has JPEG engines.
        Err(error @ Error::Unavailable { .. }) => {
            eprintln!("SKIPPED, no JPEG engines: {error}");
            return None;
        }
        other => other.unwrap(),
    };
    let stream = Stream::new(device).unwrap();
    Some(Ready { jpeg, stream, memory, pinned })
}

impl Ready {
    /// Prints the memory that decoding used. The numbers that a plan assumes come from such
    /// measurements.
    fn report(&self) {
        println!(
            "nvJPEG {} {:?} {:?} used {:?} of device and {:?} of page-locked memory (peak, planned) for {IMAGE}",
            self.jpeg.library().version(),
            self.jpeg.backend(),
            self.jpeg.engines(),
            self.memory.row_bytes("nvjpeg"),
            self.pinned.row_bytes("nvjpeg")
        );
    }
}

const WINDOWS: [Roi; 3] = [IMAGE.window(), Roi::new(33, 17, 101, 55), Roi::new(319, 199, 1, 1)];

/// Prints how the engines handle images of every chroma subsampling, with a window or with
/// downscaling (never both at once). Also prints how long calls with many images take. NVIDIA does
/// not document the results, so they are not checked. The device must work afterwards.
#[test]
fn the_engines_capabilities_are_printed() {
    let Some(device) = device() else { return };
    let Some(ready) = ready(&device) else { return };
    let mut decoder = BatchDecoder::new(&ready.jpeg, 64, IMAGE).unwrap();
    let page = ready.memory.buffer("pages", PAGE_BYTES).unwrap();
    let unused = Event::new(&device).unwrap();
    let sorts = [
        ("4:4:4", SamplingFactor::F_1_1, ColorType::Rgb),
        ("4:2:2", SamplingFactor::F_2_1, ColorType::Rgb),
        ("4:2:0", SamplingFactor::F_2_2, ColorType::Rgb),
        ("4:4:0", SamplingFactor::F_1_2, ColorType::Rgb),
        ("gray", SamplingFactor::F_1_1, ColorType::Luma),
    ];
    for (name, sampling, color) in sorts {
        let file = encoded_as(sampling, color);
        let mut bytes = ready.pinned.buffer("encoded", file.len()).unwrap();
        bytes.copy_from_slice(&file);
        let windows = WINDOWS.into_iter().chain([Roi::new(7, 91, 5, 1), Roi::new(0, 0, 1, 200)]);
        let reduced = |by: u32| Size::new(IMAGE.width / by, IMAGE.height / by).window();
        let cases = windows.map(|it| (it, 1)).chain([2, 4, 8].map(|by| (reduced(by), by)));
        for (wanted, reduction) in cases {
            fill(&ready.stream, &page, 0..PAGE_BYTES, 0xee).unwrap();
            ready.stream.synchronize().unwrap();
            let destination = HostIdle::wait(&page, &unused).unwrap();
            let job = BatchJob { bytes: &bytes, image: IMAGE, wanted, reduction, destination };
            let window = job.window(&ready.jpeg);
            let told = match decoder.decode(&ready.stream, &[job]) {
                Err(fault) => format!("{fault:?}"),
                Ok(()) => format!("{:?}", ready.farthest(&page, window, reduction, color)),
            };
            println!("hardware {name} {wanted} of {IMAGE} by {reduction}: {told}");
        }
    }
    let file = encoded();
    let mut bytes = ready.pinned.buffer("encoded", file.len()).unwrap();
    bytes.copy_from_slice(&file);
    for count in [1, 7, 14, 32, 64] {
        let mut best = std::time::Duration::MAX;
        for _ in 0..5 {
            // All images are decoded into one page, because only the time matters.
            let job = |_| BatchJob {
                bytes: &bytes,
                image: IMAGE,
                wanted: IMAGE.window(),
                reduction: 1,
                destination: HostIdle::wait(&page, &unused).unwrap(),
            };
            let jobs: Vec<_> = (0..count).map(job).collect();
            decoder.done().synchronize().unwrap();
            let begin = std::time::Instant::now();
            decoder.decode(&ready.stream, &jobs).unwrap();
            let called = begin.elapsed();
            decoder.done().synchronize().unwrap();
            best = best.min(begin.elapsed());
            println!(
                "hardware, {count} in a call: {called:?} for the call, {:?} until done",
                begin.elapsed()
            );
        }
        println!("hardware, {count} in a call: {best:?} at best");
    }
    ready.report();
    device.synchronize().unwrap();
}

impl Ready {
    /// Compares decoded pixels with the encoded ones. Returns the largest difference in levels, and
    /// the number of bytes written outside of the window.
    fn farthest(
        &self,
        page: &DeviceBuffer,
        window: Window,
        by: u32,
        color: ColorType,
    ) -> (u8, usize) {
        let mut bytes = vec![0; page.len()];
        read_back(&self.stream, page, 0, &mut bytes).unwrap();
        let mut most = 0;
        let wanted = window.wanted;
        for y in wanted.y..wanted.bottom() {
            for x in wanted.x..wanted.right() {
                let row = (y - window.decoded.y) as usize * window.pitch_bytes();
                let at = row + 3 * (x - window.decoded.x) as usize;
                let expected = pixel(x * by + by / 2, y * by + by / 2);
                let expected = if color == ColorType::Luma { [expected[0]; 3] } else { expected };
                for (seen, expected) in bytes[at..at + 3].iter().zip(expected) {
                    most = most.max(seen.abs_diff(expected));
                }
            }
        }
        let end = window.pitch_bytes() * window.decoded.height as usize;
        (most, bytes[end..].iter().filter(|byte| **byte != 0xee).count())
    }
}
