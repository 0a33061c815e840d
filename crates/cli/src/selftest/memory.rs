//! Checks of memory: usage must match the plan, and must not grow.

use feedwater::footprint::Memory as Place;
use feedwater::internals::footprint::bytes;
use feedwater::loader::{Loader, MemoryStats};
use feedwater::op::Placement;

use super::gpu::Gpu;
use super::{Check, Found, loaders, message};
use crate::report::status_bytes;

/// Number of epochs during which memory must not grow.
const EPOCHS: u32 = 200;

/// Warm-up epochs after which memory must be stable.
const SETTLED: u32 = 20;

/// Resident memory may grow by this number of bytes, for the allocator and for the counters of each
/// epoch.
const HOST_SLACK: u64 = 16 << 20;

/// Free device memory may shrink by this number of bytes, because other processes use the device
/// too. A leak in every batch would exceed this value.
const DEVICE_SLACK: u64 = 64 << 20;

/// Returns the checks of memory on the CPU.
pub fn on_cpu() -> Vec<Check> {
    vec![
        Check::new("loader/footprint", resident()),
        Check::new("loader/200-epochs", many_epochs_on_cpu()),
    ]
}

/// Returns the checks of memory on the GPU.
pub fn on_gpu(gpu: &Gpu) -> Vec<Check> {
    vec![
        Check::new("gpu/footprint", taken(gpu)),
        Check::new("gpu/200-epochs", many_epochs_on_gpu(gpu)),
    ]
}

/// Compares the resident memory that a loader adds to the process with the loader's plan.
fn resident() -> Found {
    const SLACK: u64 = 32 << 20;
    let Some(before) = status_bytes("VmRSS") else {
        return Ok("resident memory cannot be read here; not compared".into());
    };
    let mut loader = loaders::builder()?.build().map_err(message)?;
    run_epochs(&mut loader, 3)?;
    let taken = status_bytes("VmRSS").unwrap_or(before).saturating_sub(before);
    let predicted = loader.footprint().total_bytes(Place::Host);
    let message = format!("{} predicted, {} more resident", bytes(predicted), bytes(taken));
    if taken <= predicted + SLACK { Ok(message) } else { Err(message) }
}

fn many_epochs_on_cpu() -> Found {
    let mut loader = loaders::builder()?.build().map_err(message)?;
    let grown = host_growth(&mut loader)?;
    Ok(format!("from epoch {SETTLED} to {EPOCHS}: {grown}"))
}

/// Compares the peak use of the memory pools with the plan.
fn taken(gpu: &Gpu) -> Found {
    // nvJPEG may leave a part of its planned memory unused. If nvJPEG is not used, all planned
    // memory must be used.
    let figures_of = |builder: feedwater::loader::LoaderBuilder| {
        let mut loader = builder.build().map_err(message)?;
        run_epochs(&mut loader, 2)?;
        Ok::<_, String>(figures(&loader.stats().memory))
    };
    for (name, predicted, peak) in
        figures_of(gpu.builder()?.configure(|it| it.decode.placement = Placement::Cpu))?
    {
        if peak != predicted || peak == 0 {
            return Err(format!(
                "{name} memory without nvJPEG: {predicted} bytes are predicted, but the peak is \
                 {peak} bytes"
            ));
        }
    }
    let figures = figures_of(gpu.builder()?)?;
    for (name, predicted, peak) in figures {
        if peak > predicted || peak == 0 {
            return Err(format!(
                "{name} memory with nvJPEG: {predicted} bytes are predicted, but the peak is \
                 {peak} bytes"
            ));
        }
    }
    let figures = figures.map(|(name, predicted, peak)| {
        format!(
            "{name} memory: {} are predicted and allocated, of which at most {} are used",
            bytes(predicted),
            bytes(peak)
        )
    });
    Ok(figures.join("; "))
}

/// Returns the predicted bytes and the used bytes of each kind of memory.
fn figures(memory: &MemoryStats) -> [(&'static str, u64, u64); 2] {
    [
        ("device", memory.device_bytes_predicted, memory.device_bytes_peak),
        ("pinned", memory.pinned_bytes_predicted, memory.pinned_bytes_peak),
    ]
}

/// Checks over many epochs that the memory pools, the used memory of the device and resident memory
/// do not grow.
fn many_epochs_on_gpu(gpu: &Gpu) -> Found {
    let device = &gpu.device;
    let mut loader = gpu.builder()?.build().map_err(message)?;
    run_epochs(&mut loader, SETTLED)?;
    let (first, (free, _)) = (loader.stats().memory, device.memory_bytes().map_err(message)?);
    let grown = host_growth(&mut loader)?;
    let (last, (free_at_end, _)) = (loader.stats().memory, device.memory_bytes().map_err(message)?);
    if last != first {
        return Err(format!("the memory of the pools changed from {first:?} to {last:?}"));
    }
    if free_at_end + DEVICE_SLACK < free {
        let gone = bytes(free - free_at_end);
        return Err(format!("{gone} of device memory were lost from epoch {SETTLED} to {EPOCHS}"));
    }
    Ok(format!(
        "the memory of the pools and of the device did not grow in {EPOCHS} epochs; {grown}"
    ))
}

/// Describes how much resident memory grew over many epochs. Fails if it grew too much.
fn host_growth(loader: &mut Loader) -> Found {
    run_epochs(loader, SETTLED)?;
    let before = status_bytes("VmRSS");
    run_epochs(loader, EPOCHS - SETTLED)?;
    let Some((before, after)) = before.zip(status_bytes("VmRSS")) else {
        return Ok("resident memory cannot be read here".into());
    };
    let grown = after.saturating_sub(before);
    match grown <= HOST_SLACK {
        true => Ok(format!("the resident memory of the host grew by {}", bytes(grown))),
        false => Err(format!(
            "the resident memory of the host grew by {}, which is too much",
            bytes(grown)
        )),
    }
}

fn run_epochs(loader: &mut Loader, count: u32) -> Result<(), String> {
    for _ in 0..count {
        for batch in &mut *loader {
            batch.map_err(message)?;
        }
    }
    Ok(())
}
