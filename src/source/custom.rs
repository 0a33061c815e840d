//! Types and traits for custom sources, in addition to the trait [`Source`](super::Source).
//!
//! * [`Page`] is the buffer that [`Source::read`](super::Source::read) writes to.
//! * Optional abilities are traits: [`Annotations`], [`Fields`], [`RemoteReads`], [`Heads`],
//!   [`Hints`], [`Identity`], [`Notes`].
//! * To provide the samples of other sources in another order or number, use a [`Combined`] with an
//!   [`Arrangement`].
//! * A pipeline file names a custom source with `own = "name"`, alone or in a combination.
//!   [`Pipeline::give`](crate::Pipeline::give) provides the source for this name.

pub use super::abilities::{
    Annotations, Fields, Heads, Hints, Identity, Notes, PutField, RemoteReads,
};
pub use super::combine::{Arrangement, Combined};
pub use super::page::{Expected, HostPage, Page};
pub use crate::header::PnmHead;
