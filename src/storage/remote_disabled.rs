//! Replaces the module `remote` in builds without the feature `remote`.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::stats::Activity;
use super::{Entry, Stamp, StorageSettings};

/// Placeholder for the client, which cannot send requests.
pub struct Client;

impl Client {
    pub fn new(_: &StorageSettings, _: Option<&Path>, _: Arc<Activity>) -> Self {
        Self
    }
}

#[derive(Clone, Debug)]
pub enum File {}

/// Placeholder for bytes that are being fetched. It is never constructed.
#[derive(Debug)]
pub enum Fetch {}

impl File {
    pub fn open(_: &Client, _: &Path) -> Result<Self> {
        Err(absent())
    }

    pub fn stamp(&self) -> Stamp {
        match *self {}
    }

    pub fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
        match *self {}
    }

    pub fn fetch(&self, _: u64, _: u64) -> Result<Fetch> {
        match *self {}
    }
}

impl Fetch {
    /// Never called, because no value of this type exists.
    pub fn wait(self) -> Result<Bytes> {
        match self {}
    }
}

pub fn fetch(_: &Client, _: &Path, _: Option<Stamp>, _: u64) -> Result<Fetch> {
    Err(absent())
}

pub fn lens(_: &Client, paths: &[&Path]) -> Vec<Result<u64>> {
    paths.iter().map(|_| Err(absent())).collect()
}

pub fn are_folders(_: &Client, paths: &[&Path]) -> Vec<Result<bool>> {
    paths.iter().map(|_| Err(absent())).collect()
}

pub fn list(_: &Client, _: &Path) -> Result<Vec<Entry>> {
    Err(absent())
}

pub fn list_all(_: &Client, _: &Path) -> Result<Vec<(String, Stamp)>> {
    Err(absent())
}

fn absent() -> Error {
    let problem =
        "this program was built without support for URLs; build it with the feature `remote`";
    Error::new(ErrorKind::Unsupported, problem)
}
