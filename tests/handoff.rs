//! Exporting batches: DLPack, `__cuda_array_interface__`, cudarc, foreign streams.
//!
//! Device tests use the simulated driver, whose streams run as late or as randomly as the schedule allows: a missing wait shows
//! as a wrong batch.

#![allow(unsafe_code, reason = "deleters and copies are called as C and cudarc's users call them")]

mod common;
mod simulated;

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use common::{jpegs, training};
use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;
use feedwater::Result;
use feedwater::gpu::{BorrowedSlice, Device, Stream, kernel};
use feedwater::handoff::dlpack::{self, ConsumerStream, DLTensor, Exported, Managed};
use feedwater::handoff::{CudaArrayInterface, CudaTensor};
use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::Last;
use feedwater::source::Memory;
use feedwater::tensor::{DType, Layout};
use half::f16;
use simulated::{LAUNCH_FAILED, Schedule, Simulated, exclusive, runtime};

const SCHEDULES: [Schedule; 4] =
    [Schedule::Eager, Schedule::Lazy, Schedule::Random(3), Schedule::Random(4)];

/// Eighteen images in five batches, the last one of two.
fn builder(device: DeviceChoice) -> LoaderBuilder {
    Loader::builder(Memory::new(jpegs(18)).unwrap(), training())
        .device(device)
        .decode(Placement::Cpu)
        .batch(4)
        .workers(2)
        .prefetch(2)
        .shuffle(true)
        .last(Last::Partial)
}

fn on_gpu() -> Loader {
    builder(DeviceChoice::Gpu(0)).epochs(Some(2)).build().unwrap()
}

fn on_host() -> Loader {
    builder(DeviceChoice::Cpu).epochs(Some(2)).build().unwrap()
}

/// Returns the bytes of both epochs, from the CPU.
fn expected() -> Vec<Vec<u8>> {
    let loader = on_host();
    let epoch = |_| (&loader).into_iter().map(|batch| batch.unwrap().to_host().unwrap());
    (0..2).flat_map(|number| epoch(number).collect::<Vec<_>>()).collect()
}

fn first(loader: &Loader) -> Batch {
    loader.into_iter().next().unwrap().unwrap()
}

/// Checks that nothing leaked and no call was wrong. Call it after everything is dropped.
fn assert_clean(machine: &Simulated, what: &str) {
    let counts = machine.counts();
    assert_eq!((counts.live(), counts.faults()), (0, 0), "{what}: {counts:?}");
}

/// A consumer with its own context and stream that copies every batch on the device.
struct Copier {
    stream: Arc<CudaStream>,
    copies: Vec<cudarc::driver::CudaSlice<u8>>,
}

impl Copier {
    fn new(stream: Arc<CudaStream>) -> Self {
        Self { stream, copies: Vec::new() }
    }

    /// Queues a copy of these bytes in the stream.
    fn copy(&mut self, address: u64, bytes: usize) {
        self.stream.context().bind_to_thread().unwrap();
        // SAFETY: a context is bound; the slice below owns it.
        let target = unsafe { result::malloc_sync(bytes) }.unwrap();
        // SAFETY: just allocated, that many bytes.
        let target = unsafe { self.stream.upgrade_device_ptr::<u8>(target, bytes) };
        let (to, _) = cudarc::driver::DevicePtr::device_ptr(&target, &self.stream);
        // SAFETY: both ranges are device memory; that the source stays filled is what is tested.
        unsafe { result::memcpy_dtod_async(to, address, bytes, self.stream.cu_stream()) }.unwrap();
        self.copies.push(target);
    }

    /// Returns the copies after the stream has finished.
    fn bytes(self) -> Vec<Vec<u8>> {
        self.copies.iter().map(|copy| self.stream.clone_dtoh(copy).unwrap()).collect()
    }
}

/// Owner of a batch, which may be dropped on any thread.
type Owner = Box<dyn Any + Send>;

/// A way to export a batch, which returns the tensor's address and its owner.
type Way = fn(Batch, &Arc<CudaStream>) -> Result<(u64, Owner)>;

fn ours(batch: &Batch, stream: &Arc<CudaStream>) -> Arc<Stream> {
    Arc::new(Stream::of_cudarc(batch.stream().unwrap().device(), stream).unwrap())
}

fn exported<M: Managed + 'static>(exported: Exported<M>) -> (u64, Owner) {
    (exported.tensor().data as u64, Box::new(exported))
}

const WAYS: [(&str, Way); 6] = [
    ("on", |batch, stream| {
        batch.on(&ours(&batch, stream))?;
        Ok((batch.device_ptr().unwrap(), Box::new(batch)))
    }),
    ("dlpack", |batch, stream| {
        let stream = ConsumerStream::On(ours(&batch, stream));
        Ok(exported(dlpack::export(batch, &stream)?))
    }),
    ("dlpack by number", |batch, stream| {
        let number = match stream.cu_stream() as i64 {
            0 => None,
            number => Some(number),
        };
        // SAFETY: the test keeps the stream.
        let stream = unsafe { ConsumerStream::from_number(&batch, number) }?;
        Ok(exported(dlpack::export(batch, &stream)?))
    }),
    ("legacy dlpack", |batch, stream| {
        let stream = ConsumerStream::On(ours(&batch, stream));
        Ok(exported(dlpack::export_legacy(batch, &stream)?))
    }),
    ("two exports", |batch, stream| {
        let batch = Arc::new(batch);
        let other = ConsumerStream::Legacy;
        let stream = ConsumerStream::On(ours(&batch, stream));
        let one = exported(dlpack::export(batch.clone(), &stream)?);
        let two = exported(dlpack::export(batch, &other)?);
        assert_eq!(one.0, two.0);
        Ok((one.0, Box::new((one.1, two.1))))
    }),
    ("cudarc", |batch, stream| {
        let tensor = CudaTensor::<f32>::new(batch, stream)?;
        let address = tensor.batch().device_ptr().unwrap();
        Ok((address, Box::new(tensor)))
    }),
];

/// A consumer with any stream copies each batch, releases it at once, on this or another thread, and reads the copies only at the
/// end. So each slot is reused while its copies are still pending.
#[test]
fn a_foreign_stream_sees_each_batch_filled_and_not_yet_overwritten() {
    let machine = exclusive();
    let expected = expected();
    type Choose = fn(&Arc<CudaContext>) -> Arc<CudaStream>;
    let streams: [(&str, Choose); 3] = [
        ("its own", |context| context.new_stream().unwrap()),
        ("legacy", |context| context.default_stream()),
        ("per thread", |context| context.per_thread_stream()),
    ];
    for schedule in SCHEDULES {
        for (stream_name, choose) in streams {
            for (number, (way_name, way)) in WAYS.into_iter().enumerate() {
                let what = format!("{way_name}, {stream_name} stream, {schedule:?}");
                machine.restart();
                machine.schedule(schedule);
                let loader = on_gpu();
                let context = CudaContext::new(0).unwrap();
                let mut copier = Copier::new(choose(&context));
                for _ in 0..2 {
                    for batch in &loader {
                        let batch = batch.unwrap();
                        let bytes = batch.shape().bytes();
                        let (address, owner) = way(batch, &copier.stream).unwrap();
                        copier.copy(address, bytes);
                        if number % 2 == 0 {
                            drop(owner);
                        } else {
                            std::thread::spawn(|| drop(owner)).join().unwrap();
                        }
                    }
                }
                assert!(copier.bytes() == expected, "{what}");
                drop((loader, context));
                assert_clean(&machine, &what);
            }
        }
    }
}

/// Without synchronization the consumer must use the loader's stream, in which the batch is ready.
#[test]
fn an_unsynchronized_export_is_ordered_by_the_loaders_stream() {
    let machine = exclusive();
    let expected = expected();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let mut copies = Vec::new();
        for _ in 0..2 {
            for batch in &loader {
                let batch = batch.unwrap();
                let (bytes, raw) = (batch.shape().bytes(), batch.stream().unwrap().raw());
                // SAFETY: the loader lives as long as this stream is used.
                let stream = unsafe { context.wrap_borrowed_stream(raw.cast()) };
                // SAFETY: no handle.
                let number = unsafe { ConsumerStream::from_number(&batch, Some(-1)) }.unwrap();
                assert!(matches!(number, ConsumerStream::Unsynchronized));
                let exported = dlpack::export(batch, &number).unwrap();
                let mut copier = Copier::new(stream);
                copier.copy(exported.tensor().data as u64, bytes);
                drop(exported);
                copies.push(copier);
            }
        }
        let copies: Vec<_> = copies.into_iter().flat_map(Copier::bytes).collect();
        assert!(copies == expected, "{schedule:?}");
        drop((loader, context));
        assert_clean(&machine, &format!("{schedule:?}"));
    }
}

/// A stream driven by other code waits for the event; the batch is held until its work is done.
#[test]
fn a_stream_can_wait_for_the_handle_of_the_ready_event() {
    let machine = exclusive();
    let expected = expected();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        for (batch, expected) in loader.into_iter().zip(&expected) {
            let batch = batch.unwrap();
            let ready = batch.ready().unwrap().raw().cast();
            let flags = cudarc::driver::sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            // SAFETY: both handles are alive.
            unsafe { result::stream::wait_event(stream.cu_stream(), ready, flags) }.unwrap();
            let mut copier = Copier::new(stream.clone());
            copier.copy(batch.device_ptr().unwrap(), batch.shape().bytes());
            assert!(copier.bytes() == [expected.clone()], "{schedule:?}");
        }
        drop((loader, stream, context));
        assert_clean(&machine, &format!("{schedule:?}"));
    }
    assert!(first(&on_host()).ready().is_none());
}

/// Calls the deleter like a C consumer.
fn delete<M: Managed>(managed: *mut M, deleter: Option<unsafe extern "C" fn(*mut M)>) {
    // SAFETY: null, or a pointer from `into_raw`, used once.
    unsafe { deleter.unwrap()(managed) };
}

#[test]
fn the_deleter_drops_the_batch_from_any_thread_after_the_loader_is_gone() {
    let machine = exclusive();
    for gpu in [false, true] {
        let loader = if gpu { on_gpu() } else { on_host() };
        let mut batches = loader.first_two();
        let one = Arc::new(batches.remove(0));
        let two = batches.remove(0);
        drop((batches, loader));
        let expected = (one.to_host().unwrap(), two.to_host().unwrap());
        let weak: Weak<Batch> = Arc::downgrade(&one);
        let bytes = (one.shape().bytes(), two.shape().bytes());

        let versioned = dlpack::export(one, &ConsumerStream::Legacy).unwrap().into_raw() as usize;
        let legacy = dlpack::export_legacy(two, &ConsumerStream::PerThread).unwrap().into_raw();
        let legacy = legacy as usize;
        assert_eq!(machine.counts().live() > 0, gpu);
        std::thread::spawn(move || {
            let versioned = versioned as *mut dlpack::DLManagedTensorVersioned;
            let legacy = legacy as *mut dlpack::DLManagedTensor;
            // SAFETY: returned by `into_raw`, deleted once below. Simulated device memory can be read by the host.
            unsafe {
                if !gpu {
                    assert!(read(&(*versioned).dl_tensor, bytes.0) == expected.0);
                    assert!(read(&(*legacy).dl_tensor, bytes.1) == expected.1);
                }
                delete(versioned, (*versioned).deleter);
                delete(legacy, (*legacy).deleter);
            }
        })
        .join()
        .unwrap();
        assert!(weak.upgrade().is_none());
        assert_clean(&machine, if gpu { "gpu" } else { "host" });
        // A deleter ignores a null pointer.
        delete::<dlpack::DLManagedTensor>(std::ptr::null_mut(), {
            let loader = on_host();
            dlpack::export_legacy(first(&loader), &ConsumerStream::Legacy)
                .unwrap()
                .managed()
                .deleter
        });
    }
}

/// Returns the first two batches.
trait FirstTwo {
    fn first_two(&self) -> Vec<Batch>;
}

impl FirstTwo for Loader {
    fn first_two(&self) -> Vec<Batch> {
        self.into_iter().take(2).map(Result::unwrap).collect()
    }
}

/// # Safety
/// `tensor` is on the host and has that many bytes.
unsafe fn read(tensor: &DLTensor, bytes: usize) -> Vec<u8> {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), bytes) }.to_vec()
}

/// A framework's thread may have another GPU's context current, or none.
#[test]
fn exporting_and_deleting_leave_the_threads_context_as_it_was() {
    let machine = exclusive();
    let loader = on_gpu();
    let batch = first(&loader);
    std::thread::spawn(move || {
        assert_eq!(result::ctx::get_current(), Ok(None));
        let exported = dlpack::export(batch, &ConsumerStream::Legacy).unwrap();
        assert_eq!(result::ctx::get_current(), Ok(None));
        drop(exported);
        assert_eq!(result::ctx::get_current(), Ok(None));
    })
    .join()
    .unwrap();
    // Our context stays current if it was current before.
    let device = Device::open_with(0, &runtime()).unwrap();
    let before = result::ctx::get_current().unwrap();
    assert!(before.is_some());
    drop(dlpack::export(first(&loader), &ConsumerStream::Legacy).unwrap());
    assert_eq!(result::ctx::get_current(), Ok(before));
    drop((loader, device));
    assert_clean(&machine, "contexts");
}

#[test]
fn shape_strides_and_type_are_those_of_the_batch() {
    let types = [(DType::U8, 1, 8), (DType::F16, 2, 16), (DType::BF16, 4, 16), (DType::F32, 2, 32)];
    let machine = exclusive();
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
                let loader = Loader::builder(source, chain)
                    .batch(4)
                    .decode(Placement::Cpu)
                    .device(device)
                    .output(dtype, layout)
                    .build()
                    .unwrap();
                let mut batch = first(&loader);
                let (address, host) = (batch.device_ptr(), batch.to_host().unwrap());
                assert_eq!(batch.host_mut().is_some(), !gpu);
                let exported = dlpack::export(batch, &ConsumerStream::default()).unwrap();
                let tensor = exported.tensor();
                // SAFETY: four axes each, in the owner.
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
                    // SAFETY: that many bytes, on the host.
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
fn a_shared_batch_is_read_only_and_cannot_use_the_legacy_form() {
    let _machine = exclusive();
    let loader = on_host();
    let batch = Arc::new(first(&loader));
    let none = ConsumerStream::Unsynchronized;
    let one = dlpack::export(batch.clone(), &none).unwrap();
    let two = dlpack::export(batch.clone(), &none).unwrap();
    assert_eq!((one.managed().flags, two.managed().flags), (dlpack::READ_ONLY, dlpack::READ_ONLY));
    let error = dlpack::export_legacy(batch.clone(), &none).unwrap_err().to_string();
    assert!(error.contains("batch") && error.contains("versioned"), "{error}");
    drop((one, two));
    // Now there is no other owner, and the batch may be changed in place through the pointer.
    let alone = dlpack::export_legacy(batch, &none).unwrap();
    // SAFETY: at least one byte, which no other code reads.
    unsafe { *alone.tensor().data.cast::<u8>() ^= 1 };
}

#[test]
fn invalid_stream_numbers_are_errors() {
    let _machine = exclusive();
    let loader = on_gpu();
    let batch = first(&loader);
    for number in [0, -2] {
        // SAFETY: no handle.
        let error = unsafe { ConsumerStream::from_number(&batch, Some(number)) }.unwrap_err();
        let error = error.to_string();
        assert!(error.contains(&format!("is {number}")) && error.contains("pass 1"), "{error}");
    }
    let host = on_host();
    let batch = first(&host);
    // On the host the number is ignored.
    // SAFETY: no handle.
    assert!(unsafe { ConsumerStream::from_number(&batch, Some(0)) }.is_ok());
}

#[test]
fn the_array_interface_has_the_fields_of_version_3() {
    let machine = exclusive();
    let loader = on_gpu();
    let batch = first(&loader);
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

    // A null stream is the legacy default stream.
    let device = Device::open_with(0, &runtime()).unwrap();
    // SAFETY: null is always a stream.
    let null = Arc::new(unsafe { Stream::borrowed(&device, std::ptr::null_mut::<c_void>()) });
    let on_null = builder(DeviceChoice::Gpu(0)).consumer(null).build().unwrap();
    assert_eq!(CudaArrayInterface::new(&first(&on_null)).unwrap().stream, 1);

    let host = on_host();
    let error = CudaArrayInterface::new(&first(&host)).unwrap_err().to_string();
    assert!(error.contains("DLPack"), "{error}");
    drop((batch, loader, device, on_null));
    assert_clean(&machine, "array interface");
}

#[test]
fn unsupported_exports_are_errors() {
    let machine = exclusive();
    machine.devices(2);
    let loader = on_gpu();
    let batch = first(&loader);
    let other = Device::open_with(1, &runtime()).unwrap();
    let error = batch.on(&Arc::new(Stream::new(&other).unwrap())).unwrap_err().to_string();
    assert!(error.contains("gpu 1") && error.contains("gpu 0"), "{error}");

    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let buffer = batch.device_buffer().unwrap();
    let len = buffer.len() / 4 + 1;
    let error = BorrowedSlice::<f32, ()>::new(buffer.clone(), len, &stream, ()).unwrap_err();
    assert!(error.to_string().contains(&format!("{len} f32s")), "{error}");
    let error = CudaTensor::<f16>::new(batch, &stream).unwrap_err().to_string();
    assert!(error.contains("is f32") && error.contains("f16"), "{error}");
    let host = on_host();
    let error = CudaTensor::<f32>::new(first(&host), &stream).unwrap_err().to_string();
    assert!(error.contains("lives on the host"), "{error}");

    // A batch in host memory has nothing to wait for. The loader's threads would be counted too.
    drop(loader);
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let before = machine.calls("cuStreamWaitEvent");
    first(&host).on(&stream).unwrap();
    assert_eq!(machine.calls("cuStreamWaitEvent"), before);
}

/// A user's kernel, and the code that runs it on the simulated machine.
const SUM: &str = r#"
#ifndef __CUDACC__
#define __global__
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;
extern "C" void sums(const float*, float*, int);
extern "C" void sums__host(void** p, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned) {
    blockDim.x = bx;
    for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < bx; threadIdx.x++)
            sums(*(const float**)p[0], *(float**)p[1], *(int*)p[2]);
}
extern "C" const unsigned sums__param_bytes[] = {8, 8, 4, 0};
#endif
extern "C" __global__ void sums(const float* batch, float* out, int elements) {
    if (threadIdx.x) return;
    float sum = 0;
    for (int i = 0; i < elements; i++) sum += batch[blockIdx.x * elements + i];
    out[blockIdx.x] = sum;
}
"#;

/// A user's kernel, in its own stream, on views of the batch; two events per batch are cudarc's.
#[test]
fn a_cudarc_kernel_reads_and_writes_a_batch() {
    let machine = exclusive();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let device = Device::open_with(0, &runtime()).unwrap();
        let cubin = kernel::compile(&device, SUM).unwrap();
        let module = context.load_module(Ptx::from_binary(cubin)).unwrap();
        let function = module.load_function("sums").unwrap();
        let mut made = Vec::new();
        for batch in &loader {
            let mut tensor = CudaTensor::<f32>::new(batch.unwrap(), &stream).unwrap();
            let (samples, elements) = (tensor.batch().len(), tensor.batch().shape().sample_len());
            assert_eq!(tensor.len(), samples * elements, "a partial batch is shorter");
            let mut sums = stream.alloc_zeros::<f32>(samples).unwrap();
            let config = LaunchConfig {
                grid_dim: (samples as u32, 1, 1),
                block_dim: (32, 1, 1),
                shared_mem_bytes: 0,
            };
            let (view, elements) = (tensor.view(), elements as i32);
            let mut launch = stream.launch_builder(&function);
            launch.arg(&view).arg(&mut sums).arg(&elements);
            // SAFETY: the arguments are those of the text above.
            unsafe { launch.launch(config) }.unwrap();
            made.push(sums);
            // In place, after the kernel: the next batch must not be affected.
            stream.memset_zeros(&mut tensor.view_mut()).unwrap();
        }
        let made: Vec<f32> =
            made.into_iter().flat_map(|sums| stream.clone_dtoh(&sums).unwrap()).collect();
        let expected: Vec<f32> = expected()[..5]
            .iter()
            .flat_map(|bytes| {
                let values: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
                values.chunks(1440).map(|sample| sample.iter().sum()).collect::<Vec<f32>>()
            })
            .collect();
        assert_eq!(made, expected, "{schedule:?}");
        context.synchronize().unwrap();
        drop((loader, function, module, stream, context, device));
        assert_clean(&machine, &format!("{schedule:?}"));
    }
}

/// cudarc tracks the streams that use its slices; the slot waits for all of them.
#[test]
fn slots_wait_for_uses_that_cudarc_tracks_in_other_streams() {
    let machine = exclusive();
    machine.schedule(Schedule::Lazy);
    let expected = expected();
    let loader = on_gpu();
    let context = CudaContext::new(0).unwrap();
    let (named, used) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut copies = Vec::new();
    for _ in 0..2 {
        for batch in &loader {
            let tensor = CudaTensor::<f32>::new(batch.unwrap(), &named).unwrap();
            used.join(&named).unwrap();
            let mut copy = named.alloc_zeros::<f32>(tensor.len()).unwrap();
            used.memcpy_dtod(&tensor.view(), &mut copy).unwrap();
            copies.push(copy);
        }
    }
    let copies: Vec<Vec<u8>> = copies
        .into_iter()
        .map(|copy| bytemuck::cast_slice(&used.clone_dtoh(&copy).unwrap()).to_vec())
        .collect();
    assert!(copies == expected);
    drop((loader, named, used, context));
    assert_clean(&machine, "tracked");
}

/// A driver that refuses an export gives an error there; one that refuses the return ends the loader without leaks.
#[test]
fn driver_failures_are_errors_and_leak_nothing() {
    let machine = exclusive();
    let loader = on_gpu();
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let batches = loader.first_two();
    machine.schedule(Schedule::Eager);
    // The other threads wait for slots by now or soon: only this one uses the driver's events in between.
    let refused = (0..100).any(|_| {
        machine.fail("cuStreamWaitEvent", 1, LAUNCH_FAILED);
        let one = batches[0].on(&stream);
        let error = one.err().map(|error| error.to_string());
        error.is_some_and(|error| error.contains("cuStreamWaitEvent"))
    });
    assert!(refused);
    drop((batches, loader, stream, device));
    assert_clean(&machine, "refused");

    machine.restart();
    let loader = on_gpu();
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let mut batches = loader.into_iter();
    let mut held: Vec<Batch> = (0..3).map(|_| batches.next().unwrap().unwrap()).collect();
    for batch in &held {
        batch.on(&stream).unwrap();
    }
    // All slots are held, so no other thread records an event.
    machine.fail("cuEventRecord", 1, LAUNCH_FAILED);
    drop(held.pop());
    let error = loop {
        match batches.next().unwrap() {
            Ok(batch) => drop(batch),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("cuEventRecord"), "{error}");
    drop(batches);
    drop((held, loader, stream, device));
    assert_clean(&machine, "not returned");
}
