//! Number of images per call of the JPEG engines, as the plan chooses it.

use super::*;

/// Returns the planned number of images per call for images of this size, and the device memory
/// that this number needs, in bytes.
fn hardware_group(image: Size, wanted: Option<usize>, batch: usize) -> (usize, u64) {
    let (chain, mut settings) = job();
    settings.decode.hardware_group = wanted;
    settings.loader.batch_size = batch;
    let pixels = image.pixels();
    let plan = Plan::new(&chain, &settings, &facts(image, pixels / 2)).unwrap();
    let row =
        |name| plan.footprint.rows.iter().find(|it| it.memory == Memory::Device && it.name == name);
    let (pages, states) = (row(rows::PIXELS), row(rows::decoder(Route::NvjpegHardware)));
    let routes = &device(&plan).routes;
    let group = routes.iter().find(|it| it.route == Route::NvjpegHardware).unwrap().group;
    let pages = 3 * group as u64 * pages.unwrap().each_bytes;
    (group, pages + states.unwrap().total_bytes())
}

#[test]
fn the_engines_get_as_many_images_per_call_as_their_memory_allows() {
    let default = |width, height| hardware_group(Size::new(width, height), None, 256);
    let (group, bytes) = default(500, 375);
    assert!((8..32).contains(&group), "{group}");
    assert!((56 * MIB..=66 * MIB).contains(&bytes), "{bytes}");
    assert_eq!(default(160, 120).0, 32, "small images");
    assert_eq!(default(4000, 3000).0, 7, "one image for each engine of a large GPU");
    assert_eq!(
        hardware_group(Size::new(160, 120), None, 8).0,
        12,
        "half of the samples in three slots"
    );
}

#[test]
fn the_size_of_a_call_can_be_set_and_the_footprint_follows() {
    let set = |group| hardware_group(Size::new(500, 375), Some(group), 256);
    for group in [1, 7, 64] {
        assert_eq!(set(group).0, group);
    }
    assert!(set(64).1 > 8 * set(7).1);
    // Under a memory limit, the plan reduces the number of images per call, even if a setting fixes
    // it.
    let (chain, mut settings) = job();
    settings.decode.hardware_group = Some(64);
    settings.limits.device_memory = Some(400 * MIB);
    let plan = Plan::new(&chain, &settings, &facts(Size::new(500, 375), 120_000)).unwrap();
    assert!((4..64).contains(&device(&plan).hardware_group), "{plan}");
    assert!(plan.reductions.iter().any(|it| it.name == "hardware group" && it.instead_of == 64));
}
