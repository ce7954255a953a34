//! Small files of matrices, made by hand.

/// An 8 x 8 array of single-precision numbers.
pub(crate) fn npy() -> Vec<u8> {
    let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 8), }".to_owned();
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend((0..64).flat_map(|i| (if i % 3 == 0 { 1.0f32 } else { 0.0 }).to_le_bytes()));
    bytes
}

/// An 8 x 8 tensor of bf16.
pub(crate) fn safetensors() -> Vec<u8> {
    let header = r#"{"w":{"dtype":"BF16","shape":[8,8],"data_offsets":[0,128]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..128u8).map(|i| i % 5));
    bytes
}
