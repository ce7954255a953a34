//! DRAM parts that a memory tier may name, with their public timings.
//!
//! No figure here is fitted. DDR4: JEDEC JESD79-4C, devices of 8 Gbit with 8 data pins, eight to a channel. HBM2E: JEDEC
//! JESD235C, HBM3: JEDEC JESD238A, both as pseudo-channels of a stack of 16 GiB. JEDEC leaves the row timings of HBM to
//! the vendors, who publish none: HBM2E's are those of `DRAMsim3`'s public model of an HBM2 (`HBM2_8Gb_x128`), and HBM3's are
//! assumed to be the same nanoseconds.

/// A DRAM part as one channel sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryPart {
    /// Name in chip files.
    pub name: &'static str,
    /// Data rate of a pin, Gbit/s.
    pub pin_gbit_per_s: f64,
    /// Data pins of a channel (HBM: of a pseudo-channel).
    pub channel_bits: u64,
    /// Bytes of a burst: data pins times burst length.
    pub burst_bytes: u64,
    /// Bytes of a row of a bank, all devices of the channel together.
    pub row_bytes: u64,
    /// Banks of a channel.
    pub bank_count: u64,
    /// Clock period, ns.
    pub t_ck_ns: f64,
    /// From a read command to its data (CL), ns.
    pub t_cl_ns: f64,
    /// From an activation to a read or write command, ns.
    pub t_rcd_ns: f64,
    /// From a precharge to the next activation of the bank, ns.
    pub t_rp_ns: f64,
    /// From an activation to the precharge of the bank, ns.
    pub t_ras_ns: f64,
    /// The window that holds at most four activations of a channel, ns.
    pub t_faw_ns: f64,
    /// From the end of written data to a read command in the same bank group, ns.
    pub t_wtr_ns: f64,
    /// A refresh of all banks, ns.
    pub t_rfc_ns: f64,
    /// Mean interval between refreshes up to 85 degrees Celsius, ns.
    pub t_refi_ns: f64,
}

/// DDR4-2666, speed bin 19-19-19 (JESD79-4C: speed bins, tables of timings by speed and of refresh by density).
const DDR4_2666: MemoryPart = MemoryPart {
    name: "ddr4-2666",
    pin_gbit_per_s: 8.0 / 3.0,
    channel_bits: 64,
    burst_bytes: 64,
    row_bytes: 8192,
    bank_count: 16,
    t_ck_ns: 0.75,
    t_cl_ns: 14.25,
    t_rcd_ns: 14.25,
    t_rp_ns: 14.25,
    t_ras_ns: 32.0,
    t_faw_ns: 21.0,
    t_wtr_ns: 7.5,
    t_rfc_ns: 350.0,
    t_refi_ns: 7800.0,
};

/// DDR4-3200, speed bin 22-22-22 (the same tables).
const DDR4_3200: MemoryPart = MemoryPart {
    name: "ddr4-3200",
    pin_gbit_per_s: 3.2,
    t_ck_ns: 0.625,
    t_cl_ns: 13.75,
    t_rcd_ns: 13.75,
    t_rp_ns: 13.75,
    ..DDR4_2666
};

/// HBM2E: 16 pseudo-channels of 64 bits a stack, burst length 4, pages of 1 KiB, refresh of a channel of 16 Gbit
/// (JESD235C); row timings of `DRAMsim3`'s HBM2.
const HBM2E: MemoryPart = MemoryPart {
    name: "hbm2e",
    pin_gbit_per_s: 3.2,
    channel_bits: 64,
    burst_bytes: 32,
    row_bytes: 1024,
    bank_count: 16,
    t_ck_ns: 0.625,
    t_cl_ns: 14.0,
    t_rcd_ns: 14.0,
    t_rp_ns: 14.0,
    t_ras_ns: 34.0,
    t_faw_ns: 30.0,
    t_wtr_ns: 8.0,
    t_rfc_ns: 450.0,
    t_refi_ns: 3900.0,
};

/// HBM3: 32 pseudo-channels of 32 bits a stack, burst length 8, refresh of a channel of 8 Gbit (JESD238A); row timings
/// assumed to be HBM2E's.
const HBM3: MemoryPart = MemoryPart { name: "hbm3", pin_gbit_per_s: 6.4, channel_bits: 32, t_rfc_ns: 350.0, ..HBM2E };

/// All parts.
pub const MEMORY_PARTS: [MemoryPart; 4] = [DDR4_2666, DDR4_3200, HBM2E, HBM3];

impl MemoryPart {
    /// Best sustained rate of a channel: its pins, but for the time of refreshes.
    pub fn channel_bytes_per_s(&self) -> f64 {
        let pins = self.pin_gbit_per_s * 1e9 * self.channel_bits as f64 / 8.0;
        pins * (1.0 - self.t_rfc_ns / self.t_refi_ns)
    }

    /// What the data pins idle, on average, when a channel turns: two clocks from read data to written data, and
    /// `t_wtr_ns` and the read latency on the way back.
    pub fn turnaround_ns(&self) -> f64 {
        f64::midpoint(2.0 * self.t_ck_ns, self.t_wtr_ns + self.t_cl_ns)
    }

    /// Its banks.
    pub fn banks(&self) -> Banks {
        Banks {
            count: self.bank_count,
            row_bytes: self.row_bytes,
            open_ns: self.t_rcd_ns,
            close_ns: self.t_rp_ns,
            cycle_ns: self.t_ras_ns + self.t_rp_ns,
            activation_ns: self.t_faw_ns / 4.0,
        }
    }
}

/// Banks of a channel, each with one open row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Banks {
    /// How many.
    pub count: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Opening a row (tRCD), ns.
    pub open_ns: f64,
    /// Closing a row (tRP), ns.
    pub close_ns: f64,
    /// Least time between two rows of one bank (tRC), ns.
    pub cycle_ns: f64,
    /// Least mean time between two rows of the channel (tFAW / 4), ns.
    pub activation_ns: f64,
}

/// Halvings of the interval that holds the mean time between runs.
const HALVINGS: u32 = 30;

impl Banks {
    /// Mean time that a channel loses before a run of accesses of which the data take `run_ns`, if every run lies in
    /// another row of a random bank.
    ///
    /// Runs are served in order, and rows are opened as early as their banks allow. The bank of the preceding run is
    /// ready again `ready` after that run, that of the k-th before it (k - 1) mean times between runs sooner. The mean
    /// time between runs follows from itself.
    pub fn loss_ns(&self, run_ns: f64) -> f64 {
        let ready = (self.open_ns + self.close_ns).max(self.cycle_ns - run_ns);
        let least = run_ns.max(self.activation_ns);
        let of_bank = 1.0 / self.count as f64;
        let wait = |between: f64| {
            let (mut left, mut chance, mut sum) = (ready, of_bank, 0.0);
            while left > 0.0 {
                sum += chance * left;
                left -= between;
                chance *= 1.0 - of_bank;
            }
            sum
        };
        let (mut low, mut high) = (least, least + ready);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if least + wait(middle) > middle {
                low = middle;
            } else {
                high = middle;
            }
        }
        high - run_ns
    }
}
