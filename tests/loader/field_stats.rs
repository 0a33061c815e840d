//! Counts and times of the fields that columns read.

use crate::common::{jpeg, png_of_samples, training};
use crate::with_fields::{Values, WithFields};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::plan::{ColumnSettings, DefaultValue, LastBatch};
use feedwater::source::Memory;

#[test]
fn each_field_has_its_bytes_times_and_share_of_the_samples() {
    let images: Vec<_> = (0..10).map(|seed| (jpeg(seed, 60, 50), 0)).collect();
    // A third of the samples has no mask.
    let masks: Vec<Vec<u8>> = (0..10_u8)
        .map(|at| match at % 3 {
            2 => Vec::new(),
            _ => png_of_samples(&[at; 3000], (60, 50), 8, None),
        })
        .collect();
    let texts: Vec<String> = (1..11).map(|at| "é".repeat(at)).collect();
    let bytes = |values: &[Vec<u8>]| values.iter().map(Vec::len).sum::<usize>() as u64;
    let mask_bytes = bytes(&masks);
    let source = WithFields {
        images: Memory::new(images).unwrap(),
        fields: vec![("seg.png", Values::Files(masks)), ("caption", Values::Texts(texts))],
    };
    let builder = Loader::builder(source, training()).batch_size(4).device(DeviceChoice::Cpu);
    let builder = builder.epochs(Some(1)).num_workers(2).configure(|it| {
        it.loader.last_batch = LastBatch::Partial;
        it.columns = vec![
            ColumnSettings {
                field: Some("seg.png".into()),
                default: Some(DefaultValue::Integer(0)),
                ..ColumnSettings::mask("mask")
            },
            ColumnSettings::text("caption"),
        ];
    });
    let mut loader = builder.build().unwrap();
    assert_eq!(loader.epoch().map(|batch| batch.unwrap().len()).sum::<usize>(), 10);
    let stats = loader.stats();
    let [mask, caption] = &stats.fields[..] else { panic!("{:?}", stats.fields) };
    assert_eq!((mask.column.as_str(), mask.field.as_str()), ("mask", "seg.png"));
    assert_eq!((mask.samples, mask.count, mask.bytes), (10, 7, mask_bytes));
    assert_eq!((caption.column.as_str(), caption.field.as_str()), ("caption", "caption"));
    assert_eq!((caption.samples, caption.count, caption.bytes), (10, 10, 2 * 55));
    // The first samples of a thread are always timed.
    assert!(mask.convert > 0.0 && mask.follow > 0.0 && caption.convert > 0.0, "{stats:?}");
    assert_eq!(caption.follow, 0.0, "texts do not follow the image");
    let profile = loader.profile();
    let fields = profile.fields.iter().map(|it| (it.column.as_str(), it.count, it.share));
    assert!(fields.eq([("mask", 7, 0.7), ("caption", 10, 1.0)]));
    let report = loader.report().unwrap().to_string();
    let line = |start: &str| report.lines().find(|it| it.trim_start().starts_with(start));
    let mask = line("field mask (seg.png): ").unwrap_or_else(|| panic!("{report}"));
    assert!(mask.contains("; 70 % of 10 samples with ") && mask.contains(", decode and move "));
    let caption = line("field caption: ").unwrap_or_else(|| panic!("{report}"));
    assert!(caption.contains("100 % of 10 samples with 110 B in total; read "), "{caption}");
    assert!(!caption.contains("decode and move"), "{caption}");
}

#[test]
fn a_loader_without_columns_has_no_fields() {
    let images: Vec<_> = (0..4).map(|seed| (jpeg(seed, 60, 50), 0)).collect();
    let builder = Loader::builder(Memory::new(images).unwrap(), training()).batch_size(2);
    let mut loader = builder.device(DeviceChoice::Cpu).epochs(Some(1)).build().unwrap();
    assert_eq!(loader.epoch().count(), 2);
    assert!(loader.stats().fields.is_empty() && loader.profile().fields.is_empty());
    assert!(!loader.report().unwrap().to_string().contains("field "));
}
