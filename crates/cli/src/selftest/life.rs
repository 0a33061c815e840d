//! Checks of the lifetimes of loaders and batches: epochs left early, held or leaked batches, and
//! two loaders at once.

use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Flip, Placement, RandomResizedCrop};
use feedwater::source::Memory;

use super::decode::BOUND;
use super::difference::{Bound, Difference};
use super::gpu::Gpu;
use super::{Check, Found, epoch, loaders, message};

type Built = Result<LoaderBuilder, String>;

/// Returns the checks of lifetimes on the CPU.
pub fn on_cpu() -> Vec<Check> {
    let exact = Bound { most: 0, mean: 0.0 };
    vec![
        Check::new("loader/ring", shut_down(loaders::builder)),
        Check::new("loader/held-batch", held(loaders::builder)),
        Check::new("loader/leaked-batch", leaked(loaders::builder)),
        Check::new("loader/two-at-once", two_at_once(pixels_on_cpu, exact)),
    ]
}

/// Returns the checks of lifetimes on the GPU. The checks in which all bytes must be equal decode
/// on the CPU.
pub fn on_gpu(gpu: &Gpu) -> Vec<Check> {
    let decoded_on_cpu =
        || Ok::<_, String>(gpu.builder()?.configure(|it| it.decode.placement = Placement::Cpu));
    vec![
        Check::new("gpu/ring", shut_down(|| gpu.builder())),
        Check::new("gpu/held-batch", held(decoded_on_cpu)),
        Check::new("gpu/leaked-batch", leaked(decoded_on_cpu)),
        Check::new("gpu/two-at-once", two_at_once(|seed| Ok(gpu.on(pixels(seed)?)), BOUND)),
    ]
}

/// Drops loaders in the middle of an epoch: after epochs that were left early, and while the
/// consumer holds as many batches as it can.
fn shut_down(builder: impl Fn() -> Built) -> Found {
    const ROUNDS: usize = 20;
    for round in 0..ROUNDS {
        let prefetch = 1 + round % 3;
        let loader = builder()?.num_workers(1 + round % 4).prefetch(prefetch);
        let mut loader = loader.build().map_err(message)?;
        for taken in [round % 5, 1 + round % 3] {
            let mut held = Vec::new();
            for batch in loader.into_iter().take(taken) {
                let batch = batch.map_err(message)?;
                held.push(batch);
                if held.len() > prefetch {
                    held.remove(0);
                }
            }
        }
    }
    Ok(format!("{ROUNDS} loaders were dropped in the middle of an epoch and shut down"))
}

/// Checks that batches keep their pixels after their loader was dropped, also on another thread.
fn held(builder: impl Fn() -> Built) -> Found {
    let expected = epoch(builder()?)?.data;
    let mut loader = builder()?.prefetch(2).build().map_err(message)?;
    let held: Vec<_> = loader.into_iter().take(3).collect::<Result<_, _>>().map_err(message)?;
    drop(loader);
    let read = move || {
        let all = held.iter().map(|batch| batch.to_host()).collect::<Result<Vec<_>, _>>();
        all.map(|all| all.concat())
    };
    let reader = std::thread::Builder::new().spawn(read).map_err(no_thread)?;
    let read = reader.join().map_err(|_| "the reader panicked".to_string())?;
    match expected.starts_with(&read.map_err(message)?) {
        true => Ok("3 batches outlive their loader".into()),
        false => Err("a batch changes when its loader is dropped".into()),
    }
}

fn no_thread(error: std::io::Error) -> String {
    format!("cannot start a thread: {error}")
}

/// Checks that the other slots stay usable after a batch was leaked.
fn leaked(builder: impl Fn() -> Built) -> Found {
    let expected = epoch(builder()?)?.data;
    let mut loader = builder()?.prefetch(2).epochs(Some(1)).build().map_err(message)?;
    let mut seen = Vec::new();
    for (number, batch) in loader.into_iter().enumerate() {
        let batch = batch.map_err(message)?;
        seen.extend(batch.to_host().map_err(message)?);
        if number == 1 {
            std::mem::forget(batch);
        }
    }
    match seen == expected {
        true => Ok("after a batch was leaked, the epoch continues with the remaining slots".into()),
        false => Err("after a batch was leaked, the batches that follow have wrong pixels".into()),
    }
}

/// Runs two loaders at the same time. The result of each loader must match the CPU's result with
/// the same seed.
fn two_at_once(builder: impl Fn(u64) -> Built, bound: Bound) -> Found {
    const EPOCHS: u32 = 3;
    let run = |builder: LoaderBuilder| -> Result<Vec<u8>, String> {
        let mut loader = builder.epochs(Some(EPOCHS)).build().map_err(message)?;
        let mut data = Vec::new();
        for _ in 0..EPOCHS {
            for batch in &mut loader {
                data.extend(batch.map_err(message)?.to_host().map_err(message)?);
            }
        }
        Ok(data)
    };
    let expected = [run(pixels_on_cpu(1)?)?, run(pixels_on_cpu(2)?)?];
    let builders = [builder(1)?, builder(2)?];
    let actual = std::thread::scope(|scope| {
        let start = |builder| std::thread::Builder::new().spawn_scoped(scope, || run(builder));
        builders.map(start).map(|thread| {
            let joined = thread.map_err(no_thread)?.join();
            joined.unwrap_or_else(|_| Err("a loader's consumer panicked".into()))
        })
    });
    let mut all = Difference::default();
    for (expected, actual) in expected.iter().zip(actual) {
        let actual = actual?;
        if actual.len() != expected.len() {
            return Err(format!("{} bytes instead of {}", actual.len(), expected.len()));
        }
        all.add(Difference::between(expected, &actual));
    }
    Ok(format!("{EPOCHS} epochs of each: {}", all.within(bound)?))
}

fn pixels_on_cpu(seed: u64) -> Built {
    Ok(pixels(seed)?.device(DeviceChoice::Cpu))
}

/// Creates a loader whose tensors have bytes, because its chain has no `normalize`.
fn pixels(seed: u64) -> Built {
    let source = Memory::new(loaders::samples()?).map_err(message)?;
    let chain = Chain::new()
        .then(RandomResizedCrop::to(48, 40))
        .then(Flip { horizontal: 0.5, ..Flip::default() });
    let builder = LoaderBuilder::new(std::sync::Arc::new(source), chain);
    let builder = builder.shard(0, 1).configure(|it| it.loader.tune = false);
    Ok(builder
        .batch_size(8)
        .num_workers(2)
        .shuffle(true)
        .seed(seed)
        .output(DType::U8, Layout::Nhwc))
}
