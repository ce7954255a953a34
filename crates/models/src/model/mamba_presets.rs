//! Published models of Mamba-2 layers.

use super::extras::Extras;
use super::mamba::{LayerOrder, Mamba};
use super::preset::{Architecture, LLAMA, NO_EXTRAS, Preset};

const SOURCE: &str = "Dao and Gu 2024, arXiv:2405.21060, released weights state-spaces/mamba2-* (rounded; this is the sum of the dimensions)";

const fn mamba2(hidden: u32, layers: u32) -> Architecture {
    let mamba = Mamba {
        layers,
        attention: 0,
        feeds: 0,
        order: LayerOrder { attention: 0, feeds: 0 },
        has_feed: false,
        heads: 2 * hidden / 64,
        head: 64,
        state: 128,
        groups: 1,
        taps: 4,
        span: 256,
    };
    Architecture {
        hidden: hidden as u64,
        layers: layers as u64,
        heads: 1,
        kv_heads: 1,
        feed_forward: 1,
        vocabulary: 50288,
        tied: true,
        extras: Extras { mamba: Some(mamba), ..NO_EXTRAS },
        ..LLAMA
    }
}

/// Every preset of Mamba-2.
pub const MAMBA_PRESETS: [Preset; 3] = [
    Preset {
        name: "mamba2-130m",
        architecture: mamba2(768, 24),
        parameters: 128_989_632,
        source: SOURCE,
        sequence: 2048,
    },
    Preset {
        name: "mamba2-780m",
        architecture: mamba2(1536, 48),
        parameters: 780_161_280,
        source: SOURCE,
        sequence: 2048,
    },
    Preset {
        name: "mamba2-2.7b",
        architecture: mamba2(2560, 64),
        parameters: 2_702_599_680,
        source: SOURCE,
        sequence: 2048,
    },
];
