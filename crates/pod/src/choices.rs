//! What a decomposition chooses beside counts of chips: how sequences are shared, weights updated, gradients added up.

/// How chips that have parts of a sequence work together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Context {
    /// Keys and values go around.
    #[default]
    Ring,
    /// Heads are exchanged for tokens.
    Ulysses,
}

impl Context {
    /// Names on the command line.
    pub const NAMES: [(&'static str, Self); 2] = [("ring", Self::Ring), ("ulysses", Self::Ulysses)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[usize::from(self == Self::Ulysses)].0
    }
}

/// How weights are updated. All keep master weights in fp32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Optimizer {
    /// Two moments in fp32.
    #[default]
    Adam,
    /// Two moments of a byte.
    Adam8bit,
    /// One moment in fp32.
    Lion,
    /// Sums of rows and columns.
    Adafactor,
    /// Nothing more.
    Sgd,
}

impl Optimizer {
    /// Names on the command line.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("adam", Self::Adam),
        ("adam-8bit", Self::Adam8bit),
        ("lion", Self::Lion),
        ("adafactor", Self::Adafactor),
        ("sgd", Self::Sgd),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}

/// As what gradients are kept and replicas add them up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Gradients {
    /// Two bytes each.
    #[default]
    Bf16,
    /// Four bytes each.
    Fp32,
    /// A byte each, with a maximum for every block.
    Int8,
    /// Two factors of so many columns for each matrix (Vogels et al., *`PowerSGD`*, 2019).
    PowerSgd(u64),
}

impl Gradients {
    /// Bytes of one on a chip; what is compressed is so only while replicas add it up.
    pub fn bytes(self) -> u64 {
        if self == Self::Fp32 { 4 } else { 2 }
    }

    /// Its name with its rank.
    pub fn name(self) -> String {
        match self {
            Self::Bf16 => "bf16".to_owned(),
            Self::Fp32 => "fp32".to_owned(),
            Self::Int8 => "int8".to_owned(),
            Self::PowerSgd(rank) => format!("powersgd:{rank}"),
        }
    }
}

/// Reads a form of gradients.
pub(super) fn gradients(text: &str) -> Option<Gradients> {
    Some(match text {
        "bf16" => Gradients::Bf16,
        "fp32" => Gradients::Fp32,
        "int8" => Gradients::Int8,
        _ => {
            let rank = text.strip_prefix("powersgd:")?.parse::<u64>().ok()?;
            Gradients::PowerSgd((1..=4096).contains(&rank).then_some(rank)?)
        }
    })
}

/// Rows of an expert's products.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Capacity {
    /// Those of its tokens, whatever their number (Gale et al., *`MegaBlocks`*, 2022).
    #[default]
    Dropless,
    /// As many for each expert: so many thousandths of what even loads give of the tokens of all senders. What is above is dropped, what is missing
    /// is padding (Lepikhin et al., *`GShard`*, 2020).
    Factor(u64),
}

/// How the experts of a layer are divided and fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mixture {
    /// Chips of a tensor rank and stage, of dp x cp, that share the experts out.
    pub ep: u64,
    /// Rows of an expert.
    pub capacity: Capacity,
    /// Parts of a micro-batch's tokens: a part is exchanged while another is computed. 1 hides nothing.
    pub parts: u64,
    /// Those that have the same experts are neighbours, not those that share the experts out.
    pub is_far: bool,
}

impl Default for Mixture {
    fn default() -> Self {
        Self { ep: 1, capacity: Capacity::Dropless, parts: 1, is_far: false }
    }
}

impl Mixture {
    /// Keys on the command line, and what they take.
    pub(super) const KEYS: [(&'static str, &'static str); 4] = [
        ("ep", "a count from 1 to 2^20"),
        ("capacity", "dropless, or a factor from 0.001 to 1000"),
        ("exchange", "exposed, or overlapped:PARTS with 2 to 64 parts"),
        ("experts", "near or far"),
    ];
    /// Places of the chips that share the experts out.
    const PLACES: [&'static str; 2] = ["near", "far"];

    /// Takes the value of a key; whether it is one.
    pub(super) fn read(&mut self, key: &str, value: &str) -> bool {
        let counted = |text: &str, most: u64| text.parse::<u64>().ok().filter(|count| (1..=most).contains(count));
        let read = match key {
            "ep" => counted(value, 1 << 20).map(|ep| Self { ep, ..*self }),
            "capacity" if value == "dropless" => Some(Self { capacity: Capacity::Dropless, ..*self }),
            "capacity" => {
                let factor = value.parse::<f64>().ok().filter(|factor| (0.001..=1000.0).contains(factor));
                factor.map(|factor| Self { capacity: Capacity::Factor((factor * 1000.0).round() as u64), ..*self })
            }
            "exchange" if value == "exposed" => Some(Self { parts: 1, ..*self }),
            "exchange" => {
                let parts = value.strip_prefix("overlapped:").and_then(|parts| counted(parts, 64));
                parts.filter(|parts| *parts > 1).map(|parts| Self { parts, ..*self })
            }
            _ => Self::PLACES.iter().position(|place| *place == value).map(|at| Self { is_far: at == 1, ..*self }),
        };
        let is_read = read.is_some();
        *self = read.unwrap_or(*self);
        is_read
    }

    /// The capacity as on the command line.
    pub fn capacity_name(&self) -> String {
        match self.capacity {
            Capacity::Dropless => "dropless".to_owned(),
            Capacity::Factor(thousandths) => format!("{}", thousandths as f64 / 1000.0),
        }
    }

    /// The exchange as on the command line.
    pub fn exchange_name(&self) -> String {
        if self.parts > 1 { format!("overlapped:{}", self.parts) } else { "exposed".to_owned() }
    }

    /// Where the chips that share the experts out lie, as on the command line.
    pub fn place_name(&self) -> &'static str {
        Self::PLACES[usize::from(self.is_far)]
    }
}

/// What lies in the memory of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// The optimiser's state.
    pub optimizer: bool,
    /// What a micro-batch keeps for its backward pass, while others are computed.
    pub activations: bool,
    /// Weights, but for the layers that compute and those that come next.
    pub weights: bool,
}

impl Offload {
    /// Reads `none`, or kinds with `+` between them.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut of = Self::default();
        if text == "none" {
            return Some(of);
        }
        for kind in text.split('+') {
            let flag = match kind {
                "optimizer" => &mut of.optimizer,
                "activations" => &mut of.activations,
                "weights" => &mut of.weights,
                _ => return None,
            };
            if std::mem::replace(flag, true) {
                return None;
            }
        }
        Some(of)
    }

    /// As on the command line.
    pub fn name(self) -> String {
        let kinds = [(self.optimizer, "optimizer"), (self.activations, "activations"), (self.weights, "weights")];
        let list: Vec<&str> = kinds.into_iter().filter(|(is_there, _)| *is_there).map(|(_, kind)| kind).collect();
        if list.is_empty() { "none".to_owned() } else { list.join("+") }
    }

    /// Whether all that the other has lies there too.
    pub(super) fn includes(self, other: Self) -> bool {
        self.optimizer >= other.optimizer && self.activations >= other.activations && self.weights >= other.weights
    }

    /// Whether passes move anything.
    pub fn moves_in_passes(self) -> bool {
        self.activations || self.weights
    }
}
