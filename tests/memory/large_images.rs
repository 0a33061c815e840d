//! Images that need more memory than a worker's share, and files whose headers announce large
//! images.

use super::*;

pub fn a_header_of_34_bytes_does_not_allocate_a_gibibyte() {
    let head = files::webp_head(16_383, 10_900);
    assert_eq!(head.len(), 34);
    let files = Files::new(small(300).chain([head]));
    let seen = run(|| files.loader(crop()), 2);
    seen.check("header of a WebP");
    assert_eq!(seen.errors["oversized"], 2);
    assert!(seen.peak < 12 * MIB, "{}", seen.peak);
}

/// Returns the predicted memory for decoding an image, in bytes. Checks that the measured peak does
/// not exceed the prediction.
fn decoding_memory(name: &str, bytes: &[u8]) -> u64 {
    let header = Header::parse(bytes).unwrap();
    let predicted = memory_bytes(&header, bytes, bytes.len() as u64).total();
    let window = header.size.window();
    let mut decoder = Decoders::new();
    let decode = || decoder.decode(bytes, &header, window, 1, &mut |_| ()).unwrap();
    let (peak, _) = counted::most_during(decode);
    // Allocators round sizes up, so 64 bytes are allowed in addition.
    assert!(peak <= predicted + 64, "{name}: {peak} bytes, predicted {predicted}");
    predicted
}

pub fn bitmaps_gifs_and_tiffs_need_no_more_memory_than_predicted() {
    let mut count = 0;
    for entry in fs::read_dir("golden/decode").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "bmp" || it == "gif" || it == "tif") {
            decoding_memory(&path.display().to_string(), &fs::read(&path).unwrap());
            count += 1;
        }
    }
    assert!(count > 25, "{count}");
}

/// A WebP may have up to 65,536 groups of Huffman codes. libwebp allocates tables of 12 KB for each
/// group before it reads the first one, so all groups must be counted before decoding.
pub fn groups_of_codes_of_a_webp_are_counted_before_it_is_decoded() {
    let goldens = || fs::read_dir("golden/decode").unwrap().map(|it| it.unwrap().path());
    let webp = |path: &PathBuf| path.extension().is_some_and(|it| it == "webp");
    let mut count = 0;
    for path in goldens().filter(webp) {
        decoding_memory(&path.display().to_string(), &fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 10, "{count}");
    // If there are at most 1000 code groups, libwebp builds tables for all of them, used or not.
    for (width, height, cache_bits) in
        [(4, 4, 0), (80, 200, 3), (128, 124, 11), (512, 256, 0), (511, 255, 11)]
    {
        let bytes = files::webp_groups(width, height, cache_bits);
        let groups = u64::from(width.div_ceil(4) * height.div_ceil(4));
        let predicted = decoding_memory(&format!("{width}x{height}, {cache_bits}"), &bytes);
        assert!(predicted > 12_000 * groups, "{predicted}");
    }
    let lossy = fs::read("golden/decode/webp-lossy.webp").unwrap();
    let without = decoding_memory("lossy", &lossy);
    let with = decoding_memory("lossy with alpha", &files::webp_alpha_groups(&lossy, 7));
    let size = Header::parse(&lossy).unwrap().size;
    let groups = u64::from(size.width.div_ceil(4) * size.height.div_ceil(4));
    assert!(with > without + 12_000 * groups, "{with} with {groups} groups, {without} without");
}

pub fn a_webp_of_many_code_groups_is_decoded_within_the_large_image_budget_or_not_at_all() {
    // The plan does not inspect this file of 37 KB, whose 8192 groups need tables of 100 MB.
    let mut all: Vec<Vec<u8>> = small(2048).collect();
    all[101] = files::webp_groups(512, 256, 0);
    assert!(all[101].len() < 40_000);
    let files = Files::new(all);
    let less =
        run(|| files.loader(crop()).configure(|it| it.limits.large_image_memory = 64 * MIB), 1);
    less.check("with too small a budget");
    assert_eq!(less.errors["oversized"], 1);
    assert!(less.peak < 32 * MIB, "{}", less.peak);
    let enough =
        run(|| files.loader(crop()).configure(|it| it.limits.large_image_memory = 128 * MIB), 1);
    enough.check("enough room");
    assert_eq!(enough.errors["oversized"], 0);
    assert!(enough.peak > 90 * MIB, "{}", enough.peak);
}

/// The image needs more than `limits.large_image_memory`, but no other image is usual.
pub fn the_only_image_of_a_set_is_no_outlier() {
    let files = Files::new(vec![files::png(2400, 1800, false)]);
    let limited = |builder: LoaderBuilder| {
        builder.configure(|it| it.limits.large_image_memory = 4 * MIB).num_workers(1)
    };
    let seen = run(|| limited(files.loader(stored())), 2);
    seen.check("one image");
    assert_eq!(seen.errors["oversized"], 0, "{}", seen.plan);
    assert!(seen.peak > 4 * MIB, "{}", seen.peak);
}

/// The plan inspects no large image, so the workers' shares of memory are too small for large
/// images.
pub fn images_that_exceed_a_workers_share_use_the_large_image_budget() {
    // The plan inspects the 1024 files with even numbers. The large images have odd numbers.
    let large = || {
        [
            common::progressive(3, 1200, 900),
            files::png(1400, 1100, true),
            files::png(1500, 900, false),
        ]
    };
    let mut all: Vec<Vec<u8>> = small(2048).collect();
    for (number, file) in large().into_iter().cycle().take(9).enumerate() {
        all[101 * (2 * number + 1)] = file;
    }
    assert!((0..9).all(|number| 101 * (2 * number + 1) % 2 == 1));
    let files = Files::new(all);
    for (name, chain) in [("streamed", crop()), ("stored", stored()), ("floats", floats())] {
        let seen = run(
            || {
                files
                    .loader(chain.clone())
                    .configure(|it| it.limits.large_image_memory = 16 * MIB)
                    .num_workers(4)
            },
            1,
        );
        seen.check(name);
        assert_eq!(seen.errors["oversized"], 0, "{name}: {}", seen.plan);
        // The peak shows that the memory for large images is really needed.
        assert!(
            seen.peak > seen.predicted - 16 * MIB,
            "{name}: {} of {}",
            seen.peak,
            seen.predicted
        );
        let less = run(
            || {
                files
                    .loader(chain.clone())
                    .configure(|it| it.limits.large_image_memory = MIB)
                    .num_workers(4)
            },
            1,
        );
        less.check(name);
        assert!(less.errors["oversized"] >= 6, "{name}");
    }
}

/// Workers may wait for memory while the loader is dropped. Dropping must not hang.
pub fn a_loader_can_be_dropped_while_its_workers_wait_for_memory() {
    let all = (0..2000).map(|number| match number % 2 {
        0 => common::jpeg(1, 64, 48),
        _ => common::png(1, 40, 30),
    });
    let files =
        Files::new(all.collect::<Vec<_>>().into_iter().enumerate().map(|(number, file)| {
            // Large images have odd numbers, because the plan inspects only even ones.
            if number % 32 == 1 { files::png(900, 700, true) } else { file }
        }));
    for batches in 0..3 {
        let mut loader = files
            .loader(stored())
            .num_workers(6)
            .configure(|it| it.limits.large_image_memory = 8 * MIB)
            .build()
            .unwrap();
        for batch in loader.epoch().take(batches) {
            batch.unwrap();
        }
    }
}
