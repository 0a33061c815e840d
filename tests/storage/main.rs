//! Files and URLs: mapped files, compressed files, the disk cache, and remote servers.

mod cache;
mod mapped;
mod remote;
mod third_party;
mod unpacked;

use feedwater_tests::{common, servers};
