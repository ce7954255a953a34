//! Writes the small masks of `examples/masks/`: one of each kind of file that rdusim reads.
//!
//! `cargo run --example masks` from the root of the repository makes the committed files again, byte for byte.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::Path;

/// Rows and columns of every mask: K x N.
const SHAPE: (u64, u64) = (64, 96);

/// A value for every place: larger near the diagonal, a fixed scatter elsewhere, never zero.
fn value(row: u64, column: u64) -> f32 {
    let distance = (row * SHAPE.1).abs_diff(column * SHAPE.0) as f32 / (SHAPE.0 * SHAPE.1) as f32;
    let scatter = ((row * 2_654_435_761 + column * 40_503) % 1009) as f32 / 1009.0;
    let sign = if (row + column).is_multiple_of(3) { -1.0 } else { 1.0 };
    sign * (0.001 + scatter * 0.2 + (0.3 - distance).max(0.0))
}

/// Whether a place is kept in the files that hold a mask: large values only.
fn is_kept(row: u64, column: u64) -> bool {
    value(row, column).abs() > 0.3
}

fn kept() -> impl Iterator<Item = (u64, u64)> {
    (0..SHAPE.0).flat_map(|row| (0..SHAPE.1).map(move |column| (row, column))).filter(|&(r, c)| is_kept(r, c))
}

fn smtx() -> Result<String, std::fmt::Error> {
    let mut text = format!("{}, {}, {}\n", SHAPE.0, SHAPE.1, kept().count());
    let offsets: Vec<String> = (0..=SHAPE.0).map(|row| kept().filter(|&(r, _)| r < row).count().to_string()).collect();
    let columns: Vec<String> = kept().map(|(_, column)| column.to_string()).collect();
    writeln!(text, "{}\n{}", offsets.join(" "), columns.join(" "))?;
    Ok(text)
}

fn mtx() -> Result<String, std::fmt::Error> {
    let mut text = String::from("%%MatrixMarket matrix coordinate real general\n% rows columns entries\n");
    writeln!(text, "{} {} {}", SHAPE.0, SHAPE.1, kept().count())?;
    for (row, column) in kept() {
        writeln!(text, "{} {} {:.4}", row + 1, column + 1, value(row, column))?;
    }
    Ok(text)
}

/// A `.npy` file of version 1: the header is padded so that the elements begin at a multiple of 64.
fn npy(descr: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}, {}), }}", SHAPE.0, SHAPE.1);
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((padded as u16).to_le_bytes());
    file.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
    file.extend(elements);
    file
}

fn npz(arrays: &[(&str, &[u8])]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (name, bytes) in arrays {
        archive.start_file(format!("{name}.npy"), options)?;
        archive.write_all(bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// Two weights as PyTorch lays them, `[out, in]`, in bf16.
fn safetensors() -> Vec<u8> {
    let bf16 = |row, column| ((value(row, column).to_bits() >> 16) as u16).to_le_bytes();
    let up: Vec<u8> = (0..SHAPE.1).flat_map(|n| (0..SHAPE.0).flat_map(move |k| bf16(k, n))).collect();
    let down: Vec<u8> = (0..SHAPE.0).flat_map(|n| (0..SHAPE.1).flat_map(move |k| bf16(n, k))).collect();
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"w_down":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[{},{}]}},"w_up":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[0,{}]}}}}"#,
        SHAPE.0,
        SHAPE.1,
        up.len(),
        up.len() + down.len(),
        SHAPE.1,
        SHAPE.0,
        up.len(),
    );
    let padded = header.len().next_multiple_of(8);
    let mut file = (padded as u64).to_le_bytes().to_vec();
    file.extend(format!("{header:<padded$}").bytes());
    file.extend(up);
    file.extend(down);
    file
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = Path::new("examples/masks");
    fs::create_dir_all(directory)?;
    let truth: Vec<u8> = (0..SHAPE.0).flat_map(|r| (0..SHAPE.1).map(move |c| u8::from(is_kept(r, c)))).collect();
    let dense: Vec<u8> = (0..SHAPE.0).flat_map(|r| (0..SHAPE.1).flat_map(move |c| value(r, c).to_le_bytes())).collect();
    let (mask, weight) = (npy("|b1", &truth), npy("<f4", &dense));
    fs::write(directory.join("band.smtx"), smtx()?)?;
    fs::write(directory.join("band.mtx"), mtx()?)?;
    fs::write(directory.join("band.npy"), &mask)?;
    fs::write(directory.join("layers.npz"), npz(&[("mask", &mask), ("weight", &weight)])?)?;
    fs::write(directory.join("layer.safetensors"), safetensors())?;
    Ok(())
}
