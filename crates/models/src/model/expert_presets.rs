//! Published models with experts, as one stack of layers: their widths, experts and layers, without attention from decoder to encoder.

use super::experts::Experts;
use super::extras::Extras;
use super::preset::{Activation, Architecture, GPT2, NO_EXTRAS, Position, Preset};

/// Experts of which a token meets some.
const fn experts(count: u64, each: u64, width: u64, every: u64) -> Experts {
    Experts { count, each, width, shared: 0, shared_gate: false, every }
}

/// Every preset with experts.
pub const EXPERT_PRESETS: [Preset; 2] = [
    Preset {
        name: "gshard-600b",
        architecture: Architecture {
            hidden: 1024,
            layers: 36,
            heads: 16,
            kv_heads: 16,
            feed_forward: 8192,
            vocabulary: 64000,
            position: Position::Learned(1024),
            activation: Activation::Relu,
            bias: false,
            extras: Extras { experts: Some(experts(2048, 2, 8192, 2)), ..NO_EXTRAS },
            ..GPT2
        },
        parameters: 600_000_000_000,
        source: "Lepikhin et al. 2020, arXiv:2006.16668: MoE(2048E, 36L), 600 B, rounded; experts in every second layer, as decoder alone",
        sequence: 1024,
    },
    Preset {
        name: "switch-1.6t",
        architecture: Architecture {
            hidden: 2080,
            layers: 30,
            heads: 32,
            kv_heads: 32,
            feed_forward: 6144,
            vocabulary: 32128,
            position: Position::Learned(512),
            activation: Activation::Relu,
            bias: false,
            extras: Extras { experts: Some(experts(2048, 1, 6144, 1)), ..NO_EXTRAS },
            ..GPT2
        },
        parameters: 1_571_000_000_000,
        source: "Fedus et al. 2021, arXiv:2101.03961, table 9: Switch-C, 1571 B; 15 layers of encoder and 15 of decoder as one stack, heads \
                 as wide together as the model",
        sequence: 512,
    },
];
