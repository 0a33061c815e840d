//! What a source of your own needs beside the trait [`Source`](super::Source).
//!
//! * [`Page`] is the buffer that [`Source::read`](super::Source::read) writes to.
//! * Optional abilities are traits: [`Annotations`], [`RemoteReads`], [`Heads`], [`Hints`], [`Identity`], [`Notes`].
//! * A source whose samples are those of other sources, in another order or number, is a [`Combined`] with an
//!   [`Arrangement`].
//! * A pipeline file names a source of your own with `own = "name"`, alone or in a combination, and
//!   [`Pipeline::give`](crate::Pipeline::give) says which one it is.

pub use super::abilities::{Annotations, Heads, Hints, Identity, Notes, RemoteReads};
pub use super::combine::{Arrangement, Combined};
pub use super::page::{Expected, HostPage, Page};
pub use crate::header::PnmHead;
