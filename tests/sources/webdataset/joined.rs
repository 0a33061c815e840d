//! Files that contain several archives, and bytes after the last archive.

use super::*;

/// Compresses bytes as one gzip member.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let deflated = miniz_oxide::deflate::compress_to_vec(bytes, 6);
    let mut hash = crc32fast::Hasher::new();
    hash.update(bytes);
    let trailer = [hash.finalize().to_le_bytes(), (bytes.len() as u32).to_le_bytes()];
    [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255][..], &deflated, trailer.as_flattened()].concat()
}

/// `cat a.tar b.tar` writes such files. Between the archives is the padding of GNU tar, or a single
/// block of zeros.
#[test]
fn joined_archives_are_read_to_the_end_of_the_file() {
    let first = archive(&[("a.jpg", b"one"), ("a.cls", b"1"), ("b.jpg", b"two"), ("b.cls", b"2")]);
    // This archive begins with the sample key with which the first archive ends.
    let second = archive(&[("b.jpg", b"three"), ("b.cls", b"3")]);
    let link = [
        member("a.jpg", b"four", b'0'),
        member("a.cls", b"4", b'0'),
        hard_link("c.jpg", "a.jpg"),
        member("c.cls", b"5", b'0'),
        hard_link("d.jpg", "b.jpg"),
        member("d.cls", b"6", b'0'),
        vec![0; 512],
    ];
    let all: Vec<Sample> = [(1, "one"), (2, "two"), (3, "three"), (4, "four"), (5, "four")]
        .map(|(label, text)| (label, text.into()))
        .into();
    for padding in [0, 10 << 10, 200 << 10, 3 << 20] {
        let padded = [&first[..], &vec![0; padding]].concat();
        let joined = [&padded[..], &second, &link.concat()].concat();
        assert_eq!(open(&joined).unwrap(), all, "{padding}");
        // The target of the last link is in another archive of the file, so the link is excluded.
        assert!(excluded(&joined).contains(&(ExclusionReason::LostLink, String::new(), 1)));
        assert_eq!(open(&gzip(&joined)).unwrap(), all, "{padding}");
        let members = [gzip(&padded), gzip(&second), gzip(&link.concat())].concat();
        assert_eq!(open(&members).unwrap(), all, "{padding}");
    }
    // The second archive is truncated.
    let cut = [&first[..], &second[..second.len() - 1024]].concat();
    refused(&cut, cut.len() as u64, &[]);
}

/// Opens the shard twice: the names of members come from the archive first, then from the stored
/// table.
#[test]
fn members_of_compressed_archives_have_their_names() {
    let files: Vec<_> =
        (0..70).map(|it| [format!("x/{it:03}.jpg"), format!("x/{it:03}.cls")]).collect();
    let members: Vec<_> = files
        .iter()
        .flat_map(|[jpg, cls]| [(&**jpg, &b"image"[..]), (&**cls, &b"7"[..])])
        .collect();
    let root = folder(&[("t.tar.gz", &gzip(&archive(&members)))]);
    for _ in 0..2 {
        let source =
            WebDataset::open(&[root.path().into()], &WebDatasetSettings::default()).unwrap();
        for (index, [jpg, _]) in files.iter().enumerate() {
            let named = (&source as &dyn Source).named_location(index as u64);
            assert!(named.ends_with(&format!("t.tar.gz[{index}] {jpg}")), "{named}");
        }
    }
}

#[test]
fn bytes_after_the_last_archive_are_counted_and_between_archives_an_error() {
    let first = archive(&[("a.jpg", b"one"), ("a.cls", b"1")]);
    for len in [1, 511, 512, 700, 100_000] {
        let bytes = [&first[..], &vec![b'x'; len]].concat();
        let expected = [(ExclusionReason::AfterEnd, String::new(), len as u64)];
        assert_eq!(excluded(&bytes), expected);
        assert_eq!(open(&bytes).unwrap().len(), 1);
    }
    // Zeros at the end of a shard may be data that a power failure has destroyed, or tar's padding.
    let mark = first.len() - 1024;
    for (zeros, counted) in [(20 << 10, None), (65 << 10, Some((65 << 10) - 512))] {
        let bytes = [&first[..mark], &vec![0; zeros]].concat();
        let expected = counted.map(|it| (ExclusionReason::AfterEnd, String::new(), it as u64));
        assert_eq!(excluded(&bytes), Vec::from_iter(expected), "{zeros}");
    }
    let damaged = [&first[..], &[b'x'; 512], &first].concat();
    let next = (first.len() + 512).to_string();
    refused(&damaged, first.len() as u64, &[&next]);
    // A small file may decompress to a huge number of zeros, so at most 64 MiB are searched for
    // another archive.
    let zeros = gzip(&[&first[..], &vec![0; 65 << 20]].concat());
    let mark = first.len() as u64 - 1024;
    refused(&zeros, mark, &["64"]);
}
