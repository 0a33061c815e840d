//! Groups of damaged PNGs. The code here writes every byte, so that no version of a library changes
//! the files.

use std::slice::from_ref;

use super::coding::{Chunk, Coding, HEAD, file, letters, stored, zlib};

/// A group of files with the same kind of damage.
pub struct Group {
    pub name: String,
    pub files: Vec<Vec<u8>>,
}

/// For each pass of an interlaced image: first column, first row, and the steps in x and y.
const PASSES: [[u32; 4]; 7] = [
    [0, 0, 8, 8],
    [4, 0, 8, 8],
    [0, 4, 4, 8],
    [2, 0, 4, 4],
    [0, 2, 2, 4],
    [1, 0, 2, 2],
    [0, 1, 1, 2],
];

/// A test image. Its rows use PNG's five filters in turn.
#[derive(Clone, Copy)]
struct Image {
    name: &'static str,
    size: (u32, u32),
    bits: u8,
    color: u8,
    interlaced: bool,
}

const KINDS: [(&str, u8, u8); 6] = [
    ("gray-1", 1, 0),
    ("gray-16", 16, 0),
    ("rgb", 8, 2),
    ("palette-4", 4, 3),
    ("gray-alpha-16", 16, 4),
    ("rgba", 8, 6),
];

impl Image {
    fn head(&self) -> Chunk {
        let (width, height) = self.size;
        let tail = [self.bits, self.color, 0, 0, self.interlaced.into()];
        (*b"IHDR", [&width.to_be_bytes()[..], &height.to_be_bytes(), &tail].concat())
    }

    /// Returns the chunks that precede the pixel data.
    fn start(&self) -> Vec<Chunk> {
        let colors: Vec<u8> = (0..16u8).flat_map(|it| [it * 16, 255 - it, it * it]).collect();
        let palette = (self.color == 3).then_some((*b"PLTE", colors));
        [self.head()].into_iter().chain(palette).collect()
    }

    /// Returns the rows as they are stored: a filter byte, then bytes of noise.
    fn rows(&self) -> Vec<Vec<u8>> {
        let samples = [1, 0, 3, 1, 2, 0, 4][usize::from(self.color)];
        let passes = if self.interlaced { &PASSES[..] } else { &[[0, 0, 1, 1]] };
        let mut rows = Vec::new();
        let mut noise = noise(7 + u32::from(self.color));
        for [x, y, across, down] in passes {
            let side =
                |side: u32, first: &u32, step: &u32| side.saturating_sub(*first).div_ceil(*step);
            let (columns, lines) = (side(self.size.0, x, across), side(self.size.1, y, down));
            let bytes = (columns as usize * samples * usize::from(self.bits)).div_ceil(8);
            for _ in (0..lines).filter(|_| columns > 0) {
                let filter = (rows.len() % 5) as u8;
                rows.push([filter].into_iter().chain((0..bytes).map(|_| noise())).collect());
            }
        }
        rows
    }
}

fn noise(mut state: u32) -> impl FnMut() -> u8 {
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }
}

/// Returns the chunks of the image. `data` is split into `parts` chunks of pixel data. If there are
/// several, an empty chunk is inserted after the first one.
fn with_data(image: &Image, data: &[u8], parts: usize) -> Vec<Chunk> {
    let mut chunks = image.start();
    let size = data.len().div_ceil(parts).max(1);
    chunks.extend(data.chunks(size).map(|part| (*b"IDAT", part.to_vec())));
    if parts > 1 {
        chunks.insert(image.start().len() + 1, (*b"IDAT", Vec::new()));
    }
    chunks.push((*b"IEND", Vec::new()));
    chunks
}

fn whole(image: &Image, coding: Coding, parts: usize) -> Vec<Chunk> {
    with_data(image, &zlib(&image.rows().concat(), coding), parts)
}

fn image(kind: usize, interlaced: bool, size: (u32, u32)) -> Image {
    let (name, bits, color) = KINDS[kind];
    Image { name, size, bits, color, interlaced }
}

fn named(image: &Image, what: &str) -> String {
    let way = if image.interlaced { "interlaced" } else { "plain" };
    let (width, height) = image.size;
    format!("{}-{way}-{width}x{height}/{what}", image.name)
}

/// Returns `chunks` with ancillary chunks before and after the pixel data.
fn with_others(chunks: &[Chunk]) -> Vec<Chunk> {
    let profile = [b"name\0\0", &zlib(b"profile", Coding::Fixed)[..]].concat();
    let text = [b"key\0\0", &zlib(b"text", Coding::Fixed)[..]].concat();
    let international = [b"key\0\x01\0en\0key\0", &zlib(b"text", Coding::Fixed)[..]].concat();
    let before: [(&[u8; 4], &[u8]); 6] = [
        (b"gAMA", &45455u32.to_be_bytes()),
        (b"cHRM", &[1; 32]),
        (b"pHYs", &[0, 0, 11, 19, 0, 0, 11, 19, 1]),
        (b"iCCP", &profile),
        (b"tEXt", b"key\0text"),
        (b"prVt", b"private"),
    ];
    let behind: [(&[u8; 4], &[u8]); 4] =
        [(b"tIME", &[1; 7]), (b"zTXt", &text), (b"iTXt", &international), (b"eXIf", b"MM\0*")];
    let owned = |(kind, data): &(&[u8; 4], &[u8])| (**kind, data.to_vec());
    let (pixels, end) = (&chunks[1..chunks.len() - 1], &chunks[chunks.len() - 1..]);
    let before = before.iter().map(owned);
    let behind = behind.iter().map(owned);
    let start = chunks[..1].iter().cloned().chain(before).chain(pixels.iter().cloned());
    start.chain(behind).chain(end.iter().cloned()).collect()
}

/// Adds files truncated after every byte, and files with each byte changed.
fn bytes(groups: &mut Vec<Group>) {
    let mut all = |name: &str, file: &[u8]| {
        let mut group = |what: &str, files| {
            groups.push(Group { name: format!("{name}/{what}"), files });
        };
        group("cut", (0..=file.len()).map(|end| file[..end].to_vec()).collect());
        for mask in [0x01, 0x20, 0xFF] {
            let changed = |at: usize| {
                let mut file = file.to_vec();
                file[at] ^= mask;
                file
            };
            group(&format!("xor-{mask:02x}"), (0..file.len()).map(changed).collect());
        }
    };
    for interlaced in [false, true] {
        for kind in 0..KINDS.len() {
            let image = image(kind, interlaced, (7, 6));
            for (coding, how) in [(Coding::Stored, "stored"), (Coding::Fixed, "fixed")] {
                for parts in [1, 3] {
                    let name = named(&image, &format!("{how}/{parts}"));
                    all(&name, &file(&whole(&image, coding, parts)));
                }
            }
            let name = named(&image, "others");
            all(&name, &file(&with_others(&whole(&image, Coding::Fixed, 1))));
        }
    }
}

/// Adds files in which one byte of the pixel data is changed and the chunk's checksum is corrected.
fn redone(groups: &mut Vec<Group>) {
    for (kind, interlaced) in [(2, false), (2, true), (3, false), (3, true), (5, false), (5, true)]
    {
        let image = image(kind, interlaced, (7, 6));
        for (coding, how) in [(Coding::Stored, "stored"), (Coding::Fixed, "fixed")] {
            let packed = zlib(&image.rows().concat(), coding);
            for mask in [0x01, 0x10, 0x20, 0xFF] {
                let changed = |at: usize| {
                    let mut packed = packed.clone();
                    packed[at] ^= mask;
                    file(&with_data(&image, &packed, 1))
                };
                let name = named(&image, &format!("{how}/data-xor-{mask:02x}"));
                groups.push(Group { name, files: (0..packed.len()).map(changed).collect() });
            }
        }
    }
}

/// Adds files with missing or wrong chunk checksums, and with missing, repeated and reordered
/// chunks.
fn chunks(groups: &mut Vec<Group>) {
    for (kind, interlaced) in [(2, false), (2, true), (3, false), (3, true)] {
        let image = image(kind, interlaced, (7, 6));
        for parts in [1, 3] {
            let chunks = with_others(&whole(&image, Coding::Fixed, parts));
            let mut each = |what: &str, change: &dyn Fn(usize) -> Vec<u8>| {
                let name = named(&image, &format!("chunks/{parts}/{what}"));
                groups.push(Group { name, files: (0..chunks.len()).map(change).collect() });
            };
            let around = |at: usize, chunk: &[u8]| {
                let behind = &file(&chunks[at + 1..])[HEAD.len()..];
                [&file(&chunks[..at]), chunk, behind].concat()
            };
            let alone = |at: usize| stored(&chunks[at].0, &chunks[at].1);
            let split = |at: usize| {
                alone(at).split_last_chunk::<4>().map(|(a, b)| (a.to_vec(), *b)).unwrap()
            };
            each("no-checksum", &|at| around(at, &split(at).0));
            each("wrong-checksum", &|at| {
                around(at, &[&split(at).0[..], &split(at).1.map(|it| !it)].concat())
            });
            each("short-checksum", &|at| around(at, &alone(at)[..alone(at).len() - 2]));
            each("lost", &|at| around(at, &[]));
            each("twice", &|at| around(at, &alone(at).repeat(2)));
            each("bad-name", &|at| around(at, &stored(b"a b!", &chunks[at].1)));
            each("first", &|at| [HEAD, &alone(at), &around(at, &[])[HEAD.len()..]].concat());
            each("last", &|at| [around(at, &[]), alone(at)].concat());
        }
    }
}

/// Adds files whose pixel data ends after any row, within a row, or after the image, with and
/// without zlib's checksum.
fn data(groups: &mut Vec<Group>) {
    let sizes = [(7, 6), (1, 1), (1, 5), (5, 1), (3, 2), (9, 9)];
    for (interlaced, kind) in
        [false, true].into_iter().flat_map(|it| (0..KINDS.len()).map(move |kind| (it, kind)))
    {
        for size in sizes {
            let image = image(kind, interlaced, size);
            let rows = image.rows();
            for (coding, how) in [(Coding::Stored, "stored"), (Coding::Fixed, "fixed")] {
                let mut group = |what: &str, files: Vec<Vec<u8>>| {
                    groups.push(Group { name: named(&image, &format!("{how}/{what}")), files });
                };
                let of = |bytes: &[u8]| file(&with_data(&image, &zlib(bytes, coding), 1));
                group("rows", (0..=rows.len()).map(|count| of(&rows[..count].concat())).collect());
                let half = |count: usize| {
                    let next = &rows[count][..rows[count].len() / 2];
                    of(&[&rows[..count].concat(), next].concat())
                };
                group("half-a-row", (0..rows.len()).map(half).collect());
                let all = rows.concat();
                group(
                    "surplus",
                    (1..5).map(|more| of(&[&all[..], &vec![9; more]].concat())).collect(),
                );
                let packed = zlib(&all, coding);
                let tail =
                    |bytes: &[u8]| file(&with_data(&image, &[&packed[..], bytes].concat(), 1));
                group("garbage", (1..5).map(|more| tail(&vec![9; more])).collect());
                // The last bytes of the zlib data are in a separate chunk. They may be wrong, and
                // rows may be missing before them.
                let apart = |packed: &[u8], last: usize, wrong: u8| {
                    let (body, end) = packed.split_at(packed.len() - last);
                    let end = end.iter().map(|byte| byte ^ wrong).collect::<Vec<_>>();
                    let mut chunks = with_data(&image, body, 1);
                    chunks.insert(chunks.len() - 1, (*b"IDAT", end));
                    file(&chunks)
                };
                for wrong in [0, 0x10] {
                    let what = format!("last-bytes-apart-{wrong:02x}");
                    group(&what, (0..8).map(|last| apart(&packed, last, wrong)).collect());
                    let fewer = zlib(&rows[..rows.len() - 1].concat(), coding);
                    let what = format!("last-bytes-of-fewer-rows-apart-{wrong:02x}");
                    group(&what, (0..8).map(|last| apart(&fewer, last, wrong)).collect());
                }
                let without =
                    |last: usize| file(&with_data(&image, &packed[..packed.len() - last], 1));
                group("last-bytes-lost", (0..8).map(without).collect());
            }
        }
    }
}

/// Pillow reads 64 KiB of pixel data at a time. Adds files in which zlib's checksum ends before,
/// across or after the end of such a read.
fn reads(groups: &mut Vec<Group>) {
    let size =
        |columns| Image { name: "gray", size: (columns, 1), bits: 8, color: 0, interlaced: false };
    for wrong in [0, 1] {
        for interlaced in [false, true] {
            let of = |behind: u32| {
                // A row has one filter byte. The four passes of an interlaced image of one row have
                // four filter bytes. A stored block has eleven bytes of overhead, of which the last
                // four are the checksum.
                let filters = if interlaced { 4 } else { 1 };
                let image = Image { interlaced, ..size((64 << 10) + behind - 11 - filters) };
                let rows = vec![0; (image.size.0 + filters) as usize];
                let mut packed = zlib(&rows, Coding::Stored);
                *packed.last_mut().unwrap() ^= wrong;
                file(&with_data(&image, &packed, 1))
            };
            let way = if interlaced { "interlaced" } else { "plain" };
            let name = format!("end-of-a-read/{way}/{wrong}");
            groups.push(Group { name, files: (0..8).map(of).collect() });
        }
    }
}

/// Adds files with ancillary chunks of every length, before and after the pixel data.
fn others(groups: &mut Vec<Group>) {
    const NAMES: [&[u8; 4]; 22] = [
        b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"iCCP", b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tRNS",
        b"PLTE", b"acTL", b"fcTL", b"fdAT", b"bKGD", b"hIST", b"sBIT", b"sPLT", b"tIME", b"cICP",
        b"IHDR", b"prVt",
    ];
    for (kind, interlaced) in
        [(0, false), (1, false), (2, true), (2, false), (3, false), (3, true), (5, false)]
    {
        let image = image(kind, interlaced, (7, 6));
        let chunks = whole(&image, Coding::Fixed, 1);
        for name in NAMES {
            for place in [1, chunks.len() - 2, chunks.len() - 1] {
                for fill in [0, 1, 255, b'a'] {
                    let of = |length: usize| {
                        let mut chunks = chunks.clone();
                        chunks.insert(place, (*name, vec![fill; length]));
                        file(&chunks)
                    };
                    let what = format!("{}/at-{place}/{fill}", name.escape_ascii());
                    let lengths = (0..34).chain([766, 768, 770, 771, 774]);
                    groups.push(Group {
                        name: named(&image, &what),
                        files: lengths.map(of).collect(),
                    });
                }
            }
        }
    }
}

/// Adds files with long texts and profiles, and with other chunk contents that Pillow parses.
fn contents(groups: &mut Vec<Group>) {
    const MOST: usize = 1 << 20;
    let image = image(2, false, (7, 6));
    let chunks = whole(&image, Coding::Fixed, 1);
    let palette = whole(&self::image(3, false, (7, 6)), Coding::Fixed, 1);
    let mut group = |name: &str, chunks: &[Chunk], others: Vec<Vec<Chunk>>| {
        for (what, place) in [("before", chunks.len() - 2), ("behind", chunks.len() - 1)] {
            let files = others.iter().map(|others| {
                let (start, end) = chunks.split_at(place);
                file(&[start, others, end].concat())
            });
            groups.push(Group { name: format!("{name}/{what}"), files: files.collect() });
        }
    };
    let heads: [(&[u8; 4], &[u8]); 5] = [
        (b"iCCP", b"name\0\0"),
        (b"zTXt", b"key\0\0"),
        (b"zTXt", b"\0\0"),
        (b"iTXt", b"key\0\x01\0\0\0"),
        (b"iTXt", b"\0\x01\0\0\0"),
    ];
    for (kind, head) in heads {
        let one = |packed: &[u8]| (*kind, [head, packed].concat());
        let long = [MOST - 1, MOST, MOST + 1, 2 * MOST].map(letters);
        let cut = long.iter().map(|it| &it[..it.len() - 6]);
        let wrong = long.iter().map(|it| [&it[..it.len() - 1], &[it[it.len() - 1] ^ 1]].concat());
        let files = long.iter().cloned().chain(cut.map(<[u8]>::to_vec)).chain(wrong);
        let name = format!("long/{}/{}", kind.escape_ascii(), head.escape_ascii());
        group(&name, &chunks, files.map(|it| vec![one(&it)]).collect());
        let many = [63, 64, 65].map(|count| vec![one(&letters(MOST)); count]);
        group(&format!("many-{name}"), &chunks, many.to_vec());
    }
    for method in [0, 1, 0xFF] {
        let of =
            |kind: &[u8; 4], head: &[u8]| vec![(*kind, [head, &[method, 0x78, 1, 3, 0]].concat())];
        let texts = vec![
            of(b"iCCP", b"name\0"),
            of(b"zTXt", b"key\0"),
            of(b"iTXt", b"key\0\x01"),
            of(b"iCCP", b""),
        ];
        group(&format!("method-{method}"), &chunks, texts);
    }
    let alphas: [&[u8]; 7] =
        [b"\0", b"\xff\0", b"\xff\0\xff\n", b"\0\0", b"\xff\xfe", b"\xff\xff", b"\n"];
    let alphas = alphas.map(|alphas| vec![(*b"tRNS", alphas.to_vec())]).to_vec();
    group("transparent-color", &palette, alphas.clone());
    let without: Vec<_> = palette.iter().filter(|it| it.0 != *b"PLTE").cloned().collect();
    group("transparent-color-without-palette", &without, alphas);
    for colors in 0..20 {
        let mut short = palette.clone();
        short[1].1.truncate(colors * 2);
        group(&format!("palette-of-{}-bytes", 2 * colors), &short, vec![vec![]]);
    }
}

/// Adds files with valid and invalid sequence numbers, sizes and positions of animation frames.
fn animations(groups: &mut Vec<Group>) {
    let image = image(2, false, (7, 6));
    let [head, pixels, end] = whole(&image, Coding::Fixed, 1).try_into().unwrap();
    let count = |frames: u32| (*b"acTL", [frames.to_be_bytes(), [0; 4]].concat());
    let control = |number: u32, width: u32, x: u32| {
        let sides = [number, width, 6, x, 0].map(u32::to_be_bytes).concat();
        (*b"fcTL", [&sides[..], &[0, 1, 0, 10, 0, 0]].concat())
    };
    let frame = |number: u32| (*b"fdAT", [&number.to_be_bytes()[..], &pixels.1].concat());
    let bad = (*b"gAMA", vec![1]);
    let whole = |number: u32| control(number, 7, 0);
    let mut files = Vec::new();
    for frames in [0, 1, 2, 0x8000_0000, 0x8000_0001] {
        for first in [vec![], vec![whole(0)], vec![whole(1)]] {
            let tails = [
                vec![],
                vec![bad.clone()],
                vec![whole(1), frame(2)],
                vec![whole(0), frame(1)],
                vec![whole(1), bad.clone()],
                vec![whole(0), bad.clone()],
                vec![whole(1), frame(3)],
                vec![control(1, 7, 1)],
                vec![control(0, 8, 0)],
                vec![frame(1)],
                vec![frame(0)],
                vec![count(5), whole(0), bad.clone()],
            ];
            for tail in tails {
                for counts in [vec![], vec![count(frames)], vec![count(frames); 2]] {
                    let start = [&[head.clone()][..], &counts, &first].concat();
                    files.push(file(
                        &[&start[..], from_ref(&pixels), &tail, from_ref(&end)].concat(),
                    ));
                }
            }
        }
    }
    groups.push(Group { name: "animations".into(), files });
    // Pillow accepts these animations. Their default image is a part of the animation, or there is
    // no default image.
    let small = self::image(2, false, (5, 6));
    let small = self::whole(&small, Coding::Fixed, 1).swap_remove(1);
    let parts = [0, 2]
        .map(|x| file(&[head.clone(), count(1), control(0, 5, x), small.clone(), end.clone()]));
    groups.push(Group { name: "animation-whose-image-is-a-part".into(), files: parts.into() });
    let only = file(&[head.clone(), count(1), whole(0), frame(1), end.clone()]);
    groups.push(Group { name: "animation-without-image".into(), files: vec![only] });
    let part = [control(0, 5, 0), control(0, 5, 2), control(0, 8, 0), control(0, 0, 0)];
    let part = part.map(|it| file(&[head.clone(), count(1), it, pixels.clone(), end.clone()]));
    groups.push(Group { name: "animation-of-a-part".into(), files: part.into() });
}

/// Adds files whose header is changed and has a correct checksum.
fn headers(groups: &mut Vec<Group>) {
    for interlaced in [false, true] {
        let image = image(2, interlaced, (7, 6));
        let chunks = whole(&image, Coding::Fixed, 1);
        for (place, what) in
            [(8, "depth"), (9, "color"), (10, "compression"), (11, "filter"), (12, "interlacing")]
        {
            let of = |value: u8| {
                let mut chunks = chunks.clone();
                chunks[0].1[place] = value;
                file(&chunks)
            };
            groups.push(Group {
                name: named(&image, &format!("IHDR/{what}")),
                files: (0..18).map(of).collect(),
            });
        }
        let mut other = chunks[0].clone();
        other.1[7] = 5;
        let seconds = [chunks[0].clone(), other]
            .map(|it| file(&[&chunks[..1], &[it], &chunks[1..]].concat()));
        groups.push(Group { name: named(&image, "IHDR/second"), files: seconds.into() });
        let mut long = chunks.clone();
        long[0].1.push(0);
        groups.push(Group { name: named(&image, "IHDR/long"), files: vec![file(&long)] });
    }
}

/// Returns all groups. The files are the same in every call.
pub fn all() -> Vec<Group> {
    let mut groups = Vec::new();
    for make in [bytes, redone, chunks, data, reads, others, contents, animations, headers] {
        make(&mut groups);
    }
    groups
}
