//! Consumers that hold every batch on a device, and that `peek` at the next batch.

use std::task::Poll;

use super::*;

/// While the consumer holds all batches, memory for more batches is allocated, up to the limit.
/// This memory is freed later. `peek` copies the next batch to the host.
#[test]
fn batches_are_added_on_the_device_within_its_limit() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(9));
    let make = || {
        builder(jpegs(16), evaluation()).shuffle(false).batch_size(2).prefetch(1).epochs(Some(1))
    };
    let on_gpu = |builder: LoaderBuilder| {
        let builder = builder.add_batches(true).configure(|it| it.targets.classes = Some(16));
        builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap()
    };
    let cpu = on_cpu(make()).build().unwrap().into_batches();
    let cpu: Vec<Vec<u8>> = cpu.map(|batch| batch.unwrap().to_host().unwrap()).collect();
    let mut loader = on_gpu(make());
    let planned = loader.footprint().total_bytes(MemoryKind::Device);
    let row = |name| loader.footprint().row(name).unwrap().each_bytes;
    let each = row("output slots") + row("soft targets") + row("column copies");
    let look = loop {
        if let Poll::Ready(batch) = loader.peek_within(Duration::from_secs(1)) {
            break batch.unwrap().unwrap();
        }
    };
    assert_eq!((look.host(), look.indices().collect()), (Some(&cpu[0][..]), vec![0, 1]));
    assert_eq!(look.soft_targets().unwrap().iter().sum::<f32>(), 2.0);
    let held: Vec<_> = loader.epoch().map(Result::unwrap).collect();
    assert_eq!(held.len(), cpu.len());
    for (batch, expected) in held.iter().zip(&cpu) {
        assert!(batch.device_ptr().is_some());
        assert_eq!(batch.to_host().unwrap(), *expected);
        assert_eq!(batch.soft_targets_to_host().unwrap().iter().sum::<f32>(), 2.0);
    }
    assert!(loader.stats().batches_added >= 6, "{:?}", loader.stats());
    drop((held, look));
    drop(loader);
    let mut limited = on_gpu(make().configure(|it| it.limits.device_memory = Some(planned + each)));
    let mut held = Vec::new();
    let error = limited.epoch().find_map(|batch| batch.map(|batch| held.push(batch)).err());
    assert!(error.unwrap().to_string().contains("limits.device_memory"));
    assert_eq!(held.len(), 3);
    drop((held, limited));
    assert_eq!(machine.counts().live(), 0);
}
