//! Predictions for other hardware.

use feedwater_insight::model::Hardware;

use super::*;
use crate::words::has_words;

#[test]
fn other_hardware_changes_only_its_fields() {
    let mut measured = model(32, 4, 2);
    measured.resources = vec![resource("engine", 1)];
    measured.stages.push(detached("engine", On::Resource(0), 0.0001));
    measured.consumer.step = Service::constant(0.01);
    let on = |hardware: Hardware| hardware.apply(&measured).unwrap();
    assert_eq!(on(Hardware::default()), measured);
    close(measured.limit().unwrap().1, 400.0, 1e-12);

    let more = on(Hardware { workers: Some(8), cores: Some(8), ..Hardware::default() });
    close(rate(&more), 800.0, 0.01);
    let faster = on(Hardware { stages: vec![("decode".into(), 0.25)], ..Hardware::default() });
    close(rate(&faster), 1600.0, 0.01);
    let batch = on(Hardware { batch: Some(64), ..Hardware::default() });
    assert_eq!((batch.batch, batch.consumer.step.mean), (64, 0.02));
    let step = on(Hardware { batch: Some(64), step: Some(0.5), ..Hardware::default() });
    assert_eq!(step.consumer.step.mean, 0.5);
    let ring = on(Hardware { prefetch: Some(7), ..Hardware::default() });
    assert_eq!(ring.slots, 8);
    let engines = Hardware { resources: vec![("engine".into(), 7)], ..Hardware::default() };
    assert_eq!(on(engines).resources[0].servers, 7);

    // Four cores for eight loaders are half a core per loader. The model represents that as one
    // core at half the speed.
    let host = on(Hardware { gpus_per_host: 8, hosts: 3, ..Hardware::default() });
    assert_eq!(host.cores, 1);
    close(rate(&host), 50.0, 0.01);
    let uneven = on(Hardware { gpus_per_host: 3, ..Hardware::default() });
    assert_eq!(uneven.cores, 2);
    close(rate(&uneven), 400.0 / 3.0, 0.01);

    // A sample has 100 KB. The disk of each host reads 80 MB/s, and the link, which both hosts with
    // their four GPUs share, transfers 120 MB/s.
    let plenty = Hardware {
        cores: Some(64),
        workers: Some(16),
        gpus_per_host: 2,
        hosts: 2,
        sample_bytes: Some(1e5),
        ..Hardware::default()
    };
    let disk = on(Hardware { disk: Some(80e6), ..plenty.clone() });
    assert_eq!(disk.limit().unwrap().0.name(&disk), "disk");
    close(rate(&disk), 400.0, 0.01);
    let both = on(Hardware { disk: Some(80e6), link: Some(120e6), ..plenty.clone() });
    assert_eq!(both.limit().unwrap().0.name(&both), "link");
    close(rate(&both), 300.0, 0.01);

    let refused = |hardware: Hardware| hardware.apply(&measured).unwrap_err();
    let unknown = refused(Hardware { resources: vec![("disk".into(), 7)], ..Hardware::default() });
    assert_eq!(unknown.key, "resource disk", "{unknown}");
    assert!(has_words(&unknown.problem, &["engine"]), "{unknown}");
    let unknown = refused(Hardware { stages: vec![("x".into(), 1.0)], ..Hardware::default() });
    assert_eq!(unknown.key, "stage x", "{unknown}");
    assert!(has_words(&unknown.problem, &["decode", "engine"]), "{unknown}");
    let zero = refused(Hardware { stages: vec![("decode".into(), 0.0)], ..Hardware::default() });
    assert!(has_words(&zero.key, &["decode"]) && has_words(&zero.problem, &["0"]), "{zero}");
    for (hardware, key) in [
        (Hardware { hosts: 0, ..Hardware::default() }, "hosts"),
        (Hardware { workers: Some(0), ..Hardware::default() }, "workers"),
        (Hardware { cores: Some(0), ..Hardware::default() }, "model.cores"),
        (Hardware { link: Some(1e9), ..Hardware::default() }, "sample_bytes"),
    ] {
        let error = refused(hardware);
        assert_eq!(error.key, key, "{error}");
    }
}
