//! Messages of Protocol Buffers, made by hand: for networks in tests, also of the library's own modules.

/// Bytes of a message under construction.
#[derive(Default, Clone)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// Adds a number of seven bits a byte.
    pub(crate) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// With a field that is a number.
    pub(crate) fn int(mut self, field: u64, number: i64) -> Self {
        self.varint(field << 3);
        self.varint(number.cast_unsigned());
        self
    }

    /// With a field that is a message, or bytes.
    pub(crate) fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// With a field that is text.
    pub(crate) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }
}
