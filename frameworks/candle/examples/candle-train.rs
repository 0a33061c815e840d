//! Trains a small network on feedwater's synthetic images, and checks its accuracy on other images.
//!
//! In `frameworks/`: `cargo run -p feedwater-candle --example candle-train`

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, loss};
use common::{ACCURACY, BATCH, CLASSES, LEARNING_RATE, SEED, SIDE};
use feedwater_candle::{images, labels};

/// Three convolutions that halve the sides, and a linear layer.
struct Network {
    convolutions: [Conv2d; 3],
    linear: Linear,
}

impl Network {
    /// Creates the network with seeded weights, because candle has no seed for the CPU.
    fn new(variables: &VarMap, device: &Device) -> Result<Self> {
        let builder = VarBuilder::from_varmap(variables, DType::F32, device);
        let halving = Conv2dConfig { stride: 2, padding: 1, ..Default::default() };
        let convolution = |name, inputs, outputs| {
            candle_nn::conv2d(inputs, outputs, 3, halving, builder.pp(name))
        };
        let convolutions = [
            convolution("first", 3, 16)?,
            convolution("second", 16, 32)?,
            convolution("third", 32, 32)?,
        ];
        let features = 32 * (SIDE / 8) * (SIDE / 8);
        let linear = candle_nn::linear(features, CLASSES, builder.pp("linear"))?;
        seed(variables)?;
        Ok(Self { convolutions, linear })
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let mut features = images.clone();
        for layer in &self.convolutions {
            features = layer.forward(&features)?.relu()?;
        }
        self.linear.forward(&features.flatten_from(1)?)
    }
}

/// Draws all weights uniformly from +-sqrt(3 / inputs of a neuron), in the order of their names.
fn seed(variables: &VarMap) -> Result<()> {
    let variables = variables.data().lock().expect("no other thread has them");
    let mut names: Vec<_> = variables.keys().collect();
    names.sort();
    for (number, name) in names.into_iter().enumerate() {
        let variable = &variables[name];
        let mut state = SEED.wrapping_add(number as u64 + 1);
        let inputs = variable.elem_count() / variable.dim(0)?;
        let bound = (3.0 / inputs as f32).sqrt();
        let values = (0..variable.elem_count()).map(|_| bound * (2.0 * uniform(&mut state) - 1.0));
        let values: Vec<f32> = values.map(|value| if inputs == 1 { 0.0 } else { value }).collect();
        variable.set(&Tensor::from_vec(values, variable.shape(), variable.device())?)?;
    }
    Ok(())
}

/// Returns the next number from 0 to 1 of SplitMix64 (Steele, Lea, Flood 2014).
fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 24) as f32
}

fn main() -> std::result::Result<(), feedwater::MainError> {
    let device = Device::Cpu;
    let variables = VarMap::new();
    let network = Network::new(&variables, &device)?;
    let mut optimizer = AdamW::new_lr(variables.all_vars(), LEARNING_RATE)?;
    let mut loader = common::training_images()?;
    for epoch in 0..common::EPOCHS {
        let mut total = 0.0;
        for batch in loader.epoch() {
            let batch = batch?;
            let labels = labels(&batch, &device)?;
            let loss = loss::cross_entropy(&network.forward(&images(batch, &device)?)?, &labels)?;
            optimizer.backward_step(&loss)?;
            total += f64::from(loss.to_scalar::<f32>()?);
        }
        println!("epoch {epoch}: loss {:.4}", total / loader.batches_per_epoch() as f64);
    }

    let (mut right, mut seen) = (0, 0);
    for batch in &mut common::held_out_images()? {
        let batch = batch?;
        let (labels, count) = (batch.labels().to_vec(), batch.len());
        let classes = network.forward(&images(batch, &device)?)?.argmax(1)?.to_vec1::<u32>()?;
        right +=
            classes.iter().zip(labels).filter(|&(&class, label)| i64::from(class) == label).count();
        seen += count;
    }
    let accuracy = right as f64 / seen as f64;
    println!(
        "candle: accuracy {accuracy:.3} of {seen} images that it has not seen, batches of {BATCH}"
    );
    assert!(accuracy >= ACCURACY, "the accuracy is below {ACCURACY}");
    Ok(())
}
