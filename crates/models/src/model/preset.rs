//! Published models and the dimensions that make them.

use super::extras::Extras;

/// How positions enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// A learned table of so many rows.
    Learned(u64),
    /// Queries and keys are rotated.
    Rotary,
    /// A bias by distance, added with the mask.
    Alibi,
}

/// The norm of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// Layer norm with gain and bias.
    Layer,
    /// Root-mean-square norm with gain.
    Rms,
}

/// The feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Two matrices with GELU between.
    Gelu,
    /// Two matrices with `max(x, 0)` between.
    Relu,
    /// Two matrices with the square of `max(x, 0)` between.
    SquaredRelu,
    /// Three matrices, one of them a gate with `x * sigmoid(x)`.
    GatedSilu,
    /// Three matrices, one of them a gate with GELU.
    GatedGelu,
}

/// A transformer by its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that models differ in on its own")]
pub struct Architecture {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of the feed-forward block.
    pub feed_forward: u64,
    /// Rows of the token table.
    pub vocabulary: u64,
    /// Positions.
    pub position: Position,
    /// Norms.
    pub norm: Norm,
    /// Feed-forward block.
    pub activation: Activation,
    /// Matrices have biases.
    pub bias: bool,
    /// The output matrix is the token table.
    pub tied: bool,
    /// A token sees those before it only.
    pub causal: bool,
    /// Norms stand behind the residual additions.
    pub post_norm: bool,
    /// Attention and feed-forward block read the same norm, side by side.
    pub parallel: bool,
    /// Embeddings are normed.
    pub embedding_norm: bool,
    /// Rows of a table of token types.
    pub token_types: u64,
    /// Whether a vocabulary-wide output matrix follows.
    pub output: bool,
    /// What most models lack.
    pub extras: Extras,
}

impl Architecture {
    /// Width of a head.
    pub fn head(&self) -> u64 {
        self.extras.head_width.unwrap_or(self.hidden / self.heads.max(1))
    }

    /// Columns of the queries of a token.
    pub fn query_width(&self) -> u64 {
        self.heads * self.head()
    }

    /// Columns of the keys of a token, and of its values.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head()
    }

    /// Matrices of a feed-forward block: with a gate three.
    pub fn feed_matrices(&self) -> u64 {
        if matches!(self.activation, Activation::GatedSilu | Activation::GatedGelu) { 3 } else { 2 }
    }

    /// The first part of a model beyond the usual dimensions, which not every command can take.
    pub fn unusual(&self) -> Option<&'static str> {
        let Extras {
            head_width,
            attention_bias,
            head_norm,
            branch_norm,
            capped_scores,
            latent,
            experts,
            patches,
            mamba,
            ..
        } = self.extras;
        let parts = [
            (mamba.is_some(), "Mamba-2 layers"),
            (latent.is_some(), "latent attention"),
            (experts.is_some(), "experts"),
            (head_width.is_some(), "heads that are not as wide together as the model"),
            (attention_bias, "biases of queries, keys and values alone"),
            (head_norm, "norms of queries and keys"),
            (branch_norm, "norms behind attention and feed-forward block"),
            (capped_scores, "capped scores"),
            (patches.is_some(), "patches of images"),
            (matches!(self.activation, Activation::Relu | Activation::GatedGelu), "feed-forward blocks of this kind"),
        ];
        parts.into_iter().find(|(is_there, _)| *is_there).map(|(_, part)| part)
    }
}

/// A published model.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Dimensions.
    pub architecture: Architecture,
    /// Parameters as published.
    pub parameters: u64,
    /// Where that is published.
    pub source: &'static str,
    /// Sequence it was trained with.
    pub sequence: u64,
}

pub(super) const NO_EXTRAS: Extras = Extras {
    head_width: None,
    attention_bias: false,
    head_norm: false,
    branch_norm: false,
    capped_scores: false,
    latent: None,
    experts: None,
    dense_layers: 0,
    patches: None,
    mamba: None,
};

pub(super) const GPT2: Architecture = Architecture {
    hidden: 768,
    layers: 12,
    heads: 12,
    kv_heads: 12,
    feed_forward: 3072,
    vocabulary: 50257,
    position: Position::Learned(1024),
    norm: Norm::Layer,
    activation: Activation::Gelu,
    bias: true,
    tied: true,
    causal: true,
    post_norm: false,
    parallel: false,
    embedding_norm: false,
    token_types: 0,
    output: true,
    extras: NO_EXTRAS,
};

pub(super) const LLAMA: Architecture = Architecture {
    hidden: 4096,
    layers: 32,
    heads: 32,
    kv_heads: 32,
    feed_forward: 11008,
    vocabulary: 32000,
    position: Position::Rotary,
    norm: Norm::Rms,
    activation: Activation::GatedSilu,
    bias: false,
    tied: false,
    ..GPT2
};

/// Classes in place of a vocabulary.
const VIT: Architecture = Architecture {
    vocabulary: 1000,
    position: Position::Learned(197),
    tied: false,
    causal: false,
    extras: Extras { patches: Some(16 * 16 * 3), ..NO_EXTRAS },
    ..GPT2
};

const BERT: Architecture = Architecture {
    vocabulary: 30522,
    position: Position::Learned(512),
    causal: false,
    post_norm: true,
    embedding_norm: true,
    token_types: 2,
    output: false,
    ..GPT2
};

const fn gpt2(hidden: u64, layers: u64, heads: u64) -> Architecture {
    Architecture { hidden, layers, heads, kv_heads: heads, feed_forward: 4 * hidden, ..GPT2 }
}

const GPT2_SOURCE: &str = "github.com/openai/gpt-2, sizes of the released models";

/// Every preset.
pub const PRESETS: [Preset; 19] = [
    Preset { name: "gpt2", architecture: GPT2, parameters: 124_000_000, source: GPT2_SOURCE, sequence: 1024 },
    Preset {
        name: "gpt2-medium",
        architecture: gpt2(1024, 24, 16),
        parameters: 355_000_000,
        source: GPT2_SOURCE,
        sequence: 1024,
    },
    Preset {
        name: "gpt2-large",
        architecture: gpt2(1280, 36, 20),
        parameters: 774_000_000,
        source: GPT2_SOURCE,
        sequence: 1024,
    },
    Preset {
        name: "gpt2-xl",
        architecture: gpt2(1600, 48, 25),
        parameters: 1_558_000_000,
        source: GPT2_SOURCE,
        sequence: 1024,
    },
    Preset {
        name: "gpt-13b",
        architecture: Architecture { position: Position::Learned(2048), ..gpt2(5120, 40, 40) },
        parameters: 12_853_000_000,
        source: "Dey et al. 2023, arXiv:2304.03208: dimensions of Cerebras-GPT 13B (13 B, rounded; this is their sum)",
        sequence: 2048,
    },
    Preset {
        name: "gpt3-175b",
        architecture: Architecture { position: Position::Learned(2048), ..gpt2(12288, 96, 96) },
        parameters: 174_600_000_000,
        source: "Brown et al. 2020, arXiv:2005.14165, table 2.1 (175 B, rounded; this is the sum of its dimensions)",
        sequence: 2048,
    },
    Preset {
        name: "gpt-1t",
        architecture: Architecture { vocabulary: 51200, position: Position::Learned(2048), ..gpt2(25600, 128, 160) },
        parameters: 1_008_000_000_000,
        source: "Narayanan et al. 2021, arXiv:2104.04473, table 1 (1008.0 B)",
        sequence: 2048,
    },
    Preset {
        name: "llama2-7b",
        architecture: LLAMA,
        parameters: 6_738_415_616,
        source: "Touvron et al. 2023, arXiv:2307.09288, released weights",
        sequence: 4096,
    },
    Preset {
        name: "llama2-70b",
        architecture: Architecture { hidden: 8192, layers: 80, heads: 64, kv_heads: 8, feed_forward: 28672, ..LLAMA },
        parameters: 68_976_648_192,
        source: "Touvron et al. 2023, arXiv:2307.09288, released weights",
        sequence: 4096,
    },
    Preset {
        name: "llama3-8b",
        architecture: Architecture { kv_heads: 8, feed_forward: 14336, vocabulary: 128_256, ..LLAMA },
        parameters: 8_030_261_248,
        source: "Dubey et al. 2024, arXiv:2407.21783, table 3, released weights",
        sequence: 8192,
    },
    Preset {
        name: "llama3-70b",
        architecture: Architecture {
            hidden: 8192,
            layers: 80,
            heads: 64,
            kv_heads: 8,
            feed_forward: 28672,
            vocabulary: 128_256,
            ..LLAMA
        },
        parameters: 70_553_706_496,
        source: "Dubey et al. 2024, arXiv:2407.21783, table 3, released weights",
        sequence: 8192,
    },
    Preset {
        name: "bloom-176b",
        architecture: Architecture {
            vocabulary: 250_880,
            position: Position::Alibi,
            embedding_norm: true,
            ..gpt2(14336, 70, 112)
        },
        parameters: 176_247_271_424,
        source: "BigScience 2022, arXiv:2211.05100, table 3",
        sequence: 2048,
    },
    Preset {
        name: "mistral-7b",
        architecture: Architecture { kv_heads: 8, feed_forward: 14336, ..LLAMA },
        parameters: 7_241_732_096,
        source: "Jiang et al. 2023, arXiv:2310.06825, released weights",
        sequence: 8192,
    },
    Preset {
        name: "falcon-40b",
        architecture: Architecture {
            hidden: 8192,
            layers: 60,
            heads: 128,
            kv_heads: 8,
            feed_forward: 32768,
            vocabulary: 65024,
            position: Position::Rotary,
            bias: false,
            parallel: true,
            ..GPT2
        },
        parameters: 41_303_293_952,
        source: "Almazrouei et al. 2023, arXiv:2311.16867, released weights",
        sequence: 2048,
    },
    Preset {
        name: "bert-base",
        architecture: BERT,
        parameters: 109_482_240,
        source: "Devlin et al. 2018, arXiv:1810.04805 (110 M), released weights",
        sequence: 512,
    },
    Preset {
        name: "bert-large",
        architecture: Architecture { hidden: 1024, layers: 24, heads: 16, kv_heads: 16, feed_forward: 4096, ..BERT },
        parameters: 335_141_888,
        source: "Devlin et al. 2018, arXiv:1810.04805 (340 M), released weights",
        sequence: 512,
    },
    Preset {
        name: "vit-base",
        architecture: VIT,
        parameters: 86_567_656,
        source: "Dosovitskiy et al. 2020, arXiv:2010.11929, table 1 (86 M); patches of 16 x 16, 1,000 classes",
        sequence: 197,
    },
    Preset {
        name: "vit-large",
        architecture: Architecture { hidden: 1024, layers: 24, heads: 16, kv_heads: 16, feed_forward: 4096, ..VIT },
        parameters: 304_326_632,
        source: "Dosovitskiy et al. 2020, arXiv:2010.11929, table 1 (307 M); patches of 16 x 16, 1,000 classes",
        sequence: 197,
    },
    Preset {
        name: "vit-huge",
        architecture: Architecture {
            hidden: 1280,
            layers: 32,
            heads: 16,
            kv_heads: 16,
            feed_forward: 5120,
            position: Position::Learned(257),
            extras: Extras { patches: Some(14 * 14 * 3), ..NO_EXTRAS },
            ..VIT
        },
        parameters: 632_045_800,
        source: "Dosovitskiy et al. 2020, arXiv:2010.11929, table 1 (632 M); patches of 14 x 14, 1,000 classes",
        sequence: 257,
    },
];
