//! Tests the model with other hardware, and that its JavaScript version gives the same results.

mod words;

use std::fs;
use std::process::Command;

use feedwater_insight::model::{
    Consumer, Contention, Hardware, JAVASCRIPT, Model, On, Options, Resource, Service, Stage,
};
use serde_json::Value;
use words::has_words;

/// A pipeline of one 10 ms CPU stage with as many cores as workers, and a consumer that takes no time.
fn model(batch: u32, workers: usize, prefetch: u32) -> Model {
    Model {
        batch,
        slots: prefetch + 1,
        workers: vec![1.0; workers],
        starts: Vec::new(),
        cores: workers as u32,
        contention: None,
        resources: Vec::new(),
        stages: vec![stage("decode", On::Cpu, 0.01)],
        pages: None,
        per_batch: 0.0,
        consumer: Consumer { step: Service::constant(0.0), holds: true, host_share: 0.0 },
    }
}

fn stage(name: &str, on: On, mean: f64) -> Stage {
    Stage { name: name.into(), on, service: Service::constant(mean), detached: false }
}

fn detached(name: &str, on: On, mean: f64) -> Stage {
    Stage { detached: true, ..stage(name, on, mean) }
}

fn resource(name: &str, servers: u32) -> Resource {
    Resource { name: name.into(), servers }
}

fn rate(model: &Model) -> f64 {
    model.run(&Options::batches(400, 50)).unwrap().samples_per_second
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{found}, not {expected}");
}

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

    // With four cores for eight loaders, each gets half a core: one core at half the speed.
    let host = on(Hardware { gpus_per_host: 8, hosts: 3, ..Hardware::default() });
    assert_eq!(host.cores, 1);
    close(rate(&host), 50.0, 0.01);
    let uneven = on(Hardware { gpus_per_host: 3, ..Hardware::default() });
    assert_eq!(uneven.cores, 2);
    close(rate(&uneven), 400.0 / 3.0, 0.01);

    // Samples have 100 KB. The disk of each host allows 80 MB/s. The link, which both hosts and
    // four GPUs share, allows 120 MB/s.
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

/// Writes numbers as the bits of their doubles, so that they are compared exactly.
fn bits(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => {
            *out += &format!("{:016x} ", number.as_f64().unwrap().to_bits());
        }
        Value::Array(items) => items.iter().for_each(|item| bits(item, out)),
        Value::Object(fields) => {
            for (name, field) in fields {
                *out += &format!("{name} ");
                bits(field, out);
            }
        }
        Value::String(text) => *out += &format!("{text} "),
        other => *out += &format!("{other} "),
    }
}

/// Returns a random model. Over thirty seeds, every feature is used.
fn random_model(seed: u64) -> (Model, Options) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |end: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % end
    };
    let mut model = model(1 + below(40) as u32, 1 + below(9) as usize, below(6) as u32);
    model.cores = 1 + below(6) as u32;
    model.contention = (below(2) == 0).then(|| Contention {
        speed: (1 + below(8)) as f64 / 8.0,
        available: f64::from(model.cores) * (1 + below(8)) as f64 / 8.0,
    });
    model.resources = (0..below(3)).map(|at| resource(&at.to_string(), 1 + at as u32)).collect();
    let held = 1 + below(4);
    model.stages = (0..held + below(3))
        .map(|at| {
            let on = match below(3) {
                0 if !model.resources.is_empty() => {
                    On::Resource(below(model.resources.len() as u64) as usize)
                }
                1 => On::Wait,
                _ => On::Cpu,
            };
            let mean = 1e-4 * (1 + below(100)) as f64;
            let cv = [0.0, 0.1, 0.5, 2.0][below(4) as usize];
            let service = Service::lognormal(mean, cv);
            Stage { name: format!("stage {at}"), on, service, detached: at >= held }
        })
        .collect();
    model.pages = (below(2) == 0).then(|| 1 + below(30) as u32);
    model.per_batch = below(3) as f64 * 1e-3;
    for worker in &mut model.workers {
        *worker = [1.0, 1.0, 1.3, 4.0][below(4) as usize];
    }
    if below(2) == 0 {
        model.starts = model.workers.iter().map(|_| below(100) as f64 * 1e-3).collect();
    }
    model.consumer = Consumer {
        step: Service::lognormal(1e-3 * below(50) as f64, [0.0, 0.4][below(2) as usize]),
        holds: below(2) == 0,
        host_share: [0.0, 0.0, 0.3, 1.0][below(4) as usize],
    };
    let batches = Options::batches(20 + below(60) as u32, below(20) as u32);
    let seconds = Options::seconds(0.1 + below(20) as f64 * 0.1);
    let options = if below(3) == 0 { seconds } else { batches };
    (model, Options { seed: below(1 << 32) as u32, events: below(2) as u32 * 300, ..options })
}

#[test]
fn javascript_gives_equal_bits() {
    if !Command::new("node").arg("--version").output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: Node.js is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cases: Vec<(Model, Options)> = (0..30).map(random_model).collect();
    let mut detached = 0;
    let mut expected = String::new();
    for (model, options) in &cases {
        detached += usize::from(model.stages.iter().any(|stage| stage.detached));
        let forecast = model.run(options).unwrap();
        assert!(forecast.samples_per_second > 0.0 || forecast.batches == 0);
        bits(&serde_json::to_value(&forecast).unwrap(), &mut expected);
        bits(&serde_json::to_value(model.capacity()).unwrap(), &mut expected);
        expected.push('\n');
    }
    assert!(detached > 5);
    let path = |name: &str| dir.path().join(name);
    fs::write(path("cases.json"), serde_json::to_string(&cases).unwrap()).unwrap();
    let driver = r#"
const view = new DataView(new ArrayBuffer(8));
const hex = (number) => { view.setFloat64(0, number); return view.getBigUint64(0).toString(16).padStart(16, '0') + ' '; };
const bits = (value) => typeof value === 'number' ? hex(value)
  : Array.isArray(value) ? value.map(bits).join('')
  : value !== null && typeof value === 'object' ? Object.keys(value).sort().map((name) => name + ' ' + bits(value[name])).join('')
  : value + ' ';
for (const [model, options] of JSON.parse(require('fs').readFileSync(process.argv[2], 'utf8'))) {
  console.log(bits(simulate(model, options)) + bits(capacity(model)));
}"#;
    fs::write(path("driver.js"), format!("{JAVASCRIPT}\n{driver}")).unwrap();
    let output =
        Command::new("node").arg(path("driver.js")).arg(path("cases.json")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = String::from_utf8(output.stdout).unwrap();
    for (number, (found, expected)) in std::iter::zip(found.lines(), expected.lines()).enumerate() {
        let differs = || {
            let pairs = std::iter::zip(found.split(' '), expected.split(' '));
            pairs.enumerate().find(|(_, (found, expected))| found != expected)
        };
        assert!(found == expected, "model {number}: {:?}", differs());
    }
    assert_eq!(found.lines().count(), cases.len());
}
