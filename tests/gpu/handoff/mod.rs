//! Export of batches to other libraries: DLPack, `__cuda_array_interface__`, cudarc, and work in
//! streams of other libraries.
//!
//! Tests for the device use the simulated driver. This driver runs queued work as late, or in as
//! random an order, as CUDA's rules allow. A missing wait therefore shows as a wrong batch.

#![allow(unsafe_code, reason = "deleters and copies are called as C and cudarc's users call them")]

mod contexts;
mod kernels;
mod shapes;

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use crate::common::{jpegs, training};
use crate::simulated::images::assert_clean;
use crate::simulated::{LAUNCH_FAILED, Schedule, exclusive, runtime};
use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;
use feedwater::Result;
use feedwater::gpu::{Device, Stream};
use feedwater::handoff::dlpack::{self, ConsumerStream, DLTensor, Exported, Managed};
use feedwater::handoff::{CudaArrayInterface, CudaTensor};
use feedwater::internals::gpu::{BorrowedSlice, kernel};
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::LastBatch;
use feedwater::source::Memory;
use half::f16;

const SCHEDULES: [Schedule; 4] =
    [Schedule::Eager, Schedule::Lazy, Schedule::Random(3), Schedule::Random(4)];

/// Returns a loader of 18 images in five batches. The last batch has two images.
fn builder(device: DeviceChoice) -> LoaderBuilder {
    Loader::builder(Memory::new(jpegs(18)).unwrap(), training())
        .device(device)
        .configure(|it| it.decode.placement = Placement::Cpu)
        .batch_size(4)
        .num_workers(2)
        .prefetch(2)
        .shuffle(true)
        .last_batch(LastBatch::Partial)
}

fn on_gpu() -> Loader {
    builder(DeviceChoice::Gpu(0)).epochs(Some(2)).build().unwrap()
}

fn on_host() -> Loader {
    builder(DeviceChoice::Cpu).epochs(Some(2)).build().unwrap()
}

/// Returns the bytes of all batches of both epochs, computed on the CPU.
fn expected() -> Vec<Vec<u8>> {
    let mut loader = on_host();
    let mut epoch =
        || loader.epoch().map(|batch| batch.unwrap().to_host().unwrap()).collect::<Vec<_>>();
    (0..2).flat_map(|_| epoch()).collect()
}

fn first(loader: &mut Loader) -> Batch {
    loader.into_iter().next().unwrap().unwrap()
}

/// A consumer with its own context and stream. It copies every batch on the device.
struct Copier {
    stream: Arc<CudaStream>,
    copies: Vec<cudarc::driver::CudaSlice<u8>>,
}

impl Copier {
    fn new(stream: Arc<CudaStream>) -> Self {
        Self { stream, copies: Vec::new() }
    }

    /// Queues a copy of `bytes` bytes from `address` in the consumer's stream.
    fn copy(&mut self, address: u64, bytes: usize) {
        self.stream.context().bind_to_thread().unwrap();
        // SAFETY: a context is bound. The slice below takes ownership of the memory.
        let target = unsafe { result::malloc_sync(bytes) }.unwrap();
        // SAFETY: `target` was just allocated with this many bytes.
        let target = unsafe { self.stream.upgrade_device_ptr::<u8>(target, bytes) };
        let (to, _) = cudarc::driver::DevicePtr::device_ptr(&target, &self.stream);
        // SAFETY: both ranges are device memory. The test checks that the source stays filled.
        unsafe { result::memcpy_dtod_async(to, address, bytes, self.stream.cu_stream()) }.unwrap();
        self.copies.push(target);
    }

    /// Waits for the consumer's stream and returns the copied bytes.
    fn bytes(self) -> Vec<Vec<u8>> {
        self.copies.iter().map(|copy| self.stream.clone_dtoh(copy).unwrap()).collect()
    }
}

/// Keeps the memory of an exported batch alive. It may be dropped on any thread.
type Owner = Box<dyn Any + Send>;

/// A function that exports a batch. Returns the address of the tensor and the owner of its memory.
type Way = fn(Batch, &Arc<CudaStream>) -> Result<(u64, Owner)>;

fn ours(batch: &Batch, stream: &Arc<CudaStream>) -> Arc<Stream> {
    Arc::new(Stream::of_cudarc(batch.stream().unwrap().device(), stream).unwrap())
}

fn exported<M: Managed + 'static>(exported: Exported<M>) -> (u64, Owner) {
    (exported.tensor().data as u64, Box::new(exported))
}

const WAYS: [(&str, Way); 7] = [
    ("on", |batch, stream| {
        batch.wait_in(&ours(&batch, stream))?;
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
        // SAFETY: the test keeps the stream alive.
        let stream = unsafe { ConsumerStream::from_number(&batch, number) }?;
        Ok(exported(dlpack::export(batch, &stream)?))
    }),
    ("dlpack without a stream", |batch, _| {
        Ok(exported(dlpack::export_legacy(batch, &ConsumerStream::Unnamed)?))
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

/// A consumer copies each batch in its own stream and at once releases the batch, on this or
/// another thread. Only at the end, the copies are read back. So slots are reused while copies from
/// them are still queued.
#[test]
fn a_foreign_stream_sees_each_batch_filled_and_not_yet_overwritten() {
    let Some(machine) = exclusive() else { return };
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
                let mut loader = on_gpu();
                let context = CudaContext::new(0).unwrap();
                let mut copier = Copier::new(choose(&context));
                for _ in 0..2 {
                    for batch in &mut loader {
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

/// If an export is unsynchronized, the consumer must use the loader's stream. In this stream the
/// batch is ready.
#[test]
fn an_unsynchronized_export_is_ordered_by_the_loaders_stream() {
    let Some(machine) = exclusive() else { return };
    let expected = expected();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let mut loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let mut copies = Vec::new();
        for _ in 0..2 {
            for batch in &mut loader {
                let batch = batch.unwrap();
                let (bytes, raw) = (batch.shape().bytes(), batch.stream().unwrap().raw());
                // SAFETY: the loader lives as long as this stream is used.
                let stream = unsafe { context.wrap_borrowed_stream(raw.cast()) };
                // SAFETY: -1 is not a handle.
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

/// A stream of other code waits for the ready event, whose handle the batch provides. The batch is
/// held until that stream's work is done.
#[test]
fn a_stream_can_wait_for_the_handle_of_the_ready_event() {
    let Some(machine) = exclusive() else { return };
    let expected = expected();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let mut loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        for (batch, expected) in loader.into_iter().zip(&expected) {
            let batch = batch.unwrap();
            let ready = batch.ready().unwrap().raw().cast();
            let flags = cudarc::driver::sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            // SAFETY: the handles of the stream and of the event are alive.
            unsafe { result::stream::wait_event(stream.cu_stream(), ready, flags) }.unwrap();
            let mut copier = Copier::new(stream.clone());
            copier.copy(batch.device_ptr().unwrap(), batch.shape().bytes());
            assert!(copier.bytes() == [expected.clone()], "{schedule:?}");
        }
        drop((loader, stream, context));
        assert_clean(&machine, &format!("{schedule:?}"));
    }
    assert!(first(&mut on_host()).ready().is_none());
}

/// A consumer may destroy its stream as soon as DLPack's deleter has returned, even if work is
/// still queued in the stream. The loader must not use that stream afterwards.
#[test]
fn a_stream_is_not_used_after_the_deleter() {
    let Some(machine) = exclusive() else { return };
    let expected = expected();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let mut loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..2 {
            for batch in &mut loader {
                let mut copier = Copier::new(context.new_stream().unwrap());
                let batch = batch.unwrap();
                let len = batch.shape().bytes();
                let number = Some(copier.stream.cu_stream() as i64);
                // SAFETY: the stream lives until the deleter has returned.
                let stream = unsafe { ConsumerStream::from_number(&batch, number) }.unwrap();
                let (address, owner) = exported(dlpack::export(batch, &stream).unwrap());
                copier.copy(address, len);
                drop((stream, owner));
                bytes.extend(copier.bytes());
            }
        }
        assert!(bytes == expected, "{schedule:?}");
        drop((loader, context));
        assert_clean(&machine, &format!("{schedule:?}"));
    }
}

/// Calls a deleter as a C consumer would.
fn delete<M: Managed>(managed: *mut M, deleter: Option<unsafe extern "C" fn(*mut M)>) {
    // SAFETY: `managed` is null or comes from `into_raw`, and is deleted only once.
    unsafe { deleter.unwrap()(managed) };
}

#[test]
fn the_deleter_drops_the_batch_from_any_thread_after_the_loader_is_gone() {
    let Some(machine) = exclusive() else { return };
    for gpu in [false, true] {
        let mut loader = if gpu { on_gpu() } else { on_host() };
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
            // SAFETY: the pointers come from `into_raw` and are deleted once, below. The host can
            // read the memory of the simulated device.
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
        // DLPack's deleter ignores a null pointer.
        delete::<dlpack::DLManagedTensor>(std::ptr::null_mut(), {
            let mut loader = on_host();
            dlpack::export_legacy(first(&mut loader), &ConsumerStream::Legacy)
                .unwrap()
                .managed()
                .deleter
        });
    }
}

/// Adds a method that returns the first two batches of a loader.
trait FirstTwo {
    fn first_two(&mut self) -> Vec<Batch>;
}

impl FirstTwo for Loader {
    fn first_two(&mut self) -> Vec<Batch> {
        self.into_iter().take(2).map(Result::unwrap).collect()
    }
}

/// # Safety
/// Returns the bytes of a tensor. `tensor` must be in host memory and have `bytes` bytes.
unsafe fn read(tensor: &DLTensor, bytes: usize) -> Vec<u8> {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), bytes) }.to_vec()
}

/// If the driver fails while a batch is exported, the export is an error. If the driver fails to
/// record the event of a returned batch, the loader ends with an error. Nothing leaks in either
/// case.
#[test]
fn driver_failures_are_errors_and_leak_nothing() {
    let Some(machine) = exclusive() else { return };
    let mut loader = on_gpu();
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let batches = loader.first_two();
    machine.schedule(Schedule::Eager);
    // This thread holds two batches, so all other threads soon wait for free slots. From then on,
    // only this thread calls `cuStreamWaitEvent`, and one of the attempts gets the injected
    // failure.
    let refused = (0..100).any(|_| {
        machine.fail("cuStreamWaitEvent", 1, LAUNCH_FAILED);
        let one = batches[0].wait_in(&stream);
        let error = one.err().map(|error| error.to_string());
        error.is_some_and(|error| error.contains("cuStreamWaitEvent"))
    });
    assert!(refused);
    drop((batches, loader, stream, device));
    assert_clean(&machine, "refused");

    machine.restart();
    let mut loader = on_gpu();
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let mut batches = loader.into_iter();
    let mut held: Vec<Batch> = (0..3).map(|_| batches.next().unwrap().unwrap()).collect();
    for batch in &held {
        batch.wait_in(&stream).unwrap();
    }
    // The consumer holds all slots, so no other thread records an event. The injected failure
    // therefore occurs when the batch below is dropped.
    machine.fail("cuEventRecord", 1, LAUNCH_FAILED);
    drop(held.pop());
    let error = loop {
        match batches.next().unwrap() {
            Ok(batch) => drop(batch),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("cuEventRecord"), "{error}");
    drop((held, loader, stream, device));
    assert_clean(&machine, "not returned");
}
