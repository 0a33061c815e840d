//! Classifies feedwater's synthetic images with ONNX Runtime.
//!
//! The classifier divides an image into 4x4 fields, and compares their mean colours with those of
//! each class. The program fits the classifier to the training images, writes it as an ONNX model,
//! and lets ONNX Runtime run the model on other images. It compares every score with its own
//! computation.
//!
//! In `frameworks/`: `ORT_DYLIB_PATH=.../libonnxruntime.so cargo run -p feedwater-ort --example
//! ort-inference`

use std::error::Error;

use common::{ACCURACY, CLASSES, SIDE};
use feedwater_ort::images;
use ort::session::Session;

mod model;

/// Number of fields per side of an image.
const FIELDS: usize = 4;
/// Number of features of an image: the mean of each channel in each field.
const FEATURES: usize = 3 * FIELDS * FIELDS;

fn main() -> Result<(), Box<dyn Error>> {
    let classifier = Classifier::fit()?;
    let side = (SIDE / FIELDS) as i64;
    let model = model::pool_and_score(side, SIDE as i64, &classifier.weights, &classifier.biases);
    let environment = ort::init().build()?;
    let mut session = Session::builder(&environment)?.commit_from_memory(&model)?;

    let (mut right, mut seen, mut difference) = (0, 0, 0f32);
    for batch in &mut common::held_out_images()? {
        let batch = batch?;
        let outputs = session.run(ort::inputs!["images" => images::<f32>(&batch)?])?;
        let (shape, scores) = outputs["scores"].try_extract_tensor::<f32>()?;
        assert_eq!(shape[..], [batch.len() as i64, CLASSES as i64]);
        let values = batch.as_f32().ok_or("a batch of f32 on the CPU")?;
        let each = values.chunks_exact(3 * SIDE * SIDE).zip(scores.chunks_exact(CLASSES));
        for ((image, scores), &label) in each.zip(batch.labels()) {
            let expected = classifier.scores(&features(image));
            for (score, expected) in scores.iter().zip(expected) {
                difference = difference.max((score - expected).abs());
            }
            let best = (0..CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            right += usize::from(best == usize::try_from(label).ok());
            seen += 1;
        }
    }
    let accuracy = right as f64 / seen as f64;
    println!(
        "ort: accuracy {accuracy:.3} of {seen} images that it has not seen, scores differ by at most {difference:e}"
    );
    assert!(difference < 1e-3, "ONNX Runtime has other scores");
    assert!(accuracy >= ACCURACY, "the accuracy is below {ACCURACY}");
    Ok(())
}

/// A classifier that finds the nearest class mean. For an image with the features x, the score of
/// class c is m * x - m * m / 2, where m is the mean of the features of the training images of
/// class c.
struct Classifier {
    /// `[FEATURES, CLASSES]`
    weights: Vec<f32>,
    biases: Vec<f32>,
}

impl Classifier {
    fn fit() -> feedwater::Result<Self> {
        let mut sums = vec![[0f32; FEATURES]; CLASSES];
        let mut counts = [0f32; CLASSES];
        for batch in common::training_images()?.epoch() {
            let batch = batch?;
            let images = batch.as_f32().unwrap_or_default().chunks_exact(3 * SIDE * SIDE);
            for (image, &label) in images.zip(batch.labels()) {
                counts[label as usize] += 1.0;
                for (sum, value) in sums[label as usize].iter_mut().zip(features(image)) {
                    *sum += value;
                }
            }
        }
        let mean = |class: usize, feature: usize| sums[class][feature] / counts[class];
        let weights =
            (0..FEATURES).flat_map(|feature| (0..CLASSES).map(move |class| (class, feature)));
        let weights = weights.map(|(class, feature)| mean(class, feature)).collect();
        let square = |class| (0..FEATURES).map(|feature| mean(class, feature).powi(2)).sum::<f32>();
        let biases = (0..CLASSES).map(|class| -square(class) / 2.0).collect();
        Ok(Self { weights, biases })
    }

    fn scores(&self, features: &[f32; FEATURES]) -> Vec<f32> {
        let mut scores = self.biases.clone();
        for (feature, weights) in features.iter().zip(self.weights.chunks_exact(CLASSES)) {
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += feature * weight;
            }
        }
        scores
    }
}

/// Returns the features of an image: the mean of each channel in each field, by channel, row and
/// column.
fn features(image: &[f32]) -> [f32; FEATURES] {
    let side = SIDE / FIELDS;
    std::array::from_fn(|feature| {
        let (channel, row, column) =
            (feature / (FIELDS * FIELDS), feature / FIELDS % FIELDS, feature % FIELDS);
        let rows = (0..side).map(|y| (channel * SIDE + row * side + y) * SIDE + column * side);
        let sum: f32 = rows.flat_map(|begin| &image[begin..begin + side]).sum();
        sum / (side * side) as f32
    })
}
