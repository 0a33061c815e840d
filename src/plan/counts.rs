//! Numbers of buffers, decode states and batches in a plan.

/// Numbers of buffers, decode states and batches in a plan. Memory limits reduce them in this
/// order:
///
/// 1. `reading`, then `hardware_group`, `decoders` and `group`, down to [`Counts::LEAN`];
/// 2. `prefetch`, down to 1;
/// 3. `reading`, `hardware_group`, `decoders` and `group`, down to 1.
///
/// `prefetch` is not reduced if the exceeded limit covers no batches. Page-locked memory holds no
/// batches, and with a GPU host memory holds no batches either. If `prefetch` is `auto`, it is
/// reduced to its initial value before any other count. If host memory is too small even with every
/// count at 1, and the number of workers is `auto`, the number of workers is reduced by as few as
/// possible.
///
/// Memory that is still free after these steps is used. Of all combinations that fit, the plan
/// takes the one with the largest `prefetch`, then the largest `group`, `decoders`,
/// `hardware_group` and `reading`. Memory limits do not change the content of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of pages (buffers) for samples that workers are processing.
    pub reading: usize,
    /// Maximum number of images per call on routes that [batch](super::Route::batches). 0 without
    /// such routes.
    pub hardware_group: usize,
    /// Number of decode states of each route that runs [on the device](super::Route::on_device) and
    /// decodes one image per call.
    pub decoders: usize,
    /// Maximum number of samples per kernel launch.
    pub group: usize,
    /// Number of prefetched batches.
    pub prefetch: usize,
}

impl Counts {
    /// Smallest values of the other counts while `prefetch` is above 1. Smaller values are used
    /// only after `prefetch` was reduced to 1, because with fewer pages the JPEG engines would
    /// wait.
    pub const LEAN: Counts =
        Counts { reading: 4, hardware_group: 4, decoders: 2, group: 4, prefetch: 1 };

    /// Smallest counts that work.
    pub const ONE: Counts =
        Counts { reading: 1, hardware_group: 1, decoders: 1, group: 1, prefetch: 1 };
}
