//! How many buffers, decoders and batches go round.

/// How many of what goes round. Under a limit of memory these numbers give way, the first field first:
///
/// 1. `reading`, then `hardware_group`, `decoders` and `group`, as far as [`Counts::LEAN`];
/// 2. `prefetch`, to 1;
/// 3. `reading`, `hardware_group`, `decoders` and `group`, to 1.
///
/// Where the memory that has no room has no batches in it, `prefetch` stays: page-locked memory, and with a device host memory
/// too. Where `prefetch` is chosen, what it has beyond its start gives way before all else. Where host memory has no room
/// for one of each, workers that are chosen give way, as few of them as will do.
///
/// What the last step leaves over is used. That is: of all other numbers that fit, those are taken with the largest
/// `prefetch`, of these those with the largest `group`, then `decoders`, `hardware_group` and `reading`. So under a
/// larger limit of device memory the first of them that differs is larger. The bytes in the batches are the same
/// under any limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Pages for samples that workers have in hand.
    pub reading: usize,
    /// Most images of one call, on routes that [batch](super::Route::batches); 0 without any.
    pub hardware_group: usize,
    /// Decode states of each other route that is [on the device](super::Route::on_device).
    pub decoders: usize,
    /// Most samples of one launch of the kernel.
    pub group: usize,
    /// Batches ahead of the consumer.
    pub prefetch: usize,
}

impl Counts {
    /// What the rest is not reduced below before `prefetch` gives way: with less, engines wait for pages.
    pub const LEAN: Counts =
        Counts { reading: 4, hardware_group: 4, decoders: 2, group: 4, prefetch: 1 };

    /// The least that works.
    pub const ONE: Counts =
        Counts { reading: 1, hardware_group: 1, decoders: 1, group: 1, prefetch: 1 };
}
