//! Artificially slow sources, and loaders that read them.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use feedwater::error::DataError;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{self, Chain};
use feedwater::plan::{LastBatch, Settings};
use feedwater::source::custom::Page;
use feedwater::source::{Memory, Source};

use super::common;

/// Settings of a loader that differ between the cases.
#[derive(Clone, Debug)]
pub struct Setting {
    pub batch: usize,
    pub workers: usize,
    pub prefetch: usize,
    pub encoded: Option<u64>,
    pub decoded: Option<u64>,
}

impl Setting {
    pub fn new(batch: usize, workers: usize, prefetch: usize) -> Self {
        Self { batch, workers, prefetch, encoded: None, decoded: None }
    }

    /// Returns the settings with the change that a report proposes, such as `loader.num_workers =
    /// 4`.
    pub fn turn(&self, setting: &str) -> Self {
        let mut turned = self.clone();
        let (key, value) = setting.split_once(" = ").expect("a setting is a key and a value");
        let number = || value.parse::<usize>().expect("a number");
        let bytes = || {
            let text = value.trim_matches('"').strip_suffix(" MiB").expect("mebibytes");
            text.parse::<u64>().expect("a number") << 20
        };
        match key {
            "loader.batch_size" => turned.batch = number(),
            "loader.num_workers" => turned.workers = number(),
            "loader.prefetch" => turned.prefetch = number(),
            "cache.encoded" => turned.encoded = Some(bytes()),
            "cache.decoded" => turned.decoded = Some(bytes()),
            key => panic!("no case changes {key}"),
        }
        turned
    }

    /// Whether the loader has a cache. A cache makes the first epochs slower than later ones.
    pub fn caches(&self) -> bool {
        self.encoded.is_some() || self.decoded.is_some()
    }
}

/// The images of a case, their source, and the chain of operators.
pub struct World {
    pub images: u64,
    pub size: (u32, u32),
    pub side: u32,
    pub disk: Disk,
}

/// Timing of a source's reads.
#[derive(Clone)]
pub enum Disk {
    /// No delay.
    Memory,
    /// Time of each read, by the index of its sample. Concurrent reads do not slow each other down.
    Latency(fn(u64) -> Duration),
    /// Number of channels, and the time of each read. A channel serves one read at a time. As on a
    /// real disk, the next waiting read starts when a channel becomes free, not when the read's
    /// thread wakes up.
    Channels(usize, Duration),
    /// Time of each read, and the factor by which reads of the first worker take longer.
    Straggler(Duration, u32),
}

impl World {
    pub fn source(&self) -> impl Source + use<> {
        let files = common::images(16, self.size);
        let read = |file| fs::read(file).expect("the set is complete");
        let images: Vec<Vec<u8>> = files.iter().map(read).collect();
        let samples = (0..self.images).map(|index| (images[(index % 16) as usize].clone(), 0));
        let memory = Memory::new(samples.collect()).expect("there is at least one sample");
        let channels = match self.disk {
            Disk::Channels(channels, _) => vec![Instant::now(); channels],
            _ => Vec::new(),
        };
        Slow { memory, disk: self.disk.clone(), free_at: Mutex::new(channels) }
    }

    pub fn loader(&self, setting: &Setting) -> Loader {
        let chain =
            Chain::new().then(op::Resize::to(self.side, self.side)).then(op::Normalize::IMAGENET);
        let mut settings = Settings::default();
        settings.loader.batch_size = setting.batch;
        settings.loader.num_workers = setting.workers.into();
        settings.loader.prefetch = setting.prefetch.into();
        settings.loader.last_batch = LastBatch::Drop;
        settings.loader.shuffle = true;
        settings.cache.encoded = setting.encoded;
        settings.cache.decoded = setting.decoded;
        let builder = LoaderBuilder::new(Arc::new(self.source()), chain).settings(settings);
        builder.device(DeviceChoice::Cpu).build().expect("the settings are valid")
    }
}

struct Slow {
    memory: Memory,
    disk: Disk,
    /// For each channel, the time at which it will have served all requests so far.
    free_at: Mutex<Vec<Instant>>,
}

impl Source for Slow {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn label(&self, index: u64) -> i64 {
        self.memory.label(index)
    }

    fn location(&self, index: u64) -> String {
        self.memory.location(index)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        match self.disk {
            Disk::Memory => {}
            Disk::Latency(time) => thread::sleep(time(index)),
            Disk::Channels(_, time) => {
                let mut free_at = self.free_at.lock().expect("no reader panics");
                let first = free_at.iter_mut().min().expect("there is at least one channel");
                let served = (*first).max(Instant::now()) + time;
                *first = served;
                drop(free_at);
                thread::sleep(served.saturating_duration_since(Instant::now()));
            }
            Disk::Straggler(time, times) => {
                let slow = thread::current().name() == Some("feedwater-0");
                thread::sleep(if slow { times * time } else { time });
            }
        }
        self.memory.read(index, page, limit)
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&self.memory)
    }
}
