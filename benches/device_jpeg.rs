//! Prints Markdown tables about the kernels of the JPEG decoder, for the photographs in a folder
//! (`JPEGS`, at most `JPEGS_MOST` of them). The PTX interpreter counts instructions and memory
//! accesses; NVIDIA's assembler reports registers and stack. Times are not measured. Needs no GPU:
//!
//! ```text
//! JPEGS=folder tests/device_code/run.sh cargo bench -p feedwater-tests --profile dev --bench device_jpeg
//! ```

#[path = "common/assembler.rs"]
mod assembler;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assembler::facts;
use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::{Device, Stream, compile};
use feedwater::internals::decode::{
    Decoders, DeviceImage, DeviceProblem, Fingerprint, JPEG_KERNELS, JpegParams, RowIndex,
    RowIndexOutcome, RowIndexTask, Rows, jpeg_kernels_text,
};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::gpu::{DevicePool, Kernel, PinnedPool, Shape, Staged, read_back};
use feedwater::internals::header::{Header, JpegLayout};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::op::custom::Trace;
use feedwater::op::{Operator, RandomResizedCrop};
use feedwater_tests::simulated::device_code::executes_device_code;
use feedwater_tests::simulated::{SimTotals, in_process, runtime};

/// Number of images per launch.
const GROUP: usize = 16;
/// Issue cycles of an H100 per second: 132 multiprocessors at 1.755 GHz, of which half are used.
const CYCLES: f64 = 132.0 * 1.755e9 * 0.5;
/// Images per second for which the share of an H100 is printed.
const RATE: f64 = 20_000.0;

fn main() -> feedwater::Result<()> {
    let folder = std::env::var_os("JPEGS").filter(|_| executes_device_code());
    let Some(folder) = folder else {
        println!(
            "skipped: set JPEGS to a folder, and run this program by tests/device_code/run.sh"
        );
        return Ok(());
    };
    let most = std::env::var("JPEGS_MOST").ok().and_then(|it| it.parse().ok()).unwrap_or(64);
    let mut files = Vec::new();
    collect(Path::new(&folder), &mut files);
    files.sort();
    let step = (files.len() / most).max(1);
    let files: Vec<_> =
        files.iter().step_by(step).take(most).filter_map(|it| File::read(it)).collect();
    let bytes: usize = files.iter().map(|it| it.bytes.len()).sum();
    println!("{} images, {} bytes on average\n", files.len(), bytes / files.len().max(1));
    for (name, crops, indexed) in [
        ("whole images", false, false),
        ("whole images, row index", false, true),
        ("training crops", true, false),
        ("training crops, row index", true, true),
    ] {
        counts(name, &files, crops, indexed)?;
    }
    machine_code()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

struct File {
    bytes: Vec<u8>,
    header: Header,
    layout: JpegLayout,
    index: Option<RowIndex>,
}

impl File {
    /// Reads a file. Returns `None` if the kernels do not support it.
    fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let header = Header::parse_as(&bytes, false).ok()?;
        DeviceImage::check(&header, 1).ok()?;
        let mut layout = JpegLayout::default();
        header.layout(&bytes, true, &mut layout).ok()?;
        let mut decoders = Decoders::new();
        decoders.set_row_index(RowIndexTask::Make(Fingerprint::of(&bytes, 1)));
        decoders.decode(&bytes, &header, header.size.window(), 1, &mut |_: Rows<'_>| ()).ok()?;
        let index = match decoders.row_index() {
            RowIndexOutcome::Made(_, index) => RowIndex::read(index.to_vec().into()),
            _ => None,
        };
        Some(Self { bytes, header, layout, index })
    }

    /// The whole image, or the window of a training crop.
    fn window(&self, crops: bool, index: u64) -> Roi {
        let size = self.header.size;
        if !crops {
            return size.window();
        }
        let crop: Arc<dyn Operator> = Arc::new(RandomResizedCrop::to(224, 224));
        let key = SampleKey { seed: 1, epoch: 0, index };
        let mut actions = Actions::default();
        let output = actions.draw([&*crop], key, size, &mut Trace::new(size));
        actions.demand(output.window())
    }
}

/// Prints what each kernel executes per image.
fn counts(name: &str, files: &[File], crops: bool, indexed: bool) -> feedwater::Result<()> {
    let machine = in_process();
    let device = Device::open_with(0, &runtime())?;
    let stream = Stream::new(&device)?;
    let text = jpeg_kernels_text();
    let kernels = JPEG_KERNELS
        .map(|it| Kernel::load(&device, &text, it.name, size_of::<JpegParams>()).unwrap());
    let mut sums = [SimTotals::default(); JPEG_KERNELS.len()];
    let mut pixels = 0;
    for (group, files) in files.chunks(GROUP).enumerate() {
        let images: Vec<_> = (0..)
            .zip(files)
            .map(|(at, file)| {
                let window = file.window(crops, (GROUP * group) as u64 + at);
                pixels += window.size().pixels();
                let index = file.index.as_ref().filter(|_| indexed);
                let wanted = (window, 1);
                DeviceImage::new(&file.bytes, &file.header, &file.layout, wanted, index).unwrap()
            })
            .collect();
        let mut end = images.len() * size_of::<JpegParams>().next_multiple_of(256);
        let places: Vec<_> = images
            .iter()
            .map(|image| {
                let memory = end;
                let samples = (memory + image.memory().bytes).next_multiple_of(256);
                end = (samples + image.planes().bytes).next_multiple_of(256);
                (memory, samples)
            })
            .collect();
        let mut footprint = Footprint::default();
        footprint.add(Memory::Device, "all", end as u64, 1, "");
        footprint.add(Memory::Pinned, "all", end as u64, 1, "");
        let buffer = DevicePool::take(&device, &footprint)?.buffer("all", end)?;
        let host = PinnedPool::take(&device, &footprint)?.buffer("all", end)?;
        let mut staged = Staged::new(host, buffer)?;
        let address = staged.device().address();
        let bytes = staged.bytes()?;
        let mut written = Vec::new();
        written.push(0..images.len() * size_of::<JpegParams>());
        for (at, ((image, file), (memory, samples))) in
            images.iter().zip(files).zip(&places).enumerate()
        {
            let of = image.memory();
            let tables = of.tables();
            let end = memory + tables.end;
            let params = image.write(
                &mut bytes[*memory..end],
                |offset| address + (memory + offset) as u64,
                address + *samples as u64,
            );
            let data = &file.bytes[image.data()];
            bytes[end..][..data.len()].copy_from_slice(data);
            let len = data.len().next_multiple_of(16);
            written.push(*memory..end + len);
            let size = size_of::<JpegParams>();
            bytes[at * size..][..size].copy_from_slice(params.bytes());
        }
        for range in written {
            staged.upload(&stream, range)?;
        }
        for ((kernel, spec), sum) in kernels.iter().zip(JPEG_KERNELS).zip(&mut sums) {
            let blocks = images.iter().map(|it| spec.blocks(it)).max().unwrap_or(0);
            if blocks == 0 {
                continue;
            }
            let before = machine.totals();
            let shape = Shape {
                grid: (blocks, 1, images.len() as u32),
                block: (spec.threads, 1),
                shared_bytes: 0,
            };
            let count = images.len() as u32;
            kernel.launch_shape(&stream, staged.device(), 0, count, Size::new(1, 1), shape)?;
            stream.synchronize()?;
            assert_eq!(machine.counts().faults(), 0);
            add(sum, &before, &machine.totals());
        }
        for (image, (memory, _)) in images.iter().zip(&places) {
            let at = memory + image.memory().problem;
            let mut problem = [0; 4];
            read_back(&stream, staged.device(), at, &mut problem)?;
            let problem = DeviceProblem::of(u32::from_ne_bytes(problem));
            assert_eq!(problem, None);
        }
    }
    let each = |it: u64| it as f64 / files.len() as f64;
    println!("{name}: {:.0} pixels of a window on average\n", each(pixels));
    println!(
        "| kernel | issue cycles | lanes | divergent branches | bank conflicts | sectors loaded | sectors stored |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut all = 0.0;
    for (kernel, sum) in JPEG_KERNELS.iter().zip(&sums) {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let cycles = each(sum.instructions) / 4.0;
        all += cycles;
        println!(
            "| {} | {cycles:.0} | {:.0} % | {:.0} % | {:.0} % | {:.0} | {:.0} |",
            kernel.name,
            share(sum.lanes, 32 * sum.instructions),
            share(sum.divergent_branches, sum.branches),
            share(sum.shared_wavefronts - sum.ideal_wavefronts, sum.ideal_wavefronts),
            each(sum.sectors_loaded),
            each(sum.sectors_stored),
        );
    }
    println!(
        "| all | {all:.0} | | | | | |\n\n{:.2} % of an H100 at {RATE} images/s\n",
        100.0 * all * RATE / CYCLES
    );
    Ok(())
}

fn add(sum: &mut SimTotals, before: &SimTotals, after: &SimTotals) {
    sum.instructions += after.instructions - before.instructions;
    sum.lanes += after.lanes - before.lanes;
    sum.branches += after.branches - before.branches;
    sum.divergent_branches += after.divergent_branches - before.divergent_branches;
    sum.shared_wavefronts += after.shared_wavefronts - before.shared_wavefronts;
    sum.ideal_wavefronts += after.ideal_wavefronts - before.ideal_wavefronts;
    sum.sectors_loaded += after.sectors_loaded - before.sectors_loaded;
    sum.sectors_stored += after.sectors_stored - before.sectors_stored;
}

/// Prints the registers, stack and spills of each kernel.
fn machine_code() -> feedwater::Result<()> {
    let machine = in_process();
    println!("| kernel | architecture | registers | stack | spill stores | spill loads |");
    println!("|---|---|---|---|---|---|");
    for architecture in [75, 80, 89, 90, 100] {
        machine.restart();
        machine.architecture(architecture, true);
        let cache = std::env::temp_dir().join(format!("feedwater-code-{}", std::process::id()));
        let device = Device::open_with(0, &runtime().with_cache_directory(&cache))?;
        compile(&device, &jpeg_kernels_text())?;
        for (kernel, [registers, stack, stores, loads]) in facts(&machine.compiler_log()) {
            println!(
                "| {kernel} | sm_{architecture} | {registers} | {stack} B | {stores} B | {loads} B |"
            );
        }
        let _ = std::fs::remove_dir_all(cache);
    }
    Ok(())
}
