//! Trains a small network on feedwater's synthetic images, and checks its accuracy on other images.
//!
//! In `frameworks/tch/`, with libtorch 2.13: `cargo run --example tch-train`

use common::{ACCURACY, BATCH, CLASSES, LEARNING_RATE, SEED, SIDE};
use feedwater_tch::{images, labels};
use tch::nn::{self, ConvConfig, Module, OptimizerConfig};
use tch::{Device, Kind};

/// Three convolutions that halve the sides, and a linear layer.
fn network(variables: &nn::Path) -> nn::Sequential {
    let halving = ConvConfig { stride: 2, padding: 1, ..Default::default() };
    let convolution =
        |name, inputs, outputs| nn::conv2d(variables / name, inputs, outputs, 3, halving);
    let features = (32 * (SIDE / 8) * (SIDE / 8)) as i64;
    nn::seq()
        .add(convolution("first", 3, 16))
        .add_fn(|images| images.relu())
        .add(convolution("second", 16, 32))
        .add_fn(|images| images.relu())
        .add(convolution("third", 32, 32))
        .add_fn(|images| images.relu().flatten(1, -1))
        .add(nn::linear(variables / "linear", features, CLASSES as i64, Default::default()))
}

fn main() -> Result<(), feedwater::MainError> {
    tch::manual_seed(SEED as i64);
    // Uses a single thread, which adds values in a fixed order. So each run has the same result.
    tch::set_num_threads(1);
    let variables = nn::VarStore::new(Device::Cpu);
    let network = network(&variables.root());
    let mut optimizer = nn::AdamW::default().build(&variables, LEARNING_RATE)?;
    let mut loader = common::training_images()?;
    for epoch in 0..common::EPOCHS {
        let mut total = 0.0;
        for batch in loader.epoch() {
            let batch = batch?;
            let labels = labels(&batch);
            let loss = network.forward(&images(batch)?).cross_entropy_for_logits(&labels);
            optimizer.backward_step(&loss);
            total += loss.double_value(&[]);
        }
        println!("epoch {epoch}: loss {:.4}", total / loader.batches_per_epoch() as f64);
    }

    let (mut right, mut seen) = (0, 0);
    for batch in &mut common::held_out_images()? {
        let batch = batch?;
        let (labels, count) = (labels(&batch), batch.len());
        let classes = tch::no_grad(|| {
            Ok::<_, feedwater::Error>(network.forward(&images(batch)?).argmax(1, false))
        })?;
        right += classes.eq_tensor(&labels).sum(Kind::Int64).int64_value(&[]);
        seen += count;
    }
    let accuracy = right as f64 / seen as f64;
    println!(
        "tch: accuracy {accuracy:.3} of {seen} images that it has not seen, batches of {BATCH}"
    );
    assert!(accuracy >= ACCURACY, "the accuracy is below {ACCURACY}");
    Ok(())
}
