//! What an operator computes, and what the compiler needs to know of each kind.

use serde::{Deserialize, Serialize};

/// What an operator computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorKind {
    /// `C[M,N] = A[M,K] x B[K,N]`; inputs A (activations) then B (weights).
    Gemm,
    /// Gaussian error linear unit, element by element.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// Logistic function.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `a + b`, equal shapes.
    Add,
    /// `a * b`, equal shapes.
    Mul,
    /// Softmax along each row, or along each head of a row.
    Softmax,
    /// Layer norm along each row.
    LayerNorm,
    /// Root-mean-square norm along each row.
    RmsNorm,
    /// A constant times x.
    Scale,
    /// Scores of keys after the query become minus infinity.
    CausalMask,
    /// Pairs of elements of a head turned by an angle of their position.
    Rotary,
    /// Elements dropped at random, the others scaled up.
    Dropout,
    /// A row vector added to every row.
    Bias,
    /// Rows of a table by index.
    Embedding,
    /// The matrix with rows and columns exchanged.
    Transpose,
    /// Columns of `a`, then columns of `b`.
    Concat,
    /// The sum of each row.
    RowSum,
    /// The greatest element of each row.
    RowMax,
    /// Loss of each row of logits against its label.
    CrossEntropy,
    /// Of x and dy: dy times the derivative of GELU at x.
    GeluGrad,
    /// Of x and dy: dy where x is positive.
    ReluGrad,
    /// Of x and dy: dy times the derivative of `silu` at x.
    SiluGrad,
    /// Of y and dy: dy y (1 - y).
    SigmoidGrad,
    /// Of y and dy: dy (1 - y^2).
    TanhGrad,
    /// Of y and dy: y (dy - sum of y dy), along each row or head.
    SoftmaxGrad,
    /// Of x and dy: the gradient of a layer norm's input.
    LayerNormGrad,
    /// Of x and dy: the gradient of a root-mean-square norm's input.
    RmsNormGrad,
    /// Of logits: softmax less the one-hot label.
    CrossEntropyGrad,
    /// Of dy: rows to be added to a table's gradient.
    EmbeddingGrad,
    /// Of a weight and its gradient: the weight after a step of stochastic gradient descent.
    SgdUpdate,
    /// Of a gradient and fp32 master weight and moments: both after a step of Adam, and the weight to compute with.
    AdamUpdate,
    /// Convolution of images by filters; in a resolved graph a GEMM over windows.
    Conv,
    /// The greatest element of each window of an image, channel by channel.
    MaxPool,
    /// The mean of each window of an image, channel by channel.
    AveragePool,
    /// Each column times a gain, plus a bias: a batch norm with its statistics folded in.
    BatchNorm,
    /// The same elements in another shape; in a resolved graph a view.
    Reshape,
    /// Some rows and columns; in a resolved graph a view.
    Slice,
    /// The largest elements of each row by magnitude, as many as the result has, in order.
    Select,
    /// Rows filled up with zeros.
    Reformat,
}

impl OperatorKind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 42] = [
        Self::Gemm,
        Self::Gelu,
        Self::Relu,
        Self::Silu,
        Self::Sigmoid,
        Self::Tanh,
        Self::Add,
        Self::Mul,
        Self::Softmax,
        Self::LayerNorm,
        Self::RmsNorm,
        Self::Scale,
        Self::CausalMask,
        Self::Rotary,
        Self::Dropout,
        Self::Bias,
        Self::Embedding,
        Self::Transpose,
        Self::Concat,
        Self::RowSum,
        Self::RowMax,
        Self::CrossEntropy,
        Self::GeluGrad,
        Self::ReluGrad,
        Self::SiluGrad,
        Self::SigmoidGrad,
        Self::TanhGrad,
        Self::SoftmaxGrad,
        Self::LayerNormGrad,
        Self::RmsNormGrad,
        Self::CrossEntropyGrad,
        Self::EmbeddingGrad,
        Self::SgdUpdate,
        Self::AdamUpdate,
        Self::Conv,
        Self::MaxPool,
        Self::AveragePool,
        Self::BatchNorm,
        Self::Reshape,
        Self::Slice,
        Self::Select,
        Self::Reformat,
    ];

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Gelu => "gelu",
            Self::Relu => "relu",
            Self::Silu => "silu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Softmax => "softmax",
            Self::LayerNorm => "layer_norm",
            Self::RmsNorm => "rms_norm",
            Self::Scale => "scale",
            Self::CausalMask => "causal_mask",
            Self::Rotary => "rotary",
            Self::Dropout => "dropout",
            Self::Bias => "bias",
            Self::Embedding => "embedding",
            Self::Transpose => "transpose",
            Self::Concat => "concat",
            Self::RowSum => "row_sum",
            Self::RowMax => "row_max",
            Self::CrossEntropy => "cross_entropy",
            Self::GeluGrad => "gelu_grad",
            Self::ReluGrad => "relu_grad",
            Self::SiluGrad => "silu_grad",
            Self::SigmoidGrad => "sigmoid_grad",
            Self::TanhGrad => "tanh_grad",
            Self::SoftmaxGrad => "softmax_grad",
            Self::LayerNormGrad => "layer_norm_grad",
            Self::RmsNormGrad => "rms_norm_grad",
            Self::CrossEntropyGrad => "cross_entropy_grad",
            Self::EmbeddingGrad => "embedding_grad",
            Self::SgdUpdate => "sgd_update",
            Self::AdamUpdate => "adam_update",
            Self::Conv => "conv",
            Self::MaxPool => "max_pool",
            Self::AveragePool => "average_pool",
            Self::BatchNorm => "batch_norm",
            Self::Reshape => "reshape",
            Self::Slice => "slice",
            Self::Select => "select",
            Self::Reformat => "reformat",
        }
    }

    /// Number of inputs.
    pub fn arity(self) -> usize {
        match self {
            Self::Gemm
            | Self::Conv
            | Self::Add
            | Self::Mul
            | Self::Embedding
            | Self::Concat
            | Self::CrossEntropy
            | Self::GeluGrad
            | Self::ReluGrad
            | Self::SiluGrad
            | Self::SigmoidGrad
            | Self::TanhGrad
            | Self::SoftmaxGrad
            | Self::LayerNormGrad
            | Self::RmsNormGrad
            | Self::CrossEntropyGrad
            | Self::SgdUpdate
            | Self::AdamUpdate => 2,
            _ => 1,
        }
    }

    /// Row vectors of parameters it may have, at most.
    pub fn most_vectors(self) -> usize {
        match self {
            // Of a GEMM, a bias added while results drain.
            Self::Gemm | Self::Conv | Self::Bias | Self::RmsNorm => 1,
            Self::LayerNorm | Self::BatchNorm => 2,
            _ => 0,
        }
    }

    /// Times a SIMD function reads each element of its input; `None` for a GEMM. Softmax takes the maximum, the sum of
    /// exponentials, and the quotient; norms take the moments, then scale; their gradients a sum or two, then combine;
    /// a selection counts magnitudes, then takes those above the threshold.
    pub fn passes(self) -> u64 {
        match self {
            Self::Softmax | Self::CrossEntropyGrad => 3,
            Self::LayerNorm
            | Self::RmsNorm
            | Self::CrossEntropy
            | Self::SoftmaxGrad
            | Self::LayerNormGrad
            | Self::Select
            | Self::RmsNormGrad => 2,
            _ => 1,
        }
    }

    /// Whether an output element needs its whole input row (or all of its head).
    pub fn is_row_wise(self) -> bool {
        self.passes() > 1
            || matches!(self, Self::RowSum | Self::RowMax | Self::Rotary | Self::Concat | Self::Reformat)
            || self.is_pool()
    }

    /// Whether it takes the windows of an image, each channel for itself.
    pub fn is_pool(self) -> bool {
        matches!(self, Self::MaxPool | Self::AveragePool)
    }

    /// Whether it takes the windows of an image.
    pub fn has_windows(self) -> bool {
        self == Self::Conv || self.is_pool()
    }

    /// Whether its output is a view of its input, and nothing is computed.
    pub fn is_view(self) -> bool {
        matches!(self, Self::Reshape | Self::Slice)
    }

    /// Whether output element `i` needs only element `i` of each input.
    pub fn is_elementwise(self) -> bool {
        !matches!(self, Self::Gemm | Self::Conv) && !self.is_view() && !self.is_row_wise()
    }

    /// Whether a kernel of a GEMM computes it on the results, before they are written: its elements stay where they are.
    pub fn folds_into_a_gemm(self) -> bool {
        let moves_or_updates = matches!(
            self,
            Self::Transpose | Self::Embedding | Self::EmbeddingGrad | Self::SgdUpdate | Self::AdamUpdate
        );
        self.is_elementwise() && !moves_or_updates
    }

    /// Whether it is a step of an optimiser.
    pub fn is_update(self) -> bool {
        matches!(self, Self::AdamUpdate | Self::SgdUpdate)
    }

    /// Whether it can run in the tail of the array that makes its input.
    pub fn folds_into_a_tail(self) -> bool {
        self.is_elementwise() && self.arity() == 1 && !matches!(self, Self::Transpose | Self::EmbeddingGrad)
    }

    /// Pipeline stages of the function where a chip file says nothing (assumed: one an addition, multiplication or
    /// comparison in sequence, four for an exponential or a random number).
    pub fn assumed_simd_stages(self) -> u64 {
        match self {
            Self::Rotary | Self::SigmoidGrad | Self::TanhGrad | Self::SgdUpdate => 3,
            Self::CausalMask | Self::BatchNorm => 2,
            Self::Dropout | Self::SoftmaxGrad | Self::Select => 4,
            Self::GeluGrad => 8,
            Self::SiluGrad => 6,
            Self::CrossEntropy | Self::CrossEntropyGrad => 10,
            Self::RmsNormGrad | Self::AdamUpdate => 12,
            Self::LayerNormGrad => 14,
            _ => 1,
        }
    }
}

/// The part of a training step an operator belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From inputs to outputs; the whole of an inference.
    #[default]
    Forward,
    /// Gradients.
    Backward,
    /// The optimiser's step.
    Update,
    /// A change of the pattern of sparse weights, once in many steps.
    Pattern,
}

impl Phase {
    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Update => "update",
            Self::Pattern => "pattern",
        }
    }
}
