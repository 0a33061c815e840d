//! The route of feedwater's own decoder. Its kernels run for real, compiled for the host.

use super::*;

/// Decodes on the route `feedwater` only, with `group` images per call.
fn only_feedwater(builder: LoaderBuilder, group: usize) -> LoaderBuilder {
    builder.configure(|it| {
        it.decode.routes = vec![Route::Feedwater];
        it.decode.hardware_group = Some(group);
    })
}

#[test]
fn batches_equal_the_cpus_for_each_size_of_a_call() {
    let Some(machine) = machine() else { return };
    machine.set_decoder(Some(|_, _, _| panic!("nvJPEG was called")));
    for (seed, group) in [1, 2, 7, 16].into_iter().enumerate() {
        machine.schedule(Schedule::Random(seed as u64));
        for chain in [training(), evaluation()] {
            let make = || {
                let builder = builder(jpegs(40), chain.clone()).last_batch(LastBatch::Partial);
                only_feedwater(builder.epochs(Some(2)).num_workers(4), group)
            };
            let stats = same(make, &format!("{group} images per call")).stats();
            assert_eq!(stats.outcomes["feedwater"], 80, "{stats:?}");
            assert!(stats.cpu_fallback.is_empty(), "{stats:?}");
        }
    }
}
