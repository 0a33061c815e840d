//! `timm_rand_augment`: timm's RandAugment policies, configured by a text.

use serde::{Deserialize, Serialize};

use crate::op::settings::{equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kinds, Operator};

use super::apply::{self, Warping};
use super::rand_augment::MOST_OPS;
use super::timm;

/// Applies operations that a text of timm 1.0 selects, such as `rand-m9-mstd0.5-inc1`. The
/// operations, magnitudes and distributions are those of `rand_augment_transform` in
/// `timm/data/auto_augment.py`.
///
/// Sections of the text: `m` magnitude (default 10), `n` number of operations per image (2), `p`
/// probability of each operation (0.5), `mstd` standard deviation of the magnitude (0), `mmax`
/// largest magnitude (10). If `mstd` is above 100, the magnitude is uniform from 0 to `m`. `inc1`
/// selects operations that become stronger with the magnitude. `tweights`, `t3a` and `t3aw` select
/// other sets of operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmRandAugment {
    /// Text that configures the policy as in timm, such as `rand-m9-mstd0.5-inc1`.
    pub config: String,
    /// Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpolation: Option<Interpolation>,
    /// Red, green and blue of pixels that an operation leaves empty. timm uses the mean of the
    /// data. In TOML, one number sets all three. Default 128.
    #[serde(default = "gray", deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

fn gray() -> [u8; 3] {
    [128; 3]
}

impl TimmRandAugment {
    /// The policy of this text, with timm's defaults.
    pub fn of(config: &str) -> Self {
        Self { config: config.to_string(), interpolation: None, fill: gray() }
    }

    fn policy(&self) -> Result<timm::RandAugment, FieldError> {
        let read = timm::RandAugment::parse(&self.config);
        let wrong = |section: String| {
            let problem =
                format!("is {:?}, but timm's RandAugment has no section {section:?}", self.config);
            FieldError::new("config", problem)
        };
        read.map_err(wrong)
    }
}

impl Operator for TimmRandAugment {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        match self.policy() {
            Ok(policy) => apply::kinds(policy.layers, policy.blurs()),
            Err(_) => apply::kinds(0, false),
        }
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Ok(policy) = self.policy() else { return };
        let (size, mut taken) = (draw.size(), 0);
        for _ in 0..policy.layers {
            let operation = policy.draw_operation(&mut taken, draw.rng());
            let step = policy.strength.draw(operation, size, draw.rng());
            let interpolation = apply::interpolation(self.interpolation, draw);
            apply::draw(draw, step, Warping { interpolation, fill: self.fill });
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        let policy = self.policy()?;
        if policy.layers > MOST_OPS as usize {
            let problem = format!(
                "must have at most {MOST_OPS} operations per image, but the section n{} sets a \
                 larger number",
                policy.layers
            );
            return Err(FieldError::new("config", problem));
        }
        Ok(())
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for TimmRandAugment {
    const NAME: &'static str = "timm_rand_augment";

    fn examples() -> Vec<Self> {
        let fixed = Some(Interpolation::Bicubic);
        vec![
            Self::of("rand-m9-mstd0.5-inc1"),
            Self { interpolation: fixed, fill: [1, 2, 3], ..Self::of("rand-m10-n4-p1") },
            Self::of("rand-m8-n3-p1-mstd101-t3aw"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_section_is_named() {
        let error = TimmRandAugment::of("rand-m9-q3").check().unwrap_err();
        assert_eq!(error.field, "config");
        assert!(error.problem.contains("\"q3\""), "{}", error.problem);
        assert_eq!(TimmRandAugment::of("rand-n17").check().unwrap_err().field, "config");
        assert_eq!(TimmRandAugment::of("rand-m9-mstd0.5-inc1").check(), Ok(()));
    }
}
