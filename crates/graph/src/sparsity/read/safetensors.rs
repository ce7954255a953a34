//! `.safetensors`: the length of a JSON header, the header, and the elements of the tensors behind it.
//!
//! Read by hand: only the header and one tensor are read, and the tensor is streamed.

use std::io::{Read, Seek, SeekFrom};

use indexmap::IndexMap;

use super::element::{self, BF16, Element, F8_E4M3, F8_E5M2, F16, F32, F64, Number};
use super::error::ReadError;
use super::npz::choose;
use super::sink::Sink;

/// The longest header, as the format's own library has it.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A tensor of the header.
#[derive(Debug, serde::Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// An entry of the header: a tensor, or something else, such as the table of words for people.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Entry {
    Tensor(Tensor),
    Words(serde::de::IgnoredAny),
}

pub(super) fn read(mut input: impl Read + Seek, key: Option<&str>, sink: &mut dyn Sink) -> Result<(), ReadError> {
    let file_bytes = input.seek(SeekFrom::End(0))?;
    input.seek(SeekFrom::Start(0))?;
    let mut length = [0; 8];
    if file_bytes < length.len() as u64 {
        return Err(ReadError::new("the file ends within its header"));
    }
    input.read_exact(&mut length)?;
    let header_bytes = u64::from_le_bytes(length);
    let behind = file_bytes - length.len() as u64;
    if header_bytes > behind.min(MOST_HEADER_BYTES) {
        let most = behind.min(MOST_HEADER_BYTES);
        return Err(ReadError::new(format!("the header would take {header_bytes} bytes, at most {most} are possible")));
    }
    let mut header = vec![0; header_bytes as usize];
    input.read_exact(&mut header)?;
    let entries: IndexMap<String, Entry> = serde_json::from_slice(&header)
        .map_err(|error| ReadError::new(format!("the header cannot be read: {error}")))?;
    drop(header);
    let is_tensor = |(name, entry): (&'_ String, &Entry)| name != "__metadata__" && matches!(entry, Entry::Tensor(_));
    let names: Vec<&str> =
        entries.iter().filter(|(name, entry)| is_tensor((name, entry))).map(|(name, _)| name.as_str()).collect();
    let name = choose(&names, key, "tensor")?;
    let Some(Entry::Tensor(tensor)) = entries.get(name) else {
        return Err(ReadError::new(format!("there is no tensor {name:?}")));
    };
    let &[rows, columns] = tensor.shape.as_slice() else {
        return Err(ReadError::new(format!("tensor {name:?} has {} dimensions, a matrix has 2", tensor.shape.len())));
    };
    let element = element(&tensor.dtype)?;
    sink.shape(rows, columns)?;
    let (begin, end) = tensor.data_offsets;
    let bytes = u128::from(rows) * u128::from(columns) * element.bytes as u128;
    if begin > end || end > behind - header_bytes || u128::from(end - begin) != bytes {
        return Err(ReadError::new(format!(
            "tensor {name:?} of {rows} x {columns} elements takes {bytes} bytes, its offsets are {begin} to {end} of {}",
            behind - header_bytes
        )));
    }
    input.seek(SeekFrom::Start(length.len() as u64 + header_bytes + begin))?;
    element::stream(input, element, rows, columns, false, sink)
}

fn element(dtype: &str) -> Result<Element, ReadError> {
    let (number, bytes) = match dtype {
        "F64" => (F64, 8),
        "F32" => (F32, 4),
        "F16" => (F16, 2),
        "BF16" => (BF16, 2),
        "F8_E4M3" => (F8_E4M3, 1),
        "F8_E5M2" => (F8_E5M2, 1),
        "I64" => (Number::Signed, 8),
        "I32" => (Number::Signed, 4),
        "I16" => (Number::Signed, 2),
        "I8" => (Number::Signed, 1),
        "U64" => (Number::Unsigned, 8),
        "U32" => (Number::Unsigned, 4),
        "U16" => (Number::Unsigned, 2),
        "U8" | "BOOL" => (Number::Unsigned, 1),
        other => {
            let found: String = other.chars().take(40).collect();
            return Err(ReadError::new(format!(
                "elements are {found:?}, expected F64 to F8, I64 to I8, U64 to U8, BOOL"
            )));
        }
    };
    Ok(Element { number, bytes, big_endian: false })
}
