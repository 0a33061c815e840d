//! Numbers of buffers, decoders and batches.

/// Numbers of buffers, decoders and batches. A memory limit reduces them in this order:
///
/// 1. `reading`, then `hardware_group`, `decoders` and `group`, down to [`Counts::LEAN`];
/// 2. `prefetch`, down to 1;
/// 3. `reading`, `hardware_group`, `decoders` and `group`, down to 1.
///
/// `prefetch` is not reduced if the exceeded memory holds no batches: page-locked memory, and with a GPU also host
/// memory. If `prefetch` is `auto`, whatever exceeds its start is reduced before all else. If host memory is too small
/// for one of each, `auto` workers are reduced, by as few as possible.
///
/// Memory left over by the last step is used. Of all combinations that fit, the plan takes the one with the largest
/// `prefetch`, then the largest `group`, `decoders`, `hardware_group` and `reading`. So under a larger device memory
/// limit, the first of these that differs is larger. Batches have the same bytes under any limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Pages for samples that workers are processing.
    pub reading: usize,
    /// Maximum number of images per call on routes that [batch](super::Route::batches). 0 without such routes.
    pub hardware_group: usize,
    /// Decode states of each other route that is [on the device](super::Route::on_device).
    pub decoders: usize,
    /// Maximum number of samples per kernel launch.
    pub group: usize,
    /// Batches ahead of the consumer.
    pub prefetch: usize,
}

impl Counts {
    /// Minimum of the other counts before `prefetch` is reduced. With less, JPEG engines wait for pages.
    pub const LEAN: Counts =
        Counts { reading: 4, hardware_group: 4, decoders: 2, group: 4, prefetch: 1 };

    /// Smallest counts that work.
    pub const ONE: Counts =
        Counts { reading: 1, hardware_group: 1, decoders: 1, group: 1, prefetch: 1 };
}
