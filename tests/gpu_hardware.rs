//! The CUDA side on a real GPU. Without one these tests say so and pass; with `REQUIRE_GPU=1` they fail.

use std::sync::Arc;

use feedwater::Error;
use feedwater::footprint::{Footprint, Memory};
use feedwater::geometry::{Roi, Size};
use feedwater::gpu::nvjpeg::{self, Backend, Jpeg, PageDecoder};
use feedwater::gpu::{
    Device, DevicePool, Kernel, PinnedPool, Staged, Stream, TensorSlot, fill, read_back,
};
use feedwater::ring::Slot;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// Adds a number to every byte, after so much idle work that an unordered reader would see the bytes before.
const KERNEL: &str = r#"
struct Sample { unsigned char* out; const unsigned char* in; int add, rounds; };
extern "C" __global__ void fused(const Sample* samples, int count, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height || (int)blockIdx.z >= count) return;
    const Sample& sample = samples[blockIdx.z];
    volatile int idle = 0;
    for (int i = 0; i < sample.rounds; i++) idle = idle + i;
    sample.out[y * width + x] = sample.in[y * width + x] + sample.add;
}
"#;
const SAMPLE_BYTES: usize = 24;

/// The first GPU, or a visible note that there is none.
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
        // The producer is slow, the consumer fast: without the events the copy would be of the round before.
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

#[test]
fn nvjpeg_decodes_windows_and_recovers_from_bad_files() {
    let Some(device) = device() else { return };
    const PICTURE: Size = Size::new(320, 200);
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "pages", 1 << 20, 1, "");
    footprint.add(Memory::Device, "nvjpeg", 64 << 20, 1, "");
    footprint.add(Memory::Pinned, "nvjpeg", 64 << 20, 1, "");
    let memory = DevicePool::take(&device, &footprint).unwrap();
    let pinned = PinnedPool::take(&device, &footprint).unwrap();
    let source =
        nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
    let jpeg = match Jpeg::open(&device, Backend::Host, &source) {
        Err(error @ Error::Unavailable { .. }) if std::env::var_os("REQUIRE_GPU").is_none() => {
            eprintln!("SKIPPED, no nvJPEG: {error}");
            return;
        }
        other => other.unwrap(),
    };
    let stream = Stream::new(&device).unwrap();
    let mut decoder = PageDecoder::new(&jpeg, 0, 0).unwrap();
    let page = memory.buffer("pages", 1 << 20).unwrap();

    // Slow ramps survive compression within a few levels.
    let pixel = |x: u32, y: u32| [x / 2 + 20, y + 30, (x + y) / 4 + 50].map(|value| value as u8);
    let rgb: Vec<u8> = (0..PICTURE.height)
        .flat_map(|y| (0..PICTURE.width).flat_map(move |x| pixel(x, y)))
        .collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 95);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.encode(&rgb, PICTURE.width as u16, PICTURE.height as u16, ColorType::Rgb).unwrap();

    for wanted in [PICTURE.window(), Roi::new(33, 17, 101, 55), Roi::new(319, 199, 1, 1)] {
        let _ = decoder.decode(&stream, &file[..file.len() / 3], wanted, &page).map(|_| ());
        let window = decoder.decode(&stream, &file, wanted, &page).unwrap();
        let mut bytes = vec![0; window.bytes()];
        read_back(&stream, &page, 0, &mut bytes).unwrap();
        for y in wanted.y..wanted.bottom() {
            for x in wanted.x..wanted.right() {
                let row = (y - window.decoded.y) as usize * window.pitch_bytes();
                let at = row + 3 * (x - window.decoded.x) as usize;
                for (seen, expected) in bytes[at..at + 3].iter().zip(pixel(x, y)) {
                    assert!(
                        seen.abs_diff(expected) <= 6,
                        "{wanted}, {x} {y}: {seen} for {expected}"
                    );
                }
            }
        }
    }
    // What a picture takes: the numbers from which a plan predicts.
    println!(
        "nvJPEG {} took {:?} of device and {:?} of page-locked memory (peak, row) for {PICTURE}",
        jpeg.library().version(),
        memory.row_bytes("nvjpeg"),
        pinned.row_bytes("nvjpeg")
    );
}
