//! The window of an image that a sample needs.

use super::*;

#[test]
fn only_a_leading_crop_is_decoded() {
    let chain = Chain::new().then(Crop { x: 100, y: 50, width: 64, height: 32 });
    let plan = plan(&chain, |_| ());
    let out = sample(&plan, &header(Size::new(500, 375), Format::Jpeg, 1), 0);
    assert_eq!(out.window, Roi::new(100, 50, 64, 32));
    assert_eq!(out.stored_window, out.window);
    assert_eq!(out.trace.roi, out.window);
}

#[test]
fn crops_and_flips_in_a_row_are_one_window() {
    let chain = Chain::new()
        .then(Crop { x: 100, y: 50, width: 64, height: 32 })
        .then(Flip { horizontal: 1.0, vertical: 1.0 })
        .then(Crop { x: 4, y: 5, width: 10, height: 6 });
    let plan = plan(&chain, |_| ());
    let out = sample(&plan, &header(Size::new(500, 375), Format::Jpeg, 1), 0);
    // After the flips, the second crop covers columns 4 to 13 from the right edge of the first
    // crop, and rows 5 to 10 from its bottom.
    assert_eq!(out.window, Roi::new(100 + 64 - 14, 50 + 32 - 11, 10, 6));
}

#[test]
fn random_resized_crop_reads_only_its_own_box() {
    let plan = plan(&training(), |_| ());
    let header = header(Size::new(500, 375), Format::Jpeg, 1);
    let mut smaller = 0;
    for index in 0..200 {
        let out = sample(&plan, &header, index);
        assert_eq!(out.window, out.trace.roi, "sample {index}");
        assert!(header.size.window().contains(out.window), "sample {index}");
        smaller += u32::from(out.window.size().pixels() < header.size.pixels() / 2);
    }
    assert!(smaller > 40, "{smaller} of 200 crops are less than half of the image");
}

#[test]
fn resize_and_center_crop_read_less_than_the_image() {
    let chain =
        Chain::new().then(Resize::shorter(256)).then(feedwater::op::CenterCrop::to(224, 224));
    let plan = plan(&chain, |_| ());
    let out = sample(&plan, &header(Size::new(500, 375), Format::Jpeg, 1), 0);
    // 224 of the 256 output rows are needed. They correspond to 328 of the 375 input rows, plus the
    // filter's support on both sides.
    for (first, len, whole) in
        [(out.window.x, out.window.width, 500), (out.window.y, out.window.height, 375)]
    {
        assert!((328..=334).contains(&len), "{}", out.window);
        let after = whole - first - len;
        assert!(first.abs_diff(after) <= 3, "{} must be in the middle", out.window);
    }
}

#[test]
fn prescale_downscales_as_far_as_the_needed_size_allows() {
    let chain = Chain::new().then(RandomResizedCrop::to(224, 224));
    let with = plan(&chain, |settings| settings.decode.prescale = true);
    let without = plan(&chain, |_| ());
    let mut seen = std::collections::BTreeSet::new();
    for (width, height) in [(500, 375), (2047, 1535), (4096, 3072)] {
        let header = header(Size::new(width, height), Format::Jpeg, 1);
        for index in 0..200 {
            let out = sample(&with, &header, index);
            let roi = out.trace.roi;
            let leaves = |by: u32| roi.width / by >= 224 && roi.height / by >= 224;
            assert!(out.reduction == 1 || leaves(out.reduction), "sample {index}");
            assert!(out.reduction == 8 || !leaves(2 * out.reduction), "sample {index}");
            let stored = [width, height].map(|side| side.div_ceil(out.reduction));
            assert_eq!(out.stored, Size::new(stored[0], stored[1]));
            assert!(out.stored.window().contains(out.window));
            let full = sample(&without, &header, index);
            assert_eq!((full.reduction, full.trace), (1, out.trace));
            seen.insert(out.reduction);
        }
    }
    assert!(seen.into_iter().eq([1, 2, 4, 8]), "every reduction must be used");
}

#[test]
fn only_a_jpeg_whose_first_operator_resamples_is_reduced() {
    let prescale = |settings: &mut Settings| settings.decode.prescale = true;
    let size = Size::new(2048, 1536);
    let reduction = |chain: &Chain, format| {
        let plan = plan(chain, prescale);
        sample(&plan, &header(size, format, 1), 0).reduction
    };
    let resize = Chain::new().then(Resize::to(224, 224));
    assert_eq!(reduction(&resize, Format::Jpeg), 4);
    assert_eq!(reduction(&resize, Format::Png), 1);
    assert_eq!(reduction(&resize, Format::WebP), 1);
    let crop = Crop { x: 0, y: 0, width: 2000, height: 1500 };
    assert_eq!(reduction(&Chain::new().then(crop).then(Resize::to(8, 8)), Format::Jpeg), 1);
}

#[test]
fn the_stored_window_is_the_upright_window_rotated_back() {
    let chain = Chain::new().then(Crop { x: 10, y: 20, width: 30, height: 40 });
    let upright = plan(&chain, |_| ());
    let size = Size::new(200, 100);
    // With EXIF orientation 6, the left column of the stored image, from bottom to top, is the top
    // row of the upright image.
    let out = sample(&upright, &header(size, Format::Jpeg, 6), 0);
    assert_eq!((out.upright, out.stored), (Size::new(100, 200), size));
    assert_eq!(out.window, Roi::new(10, 20, 30, 40));
    assert_eq!(out.stored_window, Roi::new(20, 100 - 10 - 30, 40, 30));
    // EXIF orientation 3 is a rotation by 180 degrees.
    let out = sample(&upright, &header(size, Format::Jpeg, 3), 0);
    assert_eq!(out.stored_window, Roi::new(200 - 40, 100 - 60, 30, 40));
    for exif in 1..=8 {
        let out = sample(&upright, &header(size, Format::Jpeg, exif), 0);
        assert_eq!(out.stored_window, out.orientation.stored_window(out.stored, out.window));
        assert!(size.window().contains(out.stored_window));
    }
    let as_stored = plan(&chain, |settings| settings.decode.orientation = false);
    let out = sample(&as_stored, &header(size, Format::Jpeg, 6), 0);
    assert_eq!((out.upright, out.stored_window), (size, Roi::new(10, 20, 30, 40)));
}

#[test]
fn a_downscaled_image_is_rotated_after_downscaling() {
    let chain = Chain::new().then(Resize::to(20, 30));
    let plan = plan(&chain, |settings| settings.decode.prescale = true);
    let out = sample(&plan, &header(Size::new(1001, 501), Format::Jpeg, 8), 0);
    assert_eq!((out.upright, out.reduction), (Size::new(501, 1001), 8));
    assert_eq!(out.stored, Size::new(126, 63));
    assert_eq!(out.stored_window, out.stored.window());
    assert_eq!(out.window, Roi::new(0, 0, 63, 126));
}

#[test]
fn an_image_over_max_pixels_is_an_error_and_one_at_the_limit_is_not() {
    let plan = plan(&training(), |settings| settings.limits.max_pixels = 10_000);
    let header = |width, height| {
        let size = Size::new(width, height);
        plan.header(&[PnmHead::rgb(size).bytes(), &vec![0; 3 * size.pixels() as usize]].concat())
    };
    assert_eq!(header(100, 100).unwrap().size, Size::new(100, 100));
    let fault = header(101, 100).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    for value in ["101x100", "10100", "limits.max_pixels", "10000"] {
        assert!(fault.problem.contains(value), "{fault}");
    }
}

/// A sample plan that is reused contains nothing of the previous sample.
#[test]
fn a_reused_sample_plan_equals_a_new_one() {
    let plan = plan(&evaluation(), |settings| settings.decode.prescale = true);
    let headers = [(900, 700, 6), (31, 47, 1), (500, 375, 3)];
    let mut reused = SamplePlan::default();
    for (index, (width, height, exif)) in headers.into_iter().enumerate() {
        let header = header(Size::new(width, height), Format::Jpeg, exif);
        let key = SampleKey { seed: 1, epoch: 0, index: index as u64 };
        plan.sample(key, &header, &mut reused).unwrap();
        let new = sample(&plan, &header, index as u64);
        assert_eq!(reused.actions.table, new.actions.table);
        assert_eq!((reused.stored_window, reused.trace), (new.stored_window, new.trace));
        for (a, b) in reused.actions.list.iter().zip(&new.actions.list) {
            assert_eq!(a.params.bytes(0).as_bytes(), b.params.bytes(0).as_bytes());
            assert_eq!((&a.table, a.input, a.output), (&b.table, b.input, b.output));
        }
    }
}

#[test]
fn a_real_header_plans_as_well() {
    let plan = plan(&training(), |_| ());
    let header = Header::parse(&jpeg(3, 57, 43)).unwrap();
    assert_eq!(sample(&plan, &header, 3).upright, Size::new(57, 43));
}
