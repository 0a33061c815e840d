//! Policies: operators that draw other operations.

#[doc(hidden)]
pub mod apply;
pub mod auto_augment;
pub mod rand_augment;
pub mod three_augment;
pub mod timm_rand_augment;
pub mod trivial_augment_wide;
