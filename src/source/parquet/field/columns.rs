//! Fields of a file: names of the columns, and the types of their values.

use super::schema::{LeafKind, Node, Shape};
use crate::field::{Field, FieldKind};

/// Column, or group of columns, that is a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldColumn {
    pub name: String,
    pub node: Node,
}

impl FieldColumn {
    pub fn field(&self) -> Field {
        let kind = match &self.node.shape {
            Shape::Leaf(leaf) => match leaf.kind {
                // The text of a decimal is exact.
                LeafKind::Text | LeafKind::Decimal(_) => FieldKind::Text,
                LeafKind::Json => FieldKind::Json,
                LeafKind::Bytes | LeafKind::Unknown => FieldKind::Bytes,
                _ => FieldKind::Number,
            },
            Shape::List(_, entry) if entry.is_number() => FieldKind::List,
            Shape::Struct(_) | Shape::List(..) | Shape::Map(..) => FieldKind::Json,
        };
        Field { name: self.name.clone(), kind }
    }
}

/// Returns the fields of a file: all columns at the root without the leaf `image`, with their
/// names. If a struct contains the image, its other members are fields, such as `image.path`. Of
/// another struct of bytes and a path, such as `mask`, the bytes are a field with its name, and the
/// path is the field `mask.path`.
pub fn fields(columns: Vec<Node>, image: Option<usize>) -> Vec<FieldColumn> {
    let roots: Vec<String> = columns.iter().map(|node| node.name.clone()).collect();
    let mut fields = Vec::new();
    for node in columns {
        let root = node.name.clone();
        let mut new = Vec::new();
        add(root.clone(), node, image, &mut new);
        // A column whose own name contains a point takes precedence over a member of a struct.
        new.retain(|field| field.name == root || !roots.contains(&field.name));
        fields.extend(new);
    }
    fields
}

/// Adds the fields of a column with this name.
fn add(name: String, node: Node, image: Option<usize>, fields: &mut Vec<FieldColumn>) {
    let has_image = image.is_some_and(|image| node.leaves.contains(&image));
    let Node { shape: Shape::Struct(members), .. } = &node else {
        if !has_image {
            fields.push(FieldColumn { name, node });
        }
        return;
    };
    if !has_image && !is_file(members) {
        fields.push(FieldColumn { name, node });
        return;
    }
    for member in members {
        let is_content = !has_image && member.name == "bytes";
        let name = if is_content { name.clone() } else { format!("{name}.{}", member.name) };
        match is_content {
            true => fields.push(FieldColumn { name, node: member.clone() }),
            false => add(name, member.clone(), image, fields),
        }
    }
}

/// Whether a struct with these members is a file, such as Hugging Face's `Image`: bytes and a path.
fn is_file(members: &[Node]) -> bool {
    let has = |name: &str, kind: LeafKind| {
        let is_it = |it: &Node| {
            it.name == name && matches!(&it.shape, Shape::Leaf(leaf) if leaf.kind == kind)
        };
        members.iter().any(is_it)
    };
    members.len() == 2 && has("bytes", LeafKind::Bytes) && has("path", LeafKind::Text)
}
