//! Writes an ONNX model as protobuf, with the field numbers of onnx.proto
//! (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).

/// Returns a model that maps `images` to `scores`: AveragePool over squares of `side` pixels,
/// Flatten, and Gemm with `weights` in row-major order.
///
/// Images are `[samples, 3, image_side, image_side]` of f32.
pub fn pool_and_score(side: i64, image_side: i64, weights: &[f32], biases: &[f32]) -> Vec<u8> {
    let classes = biases.len() as i64;
    let features = weights.len() as i64 / classes;
    let squares = [attribute("kernel_shape", &[side, side]), attribute("strides", &[side, side])];
    let graph = [
        bytes(1, &node("AveragePool", &["images"], "pooled", &squares)),
        bytes(1, &node("Flatten", &["pooled"], "features", &[])),
        bytes(1, &node("Gemm", &["features", "weights", "biases"], "scores", &[])),
        bytes(2, b"nearest class mean"),
        bytes(5, &tensor("weights", &[features, classes], weights)),
        bytes(5, &tensor("biases", &[classes], biases)),
        bytes(11, &value("images", &[3, image_side, image_side])),
        bytes(12, &value("scores", &[classes])),
    ];
    // IR version 8 and operator set 17 are those of ONNX 1.12.
    let operators = integer(2, 17);
    [integer(1, 8), bytes(7, &graph.concat()), bytes(8, &operators)].concat()
}

/// Encodes a NodeProto.
fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|input| bytes(1, input.as_bytes()));
    let attributes = attributes.iter().flat_map(|attribute| bytes(5, attribute));
    let output = bytes(2, output.as_bytes());
    inputs.chain(output).chain(bytes(4, operator.as_bytes())).chain(attributes).collect()
}

/// Encodes an AttributeProto of integers, which is type 7.
fn attribute(name: &str, values: &[i64]) -> Vec<u8> {
    let values = values.iter().flat_map(|&value| integer(8, value));
    bytes(1, name.as_bytes()).into_iter().chain(values).chain(integer(20, 7)).collect()
}

/// Encodes a TensorProto of f32, which is type 1.
fn tensor(name: &str, shape: &[i64], values: &[f32]) -> Vec<u8> {
    let shape = shape.iter().flat_map(|&extent| integer(1, extent));
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    shape.chain(integer(2, 1)).chain(bytes(8, name.as_bytes())).chain(bytes(9, &values)).collect()
}

/// Encodes a ValueInfoProto of f32. The first axis, that of the samples, has no fixed extent.
fn value(name: &str, shape: &[i64]) -> Vec<u8> {
    let samples = bytes(1, &bytes(2, b"samples"));
    let shape = shape.iter().flat_map(|&extent| bytes(1, &integer(1, extent)));
    let shape: Vec<u8> = samples.into_iter().chain(shape).collect();
    let tensor = [integer(1, 1), bytes(2, &shape)].concat();
    [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat()
}

/// Encodes a field of bytes, text or a message.
fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// Encodes a field with an integer that is not negative.
fn integer(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
