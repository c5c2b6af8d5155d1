//! Protocol buffers by hand: the wire format of fields (protobuf.dev, "Encoding"), as far as traces need it.

/// The bytes of one message, to which fields are appended in any order.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Appends an unsigned number; zero too, because a trace distinguishes it from a missing field.
    pub(super) fn uint(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Appends a floating-point number.
    pub(super) fn double(&mut self, field: u32, value: f64) -> &mut Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a text.
    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// Appends a message that is the field's value.
    pub(super) fn message(&mut self, field: u32, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    /// Returns the bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns `true` if it has no fields.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_bytes_of_the_published_examples() {
        // 150 in field 1, "testing" in field 2, and the first message in field 3.
        let mut number = Message::default();
        assert_eq!(number.uint(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        let mut text = Message::default();
        let testing = [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67];
        assert_eq!(text.text(2, "testing").as_bytes(), testing);
        let mut outer = Message::default();
        assert_eq!(outer.message(3, &number).as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut double = Message::default();
        assert_eq!(double.double(1, 1.0).as_bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::default().uint(1, u64::MAX).as_bytes().len(), 11);
    }
}
