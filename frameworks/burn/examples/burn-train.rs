//! Trains a small network on feedwater's synthetic images, and checks its accuracy on other images.
//!
//! In `frameworks/`: `cargo run -p feedwater-burn --example burn-train`

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use common::{ACCURACY, BATCH, CLASSES, LEARNING_RATE, SEED, SIDE};
use feedwater_burn::{images, labels};

/// Three convolutions that halve the sides, and a linear layer.
#[derive(Module, Debug)]
struct Network {
    convolutions: Vec<Conv2d>,
    linear: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        let convolution = |channels| {
            let config = Conv2dConfig::new(channels, [3, 3]).with_stride([2, 2]);
            config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        let convolutions = [[3, 16], [16, 32], [32, 32]].map(convolution).into();
        let linear = LinearConfig::new(32 * (SIDE / 8) * (SIDE / 8), CLASSES).init(device);
        Self { convolutions, linear }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features =
            self.convolutions.iter().fold(images, |images, layer| relu(layer.forward(images)));
        self.linear.forward(features.flatten(1, 3))
    }
}

fn main() -> Result<(), feedwater::MainError> {
    let device = Device::flex().autodiff();
    device.seed(SEED);
    let mut network = Network::new(&device);
    let mut optimizer = AdamWConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    let mut loader = common::training_images()?;
    for epoch in 0..common::EPOCHS {
        let mut total = 0.0;
        for batch in loader.epoch() {
            let batch = batch?;
            let labels = labels(&batch, &device);
            let loss = loss.forward(network.forward(images(batch, &device)?), labels);
            total += loss.clone().into_scalar::<f64>();
            let gradients = GradientsParams::from_grads(loss.backward(), &network);
            network = optimizer.step(LEARNING_RATE, network, gradients);
        }
        println!("epoch {epoch}: loss {:.4}", total / loader.batches_per_epoch() as f64);
    }

    // Evaluate without autodiff. With autodiff, the graph of a forward pass would keep its batches
    // until a backward pass, which an evaluation does not have.
    let (network, device) = (network.valid(), device.without_autodiff());
    let (mut right, mut seen) = (0, 0);
    for batch in &mut common::held_out_images()? {
        let batch = batch?;
        let (labels, count) = (labels(&batch, &device), batch.len());
        let classes = network.forward(images(batch, &device)?).argmax(1).reshape([count]);
        right += classes.equal(labels).int().sum().into_scalar::<i64>();
        seen += count;
    }
    let accuracy = right as f64 / seen as f64;
    println!(
        "burn: accuracy {accuracy:.3} of {seen} images that it has not seen, batches of {BATCH}"
    );
    assert!(accuracy >= ACCURACY, "the accuracy is below {ACCURACY}");
    Ok(())
}
