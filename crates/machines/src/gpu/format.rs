//! Formats of the operands of a library's products, as measurement files name them.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{Gpu, Quantise};
use rdusim_graph::workload::Packed;

/// Bytes of an element of NVFP4: four bits, and a scale of eight for 16 of them [P NVIDIA Blackwell whitepaper].
const NVFP4_BYTES: f64 = 0.5 + 1.0 / 16.0;
/// Bytes of an element of MXFP4: four bits, and a scale of eight for 32 of them [P OCP microscaling formats 1.0].
const MXFP4_BYTES: f64 = 0.5 + 1.0 / 32.0;
/// Bytes of an element of MXFP8: eight bits, and a scale of eight for 32 of them [P OCP microscaling formats 1.0].
const MXFP8_BYTES: f64 = 1.0 + 1.0 / 32.0;
/// Bytes of an element of fp8 with a scale of four bytes for a block of 128 [P arXiv:2412.19437].
const BLOCK_BYTES: f64 = 1.0 + 4.0 / 128.0;

/// Operands of a product. Results are of the data type of the activations before they are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductFormat {
    /// Both operands of one type. Activations of eight bits are quantised before the product, from bf16.
    Plain(Dtype),
    /// fp8 with a scale for each block of 128.
    Fp8Block,
    /// Four bits with scales for each 16, activations too.
    Nvfp4,
    /// Weights of four bits with scales for each 32, activations of bf16.
    Mxfp4Weights,
    /// Weights of four bits with scales for each 32, activations of eight with scales for each 32 (MXFP8).
    Mxfp4Mxfp8,
    /// Weights of eight bits, expanded for activations of bf16.
    ByteWeights,
}

impl ProductFormat {
    /// Its name in measurement and chip files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain(Dtype::Fp8E4m3) => "fp8",
            Self::Plain(dtype) => dtype.name(),
            Self::Fp8Block => "fp8_block",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4Weights => "w4a16_mxfp4",
            Self::Mxfp4Mxfp8 => "w4a8_mxfp4_mxfp8",
            Self::ByteWeights => "w8a16",
        }
    }

    /// The format of a name in measurement files.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bf16" | "bfloat16" => Self::Plain(Dtype::Bf16),
            "fp16" | "float16" | "half" => Self::Plain(Dtype::Fp16),
            "fp32" | "float32" => Self::Plain(Dtype::Fp32),
            "int8" => Self::Plain(Dtype::Int8),
            "fp8" | "fp8_e4m3" => Self::Plain(Dtype::Fp8E4m3),
            "fp8_e5m2" => Self::Plain(Dtype::Fp8E5m2),
            "fp8_block" => Self::Fp8Block,
            "nvfp4" => Self::Nvfp4,
            "w4a16_mxfp4" => Self::Mxfp4Weights,
            "w4a8_mxfp4_mxfp8" => Self::Mxfp4Mxfp8,
            "w8a16" => Self::ByteWeights,
            _ => return None,
        })
    }

    /// The format of a product of activations of a type with a matrix that is stored in that type, or `packed`.
    pub(super) fn of(activations: Dtype, packed: Option<Packed>) -> Self {
        let narrow = activations.bytes() == 1;
        match packed.map(|packed| (packed.format, packed.group)) {
            None => Self::Plain(activations),
            Some(("nvfp4", _)) if narrow => Self::Nvfp4,
            Some(("mxfp4", _)) if narrow => Self::Mxfp4Mxfp8,
            Some(("nvfp4" | "mxfp4" | "int4", _)) => Self::Mxfp4Weights,
            Some((_, Some(_))) if narrow => Self::Fp8Block,
            Some(_) if narrow => Self::Plain(activations),
            Some(_) => Self::ByteWeights,
        }
    }

    /// The data type of both operands, where it is one.
    pub fn plain(self) -> Option<Dtype> {
        if let Self::Plain(dtype) = self { Some(dtype) } else { None }
    }

    /// Elements that lie in a byte of an operand in shared memory: two of four bits, else one or less.
    pub(super) fn packed(self) -> u64 {
        if self == Self::Nvfp4 { 2 } else { 1 }
    }

    /// Bytes of [`Self::packed`] elements of an activation in shared memory.
    pub(super) fn packed_bytes(self) -> u64 {
        match self {
            Self::Plain(dtype) => dtype.bytes(),
            Self::Fp8Block | Self::Nvfp4 | Self::Mxfp4Mxfp8 => 1,
            Self::Mxfp4Weights | Self::ByteWeights => 2,
        }
    }

    /// Bytes of an element of the activations as the product reads them.
    pub(super) fn activation_bytes(self) -> f64 {
        match self {
            Self::Plain(dtype) => dtype.bytes() as f64,
            Self::Fp8Block => BLOCK_BYTES,
            Self::Nvfp4 => NVFP4_BYTES,
            Self::Mxfp4Mxfp8 => MXFP8_BYTES,
            Self::Mxfp4Weights | Self::ByteWeights => 2.0,
        }
    }

    /// Bytes of an element of the weights.
    pub fn weight_bytes(self) -> f64 {
        match self {
            Self::Mxfp4Weights | Self::Mxfp4Mxfp8 => MXFP4_BYTES,
            Self::ByteWeights => 1.0,
            other => other.activation_bytes(),
        }
    }

    /// Bytes of an element of what is quantised, and of results.
    pub(super) fn result_bytes(self) -> f64 {
        match self {
            Self::Plain(dtype) if dtype.bytes() > 1 => dtype.bytes() as f64,
            _ => 2.0,
        }
    }

    /// Multiply-accumulates of an SM a cycle.
    ///
    /// # Errors
    /// A format that the tensor cores lack.
    pub(super) fn rate(self, gpu: &Gpu) -> Result<f64, Diagnostic> {
        let dtype = match self {
            Self::Plain(dtype) => dtype,
            Self::Fp8Block | Self::Mxfp4Mxfp8 => Dtype::Fp8E4m3,
            Self::Mxfp4Weights | Self::ByteWeights => Dtype::Bf16,
            Self::Nvfp4 => {
                return gpu.sm.fp4_macs.map(|macs| macs as f64).ok_or_else(|| {
                    Diagnostic::new(format!("the tensor cores of {} do not multiply nvfp4", gpu.name))
                        .with_help("its `sm.fp4_macs` says how many of four bits an SM multiplies a cycle")
                });
            }
        };
        gpu.sm.tensor_macs.get(&dtype).map(|&macs| macs as f64).ok_or_else(|| {
            let known: Vec<&str> = gpu.sm.tensor_macs.keys().map(|dtype| dtype.name()).collect();
            Diagnostic::new(format!("the tensor cores of {} do not multiply {dtype}", gpu.name))
                .with_help(format!("its `sm.tensor_macs` has {}", known.join(", ")))
        })
    }

    /// Cycles of quantising so many rows of activations before a product: all of them at the SMs' rate, but no sooner than a thread
    /// block is through with a row, where a row is one's.
    pub(super) fn quantise_cycles(self, gpu: &Gpu, rows: u64, columns: u64) -> f64 {
        let Some(&Quantise { call_us, passes, l2_sm_gb_per_s, memory_sm_gb_per_s, row_gb_per_s }) =
            gpu.quantise.get(self.name())
        else {
            return 0.0;
        };
        let row_bytes = columns as f64 * self.result_bytes();
        let bytes = rows as f64 * row_bytes;
        let written = (rows * columns) as f64 * self.activation_bytes();
        let of_sm = if bytes + written <= gpu.l2.reuse_bytes() { l2_sm_gb_per_s } else { memory_sm_gb_per_s };
        let of_row = row_gb_per_s.map_or(0.0, |rate| row_bytes / (rate * 1e9));
        let seconds = passes * (bytes / (of_sm * 1e9 * gpu.sm.count as f64)).max(of_row);
        gpu.cycles_of_us(call_us) + seconds * gpu.clock_hz as f64
    }
}
