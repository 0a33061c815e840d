//! `[[view]]`: views of an image.

use super::SOURCE;
use crate::common::config_error;
use feedwater::DType;
use feedwater::internals::config::Pipeline;
use feedwater::internals::plan::Facts;
use feedwater::op::Placement;
use feedwater::plan::Plan;

const VIEWS: &str = r#"
[[view]]
name = "small"
count = 8
dtype = "f16"
[[view.chain]]
op = "random_apply"
probability = 0.5
[[view.chain.operators]]
op = "gaussian_blur"
kernel_size = 3
[[view.chain]]
op = "random_resized_crop"
placement = "cpu"
width = 96
height = 64
[[view]]
name = "right"
field = "right.jpg"
like = "small"
count = 8
[[view.chain]]
op = "random_resized_crop"
width = 96
height = 64
"#;

fn read(text: &str) -> feedwater::Result<Pipeline> {
    Pipeline::from_toml(&format!("{SOURCE}{text}"), "")
}

#[test]
fn views_are_read_and_written_again() {
    let pipeline = read(VIEWS).unwrap();
    let [small, right] = pipeline.chain.views() else { panic!("{:?}", pipeline.chain) };
    assert!(pipeline.chain.steps().is_empty());
    assert_eq!((&*small.name, small.count, small.dtype), ("small", Some(8), Some(DType::F16)));
    assert_eq!((&small.field, &small.like), (&None, &None));
    let places: Vec<_> = small.chain.steps().iter().map(|step| step.placement).collect();
    assert_eq!(places, [Placement::Auto, Placement::Cpu]);
    assert_eq!(right.field.as_deref(), Some("right.jpg"));
    assert_eq!((right.like.as_deref(), right.dtype), (Some("small"), None));
    let text = pipeline.to_toml().unwrap();
    let again = Pipeline::from_toml(&text, "").unwrap();
    assert_eq!(format!("{:?}", again.chain), format!("{:?}", pipeline.chain));
    assert_eq!(again.to_toml().unwrap(), text);
}

/// Errors name the key of the view or of its operator, and its line.
#[test]
fn errors_in_views_have_their_place() {
    for (from, to, key, line, words) in [
        ("count = 8", "counts = 8", "view[0].counts", 6, "did you mean count"),
        ("count = 8", "count = -1", "view[0].count", 6, "-1"),
        ("name = \"small\"\n", "", "view[0].name", 4, "is missing"),
        (
            "kernel_size = 3",
            "kernel_size = 4",
            "view[0].chain[0].operators[0].kernel_size",
            13,
            "4",
        ),
        ("width = 96", "width = 0", "view[0].chain[1].width", 17, "32767"),
        (
            "op = \"gaussian_blur\"",
            "op = \"gaussian_blr\"",
            "view[0].chain[0].operators[0].op",
            12,
            "did you mean gaussian_blur",
        ),
    ] {
        let error = config_error(read(&VIEWS.replacen(from, to, 1)));
        assert_eq!(error.key, key, "{error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert_eq!(error.at.as_ref().map(|at| at.line), Some(line), "{error:?}");
    }
    let error = config_error(read("[view]\nname = \"a\"\n"));
    let chain = config_error(read("[[view]]\nname = \"a\"\n[view.chain]\nop = \"flip\"\n"));
    assert!(chain.key == "view[0].chain" && chain.problem.contains("[[view.chain]]"), "{chain}");
    assert!(error.key == "view" && error.problem.contains("[[view]]"), "{error}");
}

/// Operators with several outputs belong in views, whose count is a multiple of the number of
/// outputs.
#[test]
fn operators_with_several_outputs_belong_in_views() {
    let five = "op = \"five_crop\"\nwidth = 8\nheight = 8\n";
    let ten = "op = \"ten_crop\"\nwidth = 8\nheight = 8\n";
    let planned = |text: String| -> feedwater::Result<Vec<Option<u32>>> {
        let pipeline = read(&text)?;
        let facts = Facts::default();
        let plan = Plan::new(&pipeline.chain, &pipeline.settings, &facts)?;
        Ok(plan.views.iter().map(|view| view.count).collect())
    };
    let view = |count: &str, operators: &[&str]| {
        let steps = operators.iter().map(|it| format!("[[view.chain]]\n{it}"));
        format!("[[view]]\nname = \"crops\"\n{count}\n{}", steps.collect::<String>())
    };
    let one = format!("{ten}crop = 9\n");
    assert_eq!(planned(view("", &[five])).unwrap(), [Some(5)]);
    assert_eq!(planned(view("count = 20", &[ten])).unwrap(), [Some(20)]);
    assert_eq!(planned(view("", &[&one])).unwrap(), [None]);
    assert_eq!(planned(format!("[[chain]]\n{one}")).unwrap(), []);
    let inner = "op = \"random_apply\"\n[[view.chain.operators]]\nop = \"five_crop\"\nwidth = 8\nheight = 8\n";
    for (text, key, words) in [
        (format!("[[chain]]\n{five}"), "chain[0]", "five_crop makes 5 outputs"),
        (view("count = 7", &[five]), "view[0].count", "is 7, but an operator of the chain makes 5"),
        (view("count = 5", &[ten]), "view[0].count", "a multiple of 10"),
        (view("", &[five, ten]), "view[0].chain[1]", "ten_crop follows five_crop"),
        (view("", &[inner]), "view[0].chain[0].operators[0]", "move it out"),
        (
            format!(
                "{}{}",
                view("like = \"b\"", &[ten]),
                view("count = 3", &[five]).replace("crops", "b")
            ),
            "view[1].count",
            "a multiple of 5",
        ),
        (
            view("", &[&format!("{five}crop = 5\n")]),
            "view[0].chain[0].crop",
            "must be 0 to 4, is 5",
        ),
    ] {
        let error = config_error(planned(text));
        assert_eq!(error.key, key, "{error}");
        assert!(error.problem.contains(words), "{words}: {error}");
    }
}
