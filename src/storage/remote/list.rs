//! Lists folders page by page, with limits.

use std::collections::HashSet;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;

use super::attempt::judge;
use super::client::{Client, Object, stamp};
use super::http::Asked;
use super::retry::{Call, in_time};
use crate::storage::Stamp;

/// Largest number of consecutive empty pages.
const EMPTY_PAGES: usize = 1_000;

/// Result of a listing: objects with their lengths and versions, and folders.
#[derive(Default)]
pub struct Listed {
    pub objects: Vec<(Key, Stamp)>,
    pub folders: Vec<Key>,
}

impl Client {
    /// Lists all objects below a folder if `deep`, otherwise its direct entries. The order is
    /// unspecified. A page that fails is requested again.
    pub async fn list(&self, folder: &Object, deep: bool, call: &Call) -> Result<Listed> {
        let (lister, limit) = (lister(folder)?, self.limit(0));
        let prefix = prefix(folder);
        let (mut listed, mut pages) = (Listed::default(), Pages::default());
        let mut token = None;
        loop {
            let options = || options(token.clone(), (!deep).then_some("/"));
            let page =
                self.with_retries(call, || page(lister, prefix.as_deref(), options(), limit));
            let (page, next) = page.await?;
            let first = page.objects.first().map(|(key, _)| key);
            pages.check(first, first.is_none() && page.folders.is_empty(), next.as_deref())?;
            listed.objects.extend(page.objects);
            listed.folders.extend(page.folders);
            let count = (listed.objects.len() + listed.folders.len()) as u64;
            let most = self.settings.max_listed;
            if count > most {
                return Err(endless(format!(
                    "the listing has more than {most} names; name a folder inside of this one, or \
                     raise storage.max_listed"
                )));
            }
            match next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        // A folder occurs several times if its names are on several pages of the listing.
        listed.folders.sort_unstable();
        listed.folders.dedup();
        Ok(listed)
    }

    /// Whether at least one object exists below a folder.
    pub async fn has_any(&self, folder: &Object, call: &Call) -> Result<bool> {
        let (lister, limit) = (lister(folder)?, self.limit(0));
        let prefix = prefix(folder);
        let (mut token, mut pages) = (None, Pages::default());
        loop {
            let options = || options(token.clone(), None);
            let page =
                self.with_retries(call, || page(lister, prefix.as_deref(), options(), limit));
            let (page, next) = page.await?;
            let first = page.objects.first().map(|(key, _)| key);
            pages.check(first, first.is_none(), next.as_deref())?;
            match next {
                Some(next) if first.is_none() => token = Some(next),
                _ => return Ok(first.is_some()),
            }
        }
    }
}

async fn page(
    lister: &Arc<dyn PaginatedListStore>,
    prefix: Option<&str>,
    options: PaginatedListOptions,
    limit: Duration,
) -> super::retry::Attempt<(Listed, Option<String>)> {
    let page = in_time(limit, lister.list_paginated(prefix, options)).await?;
    let page = page.map_err(|error| judge(&error))?;
    let objects = page.result.objects.iter().map(|meta| (meta.location.clone(), stamp(meta)));
    let listed = Listed { objects: objects.collect(), folders: page.result.common_prefixes };
    Ok((listed, page.page_token.filter(|it| !it.is_empty())))
}

fn options(token: Option<String>, delimiter: Option<&'static str>) -> PaginatedListOptions {
    let mut options = PaginatedListOptions {
        page_token: token,
        delimiter: delimiter.map(Into::into),
        ..Default::default()
    };
    options.extensions.insert(Asked::Listing);
    options
}

fn lister(folder: &Object) -> Result<&Arc<dyn PaginatedListStore>> {
    let problem =
        "a folder behind http:// cannot be listed; name the files one by one, or in a list file";
    folder.lister.as_ref().ok_or_else(|| Error::new(ErrorKind::Unsupported, problem))
}

/// Prefix of the names in a folder. `None` for the whole bucket.
fn prefix(folder: &Object) -> Option<String> {
    (!folder.key.as_ref().is_empty()).then(|| format!("{}/", folder.key))
}

/// Detects endless listings, which repeat a page or contain only empty pages.
#[derive(Default)]
struct Pages {
    tokens: HashSet<String>,
    first_names: HashSet<Key>,
    empty: usize,
}

impl Pages {
    /// Checks the next page, given its first object, whether the page is empty, and its
    /// continuation token.
    fn check(&mut self, first: Option<&Key>, empty: bool, token: Option<&str>) -> Result<()> {
        let repeated = |what: &str| {
            endless(format!(
                "the server's listing has no end: {what} again; use another server, or a list file"
            ))
        };
        if token.is_some_and(|it| !self.tokens.insert(it.into())) {
            return Err(repeated("the same continuation token came"));
        }
        if first.is_some_and(|it| !self.first_names.insert(it.clone())) {
            return Err(repeated("a page with the same names came"));
        }
        self.empty = if empty { self.empty + 1 } else { 0 };
        match self.empty > EMPTY_PAGES {
            true => Err(repeated("an empty page came")),
            false => Ok(()),
        }
    }
}

fn endless(problem: String) -> Error {
    Error::new(ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_empty_pages_are_detected() {
        let key = |name: &str| Key::from(name);
        let mut pages = Pages::default();
        pages.check(Some(&key("a")), false, Some("1")).unwrap();
        pages.check(None, true, Some("2")).unwrap();
        pages.check(Some(&key("b")), false, None).unwrap();
        assert!(pages.check(Some(&key("c")), false, Some("1")).is_err(), "a token again");
        assert!(pages.check(Some(&key("a")), false, Some("3")).is_err(), "names again");
        let mut pages = Pages::default();
        let empty = (0..).take_while(|at| pages.check(None, true, Some(&at.to_string())).is_ok());
        assert_eq!(empty.count(), EMPTY_PAGES);
    }
}
