//! `rdusim verify` of a chip of tiles: the plans of products on numbers, with the bytes that tiles receive.

use std::fmt::Write as _;

use serde::Serialize;

use crate::arch::Bsp;
use crate::bsp::{VerifiedProduct, verify};
use crate::workload::Workload;

use super::args::VerifyArgs;
use super::compare::refuse_options;
use super::failure::Failure;
use super::output;
use super::values::{Format, Mapping};

/// Multiply-accumulates that are run at most: some seconds.
const MOST_MACS: u64 = 1 << 26;

#[derive(Debug, Serialize)]
struct ProductEntry<'a> {
    operator: &'a str,
    extents: [u64; 3],
    tiles: u64,
    passed: bool,
    most_received_bytes: u64,
    received_bytes: u64,
    planned_bytes: u64,
    received_sum_bytes: u64,
    planned_sum_bytes: u64,
    tiles_not_as_planned: u64,
    slots_with_two_senders: u64,
    wrong_elements: u64,
}

impl<'a> ProductEntry<'a> {
    fn new(product: &'a VerifiedProduct) -> Self {
        let run = &product.executed;
        let differs = |found: &[u64], planned: &[u64]| found.iter().zip(planned).filter(|(a, b)| a != b).count() as u64;
        Self {
            operator: &product.operator,
            extents: product.extents,
            tiles: product.tiles,
            passed: run.holds(),
            most_received_bytes: run.received.iter().copied().max().unwrap_or(0),
            received_bytes: run.received.iter().sum(),
            planned_bytes: run.planned.iter().sum(),
            received_sum_bytes: run.received_sums.iter().sum(),
            planned_sum_bytes: run.planned_sums.iter().sum(),
            tiles_not_as_planned: differs(&run.received, &run.planned) + differs(&run.received_sums, &run.planned_sums),
            slots_with_two_senders: run.conflicts,
            wrong_elements: run.wrong,
        }
    }
}

#[derive(Debug, Serialize)]
struct VerdictEntry<'a> {
    schema: u64,
    arch: &'a str,
    workload: &'a str,
    passed: bool,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
    products: Vec<ProductEntry<'a>>,
}

/// Runs the products of a workload on numbers.
pub(super) fn verify_tiles(args: &VerifyArgs, chip: &Bsp, workload: &Workload) -> Result<(), Failure> {
    let further = [
        (args.trace.is_some(), "--trace"),
        (args.out.is_some(), "--out"),
        (args.mapping != Mapping::Ideal, "--mapping"),
    ];
    let told = format!("{} is a chip of kind \"bsp\", whose products are verified", chip.name);
    refuse_options(&args.configuration, &further, &told, "docs/ipu.md")?;
    let products = verify(chip, workload, args.seed, MOST_MACS)?;
    let entries: Vec<ProductEntry<'_>> = products.iter().map(ProductEntry::new).collect();
    let passed = entries.iter().all(|entry| entry.passed);
    let text = match args.format {
        Format::Table => table(chip, workload, &entries),
        Format::Json | Format::Csv => {
            let (arch, workload, notes) = (&chip.name, &workload.name, &workload.notes);
            let verdict = VerdictEntry { schema: 1, arch, workload, passed, notes, products: entries };
            // Plain data of numbers and names always has a text.
            serde_json::to_string_pretty(&verdict).unwrap_or_default() + "\n"
        }
    };
    output::print_as(args.format, &text)?;
    if passed { Ok(()) } else { Err(Failure::Mismatch(vec!["fused"])) }
}

fn table(chip: &Bsp, workload: &Workload, entries: &[ProductEntry<'_>]) -> String {
    let mut text = format!("products on {}, operands and sums as tiles receive them\n\n", chip.name);
    for entry in entries {
        let [m, n, k] = entry.extents;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{}  {m} x {n} x {k} on {} tiles: {}\n  operands: {} B received, {} B planned, {} B by the tile that has most\n  \
             sums: {} B received, {} B planned\n  {} tiles not as planned, {} slots with two senders, {} wrong elements",
            entry.operator,
            entry.tiles,
            if entry.passed { "passed" } else { "FAILED" },
            entry.received_bytes,
            entry.planned_bytes,
            entry.most_received_bytes,
            entry.received_sum_bytes,
            entry.planned_sum_bytes,
            entry.tiles_not_as_planned,
            entry.slots_with_two_senders,
            entry.wrong_elements
        );
    }
    for note in &workload.notes {
        let _ = writeln!(text, "note  {note}");
    }
    text
}
