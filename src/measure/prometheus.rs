//! Metrics in Prometheus's text format, version 0.0.4.
//!
//! * Names begin with `feedwater_`; units are seconds, bytes and ratios from 0 to 1; counters end
//!   in `_total`.
//! * A family (all values of one metric) is written once, with `# HELP` and `# TYPE` before its
//!   values. Label values are escaped.
//! * Histograms have cumulative buckets at fixed bounds from 10 microseconds to 10 seconds, so
//!   series of several runs and ranks can be added. The underlying counts have finer buckets. If a
//!   bound lies inside a finer bucket, all durations of that bucket count as its middle.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Counts, Snapshot, Stage, StageCounts};

/// Upper bounds of the buckets: as a number in seconds, and as text.
const BOUNDS: [(f64, &str); 13] = [
    (1e-5, "1e-05"),
    (3e-5, "3e-05"),
    (1e-4, "0.0001"),
    (3e-4, "0.0003"),
    (1e-3, "0.001"),
    (3e-3, "0.003"),
    (1e-2, "0.01"),
    (3e-2, "0.03"),
    (0.1, "0.1"),
    (0.3, "0.3"),
    (1.0, "1"),
    (3.0, "3"),
    (10.0, "10"),
];

/// Metrics as text, family by family.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    text: String,
}

/// Name and value of each label of an exported value.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// Creates an empty exposition.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text of the metrics. It ends with a line feed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds a family of counters, with one exported value per element of `values`. `name` must end
    /// in `_total`. Does nothing if `values` is empty.
    pub fn counters(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        self.family(name, "counter", help, label, values);
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Adds a family of gauges, with one exported value per element of `values`. Does nothing if
    /// `values` is empty.
    pub fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        self.family(name, "gauge", help, label, values);
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Adds a family of histograms of seconds. Each histogram has a label value, counts, and the
    /// sum in seconds.
    pub fn histograms(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, &Counts, f64)],
    ) {
        if values.is_empty() {
            return;
        }
        self.head(name, "histogram", help);
        for (value, counts, sum) in values {
            let labels: Labels<'_> = &[(label, value)];
            self.histogram_samples(name, if label.is_empty() { &[] } else { labels }, counts, *sum);
        }
    }

    /// Adds all metrics of a loader's meters. `slots` is the size of the ring.
    pub fn add_snapshot(&mut self, measured: &Snapshot, slots: u64) {
        self.add_stages(measured);
        self.add_processors(measured);
        self.add_consumer(measured);
        let ring = &measured.ring;
        self.counter(
            "feedwater_batches_made_total",
            "Batches that became ready.",
            ring.published as f64,
        );
        self.gauge("feedwater_ring_slots", "Slots of the ring of batches.", slots as f64);
        let ready = measured.ready as f64;
        self.gauge("feedwater_ring_ready_batches", "Batches that are ready.", ready);
        let filling = measured.filling as f64;
        self.gauge("feedwater_ring_filling_batches", "Batches that are being filled.", filling);
        let made = ring.made as f64 * 1e-9;
        self.histograms(
            "feedwater_batch_making_seconds",
            "Time from the start of a batch until it is ready.",
            "",
            &[("", &ring.making, made)],
        );
    }

    fn add_stages(&mut self, measured: &Snapshot) {
        let stages = Stage::ALL.map(|stage| (stage.name(), measured.stage(stage)));
        let met = stages.iter().filter(|(_, it)| it.count > 0 || it.input + it.output > 0);
        let met: Vec<_> = met.collect();
        let of = |value: fn(&StageCounts) -> f64| -> Vec<(&str, f64)> {
            met.iter().map(|(name, counts)| (*name, value(counts))).collect()
        };
        let seconds = "Seconds that threads were busy in a stage.";
        self.counters(
            "feedwater_stage_seconds_total",
            seconds,
            "stage",
            &of(|it| it.busy as f64 * 1e-9),
        );
        let items = "Samples that went through a stage, or groups for threads that work on groups.";
        self.counters("feedwater_stage_items_total", items, "stage", &of(|it| it.count as f64));
        let bytes = "Bytes that went into a stage.";
        self.counters("feedwater_stage_bytes_total", bytes, "stage", &of(|it| it.bytes as f64));
        let name = "feedwater_stage_wait_seconds_total";
        self.head(name, "counter", "Seconds that threads waited, for input or for room.");
        for (stage, counts) in &met {
            for (direction, waited) in [("input", counts.input), ("room", counts.output)] {
                let labels = [("stage", *stage), ("direction", direction)];
                self.sample(name, &labels, waited as f64 * 1e-9);
            }
        }
        let latency: Vec<_> =
            met.iter().map(|(name, it)| (*name, &it.latency, it.busy as f64 * 1e-9)).collect();
        let help = "Time of an item in a stage.";
        self.histograms("feedwater_stage_latency_seconds", help, "stage", &latency);
    }

    /// Adds sums of processor use. Skips values that the system does not report. The causes of
    /// waits are not exported: they are computed from differences of sums, so they are not
    /// counters.
    fn add_processors(&mut self, measured: &Snapshot) {
        let machine = &measured.machine;
        let threads: Vec<_> = measured.threads.iter().flatten().collect();
        if !threads.is_empty() {
            let waited: u64 = threads.iter().map(|it| it.waited).sum();
            let ran: u64 = threads.iter().map(|it| it.ran).sum();
            let help = "Seconds that the loader's threads waited for a processor.";
            let name = "feedwater_processor_wait_seconds_total";
            self.counter(name, help, waited as f64 * 1e-9);
            let help = "CPU seconds of the loader's threads.";
            self.counter("feedwater_processor_seconds_total", help, ran as f64 * 1e-9);
        }
        let help = "Busy seconds of the processors that this process may use, for all programs.";
        let sums = [
            ("feedwater_machine_busy_seconds_total", help, machine.busy),
            (
                "feedwater_machine_stolen_seconds_total",
                "Seconds of these processors that the hypervisor used for other machines.",
                machine.stolen,
            ),
            (
                "feedwater_quota_throttled_seconds_total",
                "Processor seconds withheld because the container's CPU quota was exhausted.",
                machine.throttled,
            ),
        ];
        for (name, help, seconds) in sums {
            if let Some(seconds) = seconds {
                self.counter(name, help, seconds.max(0.0));
            }
        }
        if let Some(quota) = machine.quota {
            let help = "Number of processors that the container's CPU quota allows.";
            self.gauge("feedwater_quota_processors", help, quota);
        }
    }

    fn add_consumer(&mut self, measured: &Snapshot) {
        let steps = &measured.steps;
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        let help = "Seconds since the loader was built.";
        self.counter("feedwater_running_seconds_total", help, measured.seconds);
        let help = "Batches that the consumer received.";
        self.counter("feedwater_batches_total", help, steps.batches as f64);
        let help = "Batches that were ready when the consumer asked.";
        self.counter("feedwater_ready_batches_total", help, steps.ready as f64);
        let help =
            "Share of batches that were ready when the consumer asked, since the loader was built.";
        let readiness =
            if steps.batches > 0 { steps.ready as f64 / steps.batches as f64 } else { 0.0 };
        self.gauge("feedwater_readiness_ratio", help, readiness);
        let help = "Time that the consumer waited for a batch.";
        let wait = [("", &steps.wait, seconds(steps.waited))];
        self.histograms("feedwater_consumer_wait_seconds", help, "", &wait);
        let help = "Duration of a step of the consumer.";
        let step = [("", &steps.step, seconds(steps.stepped))];
        self.histograms("feedwater_consumer_step_seconds", help, "", &step);
        let spans: &BTreeMap<_, _> = &steps.spans;
        let spans: Vec<_> =
            spans.iter().map(|(name, &(_, took))| (name.as_str(), seconds(took))).collect();
        let help = "Seconds in named parts of the consumer's steps.";
        self.counters("feedwater_consumer_part_seconds_total", help, "part", &spans);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        if values.is_empty() {
            return;
        }
        self.head(name, kind, help);
        for (value, number) in values {
            self.sample(name, &[(label, value)], *number);
        }
    }

    fn histogram_samples(&mut self, name: &str, labels: Labels<'_>, counts: &Counts, sum: f64) {
        let below = counts.below(&BOUNDS.map(|(bound, _)| bound));
        let count = counts.count();
        let written = BOUNDS.iter().map(|(_, text)| *text).zip(below);
        for (bound, below) in written.chain([("+Inf", count)]) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            self.sample(&format!("{name}_bucket"), &labels, below as f64);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count as f64);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.push(format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", escaped(help, false)));
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)))
            .collect();
        match labels.is_empty() {
            true => self.push(format_args!("{name} {value}\n")),
            false => self.push(format_args!("{name}{{{}}} {value}\n", labels.join(","))),
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.text.write_fmt(text);
    }
}

/// Escapes backslashes and line feeds, and quotes in label values, as the format requires.
fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Histogram;

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_all() {
        let histogram = Histogram::default();
        for nanoseconds in [5_000, 20_000, 2_000_000, 2_000_000, 400_000_000, 60_000_000_000] {
            histogram.add(nanoseconds);
        }
        let mut out = Exposition::new();
        out.histograms("a_seconds", "b", "", &[("", &histogram.counts(), 60.4)]);
        let at =
            |line: &str| assert!(out.text().lines().any(|it| it == line), "{line}\n{}", out.text());
        at("# TYPE a_seconds histogram");
        at("a_seconds_bucket{le=\"1e-05\"} 1");
        at("a_seconds_bucket{le=\"3e-05\"} 2");
        at("a_seconds_bucket{le=\"0.001\"} 2");
        at("a_seconds_bucket{le=\"0.003\"} 4");
        at("a_seconds_bucket{le=\"1\"} 5");
        at("a_seconds_bucket{le=\"10\"} 5");
        at("a_seconds_bucket{le=\"+Inf\"} 6");
        at("a_seconds_sum 60.4");
        at("a_seconds_count 6");
    }

    #[test]
    fn labels_and_help_are_escaped() {
        let mut out = Exposition::new();
        out.gauges("a", "b\\c\n\"d\"", "e", &[("f\\g\n\"h\"", 1.5)]);
        out.counters("excluded_total", "", "e", &[]);
        let expected = "# HELP a b\\\\c\\n\"d\"\n# TYPE a gauge\na{e=\"f\\\\g\\n\\\"h\\\"\"} 1.5\n";
        assert_eq!(out.text(), expected);
    }
}
