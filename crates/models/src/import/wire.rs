//! Protocol Buffers as they lie in a file: fields of messages, of which nothing is copied.
//!
//! Files are not trusted: lengths are held against the bytes that are there, messages may be nested only so deeply,
//! and a budget bounds how many parts a file may have, so that memory is bounded by a constant beside the file itself.

use std::cell::Cell;

/// Parts (fields that become something in memory) that a file may have.
const MOST_PARTS: u64 = 4 << 20;

/// Messages inside messages.
const DEEPEST: u32 = 32;

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WireError {
    /// The byte of the file.
    pub(super) at: usize,
    /// What is wrong there.
    pub(super) why: String,
}

/// A message that is read field by field.
#[derive(Debug, Clone)]
pub(super) struct Message<'a, 'b> {
    bytes: &'a [u8],
    /// Place of the first byte in the file.
    start: usize,
    at: usize,
    depth: u32,
    budget: &'b Budget,
}

/// What a file may still ask for.
#[derive(Debug)]
pub(super) struct Budget(Cell<u64>);

impl Budget {
    /// That of a file.
    pub(super) fn new() -> Self {
        Self(Cell::new(MOST_PARTS))
    }
}

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    /// An integer.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Text, bytes, a message or packed numbers, and their place in the file.
    Bytes(&'a [u8], usize),
    /// Four bytes.
    Fixed32(u32),
}

impl<'a, 'b> Message<'a, 'b> {
    /// The outermost message of a file.
    pub(super) fn new(bytes: &'a [u8], budget: &'b Budget) -> Self {
        Self { bytes, start: 0, at: 0, depth: 0, budget }
    }

    /// An error at a byte of the file.
    pub(super) fn error(at: usize, why: impl Into<String>) -> WireError {
        WireError { at, why: why.into() }
    }

    /// The message in a field of this one.
    pub(super) fn inside(&self, value: Value<'a>) -> Result<Self, WireError> {
        let Value::Bytes(bytes, start) = value else {
            return Err(Self::error(self.start + self.at, "a number stands where a message is expected"));
        };
        if self.depth == DEEPEST {
            return Err(Self::error(start, format!("messages are nested more than {DEEPEST} deep")));
        }
        Ok(Self { bytes, start, at: 0, depth: self.depth + 1, budget: self.budget })
    }

    /// The next field: its number and value.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let place = self.start + self.at;
        let left = self.budget.0.get();
        if left == 0 {
            return Err(Self::error(place, format!("the file has more than {MOST_PARTS} parts")));
        }
        self.budget.0.set(left - 1);
        let tag = self.varint()?;
        let number = field_number(tag, place)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                let left = self.bytes.len() - self.at;
                let Some(length) = usize::try_from(length).ok().filter(|&length| length <= left) else {
                    let why = format!("field {number} has {length} bytes, and {left} are left: is the file cut off?");
                    return Err(Self::error(place, why));
                };
                let start = self.at;
                self.at += length;
                Value::Bytes(&self.bytes[start..self.at], self.start + start)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
            kind => return Err(Self::error(place, format!("field {number} is of the unknown wire type {kind}"))),
        };
        Ok(Some((number, value)))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let found = self.bytes.get(self.at..self.at + N).and_then(|bytes| bytes.try_into().ok());
        let found = found.ok_or_else(|| Self::error(self.start + self.at, "the file ends inside a number"))?;
        self.at += N;
        Ok(found)
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let (number, length) = varint(&self.bytes[self.at..])
            .ok_or_else(|| Self::error(self.start + self.at, "no integer: cut off, or longer than ten bytes"))?;
        self.at += length;
        Ok(number)
    }
}

/// The number of the field that a tag begins.
fn field_number(tag: u64, place: usize) -> Result<u32, WireError> {
    let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0);
    number.ok_or_else(|| Message::error(place, format!("{} is no field number", tag >> 3)))
}

/// Refuses bytes that no message begins with.
pub(super) fn begins(head: &[u8]) -> Result<(), WireError> {
    match varint(head) {
        Some((tag, _)) => field_number(tag, 0).map(drop),
        None => Ok(()),
    }
}

/// The integer that bytes begin with, and how many of them it has.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte < 0x80 {
            return Some((number, index + 1));
        }
    }
    None
}

/// Integers of a repeated field: packed, or one; at most `most` of them are read.
pub(super) fn integers(value: Value<'_>, most: usize, into: &mut Vec<i64>) -> Result<(), WireError> {
    match value {
        Value::Varint(number) | Value::Fixed64(number) => push(into, number.cast_signed(), most, 0),
        Value::Fixed32(number) => push(into, i64::from(number.cast_signed()), most, 0),
        Value::Bytes(mut bytes, mut at) => {
            while !bytes.is_empty() {
                let (number, length) =
                    varint(bytes).ok_or_else(|| Message::error(at, "a list of integers is cut off"))?;
                push(into, number.cast_signed(), most, at)?;
                (bytes, at) = (&bytes[length..], at + length);
            }
            Ok(())
        }
    }
}

/// Floats of a repeated field: packed, or one; at most `most` of them are read.
pub(super) fn floats(value: Value<'_>, most: usize, into: &mut Vec<f32>) -> Result<(), WireError> {
    match value {
        Value::Fixed32(bits) => push(into, f32::from_bits(bits), most, 0),
        Value::Bytes(bytes, at) => {
            let (whole, rest) = bytes.as_chunks::<4>();
            if !rest.is_empty() {
                return Err(Message::error(at, "a list of floats is cut off"));
            }
            whole.iter().try_for_each(|&four| push(into, f32::from_le_bytes(four), most, at))
        }
        Value::Varint(_) | Value::Fixed64(_) => Err(Message::error(0, "a float is of the wrong wire type")),
    }
}

fn push<T>(into: &mut Vec<T>, item: T, most: usize, at: usize) -> Result<(), WireError> {
    if into.len() == most {
        return Err(Message::error(at, format!("a list of numbers has more than {most}")));
    }
    into.push(item);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(bytes: &[u8]) -> Result<Option<(u32, Value<'_>)>, WireError> {
        Message::new(bytes, &Budget::new()).next()
    }

    #[test]
    fn fields_of_every_wire_type() {
        assert_eq!(first(&[0x08, 0x96, 0x01]), Ok(Some((1, Value::Varint(150)))));
        assert_eq!(first(&[0x12, 2, b'h', b'i']), Ok(Some((2, Value::Bytes(b"hi", 2)))));
        assert_eq!(first(&[0x15, 0, 0, 0x80, 0x3f]), Ok(Some((2, Value::Fixed32(0x3f80_0000)))));
        assert_eq!(first(&[]), Ok(None));
        let mut list = Vec::new();
        integers(Value::Bytes(&[1, 0x80, 1, 3], 0), 9, &mut list).unwrap();
        assert_eq!(list, [1, 128, 3]);
        assert!(integers(Value::Bytes(&[1, 2, 3], 0), 2, &mut Vec::new()).is_err());
    }

    #[test]
    fn lengths_and_ends_are_checked() {
        let why = |bytes: &[u8]| first(bytes).unwrap_err().why;
        assert!(why(&[0x12, 9, 1]).contains("9 bytes, and 1 are left"));
        assert!(why(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).contains("cut off"));
        assert!(why(&[0x80; 11]).contains("ten bytes"));
        assert!(why(&[0x0b]).contains("wire type 3"));
        assert!(why(&[0x00, 0x00]).contains("0 is no field number"));
        assert!(why(&[0x09, 1, 2]).contains("inside a number"));
    }
}
