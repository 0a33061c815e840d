//! Staged copies and memory pools.

use super::*;

#[test]
fn the_host_can_access_staged_bytes_only_after_the_copy() {
    let Some(machine) = exclusive() else { return };
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let device = Device::open_with(0, &runtime()).unwrap();
        let (memory, pinned) = pools(&device).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut seen = Vec::new();
        let kept = memory.buffer("slots", 4096).unwrap();
        let (kernel, mut samples) = copy_kernel(&device, &memory, &pinned);
        let mut page = Staged::new(
            pinned.buffer("pages", 1024).unwrap(),
            memory.buffer("slots", 1024).unwrap(),
        )
        .unwrap();
        for round in 0..4u8 {
            page.bytes().unwrap().fill(round);
            page.upload(&stream, 0..1024).unwrap();
            describe(&mut samples, 0, &kept, round as usize * 1024, page.device(), 0).unwrap();
            samples.upload(&stream, 0..SAMPLE_BYTES).unwrap();
            kernel.launch(&stream, samples.device(), 0, 1, 128, 8).unwrap();
        }
        seen.resize(4096, 0xff);
        read_back(&stream, &kept, 0, &mut seen).unwrap();
        let expected: Vec<u8> = (0..4).flat_map(|round| [round; 1024]).collect();
        assert_eq!(seen, expected, "{schedule:?}");
    }
    assert_clean(&machine, "staged");
}

#[test]
fn dropped_staged_bytes_are_freed_after_the_copy() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, pinned) = pools(&device).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut page =
        Staged::new(pinned.buffer("pages", 512).unwrap(), memory.buffer("slots", 512).unwrap())
            .unwrap();
    page.bytes().unwrap().fill(5);
    page.upload(&stream, 0..512).unwrap();
    drop(page);
    // The next owner of the page-locked memory overwrites it. The copy must already have read the
    // old bytes.
    pinned.buffer("pages", 512).unwrap().fill(6);
    let mut seen = vec![0; 512];
    read_back(&stream, &memory.buffer("slots", 512).unwrap(), 0, &mut seen).unwrap();
    assert_eq!(seen, [5; 512]);
    drop((memory, pinned, stream, device));
    assert_clean(&machine, "dropped");
}

/// Bytes read on the host are those of the last copy. Also checks that a range outside of the
/// buffers is an error and copies nothing.
#[test]
fn downloaded_bytes_are_read_after_the_last_copy() {
    let Some(machine) = exclusive() else { return };
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let device = Device::open_with(0, &runtime()).unwrap();
        let (memory, pinned) = pools(&device).unwrap();
        let stream = Stream::new(&device).unwrap();
        let source = memory.buffer("slots", 512).unwrap();
        let mut found = Download::new(pinned.buffer("pages", 512).unwrap()).unwrap();
        for round in 0..4u8 {
            feedwater::internals::gpu::fill(&stream, &source, 0..512, round).unwrap();
            found.copy(&stream, &source, 0..300, 0).unwrap();
            found.copy(&stream, &source, 300..512, 300).unwrap();
            assert_eq!(found.bytes().unwrap(), [round; 512], "{schedule:?}");
        }
        for (range, offset) in [(500..513, 0), (0..2, 511), (0..1, usize::MAX)] {
            let error = found.copy(&stream, &source, range, offset).unwrap_err();
            assert!(matches!(error, Error::Internal { .. }), "{error}");
        }
        assert_eq!(found.bytes().unwrap(), [3; 512]);
        // The next owner of the page-locked memory writes to it. A copy that was queued before must
        // not overwrite these bytes.
        feedwater::internals::gpu::fill(&stream, &source, 0..512, 9).unwrap();
        found.copy(&stream, &source, 0..512, 0).unwrap();
        drop(found);
        let mut other = pinned.buffer("pages", 512).unwrap();
        other.fill(6);
        stream.synchronize().unwrap();
        assert_eq!(*other, [6; 512], "{schedule:?}");
        drop((other, memory, pinned, stream, source, device));
        assert_clean(&machine, "download");
    }
}

/// The driver's own copy function waits only if the host memory is pageable. For page-locked
/// memory, feedwater must wait explicitly.
#[test]
fn bytes_are_read_back_into_page_locked_memory_before_the_call_returns() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, pinned) = pools(&device).unwrap();
    let stream = Stream::new(&device).unwrap();
    let source = memory.buffer("slots", 512).unwrap();
    feedwater::internals::gpu::fill(&stream, &source, 0..512, 7).unwrap();
    let mut seen = pinned.buffer("pages", 512).unwrap();
    read_back(&stream, &source, 0, &mut seen).unwrap();
    assert_eq!(*seen, [7; 512]);
    drop((memory, pinned, stream, source, seen, device));
    assert_clean(&machine, "read back");
}

#[test]
fn a_pool_allocates_its_rows_once_and_never_more() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let mut footprint = Footprint::default();
    footprint.add(Memory::Host, "pages", 1 << 40, 1, "memory of another kind");
    footprint.add(Memory::Device, "slots", 1024, 3, "");
    footprint.add(Memory::Device, "nvjpeg", 8192, 1, "");
    footprint.add(Memory::Pinned, "pages", 512, 2, "");
    let memory = DevicePool::take(&device, &footprint).unwrap();
    let pinned = PinnedPool::take(&device, &footprint).unwrap();
    assert_eq!(memory.capacity_bytes(), footprint.total_bytes(Memory::Device));
    assert_eq!(pinned.capacity_bytes(), footprint.total_bytes(Memory::Pinned));
    let counts = machine.counts();
    assert_eq!((counts.device.allocations, counts.device.bytes), (1, 3 * 1024 + 8192));
    assert_eq!((counts.pinned.allocations, counts.pinned.bytes), (1, 1024));

    let calls = machine.counts().calls;
    let mut slots: Vec<_> = (0..3).map(|_| memory.buffer("slots", 1024).unwrap()).collect();
    assert_eq!((memory.used_bytes(), memory.row_bytes("slots")), (3072, Some((3072, 3072))));
    let error = memory.buffer("slots", 1).unwrap_err();
    assert!(
        matches!(&error, Error::Budget { row, needed: 1, limit: 0 } if row == "slots"),
        "{error}"
    );
    assert!(matches!(memory.buffer("no row", 1), Err(Error::Budget { limit: 0, .. })));
    slots.pop();
    assert_eq!((memory.used_bytes(), memory.peak_bytes()), (2048, 3072));
    assert_eq!(machine.counts().calls, calls, "acquiring and releasing must not call the driver");

    let mut page = pinned.buffer("pages", 512).unwrap();
    assert!(page.iter().all(|byte| *byte == 0));
    page.fill(7);
    assert_eq!(machine.counts().write_combined, 0);

    // Buffers own their pool, and the pool owns the device. The three may therefore be dropped in
    // any order.
    drop((device, memory, pinned));
    assert_eq!(machine.counts().contexts, 1);
    drop((slots, page));
    assert_clean(&machine, "pools");
}

#[test]
fn a_pool_that_does_not_fit_is_an_error() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    machine.memory_limit(1000);
    let Err(Error::Device { call, problem }) = pools(&device).map(drop) else {
        panic!("the pool was allocated")
    };
    assert_eq!((call, problem.contains("OUT_OF_MEMORY")), ("cuMemAlloc", true), "{problem}");
    drop(device);
    assert_clean(&machine, "after a pool that does not fit");
}
