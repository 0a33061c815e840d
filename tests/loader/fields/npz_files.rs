//! Columns from arrays in `.npz` archives: members of archives, side files, and bytes.

use std::fs;
use std::sync::Arc;

use super::npy::npy;
use super::npy_files::{archive, floats};
use super::{F32, I64, batches, builder, folder, sample_error, with_field};
use crate::common::jpegs;
use crate::with_fields::{Values, WithFields};
use feedwater::error::Reason;
use feedwater::internals::field::{FieldPath, npz};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Resize, View};
use feedwater::plan::ColumnSettings;
use feedwater::source::settings::DirectorySettings;
use feedwater::source::{Directory, Memory};
use feedwater::{DType, Error, Layout};
use miniz_oxide::deflate::compress_to_vec;

/// File of a zip archive, with all numbers of its records.
#[derive(Clone)]
pub struct Member {
    pub name: String,
    pub flags: u16,
    pub method: u16,
    pub checksum: u32,
    pub packed: Vec<u8>,
    /// Size in the archive, and of the file, in bytes.
    pub sizes: [u32; 2],
    /// Sizes in the header before the file.
    pub own_sizes: [u32; 2],
    /// Extra part of the header before the file.
    pub extra: Vec<u8>,
    /// Offset of the header, if it is not the true one.
    pub begin: Option<u32>,
}

impl Member {
    pub fn stored(name: &str, file: &[u8]) -> Self {
        let sizes = [file.len() as u32; 2];
        let checksum = crc32fast::hash(file);
        let (name, packed) = (name.into(), file.to_vec());
        let (own_sizes, extra, begin) = (sizes, Vec::new(), None);
        Self { name, flags: 0, method: 0, checksum, packed, sizes, own_sizes, extra, begin }
    }

    pub fn deflated(name: &str, file: &[u8]) -> Self {
        let packed = compress_to_vec(file, 6);
        let sizes = [packed.len() as u32, file.len() as u32];
        Self { method: 8, packed, sizes, own_sizes: sizes, ..Self::stored(name, file) }
    }

    /// With the sizes as numbers of 64 bits in the extra part, as `np.savez` writes them.
    fn wide(self) -> Self {
        let [packed, len] = self.sizes.map(|it| u64::from(it).to_le_bytes());
        let extra = [&[1, 0, 16, 0][..], &len, &packed].concat();
        Self { own_sizes: [u32::MAX; 2], extra, ..self }
    }
}

/// Writes a zip archive, with a directory of all members.
pub fn zip(members: &[Member]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let begin = member.begin.unwrap_or(archive.len() as u32);
        let record = |to: &mut Vec<u8>, start: &[u8], sizes: [u32; 2], extra: usize| {
            to.extend(start);
            to.extend([member.flags, member.method].map(u16::to_le_bytes).concat());
            to.extend([0; 4]);
            to.extend([member.checksum, sizes[0], sizes[1]].map(u32::to_le_bytes).concat());
            to.extend([member.name.len() as u16, extra as u16].map(u16::to_le_bytes).concat());
        };
        record(&mut archive, b"PK\x03\x04\x14\x00", member.own_sizes, member.extra.len());
        archive.extend(member.name.bytes().chain(member.extra.iter().copied()));
        archive.extend(&member.packed);
        record(&mut directory, b"PK\x01\x02\x14\x00\x14\x00", member.sizes, 0);
        directory.extend([0; 10]);
        directory.extend(begin.to_le_bytes());
        directory.extend(member.name.bytes());
    }
    let (begin, count) = (archive.len() as u32, (members.len() as u16).to_le_bytes());
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([count, count].concat());
    archive.extend([directory.len() as u32, begin].map(u32::to_le_bytes).concat());
    archive.extend([0, 0]);
    archive
}

/// The array that a path names, or the error.
fn array(archive: &[u8], path: &str, limit: u64) -> Result<Vec<u8>, (Reason, String)> {
    let field: FieldPath = path.parse().unwrap();
    let mut inflated = Vec::new();
    let found = npz::array(archive, &field, limit, &mut inflated).map(<[u8]>::to_vec);
    assert!(inflated.len() as u64 <= limit, "{} bytes", inflated.len());
    found.map_err(|error| (error.reason, error.problem))
}

/// Stored and deflated arrays, with and without extra parts, by name or as the only one. A column
/// of bytes has the archive.
#[test]
fn arrays_of_archives_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    let embedding = |number: usize| floats(&[number as f32, 0.5, -1.0]);
    let sample = |number: usize| {
        let embedding = npy("<f4", "(3,)", &embedding(number));
        let id = npy(">i8", "()", &(number as i64).to_be_bytes());
        let long = npy("<i8", "(500,)", &[number as u8; 4000]);
        let several = [
            Member::stored("a.npy", &embedding).wide(),
            Member::deflated("id.npy", &id).wide(),
            Member::deflated("b.c.npy", &long),
            Member::stored("plain", &id),
        ];
        vec![
            ("all.npz", zip(&several)),
            ("one.NPZ", zip(&[Member::deflated("arr_0.npy", &embedding)])),
            // The size and the checksum follow the data, as in a stream.
            ("late.npz", {
                let member = Member::deflated("x.npy", &id);
                let late = [&member.packed[..], b"PK\x07\x08", &[0; 12]].concat();
                zip(&[Member { flags: 8, own_sizes: [0; 2], packed: late, ..member }])
            }),
        ]
    };
    let source = archive(folder.path(), &[sample(0), sample(1), sample(2)]);
    let columns = vec![
        with_field("all.npz:a", ColumnSettings::array("a", F32, &[3])),
        with_field("all.npz:id", ColumnSettings::array("id", I64, &[])),
        with_field("all.npz:[\"b.c\"]", ColumnSettings::list("long", I64, &[])),
        with_field("all.npz:plain", ColumnSettings::array("plain", I64, &[])),
        with_field("all.npz:[\"a.npy\"]", ColumnSettings::list("again", F32, &[])),
        with_field("one.npz", ColumnSettings::array("only", F32, &[3])),
        with_field("one.npz:arr_0", ColumnSettings::array("named", F32, &[3])),
        with_field("late.npz:x", ColumnSettings::array("late", I64, &[])),
        with_field("one.npz", ColumnSettings::bytes("file")),
    ];
    let columns = columns.into_iter().map(|it| match it.name.as_str() {
        "long" => ColumnSettings { max_len: Some(500), ..it },
        _ => it,
    });
    let batch = &batches(builder(source, columns.collect())).unwrap()[0];
    let column = |name| batch.column(name).unwrap();
    for number in 0..3 {
        let expected = [number as f32, 0.5, -1.0];
        for name in ["a", "again", "only", "named"] {
            assert_eq!(column(name).sample(number), Some(&expected[..]), "{name}");
        }
        for name in ["id", "plain", "late"] {
            assert_eq!(column(name).sample(number), Some(&[number as i64][..]), "{name}");
        }
        let long = i64::from_le_bytes([number as u8; 8]);
        assert_eq!(column("long").sample(number), Some(&[long; 500][..]));
        assert_eq!(column("file").sample(number), Some(&sample(number)[1].1[..]));
    }
}

/// Masks and images of fields may be arrays of archives. Signed and boolean masks too.
#[test]
fn masks_and_images_may_be_arrays_of_archives() {
    let folder = tempfile::tempdir().unwrap();
    let mask =
        |number: u8| -> Vec<u8> { (0..80 * 60).map(|at| (at % 61) as u8 + number).collect() };
    let pixels = |number: u8| -> Vec<u8> { (0..63).map(|at| 4 * at + number).collect() };
    let flags: Vec<u8> = (0..80 * 60).map(|at| (at % 2) as u8).collect();
    let sample = |number: u8| {
        let wide = mask(number).into_iter().flat_map(|it| u16::from(it).to_be_bytes());
        let masks = [
            Member::deflated("wide.npy", &npy(">u2", "(60, 80)", &wide.collect::<Vec<_>>())),
            Member::deflated("signed.npy", &npy("|i1", "(60, 80)", &mask(number))),
            Member::stored("flags.npy", &npy("|b1", "(60, 80)", &flags)),
        ];
        let images = [
            Member::stored("left.npy", &npy("|u1", "(3, 7, 3)", &pixels(number))),
            Member::deflated("right.npy", &npy("|u1", "(3, 7, 3)", &pixels(number + 1))),
        ];
        vec![("m.npz", zip(&masks)), ("pair.npz", zip(&images))]
    };
    let source = archive(folder.path(), &[sample(0), sample(1), sample(2)]);
    let view = |name: &str| {
        let chain = Chain::new().then(Resize::to(7, 3));
        View::new(name, chain).field(&format!("pair.npz:{name}")).dtype(DType::U8)
    };
    let chain = Chain::new().then(Resize::to(80, 60)).view(view("left")).view(view("right"));
    let builder = LoaderBuilder::new(Arc::new(source), chain).batch_size(3).epochs(Some(1));
    let builder = builder.device(DeviceChoice::Cpu).configure(|it| {
        it.output.layout = Layout::Nhwc;
        let mask = |name: &str| with_field(&format!("m.npz:{name}"), ColumnSettings::mask(name));
        it.columns = vec![mask("wide"), mask("signed"), mask("flags")];
    });
    let batch = &batches(builder).unwrap()[0];
    for number in 0..3u8 {
        let found = |name| batch.column(name).unwrap().sample::<u8>(number.into()).unwrap();
        assert!(found("wide") == mask(number) && found("signed") == mask(number));
        assert!(found("flags") == flags);
        assert_eq!((found("left"), found("right")), (&pixels(number)[..], &pixels(number + 1)[..]));
    }
}

/// Side files, and bytes of a source of the program's own, which begin like an archive.
#[test]
fn side_files_and_bytes_may_be_archives() {
    let root = folder(2);
    let file = |number: usize| {
        let name = [Member::deflated("e.npy", &npy("<f4", "(2,)", &floats(&[number as f32, 7.0])))];
        zip(&name)
    };
    for number in 0..2 {
        fs::write(root.path().join(format!("{number}.npz")), file(number)).unwrap();
    }
    let side_files = [("emb.npz".into(), "{folder}/{stem}.npz".into())].into();
    let settings = DirectorySettings { side_files, ..Default::default() };
    let source = Directory::with(root.path(), &settings).unwrap();
    let column = || ColumnSettings::array("e", F32, &[2]);
    let batch = &batches(builder(source, vec![with_field("emb.npz:e", column())])).unwrap()[0];
    for place in 0..2 {
        assert_eq!(batch.column("e").unwrap().sample(place), Some(&[place as f32, 7.0][..]));
    }
    let array = npy("<f4", "(2,)", &floats(&[5.0, 6.0]));
    let fields = [
        ("z", Values::Files(vec![file(0), file(1)])),
        ("y", Values::Files(vec![array.clone(), array.clone()])),
        ("m", Values::Files(vec![b"PK".to_vec(), b"PK\x03".to_vec()])),
    ];
    let open = |columns| {
        let fields = fields.iter().map(|(name, values)| match values {
            Values::Files(files) => (*name, Values::Files(files.clone())),
            _ => unreachable!(),
        });
        let source =
            WithFields { images: Memory::new(jpegs(2)).unwrap(), fields: fields.collect() };
        builder(source, columns)
    };
    let columns = vec![
        with_field("z:e", column()),
        ColumnSettings { name: "y".into(), ..column() },
        ColumnSettings { name: "b".into(), ..with_field("y", ColumnSettings::bytes("b")) },
    ];
    let batch = &batches(open(columns)).unwrap()[0];
    for place in 0..2 {
        assert_eq!(batch.column("e").unwrap().sample(place), Some(&[place as f32, 7.0][..]));
        assert_eq!(batch.column("y").unwrap().sample(place), Some(&[5.0_f32, 6.0][..]));
        assert_eq!(batch.column("b").unwrap().sample(place), Some(&array[..]));
    }
    let (_, _, problem) = sample_error(open(vec![with_field("m", column())]));
    assert!(problem.contains("the value is 2 bytes"), "{problem}");
    let (_, _, problem) = sample_error(open(vec![with_field("y:e", ColumnSettings::mask("k"))]));
    assert!(problem.contains("is no .npz archive") && problem.contains("\"y\""), "{problem}");
}

/// Archives that lie about their files, and parts of the format that NumPy does not write.
#[test]
fn hostile_archives_are_errors() {
    let file = npy("<f4", "(3,)", &floats(&[1.0, 2.0, 3.0]));
    let len = file.len() as u32;
    let stored = || Member::stored("a.npy", &file);
    let deflated = || Member::deflated("a.npy", &file);
    let packed = deflated().packed.len() as u32;
    let with = |change: &dyn Fn(&mut Member), mut member: Member| {
        change(&mut member);
        zip(&[member])
    };
    let sizes = |sizes: [u32; 2], member: Member| Member { sizes, own_sizes: sizes, ..member };
    let changed = |at_from_end: usize, byte: u8| {
        let mut bytes = zip(&[stored()]);
        let at = bytes.len() - at_from_end;
        bytes[at] = byte;
        bytes
    };
    let corrupt = Reason::Corrupt;
    let cases = [
        (zip(&[]), Reason::Field, "without arrays"),
        (
            zip(&[stored(), Member::stored("b.npy", &file)]),
            Reason::Field,
            "the arrays \"a\", \"b\"; name one after a colon, as in \"f.npz:a\"",
        ),
        // Wrong sizes.
        (zip(&[sizes([len - 1, len], stored())]), corrupt, "stored with"),
        (zip(&[sizes([len - 1; 2], stored())]), corrupt, "wrong checksum"),
        (zip(&[sizes([len + 1; 2], stored())]), corrupt, "ends behind the begin of the directory"),
        (zip(&[sizes([u32::MAX - 1; 2], stored())]), corrupt, "ends behind"),
        (zip(&[sizes([packed, len - 1], deflated())]), corrupt, "more than"),
        (zip(&[sizes([packed, len + 1], deflated())]), corrupt, "in place of"),
        (zip(&[sizes([packed - 1, len], deflated())]), corrupt, "cannot be inflated"),
        (
            with(&|it| it.packed.push(0), sizes([packed + 1, len], deflated())),
            corrupt,
            "before its size",
        ),
        (with(&|it| it.packed[3] ^= 0xff, deflated()), corrupt, ""),
        (with(&|it| it.checksum ^= 1, stored()), corrupt, "wrong checksum"),
        (with(&|it| it.own_sizes[1] += 1, stored()), corrupt, "disagrees"),
        (with(&|it| it.own_sizes[0] = u32::MAX, stored()), corrupt, "disagrees"),
        (with(&|it| it.extra[4] ^= 1, stored().wide()), corrupt, "disagrees"),
        (with(&|it| it.extra[2] = 200, stored().wide()), corrupt, "disagrees"),
        // Numbers of 64 bits in the directory.
        (with(&|it| it.sizes[1] = u32::MAX, stored()), Reason::Field, "zip64"),
        (with(&|it| it.sizes[0] = u32::MAX, stored()), Reason::Field, "zip64"),
        (with(&|it| it.begin = Some(u32::MAX), stored()), Reason::Field, "zip64"),
        (
            {
                let mut wide = zip(&[stored()]);
                let end = wide.len() - 22;
                wide.splice(end..end, [&b"PK\x06\x07"[..], &[0; 16]].concat());
                wide
            },
            Reason::Field,
            "zip64",
        ),
        // Encrypted files, and unknown methods.
        (with(&|it| it.flags = 1, stored()), Reason::Field, "encrypted"),
        (with(&|it| it.method = 12, stored()), Reason::Field, "compression method 12"),
        (with(&|it| it.method = 9, stored()), Reason::Field, "compression method 9"),
        // Offsets behind the end, and in a file.
        (with(&|it| it.begin = Some(1 << 20), stored()), corrupt, "ends behind"),
        (with(&|it| it.begin = Some(1), stored()), corrupt, ""),
        // Records.
        (changed(22 - 8, 2), Reason::Field, "several parts"),
        (changed(22 - 4, 1), Reason::Field, "several parts"),
        (changed(22 - 12, 0), corrupt, "its directory has"),
        (changed(22 - 19, 255), corrupt, "its directory has"),
        (changed(1, 1), corrupt, "does not end with a directory"),
        (b"PK\x03\x04".to_vec(), corrupt, "cut off"),
        (b"PK\x05\x06".to_vec(), corrupt, "cut off"),
        (b"no archive, but more than 22 bytes".to_vec(), corrupt, "does not end with a directory"),
        // No array.
        (zip(&[Member::stored("a.npy", b"text")]), corrupt, "magic number"),
        (zip(&[Member::deflated("a.npy", b"")]), corrupt, "magic number"),
        (zip(&[Member::stored("a.npy", &npy("<c8", "(1,)", &[0; 8]))]), Reason::Field, "<c8"),
    ];
    for (number, (bytes, reason, words)) in cases.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let good = || vec![("f.npz", zip(&[stored()]))];
        let others = [good(), vec![("f.npz", bytes)], good()];
        let source = archive(folder.path(), &others);
        let column = with_field("f.npz", ColumnSettings::array("x", F32, &[3]));
        let (index, found, problem) = sample_error(builder(source, vec![column]));
        assert_eq!((index, found), (1, reason), "case {number}, {words}: {problem}");
        assert!(problem.contains("\"f.npz\"") && problem.contains(words), "{words}: {problem}");
    }
}

/// Files with the same name or the same place, names that are not there, and paths into JSON.
#[test]
fn wrong_names_and_overlapping_files_are_errors() {
    let file = npy("<f4", "(3,)", &floats(&[1.0, 2.0, 3.0]));
    let named = |name: &str| Member::stored(name, &file);
    let whole = zip(&[named("a.npy"), named("b.npy")]);
    let same = Member { begin: Some(0), ..named("a.npy") };
    let nested = Member { begin: Some(40), ..named("b.npy") };
    for (bytes, path, words) in [
        (zip(&[named("a.npy"), named("a.npy")]), "f:a", "two arrays with the name \"a\""),
        (zip(&[named("a.npy"), named("a")]), "f:a", "two arrays with the name \"a\""),
        (zip(&[named("a.npy"), nested]), "f:a", "the arrays \"a\" and \"b\" overlap"),
        (zip(&[named("b.npy"), same.clone()]), "f:a", "disagrees"),
        (
            zip(&[named("a.npy"), Member { name: "b.npy".into(), ..same }]),
            "f:a",
            "at the same place",
        ),
        (whole.clone(), "f:c", "without the array \"c\" of the field \"f:c\"; it has \"a\", \"b\""),
        (whole.clone(), "f:a.b", "only the name of an array"),
        (whole.clone(), "f:[0]", "only the name of an array"),
        (whole.clone(), "f", "the arrays \"a\", \"b\""),
    ] {
        let (_, problem) = array(&bytes, path, 1 << 20).unwrap_err();
        assert!(problem.contains(words), "{words}: {problem}");
    }
    assert_eq!(array(&whole, "f:a", 1 << 20), Ok(file.clone()));
    let many: Vec<_> = (0..20).map(|number| named(&format!("x{number}.npy"))).collect();
    let (_, problem) = array(&zip(&many), "f", 1 << 20).unwrap_err();
    assert!(problem.contains("\"x7\" and 12 more"), "{problem}");
    // Wrong settings are errors before the loader starts.
    let source = Arc::new(Memory::new(jpegs(1)).unwrap());
    for field in ["f:[0]", "f:a.b", "f:", ":a"] {
        let view = View::new("v", Chain::new().then(Resize::to(8, 8))).field(field);
        let chain = Chain::new().then(Resize::to(8, 8)).view(view);
        match LoaderBuilder::new(source.clone(), chain).device(DeviceChoice::Cpu).build() {
            Err(Error::Config(error)) => assert_eq!(error.key, "view[0].field", "{error:?}"),
            other => panic!("{field}: {:?}", other.err()),
        }
    }
}

/// An archive of which any byte is changed, or that is cut at any byte, has the same array or is an
/// error. Nothing panics.
#[test]
fn damaged_archives_never_have_another_array() {
    let file = npy("<f4", "(3,)", &floats(&[1.0, 2.0, 3.0]));
    let members = [
        Member::stored("a.npy", &file).wide(),
        Member::deflated("b.npy", &file),
        Member::stored("c", b"x"),
    ];
    let whole = zip(&members);
    for path in ["f:a", "f:b"] {
        assert_eq!(array(&whole, path, 1 << 20), Ok(file.clone()));
        let mut errors = 0;
        for at in 0..whole.len() {
            assert!(array(&whole[..at], path, 1 << 20).is_err(), "cut at {at}");
            for flipped in [1, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flipped;
                match array(&damaged, path, 1 << 20) {
                    Ok(found) => assert_eq!(found, file, "byte {at}"),
                    Err(_) => errors += 1,
                }
            }
        }
        assert!(errors > 200, "{errors}");
    }
}

/// Nothing is inflated beyond the limit: an array that is larger by its own word is refused before,
/// and one that lies about its size stops there.
#[test]
fn a_bomb_is_not_inflated() {
    let bomb = npy("|u1", "(4000000,)", &vec![0; 4_000_000]);
    let limit = 1 << 16;
    let honest = zip(&[Member::deflated("a.npy", &bomb)]);
    assert!(honest.len() < 20_000);
    let (reason, problem) = array(&honest, "f:a", limit).unwrap_err();
    assert_eq!(reason, Reason::Oversized);
    assert!(problem.contains("limits.max_field_bytes is 65536; raise it"), "{problem}");
    assert_eq!(array(&honest, "f:a", bomb.len() as u64), Ok(bomb.clone()));
    let member = Member::deflated("a.npy", &bomb);
    let sizes = [member.sizes[0], 1 << 16];
    let lying = zip(&[Member { sizes, own_sizes: sizes, ..member }]);
    let (reason, problem) = array(&lying, "f:a", limit).unwrap_err();
    assert_eq!(reason, Reason::Corrupt);
    assert!(problem.contains("more than 65536 bytes"), "{problem}");

    let folder = tempfile::tempdir().unwrap();
    let source = archive(folder.path(), &[vec![("f.npz", honest)]]);
    let column = with_field("f.npz", ColumnSettings::list("x", I64, &[]));
    let (_, reason, _) = sample_error(builder(source, vec![column]));
    assert_eq!(reason, Reason::Oversized);
}
