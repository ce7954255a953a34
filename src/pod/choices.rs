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

/// As what replicas add up gradients.
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
