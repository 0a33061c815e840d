//! Compares the time of single operators and of whole recipes with Python libraries (the peers), on
//! the same pixels, with one thread each.
//!
//! `benches/peers/operators.py` runs the peers in its own process and prints their times. feedwater
//! and the peers alternate in every round. If Python or all of the peers are missing, the
//! comparison is skipped.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use feedwater::internals::config::Pipeline;
use feedwater::internals::decode::{Decoders, Rows};
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::HostTransform;
use feedwater::op::Chain;
use feedwater::op::custom::Trace;
use feedwater_tools::synth::census::Census;

use crate::common;

const IMAGES: u64 = 32;

/// Image sizes of the jobs: the first for operators that keep the size, the second for operators
/// that resize and for recipes.
const SIZES: [Size; 2] = [Size::new(224, 224), Size::new(500, 375)];

/// Jobs of single operators. Each has its name, the index of its image size in [`SIZES`], and the
/// operator's settings. `operators.py` defines jobs with the same names for each peer.
const OPERATORS: [(&str, usize, &str); 27] = [
    ("brightness", 0, "op = 'brightness'\nfactor = 1.3"),
    ("contrast", 0, "op = 'contrast'\nfactor = 1.3"),
    ("saturation", 0, "op = 'saturation'\nfactor = 1.3"),
    ("hue", 0, "op = 'hue'\nshift = 0.1"),
    (
        "color_jitter",
        0,
        "op = 'color_jitter'\nbrightness = 0.4\ncontrast = 0.4\nsaturation = 0.4\nhue = 0.1",
    ),
    ("grayscale", 0, "op = 'grayscale'"),
    ("gamma", 0, "op = 'gamma'\ngamma = 1.4"),
    ("posterize", 0, "op = 'posterize'\nbits = 4"),
    ("solarize", 0, "op = 'solarize'\nthreshold = 128.0"),
    ("invert", 0, "op = 'invert'"),
    ("autocontrast", 0, "op = 'autocontrast'"),
    ("equalize", 0, "op = 'equalize'"),
    ("sharpness", 0, "op = 'sharpness'\nfactor = 1.7"),
    ("gaussian_blur", 0, "op = 'gaussian_blur'\nkernel_size = 9\nsigma = 1.5"),
    ("gaussian_noise", 0, "op = 'gaussian_noise'\nsigma = 0.1"),
    ("jpeg_distortion", 0, "op = 'jpeg_distortion'\nquality = [50, 50]"),
    ("random_erasing", 0, "op = 'random_erasing'\nprobability = 1.0"),
    ("flip", 0, "op = 'flip'\nhorizontal = 1.0"),
    ("pad", 0, "op = 'pad'\npadding = [16, 16, 16, 16]\nmode = 'reflect'"),
    ("rotate", 0, "op = 'rotate'\nangle = 20.0\ninterpolation = 'bilinear'"),
    (
        "affine",
        0,
        "op = 'affine'\nangle = 10.0\ntranslate = [8, 4]\nscale = 1.1\nshear = [5.0, 0.0]\ninterpolation = 'nearest'",
    ),
    (
        "perspective",
        0,
        "op = 'perspective'\nstart = [[0, 0], [223, 0], [223, 223], [0, 223]]\n\
         end = [[20, 10], [210, 16], [200, 220], [8, 190]]\ninterpolation = 'bilinear'",
    ),
    ("elastic", 0, "op = 'elastic'\nalpha = 50.0\nsigma = 5.0"),
    ("resize", 1, "op = 'resize'\nwidth = 224\nheight = 224"),
    ("resize_bicubic", 1, "op = 'resize'\nwidth = 224\nheight = 224\nfilter = 'bicubic'"),
    ("random_resized_crop", 1, "op = 'random_resized_crop'\nwidth = 224\nheight = 224"),
    ("normalize", 0, "op = 'normalize'\nmean = [0.485, 0.456, 0.406]\nstd = [0.229, 0.224, 0.225]"),
];

/// Recipes in `examples/recipes`, measured without their batch operators.
const RECIPES: [&str; 4] = ["torchvision-resnet", "deit-iii", "clip", "yolo-detection"];

/// Returns the text that the name of a job must contain for the job to run. Returns an empty text
/// if all jobs run.
fn only() -> String {
    std::env::var("FEEDWATER_BENCH_ONLY").unwrap_or_default()
}

/// Prints the comparison as a table and as a line of JSON.
pub fn compare() {
    if std::env::args().any(|argument| argument == "device=gpu") {
        return;
    }
    let images = SIZES.map(photos);
    let mut peers = match Peers::start(&images) {
        Ok(peers) => peers,
        Err(reason) => return eprintln!("operators next to peers are skipped: {reason}"),
    };
    let operators = OPERATORS.iter().map(|&(name, size, text)| {
        let text = format!("[source]\ndirectory = 'data'\n[[chain]]\n{text}\n");
        Job::new(name, Pipeline::from_toml(&text, ".").expect("the settings are valid").chain, size)
    });
    let recipes = RECIPES.map(|name| {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/recipes/{name}.toml"));
        let text = fs::read_to_string(file).expect("the recipe exists");
        Job::recipe(name, Pipeline::from_toml(&text, ".").expect("the recipe is valid").chain)
    });
    let only = only();
    let rounds =
        std::env::var("FEEDWATER_BENCH_ROUNDS").map_or(9, |it| it.parse().expect("a number"));
    let jobs = operators.chain(recipes).filter(|job| job.name.contains(&only));
    println!(
        "microseconds per image, median of {rounds} rounds; the ratio is that of a round's fastest peer to feedwater"
    );
    println!("{:22}{:>12}  peers", "", "feedwater");
    for mut job in jobs {
        let images = &images[job.size];
        job.run(images);
        let names = peers.of(&job.name);
        let mut all: Vec<Vec<f64>> = Vec::new();
        for round in 0..rounds {
            let mut times = vec![0.0; 1 + names.len()];
            for turn in 0..times.len() {
                let at = (turn + round) % times.len();
                times[at] = match at.checked_sub(1) {
                    None => job.run(images),
                    Some(peer) => peers.run(&names[peer], &job.name),
                };
            }
            all.push(times);
        }
        report(&job.name, &names, &all);
    }
}

fn report(job: &str, names: &[String], rounds: &[Vec<f64>]) {
    let median =
        |of: &dyn Fn(&Vec<f64>) -> f64| common::median(&rounds.iter().map(of).collect::<Vec<_>>());
    let ours = 1e6 * median(&|times| times[0]);
    let ratio =
        median(&|times| times[1..].iter().copied().fold(f64::INFINITY, f64::min) / times[0]);
    let peers: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (name, 1e6 * median(&|times| times[1 + at])))
        .collect();
    let shown: Vec<_> = peers.iter().map(|(name, time)| format!("{name} {time:.0}")).collect();
    println!("{job:22}{ours:12.0}  {}  ratio {ratio:.2}", shown.join(", "));
    let json: Vec<_> = peers.iter().map(|(name, time)| format!("\"{name}\":{time:.1}")).collect();
    println!(
        "{{\"bench\":\"operators_and_peers\",\"job\":\"{job}\",\"feedwater_us\":{ours:.1},\"peers_us\":{{{}}},\"ratio\":{ratio:.3}}}",
        json.join(",")
    );
}

/// Returns decoded images of this size: corners of the first photographs of `FEEDWATER_PHOTOS` that
/// are large enough, or else synthetic images.
fn photos(size: Size) -> Vec<HostImage> {
    let own: Vec<_> = common::photos::own_photos().into_iter().flat_map(|set| set.files).collect();
    let is_large = |file: &&PathBuf| {
        let bytes = fs::read(file).expect("the file was read before");
        Header::parse(&bytes)
            .is_ok_and(|it| it.size.width >= size.width && it.size.height >= size.height)
    };
    let large: Vec<PathBuf> = own.iter().filter(is_large).cloned().collect();
    let files: Vec<PathBuf> = match large.is_empty() {
        true => common::images(IMAGES, (size.width, size.height)),
        false => large.into_iter().cycle().take(IMAGES as usize).collect(),
    };
    if !own.is_empty() {
        let census = Census::of_files(&files).expect("the files can be read");
        println!("{size} of {} files\n{census}", files.len());
    }
    let mut decoder = Decoders::new();
    let mut decode = |file: &PathBuf| {
        let bytes = fs::read(file).expect("the set is complete");
        let header = Header::parse(&bytes).expect("the set is made of JPEGs");
        let mut image = Image::new(size.window());
        let sink = &mut |rows: Rows<'_>| {
            for (y, row) in rows.iter() {
                image.row_mut(y).copy_from_slice(row);
            }
        };
        decoder.decode(&bytes, &header, size.window(), 1, sink).expect("the images are intact");
        HostImage::U8(image)
    };
    files.iter().map(&mut decode).collect()
}

/// An operator or a recipe that feedwater runs for the comparison.
struct Job {
    name: String,
    chain: Chain,
    size: usize,
    transform: HostTransform,
    actions: Actions,
    trace: Trace,
    /// The tensor of a sample, if the job ends with a tensor.
    tensor: Option<Vec<u8>>,
    epoch: u32,
}

impl Job {
    fn new(name: &str, chain: Chain, size: usize) -> Self {
        let shape = TensorShape {
            batch: 1,
            width: 1,
            height: 1,
            dtype: DType::F32,
            layout: Layout::Nchw,
            channels: 3,
        };
        Self {
            name: name.into(),
            chain,
            size,
            transform: HostTransform::of_shape(shape),
            actions: Actions::default(),
            trace: Trace::new(SIZES[size]),
            tensor: None,
            epoch: 0,
        }
    }

    /// Creates a job that ends with a tensor of 32-bit floats, like the jobs of the peers.
    fn recipe(name: &str, chain: Chain) -> Self {
        let mut job = Self::new(name, chain, 1);
        let Size { width, height } = job.draw(0, SIZES[1]);
        let shape = TensorShape {
            batch: 1,
            width,
            height,
            dtype: DType::F32,
            layout: Layout::Nchw,
            channels: 3,
        };
        job.transform = HostTransform::of_shape(shape);
        job.tensor = Some(vec![0; shape.sample_bytes()]);
        job
    }

    fn draw(&mut self, index: u64, size: Size) -> Size {
        let operators = self.chain.steps().iter().map(|step| &*step.operator);
        let key = SampleKey { seed: 1, epoch: self.epoch, index };
        let output = self.actions.draw(operators, key, size, &mut self.trace);
        self.actions.demand(output.window());
        output
    }

    /// Returns the seconds per image, from the random choices to the stored result. Makes passes
    /// over the images for 30 ms, at least two, and returns the time of the fastest pass. After the
    /// first pass, the images are in the processor's cache, as they are after decoding.
    fn run(&mut self, images: &[HostImage]) -> f64 {
        let begin = Instant::now();
        let mut best = self.pass(images);
        loop {
            best = best.min(self.pass(images));
            if begin.elapsed() > Duration::from_millis(30) {
                return best;
            }
        }
    }

    fn pass(&mut self, images: &[HostImage]) -> f64 {
        self.epoch += 1;
        let begin = Instant::now();
        for (index, image) in images.iter().enumerate() {
            self.draw(index as u64, SIZES[self.size]);
            let operators = 0..self.chain.steps().len();
            let out = self.tensor.as_deref_mut();
            let done = self.transform.run_image(&self.actions, operators, black_box(image), out);
            done.expect("the image is valid");
        }
        begin.elapsed().as_secs_f64() / images.len() as f64
    }
}

/// The process that runs the peers.
struct Peers {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Name of each peer, with the names of its jobs.
    jobs: Vec<(String, Vec<String>)>,
}

impl Peers {
    /// Starts the process with the Python interpreter that `FEEDWATER_PYTHON` names. Without this
    /// variable, starts it with `python3`.
    fn start(images: &[Vec<HostImage>; 2]) -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let mut arguments = Vec::new();
        for (images, size) in images.iter().zip(SIZES) {
            let file = folder.join(format!("operators-{size}.rgb"));
            let bytes: Vec<u8> =
                images.iter().flat_map(|image| bytes(image).data()).copied().collect();
            fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))?;
            arguments.push(format!("{}:{size}", file.display()));
        }
        let python = std::env::var("FEEDWATER_PYTHON").unwrap_or_else(|_| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/operators.py");
        let mut process = Command::new(&python)
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{python}: {error}"))?;
        let requests = process.stdin.take().expect("it is piped");
        let mut answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut jobs = Vec::new();
        loop {
            let line = line(&mut answers)?;
            let mut words = line.split('\t').map(String::from);
            match words.next().filter(|name| !name.is_empty()) {
                Some(name) => jobs.push((name, words.collect())),
                None => break,
            }
        }
        if jobs.is_empty() {
            return Err(format!(
                "{python} has no peer; benches/peers/README.md describes how to install them"
            ));
        }
        Ok(Self { process, requests, answers, jobs })
    }

    /// Returns the names of the peers that have a job.
    fn of(&self, job: &str) -> Vec<String> {
        let has = self.jobs.iter().filter(|(_, jobs)| jobs.iter().any(|it| it == job));
        has.map(|(name, _)| name.clone()).collect()
    }

    /// Lets a peer run a job. Returns the seconds per image.
    fn run(&mut self, peer: &str, job: &str) -> f64 {
        writeln!(self.requests, "{peer}\t{job}").expect("the process runs");
        line(&mut self.answers).expect("the process answers").parse().expect("a number of seconds")
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Ignores errors, because the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn line(from: &mut BufReader<ChildStdout>) -> Result<String, String> {
    let mut line = String::new();
    match from.read_line(&mut line) {
        Ok(0) => Err("the process has exited".into()),
        Ok(_) => Ok(line.trim_end_matches('\n').into()),
        Err(error) => Err(error.to_string()),
    }
}

fn bytes(image: &HostImage) -> &Image<u8> {
    match image {
        HostImage::U8(image) => image,
        HostImage::F32(_) => unreachable!("decoders output bytes"),
    }
}
