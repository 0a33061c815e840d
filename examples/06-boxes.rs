//! Object detection: prints COCO boxes, categories and masks of a batch. They follow the images
//! through crops, flips and resizes.
//!
//! `cargo run --release --example 06-boxes -- instances_train2017.json train2017`

use std::path::absolute;

use feedwater::loader::Loader;
use feedwater::op::{self, Chain};
use feedwater::source::settings::CocoSettings;
use feedwater::source::{Coco, Source};

fn main() -> Result<(), feedwater::MainError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(json), Some(images)) = (arguments.next(), arguments.next()) else {
        return Err("name the annotations and the folder of the images".into());
    };
    // Make the folder absolute. A relative path would be relative to the folder of the annotations.
    let settings =
        CocoSettings { images: absolute(images)?, skip_empty: true, ..Default::default() };
    let coco = Coco::open(json, &settings)?;
    println!("{}", coco.describe());
    let classes = coco.classes().to_vec();

    let chain = Chain::new()
        .then(op::RandomResizedCrop { scale: [0.3, 1.0], ..op::RandomResizedCrop::to(640, 640) })
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(coco, chain).batch_size(4).build()?;
    let Some(batch) = loader.epoch().next().transpose()? else { return Ok(()) };
    for (place, index) in batch.indices().enumerate() {
        println!("{}", loader.source().location(index));
        let objects = batch.objects(place);
        // Leaves out crowds, and boxes of which less than a quarter is visible. As in DETR, a box
        // is given by its centre, width and height, as fractions of the tensor's sides.
        for (number, object) in objects.iter().enumerate() {
            if object.crowd || object.visible < 0.25 {
                continue;
            }
            let [x, y, width, height] = object.bbox.normalised(objects.size()).cxcywh();
            let mask = objects.mask(number).unwrap_or_default();
            let pixels = mask.iter().filter(|&&pixel| pixel == 1).count();
            println!(
                "  {:14} {x:.3} {y:.3} {width:.3} {height:.3}, {pixels} pixels",
                classes[object.category as usize]
            );
        }
    }
    Ok(())
}
