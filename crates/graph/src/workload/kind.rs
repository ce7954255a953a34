//! What an operator computes, and what the compiler needs to know of each kind: one row of a table for each.

use serde::{Deserialize, Serialize};

/// How output elements follow from input elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Sums of products, on the array.
    Product,
    /// Element `i` is a function of element `i` of the only input, and of nothing else.
    Function,
    /// Element `i` follows from element `i` of each input, and from row vectors or the place.
    Element,
    /// The same elements at other places.
    Moved,
    /// A step of an optimiser, element by element.
    Update,
    /// An element follows from its whole row, or all of its head.
    Row,
    /// An element follows from its column (or its head) in this row and the rows before it: rows are worked on in order, and what
    /// a row needs of those before it is carried from row tile to row tile.
    Carried,
    /// An element follows from a window of an image, each channel for itself.
    Pool,
    /// Nothing is computed.
    View,
}

/// The operator that makes the gradient of an input from that of the output, where there is one such operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gradient {
    /// None, or several operators: `train` knows.
    Special,
    /// A kind that takes the input and the output's gradient.
    OfInput(OperatorKind),
    /// A kind that takes the output and its gradient.
    OfOutput(OperatorKind),
    /// The same kind, of the output's gradient.
    Itself,
}

/// A row of the table.
struct Row {
    name: &'static str,
    class: Class,
    /// Inputs.
    inputs: usize,
    /// Row vectors of parameters, at most.
    vectors: usize,
    /// Times it reads each element of its input.
    reads: u64,
    /// Pipeline stages of the function.
    stages: u64,
    /// Vector operations an element on a GPU; as many as `stages` if 0.
    steps: u64,
    gradient: Gradient,
}

/// Of one elementwise operation in one step.
const PLAIN: Row = Row {
    name: "",
    class: Class::Element,
    inputs: 1,
    vectors: 0,
    reads: 1,
    stages: 1,
    steps: 0,
    gradient: Gradient::Special,
};

/// Declares the kinds: of each its documentation, its name in files, and what differs from [`PLAIN`].
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:literal { $($field:ident: $value:expr),* };)+) => {
        /// What an operator computes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum OperatorKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl OperatorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            const fn row(self) -> &'static Row {
                match self {
                    $(Self::$kind => &const { Row { name: $name, $($field: $value,)* ..PLAIN } },)+
                }
            }
        }
    };
}

kinds! {
    /// `C[M,N] = A[M,K] x B[K,N]`; inputs A (activations) then B (weights).
    Gemm "gemm" { class: Class::Product, inputs: 2, vectors: 1 };
    /// Gaussian error linear unit, element by element.
    Gelu "gelu" { class: Class::Function, steps: 12, gradient: Gradient::OfInput(OperatorKind::GeluGrad) };
    /// `max(x, 0)`.
    Relu "relu" { class: Class::Function, gradient: Gradient::OfOutput(OperatorKind::ReluGrad) };
    /// `x * sigmoid(x)`.
    Silu "silu" { class: Class::Function, steps: 6, gradient: Gradient::OfInput(OperatorKind::SiluGrad) };
    /// Logistic function.
    Sigmoid "sigmoid" { class: Class::Function, steps: 6, gradient: Gradient::OfOutput(OperatorKind::SigmoidGrad) };
    /// Hyperbolic tangent.
    Tanh "tanh" { class: Class::Function, steps: 6, gradient: Gradient::OfOutput(OperatorKind::TanhGrad) };
    /// `a + b`, equal shapes.
    Add "add" { inputs: 2 };
    /// `a * b`, equal shapes.
    Mul "mul" { inputs: 2 };
    /// Softmax along each row, or along each head of a row; with a vector, each head's element of it (a sink) is a score more that
    /// takes part in the sum and has no result.
    Softmax "softmax" { class: Class::Row, vectors: 1, reads: 3, steps: 10, gradient: Gradient::OfOutput(OperatorKind::SoftmaxGrad) };
    /// Layer norm along each row, or along each head of a row.
    LayerNorm "layer_norm" { class: Class::Row, vectors: 2, reads: 2, steps: 12, gradient: Gradient::OfInput(OperatorKind::LayerNormGrad) };
    /// Root-mean-square norm along each row, or along each head of a row.
    RmsNorm "rms_norm" { class: Class::Row, vectors: 1, reads: 2, steps: 8, gradient: Gradient::OfInput(OperatorKind::RmsNormGrad) };
    /// A constant times x.
    Scale "scale" { gradient: Gradient::Itself };
    /// Scores of keys after the query become minus infinity.
    CausalMask "causal_mask" { stages: 2, gradient: Gradient::Itself };
    /// Pairs of elements of a head turned by an angle of their position.
    Rotary "rotary" { class: Class::Row, stages: 3, gradient: Gradient::Itself };
    /// Elements dropped at random, the others scaled up.
    Dropout "dropout" { stages: 4, gradient: Gradient::Itself };
    /// A row vector added to every row.
    Bias "bias" { vectors: 1 };
    /// Rows of a table by index.
    Embedding "embedding" { class: Class::Moved, inputs: 2 };
    /// The matrix with rows and columns exchanged.
    Transpose "transpose" { class: Class::Moved, gradient: Gradient::Itself };
    /// Columns of `a`, then columns of `b`.
    Concat "concat" { class: Class::Row, inputs: 2 };
    /// The sum of each row.
    RowSum "row_sum" { class: Class::Row };
    /// The greatest element of each row.
    RowMax "row_max" { class: Class::Row };
    /// Loss of each row of logits against its label.
    CrossEntropy "cross_entropy" { class: Class::Row, inputs: 2, reads: 2, stages: 10 };
    /// Of x and dy: dy times the derivative of GELU at x.
    GeluGrad "gelu_grad" { inputs: 2, stages: 8 };
    /// Of x and dy: dy where x is positive.
    ReluGrad "relu_grad" { inputs: 2 };
    /// Of x and dy: dy times the derivative of `silu` at x.
    SiluGrad "silu_grad" { inputs: 2, stages: 6 };
    /// Of y and dy: dy y (1 - y).
    SigmoidGrad "sigmoid_grad" { inputs: 2, stages: 3 };
    /// Of y and dy: dy (1 - y^2).
    TanhGrad "tanh_grad" { inputs: 2, stages: 3 };
    /// Of y and dy: y (dy - sum of y dy), along each row or head.
    SoftmaxGrad "softmax_grad" { class: Class::Row, inputs: 2, reads: 2, stages: 4 };
    /// Of x and dy: the gradient of a layer norm's input.
    LayerNormGrad "layer_norm_grad" { class: Class::Row, inputs: 2, reads: 2, stages: 14 };
    /// Of x and dy: the gradient of a root-mean-square norm's input.
    RmsNormGrad "rms_norm_grad" { class: Class::Row, inputs: 2, reads: 2, stages: 12 };
    /// Of logits: softmax less the one-hot label.
    CrossEntropyGrad "cross_entropy_grad" { class: Class::Row, inputs: 2, reads: 3, stages: 10 };
    /// Of dy: rows to be added to a table's gradient.
    EmbeddingGrad "embedding_grad" { class: Class::Moved };
    /// Of a weight and its gradient: the weight after a step of stochastic gradient descent.
    SgdUpdate "sgd_update" { class: Class::Update, inputs: 2, stages: 3 };
    /// Of a gradient and fp32 master weight and moments: both after a step of Adam, and the weight to compute with.
    AdamUpdate "adam_update" { class: Class::Update, inputs: 2, stages: 12 };
    /// Convolution of images by filters; in a resolved graph a GEMM over windows.
    Conv "conv" { class: Class::Product, inputs: 2, vectors: 1 };
    /// The greatest element of each window of an image, channel by channel.
    MaxPool "max_pool" { class: Class::Pool };
    /// The mean of each window of an image, channel by channel.
    AveragePool "average_pool" { class: Class::Pool };
    /// Each column times a gain, plus a bias: a batch norm with its statistics folded in.
    BatchNorm "batch_norm" { vectors: 2, stages: 2 };
    /// The same elements in another shape; in a resolved graph a view.
    Reshape "reshape" { class: Class::View };
    /// Rows and heads of each sequence exchanged; in a resolved graph a view.
    HeadTranspose "head_transpose" { class: Class::View };
    /// Some rows and columns; in a resolved graph a view.
    Slice "slice" { class: Class::View };
    /// The largest elements of each row by magnitude, as many as the result has, in order.
    Select "select" { class: Class::Row, reads: 2, stages: 4 };
    /// Rows filled up with zeros.
    Reformat "reformat" { class: Class::Row };
    /// `ln(1 + exp(x))`.
    Softplus "softplus" { class: Class::Function, stages: 8, gradient: Gradient::OfInput(OperatorKind::SoftplusGrad) };
    /// Of x and dy: dy times the logistic function of x.
    SoftplusGrad "softplus_grad" { inputs: 2, stages: 5 };
    /// Each column over a power of the squares of the five around it: a local response norm.
    LocalNorm "local_norm" { class: Class::Row, stages: 16 };
    /// `exp(-exp(v) x)`, `v` a row vector: what a step of length x leaves of the state of a linear recurrence.
    ExpDecay "exp_decay" { vectors: 1, stages: 6 };
    /// Each head of x times an element of the second input, which has one for each head.
    HeadScale "head_scale" { class: Class::Row, inputs: 2 };
    /// The outer product of each head of x and the row of its group in the second input.
    Outer "outer" { class: Class::Row, inputs: 2 };
    /// Each run of a head of x, as long as a row of a group in the second input, summed with that row as weights: `outer` undone.
    Contract "contract" { class: Class::Row, inputs: 2, stages: 2 };
    /// Depthwise convolution of this row and the inputs of a few rows before, which the second input holds column by column.
    ConvStep "conv_step" { class: Class::Row, inputs: 2, vectors: 2, stages: 4 };
    /// `h[t] = a[t] h[t-1] + b[t]`, rows t of b in order, one a for each head; zero before the first row of a sequence.
    Scan "scan" { class: Class::Carried, inputs: 2, stages: 2 };
    /// The same, with `h[t-1]` as row t of the result.
    ScanBefore "scan_before" { class: Class::Carried, inputs: 2, stages: 2 };
    /// The product of each column over the rows of its sequence so far.
    RunningProduct "running_product" { class: Class::Carried };
    /// Scores of rows t and keys j of a sequence, times the product of the head's factors over rows j + 1 to t; zero for j > t.
    DecayMask "decay_mask" { class: Class::Carried, inputs: 2, stages: 2 };
    /// Depthwise convolution along the rows of a sequence, of each row and a few before it.
    CausalConv "causal_conv" { class: Class::Carried, vectors: 2, stages: 4 };
    /// The product of each window of an image but its first pixel, channel by channel.
    RestProduct "rest_product" { class: Class::Pool };
    /// The largest magnitude of each row over the largest number of the type that it is quantised to; of a row of zeros, 1.
    RowScale "row_scale" { class: Class::Row, stages: 2 };
    /// Each row of x over its element of the second input, in a data type of 8 bits.
    Quantize "quantize" { class: Class::Row, inputs: 2 };
    /// `a - b`, equal shapes.
    Sub "sub" { inputs: 2 };
    /// The sum of each window of an image, channel by channel.
    SumPool "sum_pool" { class: Class::Pool };
    /// As `decay_mask`, but zero for j = t too.
    DecayBefore "decay_before" { class: Class::Carried, inputs: 2, stages: 2 };
}

impl OperatorKind {
    /// The name used in files.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Number of inputs.
    pub const fn arity(self) -> usize {
        self.row().inputs
    }

    /// Row vectors of parameters it may have, at most; of a GEMM, a bias added while results drain.
    pub const fn most_vectors(self) -> usize {
        self.row().vectors
    }

    /// Times a SIMD function reads each element of its input. Softmax takes the maximum, the sum of exponentials, and the
    /// quotient; norms take the moments, then scale; their gradients a sum or two, then combine; a selection counts
    /// magnitudes, then takes those above the threshold.
    pub const fn passes(self) -> u64 {
        self.row().reads
    }

    /// The operator that makes its input's gradient.
    pub const fn gradient(self) -> Gradient {
        self.row().gradient
    }

    /// Whether output element `i` is a function of element `i` of its only input, and of nothing else.
    pub fn is_function(self) -> bool {
        self.row().class == Class::Function
    }

    /// Whether an output element needs its whole input row (or all of its head).
    pub fn is_row_wise(self) -> bool {
        matches!(self.row().class, Class::Row | Class::Pool | Class::Carried)
    }

    /// Whether its rows are worked on in order, with a state that is carried from one to the next.
    pub fn is_carried(self) -> bool {
        self.row().class == Class::Carried
    }

    /// Whether every head needs all columns of an input.
    pub fn shares_input(self, position: usize) -> bool {
        match self {
            Self::Outer | Self::Contract => position == 1,
            Self::DecayMask | Self::DecayBefore => position == 0,
            _ => false,
        }
    }

    /// Whether a second input may have another data type: factors of a recurrence, scales.
    pub fn mixes_types(self) -> bool {
        use OperatorKind::{AdamUpdate, DecayBefore, DecayMask, HeadScale, Quantize, Scan, ScanBefore};
        matches!(self, AdamUpdate | HeadScale | Scan | ScanBefore | DecayMask | DecayBefore | Quantize)
    }

    /// Whether its row vector has an element for each head, in the place of one for each column.
    pub fn has_vector_of_heads(self) -> bool {
        self == Self::Softmax
    }

    /// Whether its row vectors are taps, several for each column: heads are its columns.
    pub fn has_taps(self) -> bool {
        matches!(self, Self::CausalConv | Self::ConvStep)
    }

    /// Whether it takes the windows of an image, each channel for itself.
    pub fn is_pool(self) -> bool {
        self.row().class == Class::Pool
    }

    /// Whether it takes the windows of an image.
    pub fn has_windows(self) -> bool {
        self == Self::Conv || self.is_pool()
    }

    /// Whether its output is a view of its input, and nothing is computed.
    pub fn is_view(self) -> bool {
        self.row().class == Class::View
    }

    /// Whether output element `i` needs only element `i` of each input.
    pub fn is_elementwise(self) -> bool {
        matches!(self.row().class, Class::Function | Class::Element | Class::Moved | Class::Update)
    }

    /// Whether it is a step of an optimiser.
    pub fn is_update(self) -> bool {
        self.row().class == Class::Update
    }

    /// Whether a kernel of a GEMM computes it on the results, before they are written: its elements stay where they are.
    pub fn folds_into_a_gemm(self) -> bool {
        matches!(self.row().class, Class::Function | Class::Element)
    }

    /// Whether it can run in the tail of the array that makes its input.
    pub fn folds_into_a_tail(self) -> bool {
        self.folds_into_a_gemm() && self.arity() == 1
    }

    /// Pipeline stages of the function where a chip file says nothing (assumed: one an addition, multiplication or
    /// comparison in sequence, four for an exponential or a random number).
    pub const fn assumed_simd_stages(self) -> u64 {
        self.row().stages
    }

    /// Vector operations of an element on a GPU (assumed: steps of the usual formula).
    pub const fn vector_steps(self) -> u64 {
        let Row { steps, stages, .. } = *self.row();
        if steps == 0 { stages } else { steps }
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
