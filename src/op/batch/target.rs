//! Soft targets: for each sample, one f32 per class.

use bytemuck::{Pod, Zeroable};

use super::Blend;

/// Values of a sample's soft target before any blend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetCoding {
    /// Value of the sample's class.
    on: f32,
    /// Value of every other class.
    off: f32,
}

impl TargetCoding {
    /// One-hot targets with label smoothing (Szegedy et al., CVPR 2016), as timm's `mixup_target`
    /// computes them. Every class has the value `smoothing / classes`, and the sample's class has
    /// `1 - smoothing` more.
    pub fn new(classes: u32, smoothing: f64) -> Self {
        let off = smoothing / f64::from(classes);
        Self { on: (1.0 - smoothing + off) as f32, off: off as f32 }
    }
}

/// Soft target of one sample. All classes except those of the pair's two labels have the same
/// value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct TargetRow {
    /// Classes of the pair's first and second sample. -1 for a sample without a label.
    labels: [i32; 2],
    /// Values of the first sample's class, of the second sample's class, and of every other class.
    /// If both samples have the same class, this class has the first value.
    values: [f32; 3],
}

impl TargetRow {
    /// Writes the values of all classes to `out`. This is the reference for the kernel `mix`.
    pub fn write(&self, out: &mut [f32]) {
        out.fill(self.values[2]);
        for place in [1, 0] {
            let class = usize::try_from(self.labels[place]).ok();
            if let Some(value) = class.and_then(|class| out.get_mut(class)) {
                *value = self.values[place];
            }
        }
    }
}

/// Target of a sample without a partner. All values are 0 if the sample has no label.
pub fn plain_row(label: Option<u32>, coding: TargetCoding) -> TargetRow {
    target_rows([label; 2], coding, &[])[0]
}

/// Targets of both samples of a pair after the blends.
pub fn target_rows(
    labels: [Option<u32>; 2],
    coding: TargetCoding,
    blends: &[Blend],
) -> [TargetRow; 2] {
    let [first, second] = labels.map(|label| label.map_or(-1, |label| label as i32));
    let plain = |own: i32| match own {
        -1 => [0.0; 3],
        own => [first, second, -1].map(|class| if class == own { coding.on } else { coding.off }),
    };
    let mut values = [plain(first), plain(second)];
    for Blend { target_weight, .. } in blends {
        let [a, b] = values;
        let sum = |own: [f32; 3], other: [f32; 3]| {
            [0, 1, 2].map(|at| Blend::sum(*target_weight, own[at], other[at]))
        };
        values = [sum(a, b), sum(b, a)];
    }
    values.map(|values| TargetRow { labels: [first, second], values })
}
