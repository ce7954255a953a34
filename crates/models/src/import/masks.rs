//! Masks from the values of weights: what is zero in them, or what pruning by magnitude leaves.

use std::fmt::Write as _;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use super::constant::{element, outside};
use super::draft::{Draft, Origin, Role};
use super::options::Options;
use super::proto::Tensor as Stored;
use super::wire;
use rdusim_base::diagnostics::{Diagnostic, number};
use rdusim_base::input;
use rdusim_graph::sparsity::read::{FileKind, MatrixRequest, read_mask};
use rdusim_graph::workload::Sparse;

/// What masks are asked for.
#[derive(Debug)]
pub(super) struct Asked {
    /// Share of blocks that is kept; without it, what is not zero.
    density: Option<f64>,
    /// Rows and columns of a block.
    block: (u64, u64),
    /// The file that will hold them, as the workload names it.
    file: String,
}

/// Masks.
#[derive(Debug, Default)]
pub(super) struct Masks {
    /// A safetensors file; none if no mask was asked for.
    pub(super) bytes: Option<Vec<u8>>,
}

/// What the options ask for.
pub(super) fn wanted(options: &Options) -> Result<Option<Asked>, Diagnostic> {
    if !options.masks && options.density.is_none() {
        return Ok(None);
    }
    if let Some(density) = options.density.filter(|&density| !(density > 0.0 && density <= 1.0)) {
        let found = number(density);
        let title = format!("`--density` is {found}, expected the share of blocks that is kept: above 0, at most 1");
        return Err(Diagnostic::new(title));
    }
    let Some(file) = options.masks_file.clone() else {
        let title = "masks of a model are a file beside the workload, and no file is written";
        return Err(Diagnostic::new(title).with_help("give `-o FILE`"));
    };
    let block = options.block.unwrap_or((1, 1));
    if block.0 == 0 || block.1 == 0 || block.0 > 1 << 20 || block.1 > 1 << 20 {
        return Err(Diagnostic::new(format!("`--block` is {}x{}, expected counts from 1 to 2^20", block.0, block.1)));
    }
    Ok(Some(Asked { density: options.density, block, file }))
}

/// Gives every weight that can be sparse its mask.
pub(super) fn add(draft: &mut Draft<'_>, asked: &Asked, model: &Path) -> Result<Masks, Diagnostic> {
    let mut header = String::new();
    let mut data: Vec<u8> = Vec::new();
    let mut covered = 0;
    for index in 0..draft.tensors.len() {
        let reads =
            |operator: &super::draft::Operator| operator.inputs.contains(&index) || operator.vectors.contains(&index);
        let as_weight = |operator: &super::draft::Operator| {
            matches!(operator.kind, "gemm" | "conv")
                && operator.inputs.get(1) == Some(&index)
                && operator.inputs[0] != index
                && !operator.options.has_transposed_b()
                && !operator.options.has_groups()
                && !operator.options.has_heads()
        };
        let mut readers = draft.operators.iter().filter(|operator| reads(operator)).peekable();
        if draft.tensors[index].role != Role::Weight || readers.peek().is_none() || !readers.all(as_weight) {
            continue;
        }
        let tensor = &draft.tensors[index];
        let Some(origin) = tensor.origin.clone() else { continue };
        let (rows, columns) = tensor.shape;
        let name = tensor.name.clone();
        let refused = |why: String| Diagnostic::new(format!("weight {:?}: {why}", origin.stored.name));
        let file = matrix(&origin, rows, columns, model).map_err(refused)?;
        let wanted = MatrixRequest {
            key: None,
            shape: Some((rows, columns)),
            block: asked.block,
            density: asked.density,
            transpose: origin.is_transposed,
        };
        let mask = read_mask(FileKind::Npy, Cursor::new(file), &wanted).map_err(|error| refused(error.to_string()))?;
        covered += 1;
        if mask.stored_elements() == rows * columns {
            continue;
        }
        let start = data.len();
        data.reserve((rows * columns) as usize);
        for k in 0..rows {
            data.extend((0..columns).map(|n| u8::from(mask.is_kept(k / asked.block.0, n / asked.block.1))));
        }
        if !header.is_empty() {
            header.push(',');
        }
        let _ = write!(
            header,
            "{}:{{\"dtype\":\"U8\",\"shape\":[{rows},{columns}],\"data_offsets\":[{start},{}]}}",
            serde_json::Value::from(name.as_str()),
            data.len()
        );
        draft.tensors[index].sparsity = Some(Sparse::File {
            file: asked.file.clone(),
            key: name,
            transpose: false,
            density: None,
            block: Some(asked.block).filter(|&block| block != (1, 1)),
        });
    }
    if covered == 0 {
        let title = "no weight of the network has values: there are no masks";
        return Err(Diagnostic::new(title).with_help("leave out `--masks` and `--density`"));
    }
    draft.notes.push(match asked.density {
        Some(density) => format!("masks: weights pruned by magnitude to a density of {density}"),
        None => "masks: what is zero in the weights".to_owned(),
    });
    let header = format!("{{{header}}}");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    Ok(Masks { bytes: Some(bytes) })
}

/// The values of a weight as a `NumPy` file, in the order they are stored in.
fn matrix(origin: &Origin<'_>, rows: u64, columns: u64, model: &Path) -> Result<Vec<u8>, String> {
    let stored = &origin.stored;
    let values = values(stored, model)?;
    let (k, n) = (rows as usize, columns as usize);
    let all = values.len() / k.max(1);
    let first = origin.columns.0 as usize;
    if values.len() != k * all || first + n > all {
        return Err(format!("the shape {:?} is not {rows} x {columns}", stored.dims));
    }
    let shape = if origin.is_transposed { (n, k) } else { (k, n) };
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", shape.0, shape.1);
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    if origin.is_transposed {
        file.extend(values[first * k..(first + n) * k].iter().flat_map(|x| x.to_le_bytes()));
    } else {
        for row in values.chunks_exact(all) {
            file.extend(row[first..first + n].iter().flat_map(|x| x.to_le_bytes()));
        }
    }
    Ok(file)
}

/// The values of a stored tensor, whose length was checked.
fn values(stored: &Stored<'_>, model: &Path) -> Result<Vec<f32>, String> {
    let Some((bytes, true)) = element(stored.data_type) else {
        return Err(format!("data type {} has no magnitudes here", stored.data_type));
    };
    let count = stored.dims.iter().product::<u64>();
    let from_elsewhere;
    let raw: &[u8] = if stored.is_external {
        from_elsewhere = read_outside(stored, model)?;
        &from_elsewhere
    } else if let Some(raw) = stored.raw {
        raw
    } else {
        let mut list = Vec::new();
        for &value in &stored.typed {
            wire::floats(value, count as usize, &mut list).map_err(|error| error.why)?;
        }
        return if list.len() as u64 == count { Ok(list) } else { Err(format!("{} values are stored", list.len())) };
    };
    let value = |chunk: &[u8]| match (stored.data_type, chunk) {
        (1, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f32(),
        (10, &[a, b]) => half::f16::from_le_bytes([a, b]).to_f32(),
        (_, chunk) => chunk.try_into().map_or(0.0, |eight| f64::from_le_bytes(eight) as f32),
    };
    Ok(raw.chunks_exact(bytes).map(value).collect())
}

fn read_outside(stored: &Stored<'_>, model: &Path) -> Result<Vec<u8>, String> {
    let place = outside(stored).map_err(|error| error.title().to_owned())?;
    let told = |error: std::io::Error| format!("{:?} cannot be read: {error}", place.location);
    let directory = model.parent().unwrap_or(Path::new(""));
    let mut file =
        input::open_inside(directory, &place.location).map_err(|why| format!("{:?} {why}", place.location))?;
    let end = file.seek(SeekFrom::End(0)).map_err(told)?;
    if place.offset.checked_add(place.length).is_none_or(|wanted| wanted > end) {
        return Err(format!("{:?} has only {end} bytes", place.location));
    }
    file.seek(SeekFrom::Start(place.offset)).map_err(told)?;
    let mut bytes = vec![0; place.length as usize];
    file.read_exact(&mut bytes).map_err(told)?;
    Ok(bytes)
}
