//! A chip or a workload in one line.

use super::figures::{Work, off_chip_bytes_per_s, peak_dtype};
use super::human::{bytes_short, clean, count, shorten, si, si_short, whole};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{Device, Tier, Vendor};
use rdusim_graph::workload::Workload;

/// Characters of a name that are shown.
const MOST_NAME: usize = 60;

/// A count of things with a prefix where it is large: `6.738 G` as `6.738 B`, which is what people say of parameters.
pub fn count_of_parameters(value: u64) -> String {
    count(value).replace(" G", " B")
}

/// A count and what is counted, in the singular or the plural.
pub fn counted(count: usize, what: &str) -> String {
    let plural = match what {
        "axis" => "axes".to_owned(),
        "micro-batch" => "micro-batches".to_owned(),
        _ if count == 1 => what.to_owned(),
        _ => format!("{what}s"),
    };
    format!("{} {}", whole(count as u64), if count == 1 { what } else { &plural })
}

/// `1 chip`, `1024 chips`.
pub(super) fn chips(count: u64) -> String {
    format!("{count} chip{}", if count == 1 { "" } else { "s" })
}

/// A chip in one line: units, peak, scratchpad, off-chip bandwidth.
pub fn chip(chip: &dyn Device) -> String {
    chip_at(chip, peak_dtype(chip))
}

/// The same with the peak of a data type.
pub(super) fn chip_at(chip: &dyn Device, dtype: Dtype) -> String {
    let tier = |tier: &Tier| {
        let rate = si_short(tier.bandwidth_bytes_per_s as f64, "B/s");
        if chip.tiers().len() == 1 { clean(&tier.name).into_owned() } else { format!("{} {rate}", clean(&tier.name)) }
    };
    let tiers: Vec<String> = chip.tiers().iter().map(tier).collect();
    let names = chip.unit_names();
    let memory = names.memory.map_or_else(String::new, |name| format!(", {} {name}", whole(chip.memory_units())));
    format!(
        "{}: {}{memory}, {} {dtype}, {} {}, {} off chip ({})",
        shorten(chip.name(), MOST_NAME),
        counted(chip.compute_units() as usize, names.compute.trim_end_matches('s')),
        si_short(chip.peak_flops(dtype).unwrap_or(0.0), "FLOP/s"),
        bytes_short(chip.sram_bytes()),
        names.sram,
        si_short(off_chip_bytes_per_s(chip), "B/s"),
        tiers.join(", "),
    )
}

/// The limits of the vendor's stack in one line.
pub(super) fn limits(vendor: &Vendor) -> String {
    let rate = |bytes_per_s: u64| si_short(bytes_per_s as f64, "B/s");
    let large = vendor.large.map_or_else(String::new, |large| {
        format!(
            " ({} if elementwise with a tensor of {})",
            rate(large.stream_bytes_per_s),
            bytes_short(large.tensor_bytes)
        )
    });
    format!(
        "vendor: launch {}, off chip at most {}{large} a section, {} PCUs an operator at {:.1} % of their peak; times are a \
         range, from loads under computing to loads before it",
        si_short(vendor.launch_us / 1e6, "s"),
        rate(vendor.stream_bytes_per_s),
        whole(vendor.pcus_per_operator),
        100.0 * vendor.pcu_efficiency,
    )
}

/// A workload in one line: operators, work, parameters.
pub fn workload(workload: &Workload) -> String {
    workload_as(workload, &Work::of(workload))
}

/// The same with its figures at hand.
pub(super) fn workload_as(workload: &Workload, work: &Work) -> String {
    let operators = workload.operators.len() as u64;
    let plural = if operators == 1 { "" } else { "s" };
    let dense = si(work.dense_flops as f64, "FLOP");
    let executed = si(work.executed_flops as f64, "FLOP");
    let is_sparse = work.parameters != work.dense_parameters;
    let parameters = if is_sparse {
        format!(
            "{} of {} parameters stored",
            count_of_parameters(work.parameters),
            count_of_parameters(work.dense_parameters)
        )
    } else {
        format!("{} parameters", count_of_parameters(work.parameters))
    };
    // What is not executed lies under a causal mask, or is a pruned weight's.
    let size = match (work.executed_flops != work.dense_flops, is_causal(workload), is_sparse) {
        (false, ..) => format!("{dense} dense, {parameters}"),
        (true, true, false) => {
            format!("{executed} of {dense} dense (the causal mask leaves out the difference), {parameters}")
        }
        (true, true, true) => {
            format!("{executed} of {dense} dense (pruned weights and the causal mask are left out), {parameters}")
        }
        (true, false, _) => format!("{executed} of {dense} dense, {parameters}"),
    };
    format!("{}: {} operator{plural}, {size}", shorten(&workload.name, MOST_NAME), whole(operators))
}

/// Whether causality leaves out pairs of queries and keys.
fn is_causal(workload: &Workload) -> bool {
    let forms = workload.operators.ids().filter_map(|operator| workload.form(operator));
    forms.into_iter().any(|form| form.causal.is_some() && form.causal_macs() < form.dense_macs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn one_line_each() {
        let mut sn10 = fixture::sn10();
        let line = "SN10: 640 PCUs, 640 PMUs, 307.2 TFLOP/s bf16, 320 MiB SRAM, 100 GB/s off chip (ddr)";
        assert_eq!(chip(&sn10), line);
        sn10.memory.push(fixture::tier("hbm", 1_800_000_000_000));
        assert!(chip(&sn10).ends_with("1.9 TB/s off chip (ddr 100 GB/s, hbm 1.8 TB/s)"));
        let dense = "GPT-13B FFN: 3 operators, 859.0 GFLOP dense, 209.7 M parameters";
        assert_eq!(workload(&fixture::ffn(None)), dense);
        let sparse = "GPT-13B FFN: 3 operators, 107.4 GFLOP of 859.0 GFLOP dense, 26.21 M of 209.7 M parameters stored";
        assert_eq!(workload(&fixture::ffn(Some(0.125))), sparse);
        assert_eq!(workload(&fixture::empty_workload()), "empty: 0 operators, 0 FLOP dense, 0 parameters");
    }
}
