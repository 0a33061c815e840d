//! Compares views, which share one decoded image, with one loader per view.
//!
//! ```text
//! cargo bench --bench views -- [--images 512] [--rounds 5] [--threads 2]
//! ```
//!
//! The views are those of DINO: two crops of 224 pixels and eight crops of 96 pixels of each image,
//! flipped and normalized, and once more with DINO's changes of colours. Each round runs one epoch
//! with ten views, and ten epochs with one of these views each, in turn. The images are those of
//! `FEEDWATER_PHOTOS` (docs/benchmarks.md). Without this variable, they are synthetic images like
//! ImageNet's.

mod common;

use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use common::photos;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, View};
use feedwater::plan::LastBatch;
use feedwater::{Pipeline, Source};

#[derive(Parser)]
struct Arguments {
    /// Number of synthetic images. Has no effect if `FEEDWATER_PHOTOS` names photographs.
    #[arg(long, default_value_t = 512)]
    images: u64,
    /// Number of rounds. The medians are compared.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Ignored. `cargo bench` passes this flag.
    #[arg(long, hide = true)]
    bench: bool,
}

/// DINO's changes of colours (Caron et al., "Emerging properties in self-supervised vision
/// transformers", ICCV 2021), with the probabilities of its small crops.
const COLOURS: &str = r#"
    [[chain]]
    op = "random_apply"
    probability = 0.8
    [[chain.operators]]
    op = "color_jitter"
    brightness = 0.4
    contrast = 0.4
    saturation = 0.2
    hue = 0.1
    [[chain]]
    op = "random_grayscale"
    probability = 0.2
    [[chain]]
    op = "random_apply"
    probability = 0.5
    [[chain.operators]]
    op = "gaussian_blur"
    kernel_size = 9
    sigma = [0.1, 2.0]
"#;

fn main() {
    let arguments = Arguments::parse();
    let set = photos::one_set(arguments.images);
    println!("{}", set.composition());
    println!("{}, {} threads; seconds per round\n", common::cpu(), arguments.threads);
    println!("{:<16}{:>10}{:>14}{:>10}", "views", "together", "one by one", "ratio");
    let set: Arc<dyn Source> = Arc::new(set.source("views"));
    let source = || set.clone();
    for (name, colours) in [("crops", ""), ("crops, colours", COLOURS)] {
        let (large, small) =
            (|| chain(224, (0.4, 1.0), colours), || chain(96, (0.05, 0.4), colours));
        let together = || {
            Chain::new()
                .view(View::new("large", large()).count(2))
                .view(View::new("small", small()).count(8))
        };
        let mut seconds = [Vec::new(), Vec::new()];
        for round in 0..=arguments.rounds {
            let all = epoch(source(), together(), arguments.threads);
            let mut single = 0.0;
            for _ in 0..2 {
                single += epoch(source(), large(), arguments.threads);
            }
            for _ in 0..8 {
                single += epoch(source(), small(), arguments.threads);
            }
            // The first round fills the page cache.
            if round > 0 {
                seconds[0].push(all);
                seconds[1].push(single);
            }
        }
        let [together, single] = seconds.each_ref().map(|it| common::median(it));
        println!("{name:<16}{together:>10.3}{single:>14.3}{:>10.3}", together / single);
    }
}

fn chain(side: u32, (least, most): (f64, f64), colours: &str) -> Chain {
    let text = format!(
        r#"
        [source]
        directory = "unused"
        [[chain]]
        op = "random_resized_crop"
        width = {side}
        height = {side}
        scale = [{least}, {most}]
        filter = "bicubic"
        [[chain]]
        op = "flip"
        horizontal = 0.5
        {colours}
        [[chain]]
        op = "normalize"
        mean = [0.485, 0.456, 0.406]
        std = [0.229, 0.224, 0.225]
        "#
    );
    Pipeline::from_toml(&text, "").expect("the chain is valid").chain
}

/// Seconds of an epoch.
fn epoch(source: Arc<dyn Source>, chain: Chain, threads: usize) -> f64 {
    let builder = LoaderBuilder::new(source, chain).num_workers(threads);
    let builder = builder.device(DeviceChoice::Cpu).epochs(Some(1)).configure(|settings| {
        settings.loader.last_batch = LastBatch::Partial;
        settings.loader.shuffle = true;
        settings.cache.row_index = Some(0);
    });
    let mut loader = builder.build().expect("the set is valid");
    let begin = Instant::now();
    for batch in loader.epoch() {
        batch.expect("the set is valid");
    }
    begin.elapsed().as_secs_f64()
}
