//! Writes arrays in NumPy's format `.npy`, version 1.0 (NEP 1).

use feedwater::source::Flat;

/// Returns a file with these numbers in row-major order. `shape` is the shape of the array.
pub fn file(numbers: Flat<'_>, shape: &[usize]) -> Option<Vec<u8>> {
    let (descr, data): (&str, Vec<u8>) = match numbers {
        Flat::Bytes(list) => ("|u1", list.to_vec()),
        Flat::Integers(list) => ("<i8", list.iter().flat_map(|it| it.to_le_bytes()).collect()),
        Flat::Floats(list) => ("<f4", list.iter().flat_map(|it| it.to_le_bytes()).collect()),
        Flat::Doubles(list) => ("<f8", list.iter().flat_map(|it| it.to_le_bytes()).collect()),
        _ => return None,
    };
    let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let dictionary = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        sides.join(", ")
    );
    // The length of the header with its 10 bytes before the dictionary is a multiple of 64.
    let end = (10 + dictionary.len() + 1).next_multiple_of(64);
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(((end - 10) as u16).to_le_bytes());
    file.extend(dictionary.as_bytes());
    file.resize(end - 1, b' ');
    file.push(b'\n');
    file.extend(data);
    Some(file)
}
