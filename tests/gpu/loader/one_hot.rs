//! One-hot masks that a kernel makes on the device.

use common::png_of_samples;
use common::with_fields::{Values, WithFields};
use feedwater::loader::Batch;
use feedwater::plan::ColumnSettings;
use feedwater::source::custom::Fields;
use feedwater::{ElementType, Size};

use super::masks::check;
use super::*;

/// A source of which a plan inspects only few samples.
struct SlowShuffledFields(WithFields);

impl Source for SlowShuffledFields {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.0.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.0.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.0.read(index, page, limit)
    }
    fn fields(&self) -> Option<&dyn Fields> {
        self.0.fields()
    }
    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for SlowShuffledFields {
    fn slow_shuffled(&self) -> Option<String> {
        Some("read it in order".into())
    }
}

/// Images of 40 samples, of which one is much larger than the others, and a mask of each with the
/// numbers 0 to 259.
fn source() -> SlowShuffledFields {
    let (mut images, mut masks) = (Vec::new(), Vec::new());
    for number in 0..40_u32 {
        let (width, height) = if number == 8 { (400, 330) } else { (20 + number, 31) };
        images.push((common::jpeg(number.into(), width, height), 0));
        let number = |at: u32| (at.wrapping_mul(2_654_435_761) ^ number) >> 7;
        let samples = (0..width * height).map(|at| (number(at) % 260) as u16);
        let samples: Vec<u8> = samples.flat_map(u16::to_be_bytes).collect();
        masks.push(png_of_samples(&samples, (width, height), 16, None));
    }
    let fields = vec![("mask", Values::Files(masks))];
    SlowShuffledFields(WithFields { images: Memory::new(images).unwrap(), fields })
}

/// With more than 255 classes, the number of a class has two bytes. The plan inspects only some
/// samples. The mask of the one large image does not fit into a page, and is moved on the CPU.
#[test]
fn masks_of_many_classes_and_large_masks_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(12));
    for (layout, dtype, classes) in [
        (Layout::Nchw, ElementType::U8, 260),
        (Layout::Nhwc, ElementType::F16, 260),
        (Layout::Nhwc, ElementType::F32, 300),
    ] {
        let make = |device| {
            let chain =
                Chain::new().then(op::Resize::to(7, 6)).then(op::RandomRotation::within(90.0));
            let builder = settled(Loader::builder(source(), chain)).device(device);
            let builder = builder.runtime(&runtime()).epochs(Some(1)).configure(|it| {
                it.output.layout = layout;
                it.columns = vec![ColumnSettings {
                    dtype: Some(dtype),
                    one_hot: Some(classes),
                    fill: Some(65535.0),
                    ..ColumnSettings::mask("mask")
                }];
            });
            builder.build().unwrap()
        };
        let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
        let planned = &gpu.plan().device.as_ref().unwrap().masks[0];
        assert!(planned.bytes < 2 * Size::new(400, 330).pixels() as usize, "{planned:?}");
        let mut ones = 0;
        for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
            let (gpu, cpu): (Batch, Batch) = (gpu.unwrap(), cpu.unwrap());
            check(&gpu, &cpu, &format!("{layout} {dtype} {classes}"));
            let mask = gpu.column("mask").unwrap().to_host().unwrap();
            let is_one = |it: &&[u8]| it.iter().any(|&byte| byte != 0);
            ones += mask.chunks_exact(dtype.bytes()).filter(is_one).count();
        }
        // Rotations move some pixels out of the image.
        assert!((40 * 7 * 6 / 2..40 * 7 * 6).contains(&ones), "{ones}");
    }
    assert_eq!(machine.counts().live(), 0);
}
