//! Operators that move pixels.

pub mod affine;
pub mod letterbox;
pub mod pad;
pub mod perspective;
pub mod random_affine;
pub mod random_perspective;
pub mod random_rotation;
pub mod random_shortest_size;
pub mod random_zoom_out;
pub mod rotate;
pub mod scale_jitter;
pub mod thumbnail;
