//! Columns of batches in device memory.

use std::task::Poll;

use feedwater::ElementType;
use feedwater::handoff::CudaArrayInterface;
use feedwater::handoff::dlpack::{self, ConsumerStream};
use feedwater::loader::{Batch, Column, Outcome, PairOutcome};
use feedwater::op::{Normalize, RandomResizedCrop, View};
use feedwater::plan::{BoxFormat, CellKind, ColumnKind, ColumnSettings, DefaultValue};

use super::*;

/// Images and targets are on the device, labels on the host and on the device. All have the bytes
/// of a batch on the CPU. A copy of a batch has all columns on the host.
#[test]
fn columns_are_on_the_device_or_on_the_host_and_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(4));
    let make = || {
        let builder = builder(jpegs(10), training()).epochs(Some(1));
        builder.configure(|it| {
            it.targets.classes = Some(10);
            it.loader.last_batch = LastBatch::Partial;
        })
    };
    let mut cpu = make().device(DeviceChoice::Cpu).build().unwrap();
    let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    let look = loop {
        if let Poll::Ready(batch) = gpu.peek_within(Duration::from_secs(1)) {
            break batch.unwrap().unwrap();
        }
    };
    assert!(look.columns().all(|column| column.bytes().is_some()));
    let mut compared = 0;
    for (number, (gpu, cpu)) in gpu.epoch().zip(cpu.epoch()).enumerate() {
        let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
        let copied = (number == 0).then_some(&look);
        assert_eq!(gpu.columns().len(), 3);
        for (column, expected) in gpu.columns().zip(cpu.columns()) {
            assert_eq!(format!("{column:?}"), format!("{expected:?}"));
            let expected = expected.to_host().unwrap();
            assert!(column.to_host().unwrap() == expected, "{column:?}");
            if let Some(copied) = copied {
                assert!(copied.column(column.name()).unwrap().bytes().unwrap() == expected);
            }
            // Labels are in both memories.
            assert_eq!(column.bytes().is_some(), column.name() == "label");
            check_copy(column, &gpu);
        }
        assert_eq!(gpu.labels(), cpu.labels());
        assert_eq!(gpu.images().device_ptr(), gpu.device_ptr());
        compared += 1;
    }
    assert_eq!(compared, 3);
    drop((look, gpu, cpu));
    assert_eq!(machine.counts().live(), 0);
}

/// Columns that are made from fields stay on the host, and are equal to those on the CPU, also if
/// samples are dropped and for routes that decode several images in a call.
#[test]
fn columns_of_fields_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(5));
    let folder = tempfile::tempdir().unwrap();
    let mut lines = "path,text,list\n".to_string();
    for (number, (bytes, _)) in jpegs(13).into_iter().enumerate() {
        let bytes = if number % 5 == 1 { b"no image".to_vec() } else { bytes };
        std::fs::write(folder.path().join(format!("{number}.jpg")), bytes).unwrap();
        let list: Vec<usize> = (0..number).collect();
        lines += &format!("{number}.jpg,text {},\"{list:?}\"\n", "é".repeat(number));
    }
    let list = folder.path().join("list.csv");
    std::fs::write(&list, lines).unwrap();
    for policy in [OnError::Drop, OnError::Substitute, OnError::Skip] {
        let make = |device| {
            let source = feedwater::source::FileList::open(&list).unwrap();
            let builder = Loader::builder(source, training()).batch_size(4).epochs(Some(2));
            let builder = builder.shuffle(true).on_error(policy).device(device);
            let builder = builder.runtime(&runtime()).configure(|it| {
                it.loader.last_batch = LastBatch::Partial;
                it.columns = vec![
                    ColumnSettings::text("text"),
                    ColumnSettings::list("list", ElementType::F32, &[]),
                ];
            });
            builder.build().unwrap()
        };
        let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
        let mut compared = 0;
        for _ in 0..2 {
            for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
                let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
                assert!(gpu.indices().eq(cpu.indices()));
                for (column, expected) in gpu.columns().zip(cpu.columns()) {
                    assert_eq!(format!("{column:?}"), format!("{expected:?}"));
                    assert!(column.to_host().unwrap() == expected.to_host().unwrap());
                    assert_eq!(column.offsets(), expected.offsets());
                    check_copy(column, &gpu);
                }
                for (place, record) in gpu.samples().iter().enumerate() {
                    let (index, text) = (record.index as usize, gpu.column("text").unwrap());
                    let failed = matches!(record.outcome, Outcome::Substituted);
                    let expected = match failed {
                        true => String::new(),
                        false => format!("text {}", "é".repeat(index)),
                    };
                    assert_eq!(text.text(place), Some(&*expected));
                    compared += 1;
                }
            }
        }
        let kept = if policy == OnError::Drop { 2 * 10 } else { 2 * 13 };
        assert_eq!(compared, kept, "{policy:?}");
        drop((cpu, gpu));
    }
    assert_eq!(machine.counts().live(), 0);
}

/// Views are computed on the CPU, and copied to the device. They equal those of the CPU, also if
/// the images are decoded on the device, and if samples fail.
#[test]
fn views_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(7));
    let mut files = jpegs(13);
    files[4].0 = b"no image".to_vec();
    files[7].0 = common::png(7, 30, 40);
    let crop =
        |side| Chain::new().then(RandomResizedCrop::to(side, side)).then(Normalize::IMAGENET);
    let views = [
        View::new("small", crop(9)).count(3),
        View::new("like", crop(32)).like("image").dtype(DType::F16),
    ];
    for policy in [OnError::Drop, OnError::Substitute, OnError::Skip] {
        let make = |device| {
            let chain = views.iter().cloned().fold(training(), Chain::view);
            let builder = builder(files.clone(), chain).on_error(policy).device(device);
            let builder = builder.runtime(&runtime()).shuffle(true).epochs(Some(2));
            builder.configure(|it| it.loader.last_batch = LastBatch::Partial).build().unwrap()
        };
        let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
        let mut compared = 0;
        for _ in 0..2 {
            for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
                let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
                for (column, expected) in gpu.columns().zip(cpu.columns()) {
                    assert_eq!(format!("{column:?}"), format!("{expected:?}"));
                    assert!(column.to_host().unwrap() == expected.to_host().unwrap(), "{column:?}");
                    check_copy(column, &gpu);
                }
                compared += gpu.len();
            }
        }
        let kept = if policy == OnError::Drop { 2 * 12 } else { 2 * 13 };
        assert_eq!(compared, kept, "{policy:?}");
        drop((cpu, gpu));
    }
    assert_eq!(machine.counts().live(), 0);
}

/// Masks, points and boxes follow the images in the same way on every device, also if the device
/// rejects images.
#[test]
fn columns_that_follow_the_image_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(6));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = tar::Builder::new(fs::File::create(&path).unwrap());
    let mut add = |name: String, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes).unwrap();
    };
    for number in 0..13_u32 {
        let (width, height) = (40 + number, 50 - number);
        let mut bytes = common::jpeg(number.into(), width, height);
        let len = bytes.len();
        match number {
            4 => bytes.truncate(len / 2),
            7 => bytes = common::png(7, width, height),
            _ => {}
        }
        add(format!("{number:02}.jpg"), &bytes);
        let samples: Vec<u8> = (0..width * height).map(|at| (at * 7 % 251) as u8).collect();
        let mask = common::png_of_samples(&samples, (width, height), 8, None);
        add(format!("{number:02}.cls"), b"3");
        let right = common::jpeg(number.into(), height, width);
        add(format!("{number:02}.right.jpg"), if number == 11 { b"no image" } else { &right });
        add(format!("{number:02}.seg.png"), if number == 9 { b"no mask" } else { &mask });
        let outlines = match number % 4 {
            0 => "[]",
            1 => "[[[1,1,30,2,20,35]],null]",
            _ => "[null,[[3,3,9,9,3,9]],[[0,0,50,0,50,50,0,50]]]",
        };
        let boxes = "[[3, 4, 20, 30], [0, 0, 5, 5]]";
        let text = format!("{{\"boxes\": {boxes}, \"outlines\": {outlines}}}");
        add(format!("{number:02}.json"), text.as_bytes());
    }
    archive.finish().unwrap();
    drop(archive);
    for policy in [OnError::Drop, OnError::Substitute, OnError::Skip] {
        let make = |device| {
            let source = feedwater::source::WebDataset::open(
                std::slice::from_ref(&path),
                &Default::default(),
            )
            .unwrap();
            // Two views of another image, and a view that has masks.
            let crop = || Chain::new().then(RandomResizedCrop::to(9, 8));
            let chain = training()
                .view(View::new("right", crop()).field("right.jpg").count(2))
                .view(View::new("small", crop()))
                .view(View::new("other", crop()).field("right.jpg"));
            let builder = Loader::builder(source, chain).batch_size(4).epochs(Some(2));
            let builder = builder.shuffle(true).on_error(policy).device(device);
            let builder = builder.runtime(&runtime()).configure(|it| {
                it.loader.last_batch = LastBatch::Partial;
                let boxes = ColumnSettings::boxes("boxes", BoxFormat::Xyxy);
                let points =
                    ColumnSettings { shape: vec![2, 2], ..ColumnSettings::points("points") };
                it.columns = vec![
                    ColumnSettings {
                        field: Some("seg.png".into()),
                        ..ColumnSettings::mask("mask")
                    },
                    ColumnSettings {
                        field: Some("seg.png".into()),
                        like: Some("small".into()),
                        ..ColumnSettings::mask("mask of small")
                    },
                    ColumnSettings { field: Some("json:boxes".into()), ..boxes },
                    ColumnSettings {
                        field: Some("json:boxes".into()),
                        shape: vec![4],
                        kind: ColumnKind::List,
                        name: "stored".into(),
                        ..ColumnSettings::default()
                    },
                    ColumnSettings { default: Some(DefaultValue::List(vec![])), ..points },
                    ColumnSettings {
                        field: Some("json:outlines".into()),
                        ..ColumnSettings::runs("runs")
                    },
                ];
            });
            builder.build().unwrap()
        };
        let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
        let (mut moved, mut objects) = (0, 0);
        for _ in 0..2 {
            for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
                let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
                assert!(gpu.indices().eq(cpu.indices()));
                for (column, expected) in gpu.columns().zip(cpu.columns()) {
                    assert_eq!(format!("{column:?}"), format!("{expected:?}"));
                    assert!(column.to_host().unwrap() == expected.to_host().unwrap(), "{column:?}");
                    let offsets = |it: Column<'_>| {
                        [it.offsets(), it.text_offsets()].map(|it| it.map(<[i64]>::to_vec))
                    };
                    assert_eq!(offsets(column), offsets(expected));
                    check_copy(column, &gpu);
                }
                let [boxes, stored] = ["boxes", "stored"].map(|name| gpu.column(name).unwrap());
                objects += gpu.column("runs").unwrap().text_offsets().unwrap().len() - 1;
                moved += usize::from(boxes.to_host().unwrap() != stored.to_host().unwrap());
            }
        }
        assert!(moved > 0 && objects > 20, "{policy:?} {objects}");
        drop((cpu, gpu));
    }
    assert_eq!(machine.counts().live(), 0);
}

/// `cutmix` exchanges parts of masks as on the CPU.
#[test]
fn mixed_masks_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(7));
    let folder = tempfile::tempdir().unwrap();
    for number in 0..8_u32 {
        let (width, height) = (40 + number, 50 - number);
        let class = folder.path().join((number % 2).to_string());
        std::fs::create_dir_all(&class).unwrap();
        let file = |name: &str| class.join(format!("{number}.{name}"));
        std::fs::write(file("jpg"), common::jpeg(number.into(), width, height)).unwrap();
        let samples: Vec<u8> = (0..width * height).map(|at| (at * 7 % 251) as u8).collect();
        let mask = common::png_of_samples(&samples, (width, height), 8, None);
        std::fs::write(file("mask"), mask).unwrap();
    }
    let make = |device| {
        let settings = feedwater::source::settings::DirectorySettings {
            side_files: [("mask".to_string(), "{folder}/{stem}.mask".to_string())].into(),
            ..Default::default()
        };
        let source =
            feedwater::source::Directory::open_with(folder.path(), &settings, &Default::default())
                .unwrap();
        let chain = training().then_batch(op::CutMix::default());
        let builder = Loader::builder(source, chain).batch_size(4).epochs(Some(1)).device(device);
        let builder = builder.shuffle(true).runtime(&runtime()).configure(|it| {
            it.targets.classes = Some(2);
            let mask = |name: &str, dtype| ColumnSettings {
                field: Some("mask".into()),
                dtype: Some(dtype),
                ..ColumnSettings::mask(name)
            };
            it.columns = vec![
                mask("mask", ElementType::U8),
                mask("i64", ElementType::I64),
                mask("f32", ElementType::F32),
            ];
        });
        builder.build().unwrap()
    };
    let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
    let (mut compared, mut mixed) = (0, 0);
    for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
        let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
        for (column, expected) in gpu.columns().zip(cpu.columns()) {
            assert!(column.to_host().unwrap() == expected.to_host().unwrap(), "{column:?}");
            check_copy(column, &gpu);
        }
        mixed += gpu.pairs().iter().filter(|it| it.outcome() == PairOutcome::Mixed).count();
        compared += 1;
    }
    assert!(compared == 2 && mixed > 0, "{compared} {mixed}");
    drop((cpu, gpu));
    assert_eq!(machine.counts().live(), 0);
}

/// Checks that a column of numbers is on the device, with the offsets of its lists, in the order of
/// the batch's events. Texts are not.
fn check_copy(column: Column<'_>, batch: &Batch) {
    let is_text = column.kind() == CellKind::Text;
    assert_eq!(column.device_ptr().is_none(), is_text, "{column:?}");
    let Some(address) = column.device_ptr() else { return };
    let stream = batch.stream().unwrap();
    stream.device().bind().unwrap();
    let read = |address: u64, len: usize| {
        let mut bytes = vec![0; len];
        if len > 0 {
            // SAFETY: there are `len` bytes at the address while the batch is alive, and the stream
            // is empty before `bytes` are read.
            let copied = unsafe {
                cudarc::driver::result::memcpy_dtoh_async(&mut bytes, address, stream.raw().cast())
            };
            copied.unwrap();
            stream.synchronize().unwrap();
        }
        bytes
    };
    let interface = CudaArrayInterface::of_column(column).unwrap();
    assert_eq!((interface.data.0, interface.shape), (address, column.shape()));
    // A view that kernels make is only on the device.
    let values = column.to_host().unwrap();
    assert!(read(address, values.len()) == values, "{column:?}");
    assert_eq!(column.device_offsets_ptr().is_some(), column.is_ragged());
    if let (Some(address), Some(offsets)) = (column.device_offsets_ptr(), column.offsets()) {
        let copied = read(address, size_of_val(offsets));
        assert_eq!(bytemuck::cast_slice::<u8, i64>(&copied), offsets);
    }
    let is_lists = column.kind() == CellKind::Lists;
    assert_eq!(column.device_text_offsets_ptr().is_some(), is_lists);
    if let (Some(address), Some(offsets)) =
        (column.device_text_offsets_ptr(), column.text_offsets())
    {
        let copied = read(address, size_of_val(offsets));
        assert_eq!(bytemuck::cast_slice::<u8, i64>(&copied), offsets);
    }
}

/// A column in host memory is exported as a host tensor, also from a batch on the device.
#[test]
fn every_column_is_exported_from_its_own_memory() {
    let Some(machine) = machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut lines = "path,label,text,outlines\n".to_string();
    for (number, (bytes, label)) in jpegs(4).into_iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.jpg")), bytes).unwrap();
        lines += &format!("{number}.jpg,{label},words,\"[null,[[1,1,9,2,7,8]]]\"\n");
    }
    let list = folder.path().join("list.csv");
    std::fs::write(&list, lines).unwrap();
    let source = feedwater::source::FileList::open(&list).unwrap();
    let builder = settled(Loader::builder(source, training())).configure(|it| {
        it.targets.classes = Some(9);
        let field = Some("outlines".into());
        let runs = ColumnSettings { field, ..ColumnSettings::runs("runs") };
        it.columns = vec![ColumnSettings::text("text"), runs];
    });
    let mut loader = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    let batch = Arc::new(loader.epoch().next().unwrap().unwrap());
    let stream = ConsumerStream::default();
    for column in batch.columns() {
        let exported = dlpack::export_column(batch.clone(), column.name(), &stream).unwrap();
        let tensor = exported.tensor();
        let (address, device_type) = match column.device_ptr() {
            None => (column.bytes().unwrap().as_ptr() as u64, 1),
            Some(address) => (address, 2),
        };
        assert_eq!((tensor.data as u64, tensor.device.device_type), (address, device_type));
        assert_eq!(tensor.ndim as usize, column.shape().len());
        if column.element_type() == ElementType::I64 {
            assert_eq!((tensor.dtype.code, tensor.dtype.bits), (0, 64));
        }
        match CudaArrayInterface::of_column(column) {
            Ok(interface) => {
                assert_eq!((interface.data.0, interface.shape), (address, column.shape()));
                assert_eq!(device_type, 2, "{column:?}");
            }
            Err(error) => assert!(error.to_string().contains("\"text\""), "{error}"),
        }
    }
    let runs = batch.column("runs").unwrap();
    for (exported, address, len) in [
        (
            dlpack::export_offsets(batch.clone(), "runs", &stream),
            runs.device_offsets_ptr(),
            runs.offsets().unwrap().len(),
        ),
        (
            dlpack::export_text_offsets(batch.clone(), "runs", &stream),
            runs.device_text_offsets_ptr(),
            runs.text_offsets().unwrap().len(),
        ),
    ] {
        let exported = exported.unwrap();
        let tensor = exported.tensor();
        assert_eq!((tensor.data as u64, tensor.device.device_type), (address.unwrap(), 2));
        // SAFETY: the tensor has one axis, and lives until the end of the scope.
        assert_eq!((tensor.ndim, unsafe { *tensor.shape } as usize), (1, len));
    }
    let error = dlpack::export_text_offsets(batch.clone(), "text", &stream).map(|_| ());
    let message = error.unwrap_err().to_string();
    assert!(message.contains("\"text\" does not have several texts or lists"), "{message}");
    let error = dlpack::export_column(batch.clone(), "mask", &stream).map(|_| ()).unwrap_err();
    let message = error.to_string();
    for name in ["mask", "image", "label", "target"] {
        assert!(message.contains(&format!("{name:?}")), "{message}");
    }
    drop((batch, loader));
    assert_eq!(machine.counts().live(), 0);
}
