//! Every function leaves the calling thread's current CUDA context unchanged. The simulated driver
//! reports calls in a wrong context.

#![allow(unsafe_code, reason = "the driver is called as a framework would call it")]

use super::*;
use crate::keeps;
use cudarc::driver::{CudaContext, result};
use feedwater::gpu::compile;
use feedwater::internals::gpu::{nvjpeg, read_back};

/// Calls every function of the module `gpu` on GPU 0.
fn every_function() {
    let device = keeps("open", || Device::open_with(0, &runtime()).unwrap());
    keeps("memory", || device.memory_bytes().unwrap());
    keeps("synchronize", || device.synchronize().unwrap());
    keeps("probe", || probe(&runtime()));
    keeps("compile", || compile(&device, KERNEL).unwrap());
    nvjpeg::forget_backends();
    keeps("backends", || nvjpeg::known_backends(&device).unwrap());
    let (memory, pinned) = keeps("pools", || pools(&device).unwrap());
    let stream = keeps("stream", || Arc::new(Stream::new(&device).unwrap()));
    let event = keeps("event", || Event::new(&device).unwrap());
    keeps("record", || event.record(&stream).unwrap());
    keeps("query", || event.query().unwrap());
    keeps("wait", || stream.wait(&event).unwrap());
    keeps("wait for an event", || event.synchronize().unwrap());
    keeps("wait for a stream", || stream.synchronize().unwrap());
    let (kernel, mut samples) = keeps("kernel", || copy_kernel(&device, &memory, &pinned));
    let out = memory.buffer("slots", 256).unwrap();
    let input = memory.buffer("slots", 256).unwrap();
    keeps("fill", || fill(&stream, &input, 0..256, 40).unwrap());
    keeps("describe", || describe(&mut samples, 0, &out, 0, &input, 2).unwrap());
    keeps("upload", || samples.upload(&stream, 0..SAMPLE_BYTES).unwrap());
    keeps("launch", || kernel.launch(&stream, samples.device(), 0, 1, 256, 1).unwrap());
    let mut bytes = [0; 256];
    keeps("read back", || read_back(&stream, &out, 0, &mut bytes).unwrap());
    assert_eq!(bytes, [42; 256]);
    let timed = keeps("timed events", || [(); 2].map(|()| Event::timed(&device).unwrap()));
    timed.iter().for_each(|event| event.record(&stream).unwrap());
    stream.synchronize().unwrap();
    keeps("elapsed", || timed[1].elapsed_since(&timed[0]).unwrap());
    keeps("drop events", || drop((event, timed)));
    keeps("drop kernel", || drop((kernel, samples)));
    keeps("drop stream", || drop(stream));
    keeps("drop pools", || drop((memory, pinned, out, input)));
    keeps("drop device", || drop(device));
}

#[test]
fn every_function_leaves_the_threads_context_as_it_was() {
    let Some(machine) = exclusive() else { return };
    machine.devices(2);
    on_a_new_thread(every_function);
    on_a_new_thread(|| {
        let framework = CudaContext::new(1).unwrap();
        framework.bind_to_thread().unwrap();
        every_function();
        framework.check_err().unwrap();
    });
    on_a_new_thread(|| {
        let framework = CudaContext::new(0).unwrap();
        framework.bind_to_thread().unwrap();
        every_function();
        framework.check_err().unwrap();
    });
    assert_clean(&machine, "contexts");
}

#[test]
fn a_thread_stays_bound_only_if_it_asks_for_it() {
    let Some(machine) = exclusive() else { return };
    machine.devices(2);
    on_a_new_thread(|| {
        let devices = [0, 1].map(|ordinal| Device::open_with(ordinal, &runtime()).unwrap());
        assert_eq!(result::ctx::get_current(), Ok(None));
        devices[1].bind().unwrap();
        let bound = result::ctx::get_current().unwrap();
        assert!(bound.is_some());
        drop(Stream::new(&devices[0]).unwrap());
        assert_eq!(result::ctx::get_current(), Ok(bound));
    });
    // When a context is destroyed, its binding to the thread ends. Opening the device again renews
    // the binding of this thread.
    on_a_new_thread(|| {
        let device = Device::open_with(0, &runtime()).unwrap();
        device.bind().unwrap();
        drop(device);
        drop(Stream::new(&Device::open_with(0, &runtime()).unwrap()).unwrap());
    });
    assert_clean(&machine, "bound");
}

/// Checks the rules of the simulated driver on which the tests above rely.
#[test]
fn the_simulated_driver_refuses_objects_of_another_context() {
    use cudarc::driver::sys::CUresult;
    let Some(machine) = exclusive() else { return };
    machine.devices(2);
    on_a_new_thread(|| {
        let devices = [0, 1].map(|ordinal| Device::open_with(ordinal, &runtime()).unwrap());
        let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
        let event = Event::new(&devices[0]).unwrap();
        let record = |stream: &Stream| {
            // SAFETY: the handles of the event and of the stream are alive.
            unsafe { result::event::record(event.raw().cast(), stream.raw().cast()) }
        };
        let code = |result: std::result::Result<(), result::DriverError>| result.map_err(|it| it.0);
        assert_eq!(code(record(&streams[0])), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
        devices[0].bind().unwrap();
        assert_eq!(code(record(&streams[0])), Ok(()));
        assert_eq!(code(record(&streams[1])), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        // A stream may wait for an event of another device.
        streams[1].wait(&event).unwrap();

        let (memory, pinned) = pools(&devices[0]).unwrap();
        let (kernel, samples) = copy_kernel(&devices[0], &memory, &pinned);
        let error = kernel.launch(&streams[1], samples.device(), 0, 1, 1, 1).unwrap_err();
        assert!(matches!(error, Error::Device { call: "cuLaunchKernel", .. }), "{error}");
        assert_eq!((machine.on_device(0).0 > 0, machine.on_device(1).0), (true, 0));
    });
    assert_clean(&machine, "rules");
}
