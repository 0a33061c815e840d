//! Report that `run` and `demo` print at their end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use feedwater::internals::footprint::{bytes, counted};
use feedwater::internals::loader::{PrefetcherReport, RouteReport};
use feedwater::internals::measure::{Profile, Stage, Waits};
use feedwater::internals::plan::{DevicePick, Shard, Shuffle};
use feedwater::internals::source::exclusion_lines;
use feedwater::internals::tune::{Choice, Decision};
use feedwater::loader::{CacheStats, Loader, StageSeconds};
use feedwater::source::Exclusion;
use feedwater::storage::StorageStats;
use feedwater_insight::explain::Spent;
use serde::Serialize;

use super::interrupt::{self, Signal};

/// What a loader has done, and the resources that it used.
#[derive(Serialize)]
pub struct Report {
    /// Signal that ended the run early, such as `SIGINT`. In this case, all other fields cover the
    /// work until the signal.
    pub interrupted: Option<&'static str>,
    /// Number of samples delivered, without padding.
    pub images: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Number of samples of this shard that were not delivered because they did not fill the last
    /// batch of an epoch (`loader.last_batch = "drop"`).
    pub left_over: u64,
    /// Number of samples in a batch.
    #[serde(skip)]
    batch: usize,
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// `images / seconds`.
    pub images_per_second: f64,
    /// Kind of device on which batches are made: `cpu` or `gpu`.
    pub device: &'static str,
    /// Device on which batches are made, and why it was chosen.
    pub device_reason: String,
    /// Number of the GPU and why it was chosen. `null` for the CPU.
    pub runs_on: DevicePick,
    /// Shard of the data set that was read, and the setting that selected it.
    pub shard: Shard,
    /// Order of the samples within an epoch.
    pub order: Shuffle,
    /// Configuration at the end: the number of workers, of prefetched batches, and of operators on
    /// the device.
    pub choice: Choice,
    /// Decisions of autotuning in order, with their reasons. Empty if nothing was tuned.
    pub decisions: Vec<Decision>,
    /// How many remote samples are prefetched, with the reasons for these numbers. `null` if
    /// nothing is prefetched.
    pub read_ahead: Option<PrefetcherReport>,
    /// Number of samples by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Number of unusable samples by reason.
    pub errors: BTreeMap<&'static str, u64>,
    /// Files and records that the source skipped, with the reasons.
    pub excluded: Vec<Exclusion>,
    /// Number of damaged samples that were accepted because `decode.strict = false`, by kind of
    /// damage.
    pub tolerated: BTreeMap<&'static str, u64>,
    /// Number of samples whose gray values of 16 bits were clipped to 255.
    pub clipped: u64,
    /// Number of JPEGs decoded on the CPU, by decoder. JPEGs that libjpeg-turbo decoded are counted
    /// by the reason why feedwater's own decoder was not used.
    pub jpeg: BTreeMap<&'static str, u64>,
    /// Number of samples that were processed only on the CPU although the plan uses the device, by
    /// reason.
    pub cpu_fallback: BTreeMap<&'static str, u64>,
    /// Number of images and throughput of each decode route. Empty if nothing is decoded for a
    /// device.
    pub routes: Vec<RouteReport>,
    /// Fill level and hits of each cache. Empty if there are no caches.
    pub caches: Vec<CacheStats>,
    /// Seconds that threads were busy or waiting in each stage, summed over all threads.
    pub stages: StageSeconds,
    /// Breakdown of the workers' time into shares of the total.
    pub spent: Spent,
    /// Breakdown of the threads' time as text. The time that threads waited for a processor is
    /// shown separately and is not part of the stages.
    #[serde(skip)]
    threads: String,
    /// Counts of all storage requests of the process.
    pub storage: StorageStats,
    /// Host memory of the plan in bytes, including pinned memory.
    pub host_bytes_predicted: u64,
    /// Peak resident host memory of the process in bytes, including pages of files.
    pub peak_rss_bytes: u64,
    /// Resident pages of files at the end, in bytes: mapped files (`storage.map`), and the program
    /// itself. The peak includes them, but the plan does not. The system may reclaim them at any
    /// time.
    pub file_rss_bytes: u64,
    /// Whether the peak without pages of files exceeds the prediction by more than 2 %. If it does,
    /// the cause is a bug in feedwater, or memory that other code in the process uses.
    pub host_bytes_exceeded: bool,
    /// Device memory of the plan, in bytes.
    pub device_bytes_predicted: u64,
    /// Peak device memory that the loader allocated, in bytes.
    pub device_bytes_peak: u64,
    /// Device memory that the driver and its libraries use, in bytes. The plan does not include it.
    pub device_bytes_of_driver: u64,
}

/// Prints known problems of the loaded libraries to standard error.
pub fn warn(loader: &Loader) {
    for warning in loader.warnings() {
        super::tell(format!("warning: {warning}"));
    }
}

impl Report {
    /// Creates a report on the loader's work until now.
    pub fn new(loader: &Loader) -> Self {
        let stats = loader.stats();
        let memory = stats.memory;
        let seconds = stats.seconds;
        let profile = loader.profile();
        let spent = Spent::of(&profile);
        let host_bytes_predicted = memory.host_bytes_predicted + memory.pinned_bytes_predicted;
        let [peak_rss_bytes, file_rss_bytes] =
            ["VmHWM", "RssFile"].map(|key| status_bytes(key).unwrap_or(0));
        Self {
            interrupted: interrupt::requested().map(Signal::name),
            images: stats.images,
            batches: stats.batches,
            left_over: stats.left_over,
            batch: loader.plan().settings.loader.batch_size,
            seconds,
            images_per_second: if seconds > 0.0 { stats.images as f64 / seconds } else { 0.0 },
            device: if loader.plan().uses_gpu() { "gpu" } else { "cpu" },
            device_reason: loader.device().to_string(),
            runs_on: loader.plan().runs_on.clone(),
            shard: loader.plan().shard,
            order: loader.plan().shuffle,
            choice: loader.choice(),
            decisions: loader.decisions(),
            read_ahead: loader.read_ahead(),
            outcomes: stats.outcomes,
            errors: stats.errors,
            excluded: stats.excluded,
            tolerated: stats.tolerated,
            clipped: stats.clipped,
            jpeg: stats.jpeg,
            cpu_fallback: stats.cpu_fallback,
            routes: stats.routes,
            caches: stats.caches,
            threads: threads(&stats.stages, &profile, &spent),
            stages: stats.stages,
            spent,
            storage: stats.storage,
            host_bytes_predicted,
            peak_rss_bytes,
            file_rss_bytes,
            host_bytes_exceeded: exceeds(peak_rss_bytes, file_rss_bytes, host_bytes_predicted),
            device_bytes_predicted: memory.device_bytes_predicted,
            device_bytes_peak: memory.device_bytes_peak,
            device_bytes_of_driver: memory.device_bytes_of_driver,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(signal) = self.interrupted {
            let batches = counted(self.batches, "batch");
            writeln!(f, "stopped   by {signal} after {batches}, before the end")?;
        }
        writeln!(f, "device    {}", self.device_reason)?;
        writeln!(f, "shard     {}", self.shard)?;
        if let Shuffle::Windows(windows) = self.order {
            writeln!(f, "order     {windows}")?;
        }
        for decision in &self.decisions {
            writeln!(f, "{:<9} {decision}", "auto")?;
        }
        if let Some(PrefetcherReport { window, most, decisions, .. }) = &self.read_ahead {
            for decision in decisions {
                writeln!(f, "{:<9} {decision}", "auto")?;
            }
            let window = counted(*window, "sample");
            writeln!(f, "{:<9} up to {window}; memory suffices for {most}", "prefetch")?;
        }
        let Self { images, seconds, images_per_second, .. } = self;
        writeln!(f, "images    {images} in {seconds:.2} s: {images_per_second:.0} images/s")?;
        if self.left_over > 0 {
            writeln!(
                f,
                "left over {} that did not fill a batch of {} at the end of an epoch; loader.last_batch = \"partial\" or \"pad\" \
                 delivers them",
                counted(self.left_over, "sample"),
                self.batch
            )?;
        }
        let StageSeconds { consumer_waiting, device_decode, device_kernel, device_waiting, .. } =
            self.stages;
        writeln!(f, "threads   {}", self.threads)?;
        if device_decode + device_kernel > 0.0 {
            let (decode, kernel) = (device_decode, device_kernel);
            writeln!(f, "streams   decode {decode:.3} s, kernel {kernel:.3} s (device time)")?;
        }
        write!(f, "consumer  waited {consumer_waiting:.2} s for batches")?;
        if device_waiting > 0.0 {
            write!(f, ", and the stream of the consumer waited {device_waiting:.3} s more")?;
        }
        writeln!(f)?;
        writeln!(f, "outcomes  {}", counts(&self.outcomes))?;
        if !self.routes.is_empty() {
            writeln!(f, "routes    {}", shares(&self.routes))?;
        }
        // Show a cache only after it was used in an epoch. The cache of row indexes exists by
        // default, but the first epoch does not use it.
        for cache in self.caches.iter().filter(|cache| !cache.epochs.is_empty()) {
            writeln!(f, "{:<9} {}", "cache", held(cache))?;
        }
        if self.storage != StorageStats::default() {
            let StorageStats { requests, retries, bytes: fetched, .. } = self.storage;
            let [requests, retries] = [counted(requests, "request"), counted(retries, "retry")];
            write!(f, "storage   {requests}, {retries}, {}", bytes(fetched))?;
            let StorageStats { cache_hits: hits, cache_misses: misses, cache_damaged, .. } =
                self.storage;
            if hits + misses > 0 {
                let [hits, misses] = [counted(hits, "hit"), counted(misses, "miss")];
                write!(f, "; disk cache: {hits}, {misses}, {cache_damaged} damaged")?;
            }
            writeln!(f)?;
        }
        if !self.cpu_fallback.is_empty() {
            writeln!(f, "fallback  {}", counts(&self.cpu_fallback))?;
        }
        if self.errors.values().any(|&count| count > 0) {
            writeln!(f, "errors    {}", counts(&self.errors))?;
        }
        for line in exclusion_lines(&self.excluded) {
            writeln!(f, "excluded  {line}")?;
        }
        if !self.jpeg.is_empty() {
            writeln!(f, "jpeg      {}", counts(&self.jpeg))?;
        }
        if self.clipped > 0 {
            writeln!(f, "clipped   {}", counted(self.clipped, "gray image of 16 bits"))?;
        }
        if !self.tolerated.is_empty() {
            writeln!(f, "tolerated {}", counts(&self.tolerated))?;
        }
        write!(
            f,
            "memory    host: peak {} of {} predicted (and {} of file pages); device: peak {} of {} predicted",
            bytes(self.peak_rss_bytes.saturating_sub(self.file_rss_bytes)),
            bytes(self.host_bytes_predicted),
            bytes(self.file_rss_bytes),
            bytes(self.device_bytes_peak),
            bytes(self.device_bytes_predicted),
        )?;
        match self.device_bytes_of_driver {
            0 => {}
            driver => write!(f, " (plus {} of the driver and its libraries)", bytes(driver))?,
        }
        if self.host_bytes_exceeded {
            let peak = self.peak_rss_bytes.saturating_sub(self.file_rss_bytes);
            let over = peak - self.host_bytes_predicted;
            write!(
                f,
                "\nexceeded  {} of host memory more than predicted: please report this with the output of feedwater plan",
                bytes(over)
            )?;
        }
        Ok(())
    }
}

/// Formats the breakdown of the threads' time. The time that threads waited for a processor is
/// subtracted from the stages and shown separately.
fn threads(stages: &StageSeconds, profile: &Profile, spent: &Spent) -> String {
    let StageSeconds { read, decode, transform, waiting_for_consumer, .. } = *stages;
    let own = |seconds: f64, of: &[Stage]| {
        let some = profile.stages.iter().filter(|it| of.contains(&it.stage));
        (seconds - some.filter_map(|it| it.waited_for_processor).sum::<f64>()).max(0.0)
    };
    let preparing = [Stage::Header, Stage::Decode, Stage::DeviceDecode, Stage::Upload];
    let waits = stages.waiting_for_processor;
    let seconds = |share: f64| share * f64::from(profile.setup.workers) * profile.seconds;
    let parts = [
        ("read", own(read, &[Stage::Read])),
        ("decode", own(decode, &preparing)),
        ("transform", own(transform, &[Stage::Transform])),
        ("waiting for the consumer", waiting_for_consumer),
        ("before they began", seconds(spent.starting)),
        ("after the last sample", seconds(spent.finished)),
        ("between the stages", seconds(spent.between)),
        ("waiting for a processor", waits.map_or(0.0, |it| it.seconds)),
    ];
    let all = parts.iter().map(|it| it.1).sum::<f64>().max(f64::MIN_POSITIVE);
    let percent = |seconds: f64| format!("{:.0} %", 100.0 * seconds / all);
    let shown = parts.iter().enumerate().filter(|(at, it)| *at < 4 || it.1 >= 0.005 * all);
    let shown =
        shown.map(|(_, (name, seconds))| format!("{name} {seconds:.2} s ({})", percent(*seconds)));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    match waits {
        None => text += "; the wait for a processor is unknown",
        Some(Waits { seconds, others, own, quota, stolen }) if seconds >= 0.005 * all => {
            let who = [
                ("other programs", others),
                ("the CPU quota", quota),
                ("the hypervisor", stolen),
                ("each other", own),
            ];
            let who = who.iter().filter(|it| it.1 >= 0.005 * all);
            let who: Vec<String> =
                who.map(|(who, seconds)| format!("{who} {}", percent(*seconds))).collect();
            if !who.is_empty() {
                text += &format!(": for {}", who.join(", "));
            }
        }
        Some(_) => {}
    }
    text
}

/// Whether resident memory without file pages exceeds the prediction by more than 2 %.
fn exceeds(peak: u64, of_files: u64, predicted: u64) -> bool {
    peak.saturating_sub(of_files) > predicted.saturating_add(predicted / 50)
}

/// Returns the value of a line of `/proc/self/status` in bytes, for a key such as `VmRSS` or
/// `VmHWM`. Returns `None` if the line is missing.
pub fn status_bytes(key: &str) -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, key)
}

/// User and system CPU time of this process in seconds, with a resolution of 0.01 s. `None` if the
/// system does not report it.
pub fn cpu_seconds() -> Option<f64> {
    clock_ticks(&fs::read_to_string("/proc/self/stat").ok()?)
        .map(|ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// Linux's `USER_HZ`, the unit of times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns user plus system time in clock ticks, from the text of `/proc/PID/stat`.
fn clock_ticks(text: &str) -> Option<u64> {
    // The program's name in parentheses may contain spaces, so count fields after the parenthesis.
    // User time is field 12, and system time is field 13.
    let (_, fields) = text.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(ticks.next()?.ok()? + ticks.next()?.ok()?)
}

/// Returns the value in bytes of the line that begins with this key, such as `VmHWM:     1234 kB`.
pub fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Formats the counts that are greater than 0, or "none".
fn counts(counts: &BTreeMap<&'static str, u64>) -> String {
    let some: Vec<_> = counts
        .iter()
        .filter(|&(_, &count)| count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if some.is_empty() { "none".into() } else { some.join(", ") }
}

/// Formats how full a cache is, and how many hits it had in the latest epochs.
fn held(cache: &CacheStats) -> String {
    const SHOWN: usize = 8;
    let CacheStats { cache, limit_bytes, taken_bytes, kept_bytes, samples, epochs, .. } = cache;
    let taken = match limit_bytes {
        // Fields are part of another cache.
        0 => bytes(*kept_bytes),
        limit => format!("{} of {} taken", bytes(*taken_bytes), bytes(*limit)),
    };
    let latest = &epochs[epochs.len().saturating_sub(SHOWN)..];
    let from = match latest.first().map_or(0, |it| it.epoch) {
        0 => String::new(),
        first => format!(", from epoch {} on", first + 1),
    };
    let hits = latest.iter().map(|it| format!("{} of {}", it.hits, it.hits + it.misses));
    let hits = hits.collect::<Vec<_>>().join(", ");
    let samples = counted(*samples, "sample");
    format!("{cache}: {samples}, {taken}; hits by epoch{from}: {hits}")
}

/// Formats the share of images and the utilization of each route that decoded images.
fn shares(routes: &[RouteReport]) -> String {
    let used = routes.iter().filter(|route| route.images > 0).map(|it| {
        let (share, busy) = (100.0 * it.share, 100.0 * it.busy);
        format!("{} {share:.0} % (busy {busy:.0} %)", it.route.name())
    });
    used.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_parsed_as_kibibytes() {
        let text = "VmPeak:\t  10 kB\nVmHWM:\t    1234 kB\n";
        assert_eq!(kibibytes(text, "VmHWM"), Some(1234 << 10));
        assert_eq!(kibibytes(text, "VmRSS"), None);
    }

    #[test]
    fn cpu_time_is_user_plus_system_time_for_any_program_name() {
        let text = "7 (a b) c) S 1 7 7 0 -1 4194560 900 0 0 0 12 30 500 600 20 0 4 0";
        assert_eq!(clock_ticks(text), Some(42));
        assert_eq!(clock_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_peak_exceeds_the_prediction_above_two_percent_without_file_pages() {
        assert!(!exceeds(1020, 0, 1000) && exceeds(1021, 0, 1000));
        assert!(!exceeds(5020, 4000, 1000) && exceeds(5021, 4000, 1000));
        assert!(!exceeds(10, 4000, 0));
    }

    #[test]
    fn zero_counts_are_omitted() {
        assert_eq!(
            counts(&BTreeMap::from([("cpu", 3), ("host", 0), ("skipped", 1)])),
            "cpu 3, skipped 1"
        );
        assert_eq!(counts(&BTreeMap::new()), "none");
    }
}
