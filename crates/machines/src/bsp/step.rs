//! A superstep: every tile receives what it needs, then computes on its own memory. The slowest tile decides both parts.

use rdusim_graph::arch::Bsp;

/// One superstep of a plan, or several alike one after the other.
#[derive(Debug, Clone, Default)]
pub struct Superstep {
    /// What it does.
    pub name: String,
    /// Times it runs.
    pub times: u64,
    /// Bytes that the busiest tile receives, once.
    pub received_bytes: f64,
    /// Cycles of those bytes at the rate they are received.
    pub wire_cycles: f64,
    /// Bytes that all tiles receive, once.
    pub moved_bytes: f64,
    /// Cycles of the busiest tile, once.
    pub busiest_cycles: f64,
    /// Mean cycles of all tiles, once.
    pub mean_cycles: f64,
    /// Bytes that a tile holds while the step runs, beside what lives longer.
    pub temporary_bytes: f64,
}

/// What one tile does in a step, and holds for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TileLoad {
    /// Cycles at work, once.
    pub cycles: f64,
    /// Bytes beside what lives longer.
    pub bytes: f64,
}

/// Where the cycles of steps go.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parts {
    /// The busiest tile computes.
    pub compute: f64,
    /// Barriers.
    pub sync: f64,
    /// Exchanges, their setup included.
    pub exchange: f64,
}

impl Parts {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.compute + self.sync + self.exchange
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.compute += other.compute;
        self.sync += other.sync;
        self.exchange += other.exchange;
    }
}

impl Superstep {
    /// A step that only computes, on `tiles` of the chip's tiles alike.
    pub fn compute(chip: &Bsp, name: &str, cycles: f64, tiles: u64) -> Self {
        let mean_cycles = cycles * tiles as f64 / chip.tile.count as f64;
        Self { name: name.to_owned(), times: 1, busiest_cycles: cycles, mean_cycles, ..Self::default() }
    }

    /// The same step behind an exchange of so many bytes of the busiest tile and of all of them.
    #[must_use]
    pub fn receives(mut self, chip: &Bsp, received_bytes: f64, moved_bytes: f64) -> Self {
        self.received_bytes = received_bytes;
        self.moved_bytes = moved_bytes;
        self.wire_cycles = received_bytes / chip.exchange.bytes_per_cycle;
        self
    }

    /// The same step with so many bytes of a tile in use.
    #[must_use]
    pub fn holds(mut self, temporary_bytes: f64) -> Self {
        self.temporary_bytes = temporary_bytes;
        self
    }

    /// Cycles of all its runs. Without an exchange no tile waits for another.
    pub fn parts(&self, chip: &Bsp) -> Parts {
        let exchanges = if self.wire_cycles > 0.0 { self.times as f64 } else { 0.0 };
        Parts {
            compute: self.busiest_cycles * self.times as f64,
            sync: exchanges * chip.exchange.sync_cycles as f64,
            exchange: exchanges * (chip.exchange.setup_cycles as f64 + self.wire_cycles),
        }
    }
}

/// Cycles of all steps, by where they go.
pub fn parts_of(chip: &Bsp, steps: &[Superstep]) -> Parts {
    let mut parts = Parts::default();
    for step in steps {
        parts.add(&step.parts(chip));
    }
    parts
}

/// Bytes of a tile that the steps need at most at a time.
pub fn most_temporary(steps: &[Superstep]) -> f64 {
    steps.iter().map(|step| step.temporary_bytes).fold(0.0, f64::max)
}
