//! Buffer into which the workers of a device read files.

use crate::error::DataError;
use crate::loader::sample::reader::Filled;
use crate::source::{HostPage, Page, Sealed};

/// Buffer for one file: the page if the file fits, else pageable memory.
pub(super) struct Encoded<'a> {
    page: &'a mut [u8],
    large: &'a mut HostPage,
    in_page: bool,
    len: usize,
}

impl<'a> Encoded<'a> {
    /// Creates an empty buffer.
    pub fn new(page: &'a mut [u8], large: &'a mut HostPage) -> Self {
        Self { page, large, in_page: false, len: 0 }
    }

    /// Whether the file fit into the page and is in it.
    pub fn is_in_page(&self) -> bool {
        self.in_page
    }
}

impl Filled for Encoded<'_> {
    fn bytes(&self) -> &[u8] {
        if self.in_page { &self.page[..self.len] } else { self.large.bytes() }
    }

    fn host_bytes(&self) -> u64 {
        self.large.capacity_bytes()
    }

    fn release(&mut self) {
        *self.large = HostPage::default();
    }
}

impl Sealed for Encoded<'_> {}

impl Page for Encoded<'_> {
    fn space(&mut self, len: usize) -> Result<&mut [u8], DataError> {
        self.in_page = len <= self.page.len();
        self.len = len;
        if self.in_page { Ok(&mut self.page[..len]) } else { self.large.space(len) }
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if !self.in_page {
            self.large.truncate(len);
        }
    }
}
