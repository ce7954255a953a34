//! Choices that only chips of tiles have: a second axis of tensor ranks, phases, tiles that stream, stages by their blocks.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::Bsp;

/// Choices that only chips of tiles have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiled {
    /// Tensor ranks, of all of them, that share the columns of the model; 1: the others share all.
    pub tp2: u64,
    /// Layers of a phase, which all micro-batches go through before the next; 0: a micro-batch goes through all layers of its stage.
    pub phase_layers: u64,
    /// Tiles of every chip that only stream; 0: as the chip's file says.
    pub io_tiles: u64,
    /// Thousandths of a tile's memory that an operator may take; 0: as the chip's file says.
    pub memory_permille: u64,
    /// Scores of attention have no dropout.
    pub keeps_scores: bool,
}

impl Default for Tiled {
    fn default() -> Self {
        Self { tp2: 1, phase_layers: 0, io_tiles: 0, memory_permille: 0, keeps_scores: false }
    }
}

impl Tiled {
    /// Keys on the command line, and what they take.
    const KEYS: [(&'static str, &'static str); 4] = [
        ("tp2", "a count from 1 to 2^20"),
        ("io_tiles", "a count from 1 to 2^20"),
        ("memory_share", "a share from 0.01 to 1"),
        ("score_dropout", "0 or 1"),
    ];

    /// What a key takes; nothing if it is none.
    pub(super) fn expected(key: &str) -> Option<&'static str> {
        Self::KEYS.iter().find(|(known, _)| *known == key).map(|(_, expected)| *expected)
    }

    /// Takes the value of a key; whether it is one.
    pub fn read(&mut self, key: &str, value: &str) -> bool {
        let count = value.parse::<u64>().ok().filter(|count| (1..=1 << 20).contains(count));
        let read = match key {
            "tp2" => count.map(|count| self.tp2 = count),
            "io_tiles" => count.map(|count| self.io_tiles = count),
            "memory_share" => {
                let share = value.parse::<f64>().ok().filter(|share| (0.01..=1.0).contains(share));
                share.map(|share| self.memory_permille = (share * 1000.0).round() as u64)
            }
            _ => ["0", "1"].iter().position(|word| *word == value).map(|at| self.keeps_scores = at == 0),
        };
        read.is_some()
    }

    /// A chip as these choices leave it.
    ///
    /// # Errors
    /// No tile is left to compute.
    pub(super) fn on(&self, chip: &Bsp) -> Result<Bsp, Diagnostic> {
        let (mut chip, io_tiles) = (chip.clone(), self.io_tiles);
        if io_tiles >= chip.tile.count {
            let title = format!(
                "io_tiles = {io_tiles}: {} has {} tiles, of which some have to compute",
                chip.name, chip.tile.count
            );
            return Err(Diagnostic::new(title).with_help("use fewer; the vendor's GPT-3 has 128"));
        }
        if io_tiles > 0 {
            chip.tile.io_tiles = io_tiles;
        }
        if self.memory_permille > 0 {
            chip.planner.memory_share = self.memory_permille as f64 / 1000.0;
        }
        Ok(chip)
    }

    /// Takes `phased:LAYERS`; whether it is that.
    pub(super) fn set_phases(&mut self, schedule: &str) -> bool {
        let layers = schedule.strip_prefix("phased:").and_then(|layers| layers.parse::<u64>().ok());
        self.phase_layers = layers.unwrap_or(0);
        layers.is_some_and(|layers| layers > 0)
    }

    /// Whether micro-batches go through a layer or some before the next comes.
    pub fn is_phased(&self) -> bool {
        self.phase_layers > 0
    }

    /// Whether anything beside phases is chosen, which other chips do not do.
    pub(super) fn is_chosen(&self) -> bool {
        Self { phase_layers: 0, ..*self } != Self::default()
    }
}

/// Attention blocks and feed-forward blocks of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageBlocks {
    /// Attention blocks.
    pub attention: f64,
    /// Feed-forward blocks.
    pub feed_forward: f64,
}

impl StageBlocks {
    /// Reads `3.5` (layers, a half has half of both) or `4+3` (attention blocks and feed-forward blocks).
    pub fn read(text: &str) -> Option<Self> {
        let count = |text: &str| text.trim().parse::<f64>().ok().filter(|count| count.is_finite());
        match text.split_once('+') {
            Some((attention, feed_forward)) => {
                Some(Self { attention: count(attention)?, feed_forward: count(feed_forward)? })
            }
            None => count(text).map(|layers| Self { attention: layers, feed_forward: layers }),
        }
    }

    /// Layers' worth of both together.
    pub fn layers(&self) -> f64 {
        f64::midpoint(self.attention, self.feed_forward)
    }

    /// Whether it is no stage of nothing, in halves.
    pub(super) fn is_some(&self) -> bool {
        let is_count = |count: f64| count >= 0.0 && (count * 2.0).fract() == 0.0;
        is_count(self.attention) && is_count(self.feed_forward) && self.layers() > 0.0
    }

    /// Whether it has more of one than of the other.
    pub(super) fn is_uneven(&self) -> bool {
        (self.attention - self.feed_forward).abs() > 1e-9
    }

    /// Layers' worth of time, if so much of a layer's is attention.
    pub(super) fn time(&self, attention: f64) -> f64 {
        self.attention * attention + self.feed_forward * (1.0 - attention)
    }
}
