//! Masks on a contact sheet.

use feedwater::internals::tensor::{Layout, TensorShape};
use feedwater::loader::{Batch, Column};
use feedwater::plan::{ColumnKind, Plan};
use feedwater::{ElementType, Result};
use half::{bf16, f16};

use super::columns::following;

/// Number of an object on the sheet, from 1 to this number. Later objects begin with 1 again.
const MAX_OBJECTS: usize = 250;

/// Numbers of the first column of masks that follows the view with this number, or the main chain.
/// A number for each pixel of each output:
///
/// * in masks with one number per pixel, this number. Integers are modulo 256. Floats are first
///   truncated, and negative ones are 0.
/// * in one-hot masks, the class with the largest weight, modulo 256, or the number `fill` if all
///   weights are 0
/// * in masks of objects, the number of the last object that has the pixel, counted from 1, or 0
pub fn masks(plan: &Plan, batch: &Batch, view: Option<usize>) -> Result<Option<Vec<u8>>> {
    let is_mask =
        |kind| matches!(kind, ColumnKind::Mask | ColumnKind::Instances | ColumnKind::Runs);
    let mut masks = following(plan, view).filter(|it| is_mask(it.kind));
    let Some(settings) = masks.next() else { return Ok(None) };
    let Some(column) = batch.column(&settings.name) else { return Ok(None) };
    let shape = view.map_or(plan.shape, |view| plan.views[view].plan.shape);
    Ok(Some(match (settings.kind, settings.one_hot) {
        (ColumnKind::Mask, None) => numbers(column)?,
        (ColumnKind::Mask, Some(classes)) => {
            classes_of(column, (shape, classes as usize), settings.fill.unwrap_or(255.0) as u8)?
        }
        _ => objects(batch, column, shape),
    }))
}

fn numbers(column: Column<'_>) -> Result<Vec<u8>> {
    let bytes = column.to_host()?;
    Ok(match column.element_type() {
        ElementType::I64 => {
            bytes.as_chunks().0.iter().map(|it| i64::from_ne_bytes(*it) as u8).collect()
        }
        ElementType::F32 => {
            bytes.as_chunks().0.iter().map(|it| f32::from_ne_bytes(*it) as u32 as u8).collect()
        }
        _ => bytes,
    })
}

/// Classes of one-hot masks.
fn classes_of(
    column: Column<'_>,
    (shape, classes): (TensorShape, usize),
    fill: u8,
) -> Result<Vec<u8>> {
    let bytes = column.to_host()?;
    let weights: Vec<f32> = match column.element_type() {
        ElementType::F32 => bytes.as_chunks().0.iter().map(|it| f32::from_ne_bytes(*it)).collect(),
        ElementType::F16 => {
            bytes.as_chunks().0.iter().map(|it| f16::from_ne_bytes(*it).to_f32()).collect()
        }
        ElementType::BF16 => {
            bytes.as_chunks().0.iter().map(|it| bf16::from_ne_bytes(*it).to_f32()).collect()
        }
        _ => bytes.iter().map(|&it| it.into()).collect(),
    };
    let pixels = shape.width as usize * shape.height as usize;
    let number = |mask: &[f32], pixel: usize| {
        let weight = |class: usize| match shape.layout {
            Layout::Nchw => mask[class * pixels + pixel],
            Layout::Nhwc => mask[pixel * classes + class],
        };
        let (mut largest, mut number) = (0.0, fill);
        for class in 0..classes {
            if weight(class) > largest {
                (largest, number) = (weight(class), class as u8);
            }
        }
        number
    };
    let masks = weights.chunks_exact(pixels * classes);
    Ok(masks.flat_map(|mask| (0..pixels).map(move |pixel| number(mask, pixel))).collect())
}

/// Numbers of objects. Columns of objects are in host memory.
fn objects(batch: &Batch, column: Column<'_>, shape: TensorShape) -> Vec<u8> {
    let (width, height) = (shape.width as usize, shape.height as usize);
    let mut numbers = vec![0; batch.len() * width * height];
    if numbers.is_empty() {
        return numbers;
    }
    for (place, numbers) in numbers.chunks_exact_mut(width * height).enumerate() {
        let number = |object: usize| (object % MAX_OBJECTS + 1) as u8;
        for (object, mask) in
            column.sample::<u8>(place).unwrap_or(&[]).chunks_exact(width * height).enumerate()
        {
            for (out, _) in numbers.iter_mut().zip(mask).filter(|(_, it)| **it != 0) {
                *out = number(object);
            }
        }
        for (object, runs) in column.lists::<i64>(place).into_iter().flatten().enumerate() {
            let mut at = 0;
            for (run, &length) in runs.iter().enumerate() {
                let end = at + length as usize;
                if run % 2 == 1 {
                    // Runs count pixels column by column.
                    (at..end).for_each(|at| {
                        numbers[at % height * width + at / height] = number(object);
                    });
                }
                at = end;
            }
        }
    }
    numbers
}
