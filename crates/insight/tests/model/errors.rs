//! Tests that invalid models and options are errors.

use super::*;
use crate::words::has_words;

/// An invalid model: the expected key of the error, the values that its message must contain, and
/// the change that makes a valid model invalid.
type Invalid<'a> = (&'a str, &'a [&'a str], Change<'a>);

#[test]
fn invalid_models_are_errors_that_name_the_field() {
    let good = || {
        let mut model = model(4, 2, 1);
        model.resources = vec![resource("disk", 1)];
        model.pages = Some(4);
        model
    };
    good().check().unwrap();
    let quantiles = |quantiles: Vec<f64>| Service { mean: 1.0, quantiles };
    let cases: [Invalid; 25] = [
        ("model.batch", &["1", "1000000", "0"], &|it| it.batch = 0),
        ("model.batch", &["1", "1000000", "4000000000"], &|it| it.batch = 4_000_000_000),
        ("model.slots", &["1", "0"], &|it| it.slots = 0),
        ("model.cores", &["1", "0"], &|it| it.cores = 0),
        ("model.pages", &["1", "0"], &|it| it.pages = Some(0)),
        ("model.workers", &["1", "1000000", "0"], &|it| it.workers.clear()),
        ("model.workers[1]", &["0", "1e9", "NaN"], &|it| it.workers[1] = f64::NAN),
        ("model.workers[0]", &["0"], &|it| it.workers[0] = 0.0),
        ("model.starts", &["1", "2"], &|it| it.starts = vec![0.0]),
        ("model.starts[1]", &["0", "-1"], &|it| it.starts = vec![0.0, -1.0]),
        ("model.resources[0].servers", &["1", "0"], &|it| it.resources[0].servers = 0),
        ("model.stages", &["0", "1000"], &|it| it.stages.clear()),
        ("model.stages", &["2000", "1000"], &|it| it.stages = vec![it.stages[0].clone(); 2000]),
        ("model.stages[0].service.mean", &["0", "-0.1"], &|it| it.stages[0].service.mean = -0.1),
        ("model.stages[0].service.mean", &["0", "1e9", "inf"], &|it| {
            it.stages[0].service.mean = f64::INFINITY;
        }),
        ("model.stages[0].on", &["1", "model.resources"], &|it| it.stages[0].on = On::Resource(1)),
        ("model.stages[0].detached", &[], &|it| it.stages[0].detached = true),
        ("model.stages[2].detached", &["true"], &|it| {
            it.stages =
                vec![it.stages[0].clone(), detached("a", On::Cpu, 1.0), it.stages[0].clone()];
        }),
        ("model.per_batch", &["0", "NaN"], &|it| it.per_batch = f64::NAN),
        ("model.consumer.step.mean", &["0", "NaN"], &|it| it.consumer.step.mean = f64::NAN),
        ("model.consumer.host_share", &["0", "1", "1.5"], &|it| it.consumer.host_share = 1.5),
        ("model.consumer.step.quantiles", &["1", "1.5"], &|it| {
            it.consumer.step = quantiles(vec![1.0, 2.0]);
        }),
        ("model.consumer.step.quantiles[1]", &["0", "NaN"], &|it| {
            it.consumer.step = quantiles(vec![1.0, f64::NAN]);
        }),
        ("model.consumer.step.quantiles", &["5000", "4096"], &|it| {
            it.consumer.step = quantiles(vec![1.0; 5000]);
        }),
        ("model", &[], &|it| it.stages[0].service.mean = 0.0),
    ];
    for (key, values, change) in cases {
        let mut model = good();
        change(&mut model);
        let error = model.run(&Options::default()).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert!(has_words(&error.problem, values), "{error}, not {values:?}");
        assert_eq!(model.check(), Err(error));
    }
    let refused = |options: Options| {
        let error = good().run(&options).unwrap_err();
        assert_eq!(error.key, "options", "{error}");
        error.problem
    };
    let none = Options { batches: None, ..Options::default() };
    for (options, values) in [
        (none, &["batches", "seconds"][..]),
        (Options::batches(0, 1), &["0"]),
        (Options::seconds(f64::NAN), &["0"]),
        // A run of 1e9 seconds must be refused instead of taking forever.
        (Options::seconds(1e9), &["10000000"]),
    ] {
        let problem = refused(options);
        assert!(has_words(&problem, values), "{problem}, not {values:?}");
    }
    let json = serde_json::to_string(&good()).unwrap();
    assert_eq!(serde_json::from_str::<Model>(&json).unwrap(), good());
    let unknown = json.replacen("\"batch\"", "\"batches\"", 1);
    assert!(serde_json::from_str::<Model>(&unknown).unwrap_err().to_string().contains("batches"));
}
