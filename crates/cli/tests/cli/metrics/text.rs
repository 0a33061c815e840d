//! Tests of metrics in the text format of Prometheus.

use super::*;

#[test]
fn metrics_are_well_formed_and_match_the_run() {
    let loader = after_a_run(builder().configure(|it| it.cache.encoded = Some(1 << 20)));
    let families = parsed(&loader.metrics());
    for (name, label, expected) in [
        ("feedwater_images_total", "", 80.0),
        ("feedwater_batches_total", "", 20.0),
        ("feedwater_batches_made_total", "", 20.0),
        ("feedwater_stage_items_total", "decode", 80.0),
        ("feedwater_stage_latency_seconds_count", "decode", 80.0),
        ("feedwater_consumer_wait_seconds_count", "", 20.0),
        ("feedwater_consumer_step_seconds_count", "", 20.0),
        ("feedwater_outcomes_total", "cpu", 80.0),
        ("feedwater_outcomes_total", "skipped", 0.0),
        ("feedwater_cache_hits_total", "encoded", 40.0),
        ("feedwater_cache_misses_total", "encoded", 40.0),
        ("feedwater_ring_slots", "", 3.0),
        ("feedwater_ring_ready_batches", "", 0.0),
        ("feedwater_ring_filling_batches", "", 0.0),
    ] {
        assert_eq!(value(&families, name, label), expected, "{name} {label}");
    }
    let profile = loader.profile();
    let busy = value(&families, "feedwater_stage_seconds_total", "decode");
    assert!((busy / profile.stage(Stage::Decode).unwrap().busy - 1.0).abs() < 1e-9);
    assert_eq!(value(&families, "feedwater_readiness_ratio", ""), profile.consumer.readiness);
    assert!(value(&families, "feedwater_memory_peak_bytes", "host") > 1e6);
    assert!(value(&families, "feedwater_memory_predicted_bytes", "host") > 1e6);
    assert!(value(&families, "feedwater_consumer_part_seconds_total", "log\"ging\\\n") > 0.0);
}

#[test]
fn metrics_of_an_idle_loader_are_well_formed() {
    parsed(&builder().build().unwrap().metrics());
}

#[test]
#[should_panic(expected = "in feedwater_a")]
fn the_parser_rejects_samples_of_another_family() {
    parsed("# HELP feedwater_a b\n# TYPE feedwater_a gauge\nother 1\n");
}
