//! A layer of experts as an inference stack runs it: tokens are sorted by expert and gathered, two grouped products with a gated
//! function between them, and the results are added up.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::Gpu;

use super::experts::{Experts, loads};
use super::gemm::{self, Product};
use super::serving::{Part, call, part};
use super::stream;

/// The kernels of a layer, and what its call takes beside them. The time is that of the busiest device.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn parts(gpu: &Gpu, of: &Experts) -> Result<Vec<Part>, Diagnostic> {
    parts_with(gpu, of, &loads(of))
}

/// The same with given rows of each expert of the device, the mean over several draws of them.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn parts_with(gpu: &Gpu, of: &Experts, draws: &[Vec<u64>]) -> Result<Vec<Part>, Diagnostic> {
    let (format, packed) = (of.format, of.format.packed());
    let macs_per_cycle = format.rate(gpu)? / packed as f64;
    let stack = &gpu.serving;
    let own = stack.formats.get(format.name());
    let grouped_share = own.map_or(stack.grouped_share, |own| own.grouped_share);
    let row_factor = own.and_then(|own| own.row_factor).unwrap_or(stack.row_factor);
    // Rows lie in the type of results, and are narrowed as they are gathered and gated.
    let element = format.result_bytes();
    // The matrices into an expert: one, and the gate's.
    let into = if of.gated { 2 } else { 1 };
    let inner = (of.inner / of.tensor_parallel).max(1);
    let mut sums = [0.0; 4];
    for rows in draws {
        let routed: u64 = rows.iter().sum();
        let groups: Vec<u64> = rows.iter().copied().filter(|&rows| rows > 0).collect();
        let bytes = |columns: u64| (routed * columns) as f64 * element;
        let stream = |bytes: f64| row_factor * stream::time(gpu, bytes, bytes, bytes / element).cycles;
        let product = |n: u64, k: u64| Product {
            count: groups.len() as u64,
            m: groups.iter().copied().max().unwrap_or(1),
            n,
            k: k.div_ceil(packed),
            element_bytes: format.packed_bytes(),
            b_element_bytes: format.weight_bytes() * packed as f64,
            macs_per_cycle: macs_per_cycle * grouped_share,
            a_bytes: (routed * k) as f64 * format.activation_bytes(),
            b_bytes: (groups.len() as u64 * k * n) as f64 * format.weight_bytes(),
            epilogue_read_bytes: 0.0,
            write_bytes: bytes(n),
            groups: groups.clone(),
        };
        let idle = groups.is_empty();
        let time = |n: u64, k: u64| if idle { 0.0 } else { gemm::fastest(gpu, &product(n, k)).cycles };
        sums[0] += stream(2.0 * bytes(of.hidden));
        sums[1] += time(into * inner, of.hidden);
        sums[2] += stream((1 + into) as f64 * bytes(inner)) + time(of.hidden, inner);
        sums[3] += stream(bytes(of.hidden) + (of.tokens * of.hidden) as f64 * element);
    }
    let mean = |sum: f64| sum / draws.len() as f64;
    let mut list = vec![call(gpu)];
    let sorting_ns = stack.routed_ns * (of.tokens * of.chosen) as f64 + stack.expert_ns * of.experts as f64;
    let local = (of.experts / of.expert_parallel).max(1) as f64;
    let beside_us = own.map_or(0.0, |own| own.call_us + own.local_expert_ns * local / 1e3);
    list.push(("sorting", gpu.cycles_of_us(sorting_ns / 1e3 + beside_us)));
    list.extend((0..stack.routing_kernels).map(|_| part(gpu, "routing", 2.0 * gpu.latency_cycles())));
    list.push(part(gpu, "gather", mean(sums[0])));
    list.push(part(gpu, "grouped product, in", mean(sums[1])));
    list.push(part(gpu, "gate", 0.0));
    list.push(part(gpu, "grouped product, out", mean(sums[2])));
    list.push(part(gpu, "sum", mean(sums[3])));
    Ok(list)
}
