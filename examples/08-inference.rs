//! Preprocesses images on several threads with one preprocessor, and prints the throughput and the
//! rejected images.
//!
//! `cargo run --release --example 08-inference -- DIRECTORY [THREADS]`

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use feedwater::Preprocessor;
use feedwater::op::{CenterCrop, Chain, Normalize, Resize};

fn main() -> Result<(), feedwater::MainError> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().ok_or("name a directory of images")?;
    let threads: usize = args.next().map_or(Ok(4), |text| text.parse())?;
    // Reads images from files. A server would receive their bytes in requests.
    let mut paths = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();

    let chain = Chain::new()
        .then(Resize::shorter(256))
        .then(CenterCrop::to(224, 224))
        .then(Normalize::IMAGENET);
    let preprocessor = Preprocessor::builder(chain)
        .configure(|settings| settings.limits.max_file_bytes = 8 << 20)
        .build()?;
    println!("{} files, each to {}", paths.len(), preprocessor.shape());

    let (next, served) = (AtomicUsize::new(0), AtomicU64::new(0));
    let refused = Mutex::new(BTreeMap::new());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // One tensor per thread, reused for every image.
                let mut tensor = vec![0f32; preprocessor.shape().sample_len()];
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Ok(bytes) = std::fs::read(path) else { continue };
                    match preprocessor.run_into(&bytes, bytemuck::cast_slice_mut(&mut tensor)) {
                        Ok(()) => {
                            // Run the model here.
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            let mut refused = refused.lock().expect("no thread panics");
                            *refused.entry(error.reason.name()).or_insert(0) += 1;
                        }
                    }
                }
            });
        }
    });
    let (served, seconds) = (served.into_inner(), begin.elapsed().as_secs_f64());
    println!("{served} images in {seconds:.2} s: {:.0} images/s", served as f64 / seconds);
    println!("refused, by reason: {:?}", refused.into_inner()?);
    Ok(())
}
