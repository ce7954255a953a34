//! Values that do not depend on a network's inputs: weights, and the small numbers that exporters compute shapes with.

use std::path::Path;
use std::rc::Rc;

use super::proto::Tensor;
use super::wire::{self, Value};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::StoredIn;

/// Elements up to which the numbers of a constant are worked with.
pub(super) const MOST_FOLDED: u64 = 2 << 20;

/// The same of stored reals, which are weights mostly.
const MOST_REALS: u64 = 1 << 16;

/// Numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Numbers {
    Ints(Rc<[i64]>),
    Reals(Rc<[f64]>),
}

/// A constant.
#[derive(Debug, Clone)]
pub(super) struct Constant<'a> {
    /// Its numbers, where they are few.
    pub(super) numbers: Option<Numbers>,
    /// The stored tensor that it is, as it is or only in another shape.
    pub(super) stored: Option<Rc<Tensor<'a>>>,
    /// Of a matrix: rows and columns of the stored tensor are exchanged.
    pub(super) is_transposed: bool,
    /// It is what integers of eight bits stand for.
    pub(super) quantized: Option<Quantized>,
}

/// Integers of eight bits that stand for numbers (`DequantizeLinear`): what is stored beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantized {
    /// The axis of the stored tensor that has a scale for each index; `None` for one scale of all.
    pub(super) axis: Option<usize>,
    /// Scales are fp32, else of 16 bits.
    pub(super) is_fp32: bool,
    /// Zero points are stored, one for each scale.
    pub(super) has_zero_points: bool,
}

impl Quantized {
    /// What a `storage` says of a matrix of K rows and N columns; `None` where scales do not lie along its columns.
    pub(super) fn storage(self, is_transposed: bool) -> Option<StoredIn> {
        let one_scale = match self.axis {
            None => true,
            Some(axis) if (axis == 0) == is_transposed => false,
            Some(_) => return None,
        };
        let scales = Some(if self.is_fp32 { "fp32" } else { "bf16" });
        Some(StoredIn { format: "int8".to_owned(), group: None, one_scale, scales, zero_points: self.has_zero_points })
    }
}

/// Bytes of an element and whether it is a float; `None` of types that nothing computes in.
pub(super) fn element(data_type: i64) -> Option<(usize, bool)> {
    Some(match data_type {
        1 => (4, true),
        10 | 16 => (2, true),
        11 => (8, true),
        2 | 3 | 9 => (1, false),
        4 | 5 => (2, false),
        6 | 12 => (4, false),
        7 | 13 => (8, false),
        _ => return None,
    })
}

impl<'a> Constant<'a> {
    /// Is the stored tensor that another is, turned or not, and what that or `quantized` says of integers.
    pub(super) fn take(&mut self, of: &Self, is_turned: bool, quantized: Option<Quantized>) {
        (self.stored, self.is_transposed) = (of.stored.clone(), of.is_transposed != is_turned);
        self.quantized = quantized.or(of.quantized);
    }

    /// A constant of numbers.
    pub(super) fn of_numbers(numbers: Numbers) -> Self {
        Self { numbers: Some(numbers), stored: None, is_transposed: false, quantized: None }
    }

    /// A constant whose numbers nobody needs.
    pub(super) fn opaque() -> Self {
        Self { numbers: None, stored: None, is_transposed: false, quantized: None }
    }

    /// A stored tensor. Lengths are checked, numbers are read where they are few.
    pub(super) fn of_tensor(tensor: Tensor<'a>) -> Result<Self, Diagnostic> {
        let refused = |why: String| Diagnostic::new(format!("tensor {:?}: {why}", tensor.name));
        let elements = tensor.dims.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim)).filter(|&n| n < 1 << 50);
        let Some(elements) = elements else {
            return Err(refused(format!("the shape {:?} has more than 2^50 elements", tensor.dims)));
        };
        if let (Some((bytes, _)), Some(raw)) = (element(tensor.data_type), tensor.raw)
            && raw.len() as u64 != elements * bytes as u64
        {
            return Err(refused(format!(
                "the shape {:?} needs {} bytes, and {} are stored",
                tensor.dims,
                elements * bytes as u64,
                raw.len()
            ))
            .with_help("the file is damaged: export it again"));
        }
        // Weights stay where they are; integers are shapes, indices and masks.
        let is_real = element(tensor.data_type).is_some_and(|(_, real)| real);
        let few = elements <= if is_real { MOST_REALS } else { MOST_FOLDED } && !tensor.is_external;
        let numbers = if few { numbers(&tensor, elements).map_err(refused)? } else { None };
        Ok(Self { numbers, stored: Some(Rc::new(tensor)), is_transposed: false, quantized: None })
    }

    /// Its numbers as integers.
    pub(super) fn ints(&self) -> Option<Rc<[i64]>> {
        match self.numbers.as_ref()? {
            Numbers::Ints(list) => Some(Rc::clone(list)),
            Numbers::Reals(list) => list.iter().map(|&x| (x.abs() < 1e15).then_some(x as i64)).collect(),
        }
    }

    /// The one number it is, whatever its shape.
    pub(super) fn scalar(&self) -> Option<f64> {
        match self.numbers.as_ref()? {
            Numbers::Ints(list) if list.len() == 1 => Some(list[0] as f64),
            Numbers::Reals(list) if list.len() == 1 => Some(list[0]),
            _ => None,
        }
    }
}

/// The numbers of a stored tensor; `None` of types that are not worked with.
fn numbers(tensor: &Tensor<'_>, elements: u64) -> Result<Option<Numbers>, String> {
    let Some((bytes, real)) = element(tensor.data_type) else { return Ok(None) };
    if let Some(raw) = tensor.raw {
        return Ok(Some(from_bytes(raw, tensor.data_type, bytes, real)));
    }
    let most = elements as usize;
    let wrong = |error: wire::WireError| error.why;
    let list = if real && tensor.data_type == 1 {
        let mut list = Vec::new();
        tensor.typed.iter().try_for_each(|&value| wire::floats(value, most, &mut list)).map_err(wrong)?;
        Numbers::Reals(list.into_iter().map(f64::from).collect())
    } else if tensor.data_type == 11 {
        let mut list = Vec::new();
        for &value in &tensor.typed {
            match value {
                Value::Bytes(bytes, _) => {
                    list.extend(bytes.as_chunks::<8>().0.iter().take(most).map(|&eight| f64::from_le_bytes(eight)));
                }
                Value::Fixed64(bits) => list.push(f64::from_bits(bits)),
                _ => return Err("a double is of the wrong wire type".to_owned()),
            }
        }
        Numbers::Reals(list.into())
    } else {
        let mut list = Vec::new();
        tensor.typed.iter().try_for_each(|&value| wire::integers(value, most, &mut list)).map_err(wrong)?;
        if real {
            let half = |&bits: &i64| of_half(bits as u16, tensor.data_type);
            Numbers::Reals(list.iter().map(half).collect())
        } else {
            Numbers::Ints(list.into())
        }
    };
    let found = match &list {
        Numbers::Ints(list) => list.len(),
        Numbers::Reals(list) => list.len(),
    };
    if found as u64 != elements {
        return Err(format!("the shape {:?} needs {elements} elements, and {found} are stored", tensor.dims));
    }
    Ok(Some(list))
}

fn of_half(bits: u16, data_type: i64) -> f64 {
    if data_type == 16 { half::bf16::from_bits(bits).to_f64() } else { half::f16::from_bits(bits).to_f64() }
}

fn from_bytes(raw: &[u8], data_type: i64, bytes: usize, real: bool) -> Numbers {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    let words = raw.chunks_exact(bytes).map(word);
    if real {
        return Numbers::Reals(words.map(|bits| real_of(bits, data_type)).collect());
    }
    let unused = 64 - 8 * bytes as u32;
    let signed = matches!(data_type, 3 | 5 | 6 | 7);
    Numbers::Ints(
        words.map(|bits| if signed { (bits << unused).cast_signed() >> unused } else { bits.cast_signed() }).collect(),
    )
}

fn real_of(bits: u64, data_type: i64) -> f64 {
    match data_type {
        1 => f64::from(f32::from_bits(bits as u32)),
        11 => f64::from_bits(bits),
        _ => of_half(bits as u16, data_type),
    }
}

/// The file of a tensor's elements, and which of its bytes they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    /// Path from the directory of the model.
    pub(super) location: String,
    /// First byte.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) length: u64,
}

/// Where the elements of an external tensor are.
///
/// # Errors
/// No location, one that leads out of the model's directory, or a length that is not that of the shape.
pub(super) fn outside(tensor: &Tensor<'_>) -> Result<Outside, Diagnostic> {
    let refused = |why: String| Err(Diagnostic::new(format!("tensor {:?}: {why}", tensor.name)));
    let entry = |wanted: &str| tensor.external.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    let Some(location) = entry("location") else { return refused("its external data has no location".to_owned()) };
    let leads_out = Path::new(location).components().any(|part| !matches!(part, std::path::Component::Normal(_)));
    if location.is_empty() || leads_out {
        return refused(format!("its external data {location:?} is not in the model's directory"));
    }
    let count = |key: &str| match entry(key).map(str::parse::<u64>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Diagnostic::new(format!("tensor {:?}: its external {key} is no count", tensor.name))),
    };
    let bytes = element(tensor.data_type).map_or(0, |(bytes, _)| bytes as u64);
    let needed = tensor.dims.iter().fold(bytes, |all, &dim| all.saturating_mul(dim));
    let length = count("length")?.unwrap_or(needed);
    if length != needed {
        return refused(format!("its shape needs {needed} bytes, and {length} are external"));
    }
    Ok(Outside { location: location.to_owned(), offset: count("offset")?.unwrap_or(0), length })
}
