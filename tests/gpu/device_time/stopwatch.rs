//! The stopwatch, which times spans of a stream with events.

use super::*;

fn stopwatch(spans: usize) -> (Arc<Device>, Stream, Stopwatch, Arc<DeviceMeter>) {
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let meter = Arc::<DeviceMeter>::default();
    let watch = Stopwatch::new(&device, spans, meter.clone()).unwrap();
    (device, stream, watch, meter)
}

#[test]
fn a_span_equals_the_time_of_its_operations_on_every_schedule() {
    let Some(machine) = exclusive() else { return };
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let (device, stream, watch, meter) = stopwatch(2);
        let mut rows = Footprint::default();
        rows.add(MemoryKind::Device, "row", 4096, 1, "");
        let buffer = DevicePool::take(&device, &rows).unwrap().buffer("row", 4096).unwrap();
        machine.work(&stream, 1_000_000);
        let mut lap = watch.lap().unwrap();
        lap.start(&stream).unwrap();
        fill(&stream, &buffer, 0..3000, 1).unwrap();
        machine.work(&stream, 7000);
        lap.stop(&stream, 2).unwrap();
        machine.work(&stream, 1_000_000);
        stream.synchronize().unwrap();
        watch.harvest().unwrap();
        let counts = meter.counts();
        assert_eq!((counts.items, counts.all_items, counts.dropped), (2, 2, 0), "{schedule:?}");
        assert_eq!(counts.busy, 3000 * COPY_NS + 7000, "{schedule:?}");
        drop((buffer, watch, stream, device));
        assert_clean(&machine, "span");
    }
}

#[test]
fn measuring_adds_no_waits_and_creates_no_events_later() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Lazy);
    let (device, stream, watch, meter) = stopwatch(3);
    let before = (host_waits(&machine), machine.calls("cuEventCreate"), machine.counts().events);
    assert_eq!((machine.counts().events, machine.counts().timed_events), (6, 6));
    for _ in 0..2000 {
        let mut lap = watch.lap().unwrap();
        lap.start(&stream).unwrap();
        machine.work(&stream, 10);
        lap.stop(&stream, 1).unwrap();
    }
    watch.harvest().unwrap();
    let after = (host_waits(&machine), machine.calls("cuEventCreate"), machine.counts().events);
    assert_eq!(before, after);
    let counts = meter.counts();
    assert_eq!((counts.all_items, counts.items * 10), (2000, counts.busy));
    drop((watch, stream, device));
    assert_clean(&machine, "no waits");
}

/// A measurement is dropped if the previous one is unfinished. Later measurements work.
#[test]
fn a_full_queue_drops_measurements_and_never_waits() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Lazy);
    let (device, stream, watch, meter) = stopwatch(1);
    // The stream has 10,000 operations. The simulated device runs one of them at each query.
    (0..10_000).for_each(|_| machine.work(&stream, 1));
    let measure = || {
        let mut lap = watch.lap().unwrap();
        lap.start(&stream).unwrap();
        lap.stop(&stream, 1).unwrap();
    };
    until(|| {
        measure();
        (meter.counts().dropped > 0).then_some(())
    });
    assert_eq!((meter.counts().items, host_waits(&machine)), (0, 0));
    stream.synchronize().unwrap();
    until(|| {
        measure();
        stream.synchronize().unwrap();
        (meter.counts().items > 1).then_some(())
    });
    drop((watch, stream, device));
    assert_clean(&machine, "full");
}

#[test]
fn an_abandoned_span_leaks_nothing() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Lazy);
    let (device, stream, watch, meter) = stopwatch(1);
    let mut lap = watch.lap().unwrap();
    lap.start(&stream).unwrap();
    machine.work(&stream, 500);
    drop(lap);
    let mut lap = watch.lap().unwrap();
    lap.start(&stream).unwrap();
    machine.work(&stream, 300);
    lap.stop(&stream, 1).unwrap();
    stream.synchronize().unwrap();
    watch.harvest().unwrap();
    let counts = meter.counts();
    assert_eq!((counts.items, counts.all_items, counts.dropped, counts.busy), (1, 1, 0, 300));
    drop((watch, stream, device));
    assert_clean(&machine, "given up");
}

#[test]
fn time_between_marks_is_that_of_completed_timed_events() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (first, last) = (Event::timed(&device).unwrap(), Event::timed(&device).unwrap());
    let refused = |error: Error| error.to_string().contains("CUDA_ERROR_INVALID_HANDLE");
    assert!(refused(last.elapsed_since(&first).unwrap_err()), "never recorded");
    first.record(&stream).unwrap();
    machine.work(&stream, 2_000_000_000);
    last.record(&stream).unwrap();
    assert_eq!(last.elapsed_since(&first).unwrap(), None);
    stream.synchronize().unwrap();
    assert_eq!(last.elapsed_since(&first).unwrap(), Some(Duration::from_secs(2)));
    let plain = Event::new(&device).unwrap();
    plain.record(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(refused(plain.elapsed_since(&first).unwrap_err()), "without a time");
    drop((first, last, plain, stream, device));
    assert_clean(&machine, "events");
}

#[test]
fn every_failure_while_measuring_is_an_error_and_leaks_nothing() {
    let Some(machine) = exclusive() else { return };
    for name in ["cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventElapsedTime"] {
        let run = || {
            let device = Device::open_with(0, &runtime())?;
            let stream = Stream::new(&device)?;
            let watch = Stopwatch::new(&device, 2, Arc::default())?;
            let mut lap = watch.lap()?;
            lap.start(&stream)?;
            lap.stop(&stream, 1)?;
            stream.synchronize()?;
            watch.harvest()
        };
        run().unwrap();
        machine.fail(name, 1, LAUNCH_FAILED);
        let Err(Error::Device { call, .. }) = run() else { panic!("{name} did not matter") };
        assert_eq!(call, name);
        assert_clean(&machine, name);
    }
}
