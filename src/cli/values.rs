//! Words that arguments take, and what they stand for.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::arch;
use crate::units::Dtype;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModelPhase {
    /// All tokens, from embedding to output
    Forward,
    /// Forward, backward and the optimiser's step
    Training,
    /// One token a sequence, with a cache of keys and values
    Decode,
    /// As forward, with logits of each prompt's last token; keys and values written to a cache
    Prefill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Optimizer {
    /// Two moments and a master weight in fp32
    Adam,
    /// Stochastic gradient descent
    Sgd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Recompute {
    /// Nothing: all activations are saved
    None,
    /// Scores and probabilities of attention
    Selective,
    /// All operators of a layer
    Full,
}

impl From<Recompute> for crate::model::Recompute {
    fn from(value: Recompute) -> Self {
        match value {
            Recompute::None => Self::None,
            Recompute::Selective => Self::Selective,
            Recompute::Full => Self::Full,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ValueType {
    Bf16,
    Fp16,
    Fp32,
    Int8,
    #[value(name = "fp8_e4m3")]
    #[serde(rename = "fp8_e4m3")]
    Fp8E4m3,
    #[value(name = "fp8_e5m2")]
    #[serde(rename = "fp8_e5m2")]
    Fp8E5m2,
}

impl From<ValueType> for Dtype {
    fn from(value: ValueType) -> Self {
        match value {
            ValueType::Bf16 => Self::Bf16,
            ValueType::Fp16 => Self::Fp16,
            ValueType::Fp32 => Self::Fp32,
            ValueType::Int8 => Self::Int8,
            ValueType::Fp8E4m3 => Self::Fp8E4m3,
            ValueType::Fp8E5m2 => Self::Fp8E5m2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Kernel by kernel: one operator at a time, intermediates go off chip
    Kbk,
    /// Kernel by kernel, elementwise operators folded into the GEMM before them, as GPU libraries do
    Epilogue,
    /// As many operators at a time as pay, intermediates stay on chip
    Fused,
}

impl From<Mode> for crate::mode::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Kbk => Self::Kbk,
            Mode::Epilogue => Self::Epilogue,
            Mode::Fused => Self::Fused,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mapping {
    /// Our compiler at its best
    Ideal,
    /// Within the limits of the chip file's `vendor` table, calibrated on measurements
    Vendor,
}

impl From<Mapping> for arch::Quality {
    fn from(mapping: Mapping) -> Self {
        match mapping {
            Mapping::Ideal => Self::Ideal,
            Mapping::Vendor => Self::Vendor,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Effort {
    /// Few mappings of each section are measured
    Quick,
    /// Enough for results to be reported
    #[default]
    Normal,
    /// Four times as many mappings, each routed in full
    Thorough,
}

impl From<Effort> for crate::compile::Effort {
    fn from(effort: Effort) -> Self {
        match effort {
            Effort::Quick => Self::Low,
            Effort::Normal => Self::Full,
            Effort::Thorough => Self::Thorough,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Fidelity {
    /// Closed form of the compiled configuration, a lower bound
    Bound,
    /// Discrete events on tokens and units
    Event,
    /// Every unit, link and FIFO cycle by cycle, for small inputs
    Cycle,
}

impl From<Fidelity> for crate::outcome::Fidelity {
    fn from(fidelity: Fidelity) -> Self {
        match fidelity {
            Fidelity::Bound => Self::Bound,
            Fidelity::Event => Self::Event,
            Fidelity::Cycle => Self::Cycle,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// One flat table, for spreadsheets and data frames
    Csv,
}

/// How much of a result is printed, and in which form.
#[derive(Debug, Args)]
pub(super) struct FormArgs {
    /// Print all tables, not one screen of what decides
    #[arg(long)]
    pub(super) full: bool,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

impl FormArgs {
    /// The one of three forms that was asked for.
    pub(super) fn shown(
        &self,
        json: impl FnOnce() -> String,
        table: impl FnOnce() -> String,
        screen: impl FnOnce() -> String,
    ) -> String {
        match self.format {
            Format::Json | Format::Csv => json(),
            Format::Table if self.full => table(),
            Format::Table => screen(),
        }
    }
}
