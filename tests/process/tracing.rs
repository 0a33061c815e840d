//! Events that feedwater reports to the `tracing` crate.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, OnceLock};

use crate::in_own_process;
use feedwater::loader::{DeviceChoice, Loader};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Target, level and fields of an event.
type Told = (String, Level, BTreeMap<String, String>);

static TOLD: OnceLock<Mutex<Vec<Told>>> = OnceLock::new();

struct Collecting;

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_string(), format!("{value:?}").trim_matches('"').to_string());
    }
}

impl Subscriber for Collecting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("feedwater::")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let (target, level) = (event.metadata().target(), *event.metadata().level());
        let told = TOLD.get_or_init(Mutex::default);
        told.lock().unwrap().push((target.to_string(), level, fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn every_stage_of_a_sample_and_every_batch_is_an_event() {
    if !in_own_process("tracing::every_stage_of_a_sample_and_every_batch_is_an_event", "") {
        return;
    }
    tracing::subscriber::set_global_default(Collecting).unwrap();
    let mut loader = Loader::builder(crate::common::memory(20), crate::common::training())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .epochs(Some(1))
        .build()
        .unwrap();
    for batch in &mut loader {
        batch.unwrap();
    }
    drop(loader);
    let told = TOLD.get().unwrap().lock().unwrap();
    let stages: Vec<_> = told.iter().filter(|it| it.0 == "feedwater::stage").collect();
    assert!(stages.iter().all(|it| it.1 == Level::TRACE));
    for stage in ["read", "header", "decode", "transform", "hand_over"] {
        let of = stages.iter().filter(|it| it.2["stage"] == stage && it.2["what"] == "busy");
        let mut indices: Vec<u64> = of
            .map(|(.., fields)| {
                fields["nanoseconds"].parse::<u64>().unwrap();
                assert!(fields["batch"].parse::<u64>().unwrap() < 5);
                fields["index"].parse().unwrap()
            })
            .collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..20).collect::<Vec<_>>(), "{stage}");
    }
    let batches = told.iter().filter(|it| it.0 == "feedwater::batch");
    // One event is reported for each batch that is published, and one for each batch that the
    // consumer receives.
    for field in ["published", "waited_nanoseconds"] {
        let of = batches.clone().filter(|it| it.2.contains_key(field));
        let numbers: Vec<_> = of.map(|it| (it.1, it.2["batch"].clone())).collect();
        let expected = (0..5).map(|it| (Level::DEBUG, it.to_string())).collect::<Vec<_>>();
        assert_eq!(numbers, expected, "{field}");
    }
}
