//! Measures how long a Rust loop takes to get and to free a batch that is ready, for comparison
//! with Python. `benches/peers/overhead.py` runs this program.
//!
//! `ready FOLDER BATCH SIDE PREFETCH EPOCHS PAUSE` prints four lines of times in microseconds: of
//! each `next` that follows another one at once, of each `next` after a pause of `PAUSE`
//! milliseconds, of the first `next` of each epoch, and of freeing each batch. The folder has
//! `BATCH * PREFETCH` images. As in Python, the loop waits in each epoch until all batches are
//! ready, takes all of them, and then frees them.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{Chain, Resize};
use feedwater::source::Directory;

fn main() -> feedwater::Result<()> {
    let values: Vec<String> = env::args().skip(1).filter(|it| it != "--bench").collect();
    let [folder, numbers @ ..] = &values[..] else {
        println!("skipped: overhead.py passes a folder and five numbers");
        return Ok(());
    };
    let number = |at: usize| numbers[at].parse::<usize>().expect("a number");
    let (batch, side, prefetch, epochs) = (number(0), number(1) as u32, number(2), number(3));
    let step = Duration::from_millis(number(4) as u64);
    let chain = Chain::new().then(Resize::to(side, side));
    let mut loader = Loader::builder(Directory::open(folder)?, chain)
        .batch_size(batch)
        .prefetch(prefetch)
        .output(DType::F16, Layout::Nchw)
        .device(DeviceChoice::Cpu)
        .build()?;

    let start = Instant::now();
    for made in &mut loader {
        made?;
    }
    let pause = Duration::from_millis(20) + 2 * start.elapsed();
    let (mut in_a_row, mut after_a_pause) = (Vec::new(), Vec::new());
    let (mut first, mut freed) = (Vec::new(), Vec::new());
    for at in 0..epochs {
        thread::sleep(pause);
        let mut held = Vec::new();
        let begin = Instant::now();
        let mut epoch = loader.epoch();
        held.extend(epoch.next().transpose()?);
        first.push(microseconds(begin));
        for _ in 1..prefetch {
            let times = if at % 2 == 0 {
                &mut in_a_row
            } else {
                thread::sleep(step);
                &mut after_a_pause
            };
            let begin = Instant::now();
            held.extend(epoch.next().transpose()?);
            times.push(microseconds(begin));
        }
        for made in held {
            let begin = Instant::now();
            drop(made);
            freed.push(microseconds(begin));
        }
    }
    for times in [in_a_row, after_a_pause, first, freed] {
        println!("{}", times.iter().map(|it| format!("{it:.2}")).collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
