//! What a channel of a memory tier loses beside its sustained rate, in thousandths of a cycle of the chip.

use super::Banks;

/// What a channel loses beside its rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Penalties {
    /// For a batch of writes between reads, there and back: thousandths of a cycle.
    pub turn_milli_cycles: u64,
    /// Bytes of that batch.
    pub write_batch_bytes: u64,
    /// Before an access that does not follow the last one: thousandths of a cycle.
    pub jump_milli_cycles: u64,
    /// The banks that make such an access wait, if the part is known.
    pub banks: Option<Banks>,
    /// Cycles of the chip in a nanosecond.
    pub cycles_per_ns: f64,
    /// Sustained rate of a channel.
    pub channel_bytes_per_ns: f64,
}

/// Times of a channel's banks, in thousandths of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BankCycles {
    /// Banks.
    pub count: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Opening a row.
    pub open: u64,
    /// Closing a row.
    pub close: u64,
    /// Least time between two rows of one bank.
    pub cycle: u64,
    /// Least mean time between two rows of the channel.
    pub activation: u64,
}

impl Penalties {
    /// Whether a channel ever loses time.
    pub fn are_any(&self) -> bool {
        self.turn_milli_cycles > 0 || self.jump_milli_cycles > 0 || self.banks.is_some()
    }

    /// Mean loss before a run of so many bytes on a channel that does not follow the last one, in thousandths of a cycle.
    pub fn run_milli_cycles(&self, run_bytes: u64) -> u64 {
        let Some(banks) = self.banks else { return self.jump_milli_cycles };
        self.milli_cycles(banks.loss_ns(run_bytes as f64 / self.channel_bytes_per_ns))
    }

    /// Times of the banks, if they are known.
    pub fn bank_cycles(&self) -> Option<BankCycles> {
        let banks = self.banks?;
        Some(BankCycles {
            count: banks.count,
            row_bytes: banks.row_bytes,
            open: self.milli_cycles(banks.open_ns),
            close: self.milli_cycles(banks.close_ns),
            cycle: self.milli_cycles(banks.cycle_ns),
            activation: self.milli_cycles(banks.activation_ns),
        })
    }

    fn milli_cycles(&self, ns: f64) -> u64 {
        (ns * self.cycles_per_ns * 1e3).round() as u64
    }
}
