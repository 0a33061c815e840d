//! Files and URLs: mapped files, compressed files, the disk cache, and remote servers.

mod cache;
#[path = "../common/mod.rs"]
mod common;
mod mapped;
mod remote;
#[path = "../servers/mod.rs"]
mod servers;
mod third_party;
mod unpacked;
