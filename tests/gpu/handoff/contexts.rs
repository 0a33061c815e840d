//! Loaders and batches used on threads of a framework. Such a thread may have the context of
//! another GPU, or no context. Loaders and batches leave its context unchanged.

use super::*;
use crate::keeps;
use feedwater::internals::gpu::BorrowedSlice;

/// Calls every function of a loader on GPU 0 and of its batches.
fn every_way() {
    let loading = || builder(DeviceChoice::Gpu(0)).epochs(Some(3));
    keeps("plan", || loading().plan().unwrap());
    let mut loader = keeps("build", || loading().build().unwrap());
    let mut epoch = keeps("epoch", || loader.epoch());
    while let Some(batch) = keeps("Epoch::next", || epoch.next()) {
        keeps("Batch::drop", || drop(batch.unwrap()));
    }
    let mut batches = loader.into_iter();
    let mut next = || keeps("Batches::next", || batches.next().unwrap().unwrap());
    keeps("to_host", || next().to_host().unwrap());
    let batch = next();
    keeps("array interface", || CudaArrayInterface::new(&batch).unwrap());
    let stream = keeps("Stream::new", || Stream::new(batch.stream().unwrap().device()).unwrap());
    keeps("on", || batch.wait_in(&Arc::new(stream)).unwrap());
    keeps("drop of a lent batch", || drop(batch));
    for consumer in [ConsumerStream::Legacy, ConsumerStream::PerThread] {
        let batch = next();
        let exported = keeps("export", || dlpack::export(batch, &consumer).unwrap());
        keeps("deleter", || drop(exported));
    }
    let exported = dlpack::export_legacy(next(), &ConsumerStream::Legacy).unwrap();
    std::thread::scope(|scope| {
        let delete = || keeps("deleter of a foreign thread", move || drop(exported));
        scope.spawn(delete).join().unwrap();
    });
    keeps("Loader::drop", || drop(loader));
}

/// Calls the functions that pass a batch to cudarc. cudarc makes its own context current, so
/// `current` restores the framework's context after each call of cudarc.
fn cudarc_ways(current: &dyn Fn()) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    current();
    let mut loader = builder(DeviceChoice::Gpu(0)).build().unwrap();
    let batch = first(&mut loader);
    let tensor = keeps("CudaTensor::new", || CudaTensor::<f32>::new(batch, &stream).unwrap());
    keeps("CudaTensor::drop", || drop(tensor));
    let batch = first(&mut loader);
    let buffer = batch.device_buffer().unwrap().clone();
    let slice = keeps("borrow", || BorrowedSlice::<u8, _>::new(buffer, 8, &stream, batch).unwrap());
    keeps("give back", || drop(slice));
    // From here on, the batch is the only owner of cudarc's stream.
    let batch = first(&mut loader);
    let ours = ours(&batch, &stream);
    drop((stream, context));
    current();
    keeps("Stream::drop", || drop(ours));
    keeps("Loader::drop", || drop((batch, loader)));
}

#[test]
fn loaders_and_batches_leave_the_threads_context_as_it_was() {
    let Some(machine) = exclusive() else { return };
    machine.devices(2);
    for gpu in [None, Some(0), Some(1)] {
        std::thread::spawn(move || {
            let framework = gpu.map(|ordinal| CudaContext::new(ordinal).unwrap());
            let current = || match &framework {
                Some(framework) => framework.bind_to_thread().unwrap(),
                // SAFETY: null means no context.
                None => unsafe { result::ctx::set_current(std::ptr::null_mut()) }.unwrap(),
            };
            current();
            every_way();
            cudarc_ways(&current);
        })
        .join()
        .unwrap();
    }
    assert_clean(&machine, "contexts");
}
