//! Shapes, strides and types of exported tensors, and exports that are errors.

use feedwater::error::{ConfigError, Error};

use super::*;

fn config<T>(result: Result<T>) -> ConfigError {
    match result {
        Err(Error::Config(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the export was accepted"),
    }
}

#[test]
fn shape_strides_and_type_are_those_of_the_batch() {
    let types = [(DType::U8, 1, 8), (DType::F16, 2, 16), (DType::BF16, 4, 16), (DType::F32, 2, 32)];
    let Some(machine) = exclusive() else { return };
    for (dtype, code, bits) in types {
        for (layout, shape, strides) in [
            (Layout::Nchw, [4, 3, 20, 24], [1440, 480, 24, 1]),
            (Layout::Nhwc, [4, 20, 24, 3], [1440, 72, 3, 1]),
        ] {
            for device in [DeviceChoice::Cpu, DeviceChoice::Gpu(0)] {
                let gpu = device == DeviceChoice::Gpu(0);
                let chain = match dtype {
                    DType::U8 => feedwater::op::Chain::new()
                        .then(feedwater::op::RandomResizedCrop::to(24, 20)),
                    _ => training(),
                };
                let source = Memory::new(jpegs(5)).unwrap();
                let mut loader = Loader::builder(source, chain)
                    .batch_size(4)
                    .configure(|it| it.decode.placement = Placement::Cpu)
                    .device(device)
                    .output(dtype, layout)
                    .build()
                    .unwrap();
                let mut batch = first(&mut loader);
                let (address, host) = (batch.device_ptr(), batch.to_host().unwrap());
                assert_eq!(batch.host_mut().is_some(), !gpu);
                let exported = dlpack::export(batch, &ConsumerStream::default()).unwrap();
                let tensor = exported.tensor();
                // SAFETY: `exported` owns both arrays, with four values in each.
                let (dims, steps) = unsafe {
                    (*tensor.shape.cast::<[i64; 4]>(), *tensor.strides.cast::<[i64; 4]>())
                };
                assert_eq!((dims, steps, tensor.ndim), (shape, strides, 4), "{dtype} {layout}");
                let of = tensor.dtype;
                assert_eq!((of.code, of.bits, of.lanes), (code, bits, 1), "{dtype}");
                let of = tensor.device;
                assert_eq!((of.device_type, of.device_id), (if gpu { 2 } else { 1 }, 0));
                assert_eq!((tensor.data as usize % 256, tensor.byte_offset), (0, 0));
                if gpu {
                    assert_eq!(Some(tensor.data as u64), address);
                } else {
                    // SAFETY: the tensor is on the host and has `host.len()` bytes.
                    assert!(unsafe { read(tensor, host.len()) } == host);
                }
                let managed = exported.managed();
                assert_eq!((managed.version.major, managed.version.minor), (1, 1));
                assert_eq!(managed.flags, 0);
            }
        }
    }
    assert_clean(&machine, "shapes");
}

#[test]
fn soft_targets_are_a_tensor_of_their_own() {
    let Some(machine) = exclusive() else { return };
    for device in [DeviceChoice::Cpu, DeviceChoice::Gpu(0)] {
        let gpu = device == DeviceChoice::Gpu(0);
        let chain = training().then_batch(feedwater::op::Mixup::alpha(0.8));
        let builder = Loader::builder(Memory::new(jpegs(5)).unwrap(), chain);
        let builder = builder
            .batch_size(4)
            .configure(|it| it.decode.placement = Placement::Cpu)
            .device(device);
        let mut loader = builder.configure(|it| it.targets.classes = Some(7)).build().unwrap();
        let batch = Arc::new(first(&mut loader));
        let expected = batch.soft_targets_to_host().unwrap();
        let stream = ConsumerStream::default();
        let exported = dlpack::export_soft_targets(batch.clone(), &stream).unwrap();
        let _images = dlpack::export(batch.clone(), &stream).unwrap();
        let tensor = exported.tensor();
        // SAFETY: `exported` owns both arrays, with two values in each.
        let (dims, steps) =
            unsafe { (*tensor.shape.cast::<[i64; 2]>(), *tensor.strides.cast::<[i64; 2]>()) };
        assert_eq!((dims, steps, tensor.ndim), ([4, 7], [7, 1], 2));
        assert_eq!((tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), (2, 32, 1));
        assert_eq!(tensor.data as usize % 256, 0);
        assert_eq!(exported.managed().flags, dlpack::READ_ONLY);
        if gpu {
            assert_eq!(Some(tensor.data as u64), batch.soft_targets_ptr());
        } else {
            // SAFETY: the tensor is on the host and has 4 samples of 7 classes of 4 bytes each.
            let read = unsafe { read(tensor, 4 * 4 * 7) };
            assert!(read == bytemuck::cast_slice::<f32, u8>(&expected));
        }
        drop((exported, _images));
        let alone = dlpack::export_soft_targets(batch, &stream).unwrap();
        assert_eq!(alone.managed().flags, 0);
    }
    let without = dlpack::export_soft_targets(first(&mut on_host()), &ConsumerStream::default());
    assert_eq!(config(without).key, "targets.classes");
    assert_clean(&machine, "soft targets");
}

#[test]
fn a_shared_batch_is_read_only_and_cannot_use_the_legacy_form() {
    let Some(_machine) = exclusive() else { return };
    let mut loader = on_host();
    let batch = Arc::new(first(&mut loader));
    let none = ConsumerStream::Unsynchronized;
    let one = dlpack::export(batch.clone(), &none).unwrap();
    let two = dlpack::export(batch.clone(), &none).unwrap();
    assert_eq!((one.managed().flags, two.managed().flags), (dlpack::READ_ONLY, dlpack::READ_ONLY));
    let error = config(dlpack::export_legacy(batch.clone(), &none));
    assert_eq!(error.key, "batch");
    assert!(error.problem.contains("versioned"), "{error}");
    drop((one, two));
    // The batch now has no other owner, so it may be changed through the pointer.
    let alone = dlpack::export_legacy(batch, &none).unwrap();
    // SAFETY: the tensor has at least one byte, and no other code reads it.
    unsafe { *alone.tensor().data.cast::<u8>() ^= 1 };
}

#[test]
fn invalid_stream_numbers_are_errors() {
    let Some(_machine) = exclusive() else { return };
    let mut loader = on_gpu();
    let batch = first(&mut loader);
    for number in [0, -2] {
        // SAFETY: the number is not a handle.
        let error = config(unsafe { ConsumerStream::from_number(&batch, Some(number)) });
        assert_eq!(error.key, "stream");
        // The message contains the given number and the valid special numbers.
        let words = error.problem.split([' ', ',', ':']);
        let named: Vec<i64> = words.filter_map(|word| word.parse().ok()).collect();
        for value in [number, 1, 2, -1] {
            assert!(named.contains(&value), "{value}: {error}");
        }
    }
    let mut host = on_host();
    let batch = first(&mut host);
    // For a batch on the host, the number is ignored.
    // SAFETY: 0 is not a handle.
    assert!(unsafe { ConsumerStream::from_number(&batch, Some(0)) }.is_ok());
}

#[test]
fn the_array_interface_has_the_fields_of_version_3() {
    let Some(machine) = exclusive() else { return };
    let mut loader = on_gpu();
    let batch = first(&mut loader);
    let fields = CudaArrayInterface::new(&batch).unwrap();
    let stream = batch.stream().unwrap().raw() as u64;
    let json: serde_json::Value = serde_json::to_value(&fields).unwrap();
    let expected = serde_json::json!({
        "shape": [4, 3, 20, 24],
        "typestr": "<f4",
        "data": [batch.device_ptr().unwrap(), false],
        "strides": null,
        "stream": stream,
        "version": 3,
    });
    assert_eq!(json, expected);

    // A null handle means CUDA's legacy default stream, whose number is 1.
    let device = Device::open_with(0, &runtime()).unwrap();
    // SAFETY: null is always a valid stream.
    let null = Arc::new(unsafe { Stream::borrowed(&device, std::ptr::null_mut::<c_void>()) });
    let mut on_null = builder(DeviceChoice::Gpu(0)).stream(null).build().unwrap();
    assert_eq!(CudaArrayInterface::new(&first(&mut on_null)).unwrap().stream, 1);

    let mut host = on_host();
    let error = config(CudaArrayInterface::new(&first(&mut host)));
    assert_eq!(error.key, "device");
    assert!(error.problem.contains("DLPack"), "{error}");
    drop((batch, loader, device, on_null));
    assert_clean(&machine, "array interface");
}

#[test]
fn unsupported_exports_are_errors() {
    let Some(machine) = exclusive() else { return };
    machine.devices(2);
    let mut loader = on_gpu();
    let batch = first(&mut loader);
    let other = Device::open_with(1, &runtime()).unwrap();
    let error = config(batch.wait_in(&Arc::new(Stream::new(&other).unwrap())));
    assert_eq!(error.key, "stream");
    assert!(error.problem.contains("GPU 1") && error.problem.contains("GPU 0"), "{error}");

    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let buffer = batch.device_buffer().unwrap();
    let len = buffer.len() / 4 + 1;
    let error = BorrowedSlice::<f32, ()>::new(buffer.clone(), len, &stream, ()).unwrap_err();
    let Error::Internal { problem } = error else { panic!("{error}") };
    for value in [len.to_string(), "f32".into(), buffer.len().to_string()] {
        assert!(problem.contains(&value), "{value}: {problem}");
    }
    let error = config(CudaTensor::<f16>::new(batch, &stream));
    assert_eq!(error.key, "output.dtype");
    assert!(error.problem.contains("f32") && error.problem.contains("f16"), "{error}");
    let mut host = on_host();
    let error = config(CudaTensor::<f32>::new(first(&mut host), &stream));
    assert_eq!(error.key, "device");
    assert!(error.problem.contains("Batch::host"), "{error}");

    // Using a batch in host memory needs no wait of a stream. The loader on the GPU is dropped
    // first, because the waits of its threads would be counted too.
    drop(loader);
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let before = machine.calls("cuStreamWaitEvent");
    first(&mut host).wait_in(&stream).unwrap();
    assert_eq!(machine.calls("cuStreamWaitEvent"), before);
}
