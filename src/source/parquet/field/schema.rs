//! Tree of the columns of a file (`parquet.thrift` and `LogicalTypes.md` of parquet-format).

use std::ops::Range;

use super::super::FileError;
use super::super::footer::DEPTH;
use super::super::thrift::{Kind, Malformed, Thrift};

/// Column or group of columns, with its definition and repetition levels (see the Dremel paper,
/// <https://research.google/pubs/pub36632/>).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Definition level from which on the value is not null.
    pub defined: u8,
    /// Numbers of the leaves below the node, which is not empty.
    pub leaves: Range<usize>,
    pub shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    Leaf(Leaf),
    Struct(Vec<Node>),
    List(Entries, Box<Node>),
    /// The two nodes are the key and the value.
    Map(Entries, Box<[Node; 2]>),
}

/// Levels of the entries of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Repetition level of all entries but the first.
    pub repetition: u8,
    /// Definition level from which on the list is not empty.
    pub definition: u8,
}

/// Column that has values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub form: Form,
    pub kind: LeafKind,
    /// Definition level of a non-null value.
    pub definition: u8,
    /// Highest repetition level; 0 if rows have one value each.
    pub repetition: u8,
}

/// Physical type of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    Bool,
    Int32,
    Int64,
    /// Timestamp: nanoseconds within the day (eight bytes), then the Julian day.
    Int96,
    Float,
    Double,
    Bytes,
    /// Values of this many bytes each.
    Fixed(u32),
    #[default]
    Unknown,
}

/// Meaning of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafKind {
    Bool,
    /// Integers, also dates, times and timestamps in their stored unit.
    Signed,
    Unsigned,
    /// Timestamps that are converted to nanoseconds since 1970.
    Nanoseconds,
    Float,
    /// Floats of 16 bits.
    Half,
    /// Decimal numbers with this number of digits after the point.
    Decimal(u32),
    Text,
    /// Texts of JSON values.
    Json,
    Bytes,
    Unknown,
}

impl Node {
    /// Whether the values are numbers, so that a list of them is a flat list.
    pub fn is_number(&self) -> bool {
        matches!(&self.shape, Shape::Leaf(leaf) if leaf.kind.is_number())
    }
}

/// Largest number of digits after the point of a decimal.
const MOST_SCALE: u32 = 76;

impl LeafKind {
    /// Whether values are numbers, so that a list of them is a flat list.
    pub fn is_number(self) -> bool {
        match self {
            Self::Bool | Self::Signed | Self::Unsigned | Self::Nanoseconds => true,
            Self::Float | Self::Half => true,
            Self::Decimal(_) | Self::Text | Self::Json | Self::Bytes | Self::Unknown => false,
        }
    }
}

/// Parses the columns at the root of a footer whose first byte is at offset `start` of the file.
pub fn columns(footer: &[u8], start: u64) -> Result<Vec<Node>, FileError> {
    let mut elements = Vec::new();
    let parsed = Thrift::new(footer).fields(|thrift, id, kind| {
        if (id, kind) != (2, Kind::List) {
            return Ok(false);
        }
        elements = self::elements(thrift)?;
        Ok(true)
    });
    let bad = |at: usize| {
        let problem = "the columns cannot be read here: the file is damaged; copy it again";
        FileError::corrupt(start + at as u64, problem)
    };
    parsed.map_err(|malformed| bad(malformed.at))?;
    let root = tree(&mut elements.into_iter(), 0).ok_or_else(|| bad(0))?;
    let mut leaves = 0;
    let levels = Levels { definition: 0, repetition: 0 };
    Ok(root.children.iter().map(|child| child.node(levels, &mut leaves)).collect())
}

/// Element of the schema in a file's metadata (`SchemaElement` of `parquet.thrift`).
#[derive(Default)]
struct Element {
    name: String,
    form: Form,
    /// 0 for required, 1 for optional, 2 for repeated elements.
    repetition: i64,
    /// Converted type, which older writers store.
    converted: i64,
    /// Number of the logical type, which newer writers store.
    logical: i64,
    is_unsigned: bool,
    scale: i64,
    count: i64,
    children: Vec<Element>,
}

fn elements(thrift: &mut Thrift) -> Result<Vec<Element>, Malformed> {
    let (kind, len) = thrift.list()?;
    let mut elements = Vec::new();
    for _ in 0..len {
        if kind != Kind::Struct {
            return Err(Malformed { at: thrift.at(), cut: false });
        }
        elements.push(element(thrift)?);
    }
    Ok(elements)
}

fn element(thrift: &mut Thrift) -> Result<Element, Malformed> {
    let mut it = Element { converted: -1, logical: -1, ..Element::default() };
    let (mut form, mut len) = (-1, 0);
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (1, Kind::Integer) => form = thrift.integer()?,
            (2, Kind::Integer) => len = thrift.integer()?,
            (3, Kind::Integer) => it.repetition = thrift.integer()?,
            (4, Kind::Binary) => it.name = String::from_utf8_lossy(thrift.binary()?).into_owned(),
            (5, Kind::Integer) => it.count = thrift.integer()?,
            (6, Kind::Integer) => {
                it.converted = thrift.integer()?;
                it.is_unsigned |= matches!(it.converted, 11..=14);
            }
            (7, Kind::Integer) => it.scale = thrift.integer()?,
            // The logical type is a union: a struct with one field, whose number is the type.
            (10, Kind::Struct) => thrift.fields(|thrift, id, kind| {
                it.logical = id;
                match (id, kind) {
                    (5, Kind::Struct) => thrift.fields(|thrift, id, kind| {
                        let is_scale = (id, kind) == (1, Kind::Integer);
                        if is_scale {
                            it.scale = thrift.integer()?;
                        }
                        Ok(is_scale)
                    })?,
                    (10, Kind::Struct) => thrift.fields(|_, id, kind| {
                        it.is_unsigned |= (id, kind) == (2, Kind::Bool(false));
                        Ok(false)
                    })?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    it.form = match form {
        0 => Form::Bool,
        1 => Form::Int32,
        2 => Form::Int64,
        3 => Form::Int96,
        4 => Form::Float,
        5 => Form::Double,
        6 => Form::Bytes,
        7 => match u32::try_from(len) {
            Ok(len) if len > 0 => Form::Fixed(len),
            _ => Form::Unknown,
        },
        _ => Form::Unknown,
    };
    Ok(it)
}

/// Builds the tree from elements that are stored depth first.
fn tree(elements: &mut impl Iterator<Item = Element>, depth: usize) -> Option<Element> {
    let mut element = elements.next()?;
    if element.count > 0 && depth > DEPTH {
        return None;
    }
    for _ in 0..element.count {
        element.children.push(tree(elements, depth + 1)?);
    }
    Some(element)
}

/// Levels of the values of a node.
#[derive(Clone, Copy)]
struct Levels {
    definition: u8,
    repetition: u8,
}

impl Levels {
    fn optional(self) -> Self {
        Self { definition: self.definition + 1, ..self }
    }

    fn repeated(self) -> Self {
        Self { definition: self.definition + 1, repetition: self.repetition + 1 }
    }

    fn entries(self) -> Entries {
        Entries { repetition: self.repetition, definition: self.definition }
    }
}

impl Element {
    fn is_repeated(&self) -> bool {
        self.repetition == 2
    }

    fn is_list(&self) -> bool {
        self.logical == 3 || self.converted == 3
    }

    fn is_map(&self) -> bool {
        self.logical == 2 || matches!(self.converted, 1 | 2)
    }

    /// Node of an element below a node with these levels. `leaves` counts the leaves.
    fn node(&self, above: Levels, leaves: &mut usize) -> Node {
        if !self.is_repeated() {
            let levels = if self.repetition == 1 { above.optional() } else { above };
            return self.value(levels, leaves);
        }
        // A repeated element without an annotation is a list that is never null.
        let first = *leaves;
        let levels = above.repeated();
        let entry = Box::new(self.value(levels, leaves));
        let shape = Shape::List(levels.entries(), entry);
        Node { name: self.name.clone(), defined: above.definition, leaves: first..*leaves, shape }
    }

    /// Node of an element whose repetition is already counted in its levels.
    fn value(&self, levels: Levels, leaves: &mut usize) -> Node {
        let first = *leaves;
        let shape = match &self.children[..] {
            [] => {
                *leaves += 1;
                Shape::Leaf(self.leaf(levels))
            }
            [middle] if self.is_list() && middle.is_repeated() => {
                let inner = levels.repeated();
                let entry = match &middle.children[..] {
                    [entry] if !middle.is_entry(&self.name) => entry.node(inner, leaves),
                    _ => middle.value(inner, leaves),
                };
                Shape::List(inner.entries(), Box::new(entry))
            }
            [middle] if self.is_map() && middle.is_repeated() && middle.children.len() == 2 => {
                let inner = levels.repeated();
                let pair = [0, 1].map(|part| middle.children[part].node(inner, leaves));
                Shape::Map(inner.entries(), Box::new(pair))
            }
            children => {
                Shape::Struct(children.iter().map(|child| child.node(levels, leaves)).collect())
            }
        };
        Node { name: self.name.clone(), defined: levels.definition, leaves: first..*leaves, shape }
    }

    /// Whether this repeated element of a list is the entry itself. Otherwise it is only a group
    /// around the entry (`LogicalTypes.md`, "Backward-compatibility rules").
    fn is_entry(&self, list: &str) -> bool {
        match &self.children[..] {
            [entry] => {
                entry.is_repeated()
                    || self.name == "array"
                    || self.name.strip_suffix("_tuple").is_some_and(|name| name == list)
            }
            _ => true,
        }
    }

    fn leaf(&self, levels: Levels) -> Leaf {
        let form = self.form;
        let is_decimal = self.logical == 5 || self.converted == 5;
        let decimal = || match u32::try_from(self.scale) {
            Ok(scale) if scale <= MOST_SCALE => LeafKind::Decimal(scale),
            _ => LeafKind::Unknown,
        };
        let kind = match form {
            Form::Bool => LeafKind::Bool,
            Form::Int32 | Form::Int64 | Form::Bytes | Form::Fixed(_) if is_decimal => decimal(),
            Form::Int32 | Form::Int64 if self.is_unsigned => LeafKind::Unsigned,
            Form::Int32 | Form::Int64 => LeafKind::Signed,
            Form::Int96 => LeafKind::Nanoseconds,
            Form::Float | Form::Double => LeafKind::Float,
            // 1 and 4 are strings and enums, 0 and 4 their converted types.
            Form::Bytes if matches!(self.logical, 1 | 4) || matches!(self.converted, 0 | 4) => {
                LeafKind::Text
            }
            Form::Bytes if self.logical == 12 || self.converted == 19 => LeafKind::Json,
            Form::Fixed(2) if self.logical == 15 => LeafKind::Half,
            Form::Bytes | Form::Fixed(_) => LeafKind::Bytes,
            Form::Unknown => LeafKind::Unknown,
        };
        Leaf { form, kind, definition: levels.definition, repetition: levels.repetition }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(name: &str, repetition: i64, children: Vec<Element>) -> Element {
        let (name, form, converted) = (name.into(), Form::Int32, -1);
        Element { name, form, repetition, converted, children, ..Element::default() }
    }

    fn list(repetition: i64, child: Element) -> Element {
        Element { converted: 3, ..element("list", repetition, vec![child]) }
    }

    /// Shape of a node, with the names of structs and the definition levels of leaves.
    fn shown(node: &Node) -> String {
        match &node.shape {
            Shape::Leaf(leaf) => format!("{}", leaf.definition),
            Shape::List(_, entry) => format!("[{}]", shown(entry)),
            Shape::Map(_, pair) => format!("{{{}: {}}}", shown(&pair[0]), shown(&pair[1])),
            Shape::Struct(children) => {
                let children: Vec<_> =
                    children.iter().map(|it| format!("{} {}", it.name, shown(it))).collect();
                format!("({})", children.join(", "))
            }
        }
    }

    /// The examples of `LogicalTypes.md`.
    #[test]
    fn lists_of_all_layouts_have_the_entries_of_the_specification() {
        let leaf = |name: &str, repetition| element(name, repetition, Vec::new());
        let group = |name: &str, children| element(name, 2, children);
        let two = || vec![leaf("a", 0), leaf("b", 1)];
        let inner = || list(1, group("list", vec![leaf("element", 1)]));
        for (element, expected) in [
            (list(1, group("list", vec![leaf("element", 1)])), "[3]"),
            (list(0, group("list", vec![leaf("element", 0)])), "[1]"),
            (list(1, group("bag", vec![leaf("array_element", 1)])), "[3]"),
            (list(1, leaf("element", 2)), "[2]"),
            (list(1, group("element", two())), "[(a 2, b 3)]"),
            (list(1, group("array", vec![leaf("a", 0)])), "[(a 2)]"),
            (list(1, group("list_tuple", vec![leaf("a", 0)])), "[(a 2)]"),
            (list(1, group("list", vec![inner()])), "[[5]]"),
            (list(1, Element { converted: 3, ..group("array", vec![leaf("array", 2)]) }), "[[3]]"),
            (leaf("numbers", 2), "[1]"),
            (group("structs", two()), "[(a 1, b 2)]"),
            (element("group", 1, vec![leaf("numbers", 2)]), "(numbers [2])"),
        ] {
            let levels = Levels { definition: 0, repetition: 0 };
            assert_eq!(shown(&element.node(levels, &mut 0)), expected);
        }
    }
}
