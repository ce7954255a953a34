//! Arrays of `NumPy` (`.npy`): a magic number, a header that is a Python dictionary, the elements.

use std::io::Read;

use super::element::{self, Element, F16, F32, F64, Number};
use super::error::ReadError;
use super::sink::Sink;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header.
const MOST_HEADER_BYTES: u32 = 1 << 16;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) element: Element,
    pub(super) by_columns: bool,
    pub(super) shape: Vec<u64>,
}

pub(super) fn read(mut input: impl Read, sink: &mut dyn Sink) -> Result<(), ReadError> {
    let header = header(&mut input)?;
    let &[rows, columns] = header.shape.as_slice() else {
        let title = format!("the array has {} dimensions, a matrix has 2", header.shape.len());
        return Err(ReadError::new(title));
    };
    sink.shape(rows, columns)?;
    element::stream(&mut input, header.element, rows, columns, header.by_columns, sink)?;
    if input.read(&mut [0])? != 0 {
        return Err(ReadError::new("the file goes on after the last element"));
    }
    Ok(())
}

fn header(input: &mut impl Read) -> Result<Header, ReadError> {
    let mut start = [0; 8];
    fill(input, &mut start)?;
    if &start[..6] != MAGIC {
        return Err(ReadError::new("it does not begin as an array of NumPy does"));
    }
    let length = match start[6] {
        1 => {
            let mut bytes = [0; 2];
            fill(input, &mut bytes)?;
            u32::from(u16::from_le_bytes(bytes))
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            fill(input, &mut bytes)?;
            u32::from_le_bytes(bytes)
        }
        version => return Err(ReadError::new(format!("version {version} of the header, expected 1 to 3"))),
    };
    if length > MOST_HEADER_BYTES {
        return Err(ReadError::new(format!("a header of {length} bytes, at most {MOST_HEADER_BYTES} are expected")));
    }
    let mut bytes = vec![0; length as usize];
    fill(input, &mut bytes)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| ReadError::new("the header is not UTF-8"))?;
    parse(text)
}

fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<(), ReadError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => ReadError::new("the file ends within its header"),
        _ => error.into(),
    })
}

/// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse(text: &str) -> Result<Header, ReadError> {
    let bad = || {
        let found: String = text.trim().chars().take(100).collect();
        ReadError::new(format!(
            "the header is {found:?}, expected a dictionary of 'descr', 'fortran_order' and a 'shape' of two"
        ))
    };
    let inside = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(bad)?;
    let (mut descr, mut order, mut shape) = (None, None, None);
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or_else(bad)?;
        let value = after.trim_start().strip_prefix(':').ok_or_else(bad)?.trim_start();
        let after = match key {
            "descr" => {
                let (word, after) = quoted(value).ok_or_else(bad)?;
                descr = Some(word);
                after
            }
            "fortran_order" => {
                let known = [("True", true), ("False", false)];
                let (after, found) =
                    known.iter().find_map(|(word, is)| Some((value.strip_prefix(word)?, *is))).ok_or_else(bad)?;
                order = Some(found);
                after
            }
            "shape" => {
                let (list, after) = value.strip_prefix('(').and_then(|t| t.split_once(')')).ok_or_else(bad)?;
                let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
                shape = Some(
                    words
                        .map(|word| word.trim_end_matches('L').parse().map_err(|_| bad()))
                        .collect::<Result<Vec<u64>, _>>()?,
                );
                after
            }
            _ => return Err(bad()),
        };
        rest = after.trim_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',').ok_or_else(bad)?.trim_start();
        }
    }
    let element = descr.map(element).ok_or_else(bad)??;
    Ok(Header { element, by_columns: order.ok_or_else(bad)?, shape: shape.ok_or_else(bad)? })
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    text[1..].split_once(quote)
}

fn element(descr: &str) -> Result<Element, ReadError> {
    let unknown = || {
        let found: String = descr.chars().take(40).collect();
        ReadError::new(format!("elements are {found:?}, expected floats, integers or truth values"))
    };
    let big_endian = descr.starts_with('>');
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    let (number, bytes) = match kind {
        "f2" => (F16, 2),
        "f4" => (F32, 4),
        "f8" => (F64, 8),
        "i1" => (Number::Signed, 1),
        "i2" => (Number::Signed, 2),
        "i4" => (Number::Signed, 4),
        "i8" => (Number::Signed, 8),
        "u1" | "b1" | "?" => (Number::Unsigned, 1),
        "u2" => (Number::Unsigned, 2),
        "u4" => (Number::Unsigned, 4),
        "u8" => (Number::Unsigned, 8),
        _ => return Err(unknown()),
    };
    Ok(Element { number, bytes, big_endian })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_element_has_its_bytes() {
        for (descr, bytes) in [("<f2", 2), (">f4", 4), ("=f8", 8), ("b1", 1), ("?", 1)] {
            assert_eq!(element(descr).map(|element| element.bytes).ok(), Some(bytes), "{descr}");
        }
        for bytes in [1u8, 2, 4, 8] {
            let of = |kind: char| element(&format!("<{kind}{bytes}")).expect("a number");
            assert!(matches!(of('i').number, Number::Signed) && matches!(of('u').number, Number::Unsigned));
            assert_eq!((of('i').bytes, of('u').bytes, of('u').big_endian), (bytes.into(), bytes.into(), false));
        }
        assert!(element("<c8").is_err() && element("<i3").is_err());
    }

    #[test]
    fn headers_of_numpy_are_understood() {
        let found = parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n");
        let element = Element { number: F32, bytes: 4, big_endian: false };
        assert_eq!(found.ok(), Some(Header { element, by_columns: false, shape: vec![3, 4] }));
        let found = parse("{\"shape\": (7,), 'fortran_order': True, 'descr': '>i2'}");
        let element = Element { number: Number::Signed, bytes: 2, big_endian: true };
        assert_eq!(found.ok(), Some(Header { element, by_columns: true, shape: vec![7] }));
        for wrong in ["", "{", "{}", "{'descr': '<f4'}", "{'descr': 'x', 'fortran_order': False, 'shape': (1, 1)}"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1)}").is_err());
    }
}
