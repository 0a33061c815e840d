//! A recorded action names its parameters. This test recomputes images from these parameters alone,
//! without any code of the library's operators, and compares the pixels.

use std::sync::Arc;

use feedwater::internals::geometry::Size;
use feedwater::internals::image::HostImage;
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::testing::random_image;
use feedwater::op::{
    Brightness, Flip, Normalize, Operator, Posterize, RandomApply, RandomCrop, RandomRotation,
};
use serde_json::Value;

use super::drawn::EXAMPLES;

/// An image as a list of rows of pixels.
type Pixels = Vec<Vec<[u8; 3]>>;

fn named(operators: &[Arc<dyn Operator>], key: SampleKey, size: Size) -> Vec<Value> {
    let drawn = Actions::named(
        operators.iter().map(|it| &**it),
        (key, 0),
        (size, Default::default()),
        Vec::new(),
    );
    drawn.iter().map(|it| serde_json::to_value(it).unwrap()).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect()
}

/// Returns the result of an action on `src`, computed only from the recorded action.
fn again(action: &Value, src: Pixels) -> Pixels {
    let (params, size) = (&action["params"], numbers(&action["size"]));
    match action["kind"].as_str().unwrap() {
        "crop" => {
            let (x, y) = (params["x"].as_i64().unwrap(), params["y"].as_i64().unwrap());
            let fill = numbers(&params["fill"]);
            let fill = [0, 1, 2].map(|channel| fill[channel] as u8);
            from(size, |column, row| pixel(&src, column + x, row + y).unwrap_or(fill))
        }
        "flip" => {
            let [width, height] = [0, 1].map(|axis| size[axis] as i64);
            let horizontal = params["horizontal"].as_bool().unwrap();
            let vertical = params["vertical"].as_bool().unwrap();
            from(size, |x, y| {
                let x = if horizontal { width - 1 - x } else { x };
                let y = if vertical { height - 1 - y } else { y };
                pixel(&src, x, y).unwrap()
            })
        }
        "warp" => {
            // Computes with 16 fractional bits, like Pillow's `Image.transform(size, AFFINE,
            // matrix, NEAREST)`.
            assert_eq!(params["interpolation"], "nearest");
            let m = numbers(&params["matrix"]);
            assert_eq!(m[6..], [0.0, 0.0, 1.0]);
            let fixed = |value: f64| (value * 65536.0 + 0.5).floor() as i64;
            let at = |m: &[f64], x: i64, y: i64| {
                let first = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
                (fixed(m[0]) * x + fixed(m[1]) * y + first) >> 16
            };
            from(size, |x, y| pixel(&src, at(&m, x, y), at(&m[3..], x, y)).unwrap_or([0; 3]))
        }
        "table" => {
            let of: Box<dyn Fn(u8) -> u8> = match action["formula"].as_str().unwrap() {
                "Brightness" => {
                    let factor = params["factor"].as_f64().unwrap() as f32;
                    Box::new(move |byte| (f32::from(byte) * factor).clamp(0.0, 255.0) as u8)
                }
                "Posterize" => {
                    let bits = params["bits"].as_f64().unwrap() as u32;
                    Box::new(move |byte| byte >> (8 - bits) << (8 - bits))
                }
                other => panic!("{other}"),
            };
            src.into_iter()
                .map(|row| row.into_iter().map(|pixel| pixel.map(&of)).collect())
                .collect()
        }
        other => panic!("{other}"),
    }
}

fn from(size: Vec<f64>, pixel: impl Fn(i64, i64) -> [u8; 3]) -> Pixels {
    let [width, height] = [0, 1].map(|axis| size[axis] as i64);
    (0..height).map(|y| (0..width).map(|x| pixel(x, y)).collect()).collect()
}

fn pixel(src: &Pixels, x: i64, y: i64) -> Option<[u8; 3]> {
    src.get(usize::try_from(y).ok()?)?.get(usize::try_from(x).ok()?).copied()
}

#[test]
fn an_image_is_made_again_from_the_names_and_numbers() {
    let chain: Vec<Arc<dyn Operator>> = vec![
        Arc::new(RandomCrop { padding: [2; 4], fill: [9.0, 8.0, 7.0], ..RandomCrop::to(37, 30) }),
        Arc::new(RandomRotation::within(40.0)),
        Arc::new(Flip { horizontal: 0.5, vertical: 0.5 }),
        Arc::new(Brightness { factor: [0.5, 1.5] }),
        Arc::new(RandomApply::new(0.5).then(Posterize { bits: 3 })),
    ];
    let size = Size::new(41, 33);
    let stored = random_image(size, 2);
    let rows = stored.data().as_chunks::<3>().0.chunks(41).map(<[_]>::to_vec).collect::<Pixels>();
    let mut posterized = 0;
    for index in 0..40 {
        let key = SampleKey { seed: 1, epoch: 2, index };
        let operators = chain.iter().map(|it| &**it);
        let expected = Actions::of(operators, key, size).reference(&HostImage::U8(stored.clone()));
        let HostImage::U8(expected) = expected else { panic!("bytes") };
        let drawn = named(&chain, key, size);
        let ops: Vec<_> = drawn.iter().map(|it| it["op"].as_str().unwrap()).collect();
        let names = ["random_crop", "random_rotation", "flip", "brightness", "random_apply"];
        assert_eq!(ops, names);
        let actions: Vec<&Value> =
            drawn.iter().flat_map(|it| it["actions"].as_array().unwrap()).collect();
        posterized += actions.iter().filter(|it| it["op"] == "posterize").count();
        let found = actions.into_iter().fold(rows.clone(), |src, action| again(action, src));
        let found: Vec<u8> = found.into_iter().flatten().flatten().collect();
        assert_eq!(found, expected.data(), "sample {index}: {drawn:?}");
    }
    assert!((5..35).contains(&posterized), "{posterized}");
}

/// An operator that adds 1 to bytes by a table. It does not name the table's parameters.
#[derive(Debug)]
struct Plus;

impl Operator for Plus {
    fn name(&self) -> &'static str {
        "plus"
    }

    fn kinds(&self) -> feedwater::op::Kinds {
        feedwater::op::Kinds::exactly([feedwater::op::Kind::Table])
    }

    fn draw(&self, draw: &mut feedwater::op::Draw<'_>) {
        draw.table(|channel, byte| byte.wrapping_add(channel as u8));
    }
}

#[test]
fn a_table_without_a_note_is_written_entry_by_entry() {
    let drawn = named(&[Arc::new(Plus)], SampleKey::default(), Size::new(3, 3));
    let table = &drawn[0]["actions"][0]["params"]["table"];
    assert_eq!(
        [&table[0][255], &table[1][255], &table[2][255]].map(|it| it.as_u64()),
        [Some(255), Some(0), Some(1)]
    );
}

/// Every parameter of the built-in operators' actions must have a name.
#[test]
fn no_example_leaves_parameters_without_names() {
    for example in EXAMPLES.iter() {
        for index in 0..4 {
            let key = SampleKey { seed: 1, epoch: 0, index };
            let drawn = named(std::slice::from_ref(example), key, Size::new(50, 40));
            for action in drawn[0]["actions"].as_array().unwrap() {
                // The kernel always receives two parameters. If a formula has none, both are 0 and
                // have no names.
                let params = match &action["params"] {
                    Value::Object(params) => params,
                    params => {
                        assert_eq!(*params, serde_json::json!([0, 0]), "{example:?}");
                        continue;
                    }
                };
                assert!(!params.contains_key("table"), "{example:?}: {action}");
                assert!(!params.values().any(Value::is_null), "{example:?}: {action}");
                if example.name() == Normalize::IMAGENET.name() {
                    assert_eq!(numbers(&params["std"]).len(), 3);
                }
            }
        }
    }
}
