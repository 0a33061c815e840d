//! `doctor`: reports the machine's hardware and libraries, which of them are missing, and how to
//! install them.

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use clap::Args;
use feedwater::gpu::Runtime;
use feedwater::internals::decode::JpegBy;
use feedwater::internals::footprint::{bytes, counted};
use feedwater::internals::gpu::{DeviceReport, LibraryReport};
use serde_json::{Value, json};

use super::report::kibibytes;
use super::{CommandError, print, print_json, print_lines, tell};

/// Shows this machine's hardware and libraries, what is missing and how to install it
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater doctor")]
pub struct Options {
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let probe = feedwater::internals::gpu::probe(&Runtime::default());
    let simd = feedwater::internals::decode::simd();
    let features = cpu_features();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (total, available) = (kibibytes(&meminfo, "MemTotal"), kibibytes(&meminfo, "MemAvailable"));
    if options.json {
        return print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": { "cores": cores, "features": features },
            "memory": { "total_bytes": total, "available_bytes": available },
            "libjpeg": { "simd": simd },
            "driver": library_json(&probe.driver),
            "devices": probe.devices.iter().map(device_json).collect::<Vec<_>>(),
            "nvjpeg": library_json(&probe.nvjpeg),
            "nvrtc": library_json(&probe.nvrtc),
            "nvml": library_json(&probe.nvml),
        }));
    }
    print(format!("feedwater {}", env!("CARGO_PKG_VERSION")))?;
    print(format!("cpu       {}; {}", counted(cores, "core"), features.join(" ")))?;
    let size = |count: Option<u64>| count.map_or("unknown".into(), bytes);
    print(format!("memory    {}, {} available", size(total), size(available)))?;
    print(format!("libjpeg   {}", libjpeg(simd)))?;
    print_lines(format!("driver    {}", library_text(&probe.driver)))?;
    for device in &probe.devices {
        print(format!("gpu       {}", device_text(device)))?;
    }
    print_lines(format!("nvjpeg    {}", library_text(&probe.nvjpeg)))?;
    print_lines(format!("nvrtc     {}", library_text(&probe.nvrtc)))?;
    print_lines(format!("nvml      {}", library_text(&probe.nvml)))?;
    let usable = probe.devices.iter().any(Result::is_ok);
    print(match (usable, &probe.nvrtc, &probe.nvjpeg) {
        (false, _, _) => "verdict   everything runs on the CPU: no usable GPU",
        (true, Err(_), _) => {
            "verdict   everything runs on the CPU: NVRTC, which compiles the kernels, is missing"
        }
        (true, Ok(_), Err(_)) => {
            "verdict   operators run on the GPU, decoding on the CPU: nvJPEG is missing"
        }
        (true, Ok(_), Ok(_)) => "verdict   decoding and operators run on the GPU",
    })
}

/// Prints a warning on standard error if libjpeg-turbo decoded some of these JPEGs (counted by
/// decoder) without SIMD code. Building SIMD code for libjpeg-turbo needs an assembler. feedwater's
/// own decoder needs none.
pub fn warn_without_simd(jpegs: &BTreeMap<&'static str, u64>) {
    if let Some(warning) = simd_warning(feedwater::internals::decode::simd(), jpegs) {
        tell(format!("warning: {warning}"));
    }
}

/// How to rebuild libjpeg-turbo with SIMD code. The command differs by build profile, because
/// `cargo clean` removes the files of only one profile.
const BUILD_AGAIN: &str = if cfg!(debug_assertions) {
    "install nasm, run cargo clean -p mozjpeg-sys, and build again"
} else {
    "install nasm, run cargo clean --release -p mozjpeg-sys, and build again"
};

fn simd_warning(simd: bool, jpegs: &BTreeMap<&'static str, u64>) -> Option<String> {
    let all: u64 = jpegs.values().sum();
    let own = jpegs.get(JpegBy::Feedwater.name()).copied().unwrap_or(0);
    (!simd && own < all).then(|| {
        format!(
            "libjpeg-turbo decoded {} of {} without SIMD code, which is slower; to change that, \
             {BUILD_AGAIN}",
            all - own,
            counted(all, "JPEG")
        )
    })
}

fn libjpeg(simd: bool) -> String {
    match simd {
        true => "with SIMD".into(),
        false => format!(
            "without SIMD: slower for the JPEGs that feedwater's own decoder does not decode (feedwater probe counts \
             them); to change that, {BUILD_AGAIN}"
        ),
    }
}

fn library_text(found: &Result<LibraryReport, String>) -> String {
    match found {
        Ok(LibraryReport { path, version, warnings }) => {
            let warnings = warnings.iter().map(|text| format!("\n          warning: {text}"));
            format!("{version} ({path}){}", warnings.collect::<String>())
        }
        Err(why) => why.clone(),
    }
}

fn library_json(found: &Result<LibraryReport, String>) -> Value {
    match found {
        Ok(LibraryReport { path, version, warnings }) => {
            json!({ "found": true, "path": path, "version": version, "warnings": warnings })
        }
        Err(why) => json!({ "found": false, "missing": why }),
    }
}

/// Describes a GPU in one line. Returns the reason if the GPU cannot be used.
pub fn device_text(device: &Result<DeviceReport, String>) -> String {
    match device {
        Ok(DeviceReport { ordinal, name, capability: (major, minor), free_bytes, total_bytes }) => {
            let (free, total) = (bytes(*free_bytes), bytes(*total_bytes));
            format!("{ordinal}: {name}, compute capability {major}.{minor}, {free} of {total} free")
        }
        Err(why) => why.clone(),
    }
}

fn device_json(device: &Result<DeviceReport, String>) -> Value {
    match device {
        Ok(DeviceReport { ordinal, name, capability: (major, minor), free_bytes, total_bytes }) => {
            json!({
                "usable": true,
                "ordinal": ordinal,
                "name": name,
                "capability": format!("{major}.{minor}"),
                "free_bytes": free_bytes,
                "total_bytes": total_bytes,
            })
        }
        Err(why) => json!({ "usable": false, "problem": why }),
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    [
        ("sse2", is_x86_feature_detected!("sse2")),
        ("ssse3", is_x86_feature_detected!("ssse3")),
        ("sse4.1", is_x86_feature_detected!("sse4.1")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
    ]
    .into_iter()
    .filter_map(|(name, there)| there.then_some(name))
    .collect()
}

#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<&'static str> {
    if std::arch::is_aarch64_feature_detected!("neon") { vec!["neon"] } else { Vec::new() }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_simd_is_a_warning_only_where_libjpeg_decodes() {
        let own = JpegBy::Feedwater.name();
        let jpegs = BTreeMap::from([(own, 7), (JpegBy::Libjpeg.name(), 3)]);
        assert_eq!(simd_warning(true, &jpegs), None);
        assert_eq!(simd_warning(false, &BTreeMap::from([(own, 7)])), None);
        assert_eq!(simd_warning(false, &BTreeMap::new()), None);
        let warning = simd_warning(false, &jpegs).unwrap();
        assert!(warning.contains(" 3 of 10 JPEGs"), "{warning}");
        for text in [warning, libjpeg(false)] {
            assert!(text.ends_with(BUILD_AGAIN) && BUILD_AGAIN.contains("nasm"), "{text}");
        }
        // Without `--release`, cargo would not clean a release build.
        assert_eq!(BUILD_AGAIN.contains("--release"), !cfg!(debug_assertions));
    }
}
