//! Environments that are truncated, damaged or malicious.

use super::*;
use crate::common::some_of;

#[test]
fn a_truncated_file_is_an_error_unless_only_free_pages_are_missing() {
    let whole = golden("lmdb/image/data.mdb");
    for len in (0..whole.len()).step_by(127) {
        match open(&whole[..len], &images()) {
            Ok((_root, source)) => assert_eq!(samples(&source), expected_images(), "{len} bytes"),
            other => assert!(position(&config_error(other)) < whole.len() as u64, "{len} bytes"),
        }
    }
}

/// LMDB has no checksums. A flipped bit in an image affects only this image. A flipped bit
/// elsewhere is an error, or changes only keys or unused bytes.
#[test]
fn a_flipped_bit_is_an_error_or_leaves_readable_samples() {
    let (mut errors, mut read_whole) = (0, 0);
    for name in ["lmdb/image/data.mdb", "lmdb/image-1.0.mdb"] {
        let whole = golden(name);
        let bytes = (0..whole.len()).filter(|it| it % 4096 < 80 || it % 97 == 0);
        for byte in some_of(bytes, 0) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << (byte % 8);
            match open(&damaged, &images()) {
                Ok((_root, source)) => {
                    (0..source.len()).for_each(|index| drop(read(&source, index).unwrap()));
                    read_whole += 1;
                }
                // The error contains the offset of a byte, unless the file has no samples.
                other => {
                    let error = config_error(other);
                    if error.key != "source.lmdb" {
                        assert!(error.key.starts_with("source.lmdb: "), "{error}");
                        position(&error);
                    }
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 100 && read_whole > 100, "{errors} errors, {read_whole} read");
}

#[test]
fn pages_of_any_size_are_read() {
    for (size, header) in
        [(256, 16), (4096, 16), (1 << 15, 16), (256, 24), (1 << 14, 24), (1 << 16, 24)]
    {
        let mut pages = Pages::new(size, header);
        let first = pages.leaf(&[pages.value(b"a", b"one"), pages.value(b"bb", b"two")]);
        let large = vec![9; 2 * size];
        let number = pages.count() + 1;
        let second = pages.leaf(&[pages.node(
            b"c",
            large.len() as u32,
            1,
            &[number, 0, 3].map(u64::to_le_bytes).concat(),
        )]);
        pages.page(4, &[]);
        pages.bytes.resize(pages.bytes.len() + 2 * size, 9);
        let at = number as usize * size + header;
        pages.bytes[at..].fill(9);
        let root = pages.branch(&[first, second]);
        let (_root, source) = open(&pages.file(root), &LmdbSettings::default()).unwrap();
        let expected = [(b"one".to_vec(), -1), (b"two".to_vec(), -1), (large, -1)];
        assert_eq!(samples(&source), expected, "{size} {header}");
    }
}

#[test]
fn loops_depth_and_invalid_pages_are_errors() {
    let settings = LmdbSettings::default();
    let leaf = |pages: &mut Pages, key: &[u8]| {
        let node = pages.value(key, b"value");
        pages.leaf(&[node])
    };
    // The first tree has a page that points to itself. The second one has a page to which two nodes
    // point.
    let mut pages = Pages::new(4096, 16);
    let root = pages.branch(&[2]);
    // The error is at the node, whose eight bytes are at the end of the page.
    refused(&pages.file(root), &settings, 3 * 4096 - 8, &["2"]);
    let mut pages = Pages::new(4096, 16);
    let one = leaf(&mut pages, b"a");
    let root = pages.branch(&[one, one]);
    refused(&pages.file(root), &settings, 4 * 4096 - 16, &["2"]);
    // This tree has more levels than LMDB supports.
    let mut pages = Pages::new(256, 16);
    let mut root = leaf(&mut pages, b"a");
    for _ in 0..31 {
        root = pages.branch(&[root]);
    }
    assert_eq!(open(&pages.file(root), &settings).unwrap().1.len(), 1);
    root = pages.branch(&[root]);
    refused(&pages.file(root), &settings, 2 * 256, &["32"]);

    // Checks the error of a leaf page with these nodes. If `byte` is `None`, the error must be at
    // the last node, which is stored before the other nodes.
    type Nodes<'a> = &'a dyn Fn(&Pages) -> Vec<Vec<u8>>;
    let refused_leaf = |nodes: Nodes<'_>, byte: Option<u64>, values: &[&str]| {
        for header in [16, 24] {
            let mut pages = Pages::new(4096, header);
            let nodes = nodes(&pages);
            let bytes: usize = nodes.iter().map(|it| it.len().next_multiple_of(2)).sum();
            let root = pages.leaf(&nodes);
            let mut file = pages.file(root);
            file.resize(file.len() + 4096, 0);
            refused(&file, &settings, byte.unwrap_or(3 * 4096 - bytes as u64), values);
        }
    };
    refused_leaf(&|it| vec![it.node(b"a", u32::MAX, 0, b"")], None, &["value"]);
    // The message must contain the number of the value's first page, and the number of pages of the
    // file.
    let first = u64::from_le_bytes([9; 8]).to_string();
    refused_leaf(&|it| vec![it.node(b"a", u32::MAX, 1, &[9; 24])], None, &[&first, "3"]);
    let first = u64::MAX.to_string();
    refused_leaf(&|it| vec![it.node(b"a", 10, 1, &[255; 24])], None, &[&first, "3"]);
    refused_leaf(&|it| vec![it.node(b"a", 10, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 0])], None, &["1", "3"]);
    // The value's page is not an overflow page.
    refused_leaf(
        &|it| vec![it.node(b"a", 10, 1, &[2, 0, 0, 0, 0, 0, 0, 0, 0])],
        Some(2 * 4096),
        &["value"],
    );
    refused_leaf(&|it| vec![it.node(b"a", 10, 4, b"")], None, &["key"]);
    refused_leaf(&|it| vec![it.node(b"a", 10, 2, b"")], None, &["database"]);
    refused_leaf(&|it| vec![it.value(b"b", b"1"), it.value(b"a", b"2")], None, &["key"]);
    refused_leaf(&|it| vec![it.value(b"a", b"1"), it.value(b"a", b"2")], None, &["key"]);
    refused_leaf(
        &|it| {
            let mut node = it.value(b"a", b"1");
            node[6..8].fill(255);
            vec![node]
        },
        None,
        &["key"],
    );

    // Trees with a wrong number of entries or pages, and with a missing page.
    let mut pages = Pages::new(4096, 16);
    let root = leaf(&mut pages, b"a");
    pages.nodes = 2;
    refused(&pages.file(root), &settings, 2 * 4096, &["2", "1"]);
    refused(&pages.file(77), &settings, 0, &["77", "3"]);
    refused(&pages.file(1), &settings, 0, &["1", "3"]);
    pages.page(4, &[]);
    refused(&pages.file(3), &settings, 3 * 4096, &["0x4"]);
    // Either the list of keys is larger than its page, or it overlaps a key, which is in a node of
    // 14 bytes.
    for (lower, byte) in [(15u16, 2 * 4096), (4098, 2 * 4096), (4096, 3 * 4096 - 14)] {
        let mut file = pages.file(2);
        file[2 * 4096 + 12..][..2].copy_from_slice(&lower.to_le_bytes());
        refused(&file, &settings, byte, &[]);
    }
}

#[test]
fn pages_shared_by_two_values_are_an_error() {
    let settings = LmdbSettings::default();
    let build = |second: u64, size: u32| {
        let mut pages = Pages::new(4096, 16);
        let nodes = [
            pages.node(b"a", 5000, 1, &3u64.to_le_bytes()),
            pages.node(b"b", size, 1, &second.to_le_bytes()),
        ];
        let root = pages.leaf(&nodes);
        for _ in 0..4 {
            pages.page(4, &[]);
        }
        pages.file(root)
    };
    assert_eq!(open(&build(5, 5000), &settings).unwrap().1.len(), 2);
    // The error must be at the second one of two nodes of 18 bytes.
    refused(&build(4, 5000), &settings, 3 * 4096 - 36, &["4"]);
    let error = config_error(open(&build(3, 10), &settings));
    assert!(position(&error) > 2 * 4096 && has_words(&error.problem, &["3"]), "{error}");
    // The value overlaps the page that contains its key. So this page is both an overflow page and
    // a leaf page.
    let mut pages = Pages::new(4096, 16);
    let node = pages.node(b"a", 5000, 1, &2u64.to_le_bytes());
    pages.page(4, &[]);
    let root = pages.leaf(&[node]);
    refused(&pages.file(root), &settings, 4 * 4096 - 18, &["3"]);
}
