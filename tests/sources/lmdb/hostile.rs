//! Truncated, damaged and hostile environments.

use super::*;

#[test]
fn a_truncated_file_is_an_error_unless_only_free_pages_are_missing() {
    let whole = golden("lmdb/image/data.mdb");
    for len in (0..whole.len()).step_by(127) {
        match open(&whole[..len], &images()) {
            Ok((_root, source)) => assert_eq!(samples(&source), expected_images(), "{len} bytes"),
            Err(error) => assert!(error.to_string().contains("data.mdb, byte "), "{error}"),
        }
    }
}

/// LMDB has no checksums: a flipped bit in an image affects that image only; one in a page is an error, or changes keys or unused
/// bytes.
#[test]
fn a_flipped_bit_is_an_error_or_leaves_readable_samples() {
    let (mut errors, mut read_whole) = (0, 0);
    for name in ["lmdb/image/data.mdb", "lmdb/image-1.0.mdb"] {
        let whole = golden(name);
        for position in (0..whole.len()).filter(|it| it % 4096 < 80 || it % 97 == 0) {
            let mut damaged = whole.clone();
            damaged[position] ^= 1 << (position % 8);
            match open(&damaged, &images()) {
                Ok((_root, source)) => {
                    (0..source.len()).for_each(|index| drop(read(&source, index).unwrap()));
                    read_whole += 1;
                }
                Err(error) => {
                    let words = error.to_string();
                    assert!(words.contains(", byte ") || words.contains("no samples"), "{words}");
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
    // A page that points to itself, and one that is referenced twice.
    let mut pages = Pages::new(4096, 16);
    let root = pages.branch(&[2]);
    assert_eq!(
        refused(&pages.file(root), &settings),
        "byte 12280: page 2 occurs twice: the file is damaged"
    );
    let mut pages = Pages::new(4096, 16);
    let one = leaf(&mut pages, b"a");
    let root = pages.branch(&[one, one]);
    assert!(refused(&pages.file(root), &settings).contains("page 2 "));
    // More levels than LMDB supports.
    let mut pages = Pages::new(256, 16);
    let mut root = leaf(&mut pages, b"a");
    for _ in 0..31 {
        root = pages.branch(&[root]);
    }
    assert_eq!(open(&pages.file(root), &settings).unwrap().1.len(), 1);
    root = pages.branch(&[root]);
    assert!(refused(&pages.file(root), &settings).contains("the tree has more than 32 levels"));

    let refused_leaf = |nodes: &dyn Fn(&Pages) -> Vec<Vec<u8>>, expected: &str| {
        for header in [16, 24] {
            let mut pages = Pages::new(4096, header);
            let nodes = nodes(&pages);
            let root = pages.leaf(&nodes);
            let mut file = pages.file(root);
            file.resize(file.len() + 4096, 0);
            let words = refused(&file, &settings);
            assert!(words.contains(expected), "{words}");
        }
    };
    refused_leaf(&|it| vec![it.node(b"a", u32::MAX, 0, b"")], "a value exceeds its page");
    refused_leaf(&|it| vec![it.node(b"a", u32::MAX, 1, &[9; 24])], "a value's page has number 65");
    refused_leaf(
        &|it| vec![it.node(b"a", 10, 1, &[255; 24])],
        "a value's page has number 18446744073709551615",
    );
    refused_leaf(
        &|it| vec![it.node(b"a", 10, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 0])],
        "a value's page has number 1 of",
    );
    refused_leaf(
        &|it| vec![it.node(b"a", 10, 1, &[2, 0, 0, 0, 0, 0, 0, 0, 0])],
        "found another page",
    );
    refused_leaf(&|it| vec![it.node(b"a", 10, 4, b"")], "a key with several values");
    refused_leaf(&|it| vec![it.node(b"a", 10, 2, b"")], "a database exceeds its page");
    refused_leaf(
        &|it| vec![it.value(b"b", b"1"), it.value(b"a", b"2")],
        "not above the previous one",
    );
    refused_leaf(
        &|it| vec![it.value(b"a", b"1"), it.value(b"a", b"2")],
        "not above the previous one",
    );
    refused_leaf(
        &|it| {
            let mut node = it.value(b"a", b"1");
            node[6..8].fill(255);
            vec![node]
        },
        "a key exceeds its page",
    );

    // Wrong counts and missing pages.
    let mut pages = Pages::new(4096, 16);
    let root = leaf(&mut pages, b"a");
    pages.nodes = 2;
    assert!(refused(&pages.file(root), &settings).contains("has 2 entries, but its pages have 1"));
    assert!(refused(&pages.file(77), &settings).contains("a page has number 77 of 3"));
    assert!(refused(&pages.file(1), &settings).contains("a page has number 1 of 3"));
    pages.page(4, &[]);
    assert!(refused(&pages.file(3), &settings).contains("expected a page of keys"));
    for (lower, expected) in
        [(15u16, "the list of keys exceeds its page"), (4098, "the list of keys"), (4096, "a key")]
    {
        let mut file = pages.file(2);
        file[2 * 4096 + 12..][..2].copy_from_slice(&lower.to_le_bytes());
        assert!(refused(&file, &settings).contains(expected), "{}", refused(&file, &settings));
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
    assert!(refused(&build(4, 5000), &settings).contains("page 4 "));
    assert!(refused(&build(3, 10), &settings).contains("page 3 "));
    // A value that overlaps the page of its own key: as a page it is a value's, for the walk it is one of keys.
    let mut pages = Pages::new(4096, 16);
    let node = pages.node(b"a", 5000, 1, &2u64.to_le_bytes());
    pages.page(4, &[]);
    let root = pages.leaf(&[node]);
    assert!(refused(&pages.file(root), &settings).contains("page 3 has two uses"));
}
