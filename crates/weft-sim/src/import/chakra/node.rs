//! A node of an execution trace, from its message.

use super::super::Summary;
use super::super::protobuf::{Fields, Malformed, Value};

/// The fields of a node that a graph needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Node {
    pub id: u64,
    pub kind: u64,
    /// The nodes before it, control and data dependencies.
    pub before: Vec<u64>,
    pub duration_us: u64,
    /// The text of its inputs, which for metadata of PyTorch lists groups of ranks.
    pub inputs: String,
    pub attributes: Attributes,
}

/// The attributes that ASTRA-sim gives a meaning.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Attributes {
    pub is_cpu: bool,
    pub operations: Option<u64>,
    pub tensor_bytes: Option<u64>,
    pub collective: Option<u64>,
    pub bytes: Option<u64>,
    pub source: Option<u64>,
    pub destination: Option<u64>,
    pub tag: Option<u64>,
    pub root: Option<u64>,
    pub group: String,
}

/// The value of an attribute.
enum Typed<'a> {
    Integer(u64),
    Real(f64),
    Text(&'a [u8]),
    /// A list, or no value.
    Other,
}

impl Node {
    /// Reads a node; attributes without a meaning are counted in `summary`.
    pub(super) fn parse(message: &[u8], summary: &mut Summary) -> Result<Self, Malformed> {
        let (mut node, mut fields) = (Self::default(), Fields::of(message));
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Varint(id)) => node.id = id,
                (3, Value::Varint(kind)) => node.kind = kind,
                (4 | 5, numbers) => numbers.numbers(&mut node.before)?,
                (7, Value::Varint(micros)) => node.duration_us = micros,
                (8, Value::Bytes(io)) => node.inputs = inputs(io)?,
                (10, Value::Bytes(attribute)) => node.attribute(attribute, summary)?,
                // The name, the start, which a simulation replaces, and fields of later versions.
                _ => {}
            }
        }
        Ok(node)
    }

    fn attribute(&mut self, message: &[u8], summary: &mut Summary) -> Result<(), Malformed> {
        let (mut name, mut value) = (&[][..], Typed::Other);
        let mut fields = Fields::of(message);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Value::Bytes(text)) => name = text,
                (2, _) => {}
                (_, field) => value = typed(number, field).unwrap_or(value),
            }
        }
        let of = &mut self.attributes;
        let integer = |value: Typed<'_>| value.integer();
        match name {
            b"is_cpu_op" => of.is_cpu = integer(value).is_some_and(|flag| flag != 0),
            b"num_ops" => of.operations = integer(value),
            b"tensor_size" => of.tensor_bytes = integer(value),
            b"comm_type" => of.collective = integer(value),
            b"comm_size" => of.bytes = integer(value),
            b"comm_src" => of.source = integer(value),
            b"comm_dst" => of.destination = integer(value),
            b"comm_tag" => of.tag = integer(value),
            b"root" | b"root_rank" => of.root = integer(value),
            b"pg_name" => {
                of.group = match value {
                    Typed::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    other => other.integer().map_or_else(String::new, |number| number.to_string()),
                };
            }
            name => {
                let name = String::from_utf8_lossy(&name[..name.len().min(40)]);
                summary.leave(&format!("attribute {name}"));
            }
        }
        Ok(())
    }
}

impl Typed<'_> {
    /// Returns a whole number; generators also write numbers as real ones.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be in range"
    )]
    fn integer(&self) -> Option<u64> {
        match *self {
            Typed::Integer(number) => Some(number),
            Typed::Real(number) => (0.0..1.8e19).contains(&number).then_some(number as u64),
            Typed::Text(_) | Typed::Other => None,
        }
    }
}

/// Returns the value of a field of an attribute. Of signed numbers only those from zero on are values.
fn typed(number: u64, field: Value<'_>) -> Option<Typed<'_>> {
    Some(match (number, field) {
        (3, Value::Fixed64(bits)) => Typed::Real(f64::from_bits(bits)),
        (5, Value::Fixed32(bits)) => Typed::Real(f32::from_bits(bits).into()),
        // int32, int64, uint32, uint64 and bool.
        (7 | 9 | 11 | 13 | 27, Value::Varint(number)) => Typed::Integer(number),
        (15 | 17, Value::Varint(zigzag)) if zigzag & 1 == 0 => Typed::Integer(zigzag >> 1),
        (19 | 23, Value::Fixed32(number)) => Typed::Integer(number.into()),
        (21 | 25, Value::Fixed64(number)) => Typed::Integer(number),
        (29 | 31, Value::Bytes(text)) => Typed::Text(text),
        _ => return None,
    })
}

/// Returns the values of a node's inputs.
fn inputs(message: &[u8]) -> Result<String, Malformed> {
    let (mut text, mut fields) = (String::new(), Fields::of(message));
    while let Some(field) = fields.next()? {
        if let (1, Value::Bytes(values)) = field {
            text = String::from_utf8_lossy(values).into_owned();
        }
    }
    Ok(text)
}
