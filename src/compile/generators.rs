//! Address generators: how many each off-chip stream has, and which, near the buffers that they fill or empty.

use crate::arch::{Chip, TierId};
use crate::index::Id;

use super::configuration::{Buffer, OffChip};
use super::estimate::Stream;
use super::flows::is_end;
use super::nest::Nest;

/// Passes over all pairs of a stream's generators in which two may change places.
const PASSES: u32 = 3;

/// Gives every stream its address generators; `None` if there are fewer than streams. A stream's are spread over all AGCUs,
/// for it moves in bursts that no switch should bear alone; which of them serves what goes by distance.
pub fn give(
    chip: &Chip,
    nest: &Nest,
    streams: &[Stream],
    tiers: &[TierId],
    buffers: &[Buffer],
) -> Option<Vec<OffChip>> {
    let counts = counts(chip, nest, streams, tiers)?;
    let mut generators = spread(chip).into_iter();
    let give = |(&stream, count): (&Stream, usize)| {
        let mut ags: Vec<(u32, u32)> = generators.by_ref().take(count).collect();
        settle(chip, &targets(chip, &stream, count, buffers), &mut ags);
        OffChip { stream, tier: tiers[stream.tensor.index()], ags }
    };
    Some(streams.iter().zip(counts).map(give).collect())
}

fn moved_bytes(stream: &Stream) -> f64 {
    stream.tensor_bytes.saturating_mul(stream.passes) as f64
}

/// Generators of each stream: one each, then by bytes until a tier's rate is covered twice over. None gets more than a
/// slot has flits: each would send one that is hardly filled.
fn counts(chip: &Chip, nest: &Nest, streams: &[Stream], tiers: &[TierId]) -> Option<Vec<usize>> {
    let spare = (chip.grid.ags() as usize).checked_sub(streams.len())? as f64;
    let ag_rate = chip.ag_bytes_per_cycle.min(chip.network.flit_bytes) as f64;
    let total: f64 = streams.iter().map(moved_bytes).sum::<f64>().max(1.0);
    let count = |stream: &Stream| {
        let bytes = moved_bytes(stream);
        let covers = 2.0 * chip.tier_rate(tiers[stream.tensor.index()]).bytes_per_cycle() / ag_rate;
        let slot_flits = bytes / nest.count(stream.cadence) as f64 / chip.network.flit_bytes as f64;
        let most = slot_flits.ceil().max(1.0) as usize;
        (1 + (spare * bytes / total).min(covers).floor() as usize).min(most)
    };
    Some(streams.iter().map(count).collect())
}

/// Which of a stream's `count` generators serve a slice of a buffer of `slices`: as many each, or, of fewer generators
/// than slices, one for neighbouring slices.
pub fn of_slice(count: u64, slices: u64, slice: u64) -> std::ops::Range<u64> {
    let each = count / slices;
    if each == 0 {
        let one = slice * count / slices;
        return one..one + 1;
    }
    slice * each..(slice + 1) * each
}

/// For each of a stream's generators the middle of the parts of buffers it serves.
fn targets(chip: &Chip, stream: &Stream, count: usize, buffers: &[Buffer]) -> Vec<(f64, f64)> {
    let mut sums = vec![(0.0, 0.0, 0.0); count];
    for (index, buffer) in buffers.iter().enumerate() {
        if !is_end(stream, buffers, index) {
            continue;
        }
        for slice in 0..buffer.spec.slices {
            for copy in 0..buffer.spec.copies {
                for part in &buffer.piece(copy, slice).parts {
                    let (at, weight) = (chip.grid.pmus[part.pmu.index()], part.banks as f64);
                    for generator in of_slice(count as u64, buffer.spec.slices, slice) {
                        let sum = &mut sums[generator as usize];
                        *sum = (sum.0 + weight * f64::from(at.x), sum.1 + weight * f64::from(at.y), sum.2 + weight);
                    }
                }
            }
        }
    }
    let middle = (f64::from(chip.grid.columns) / 2.0, f64::from(chip.grid.rows) / 2.0);
    sums.into_iter().map(|(x, y, weight)| if weight > 0.0 { (x / weight, y / weight) } else { middle }).collect()
}

/// Orders a stream's generators by what they are to serve: in turn the nearest to each target, and then two change places
/// where that shortens their ways.
fn settle(chip: &Chip, targets: &[(f64, f64)], ags: &mut [(u32, u32)]) {
    let cost = |target: (f64, f64), generator: (u32, u32)| {
        let site = chip.grid.agcus[generator.0 as usize].site;
        (f64::from(site.x) - target.0).abs() + (f64::from(site.y) - target.1).abs()
    };
    for (at, &target) in targets.iter().enumerate() {
        let nearer = |a: &usize, b: &usize| cost(target, ags[*a]).total_cmp(&cost(target, ags[*b])).then(a.cmp(b));
        if let Some(nearest) = (at..ags.len()).min_by(nearer) {
            ags.swap(at, nearest);
        }
    }
    for _ in 0..PASSES {
        let mut better = false;
        for a in 0..ags.len() {
            for b in a + 1..ags.len() {
                let now = cost(targets[a], ags[a]) + cost(targets[b], ags[b]);
                if cost(targets[a], ags[b]) + cost(targets[b], ags[a]) < now - 1e-6 {
                    ags.swap(a, b);
                    better = true;
                }
            }
        }
        if !better {
            break;
        }
    }
}

/// Address generators in an order that visits the AGCUs evenly.
fn spread(chip: &Chip) -> Vec<(u32, u32)> {
    let most = chip.grid.agcus.iter().map(|a| a.ags).max().unwrap_or(0);
    let count = chip.grid.agcus.len();
    // A stride near the golden section of the list, and coprime to it, spreads neighbours in the order.
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let stride = (1..=count).rev().find(|&s| s * 1000 <= count * 618 && gcd(s, count) == 1).unwrap_or(1);
    let mut list = Vec::new();
    for ag in 0..most {
        for step in 0..count {
            let agcu = step * stride % count;
            if ag < chip.grid.agcus[agcu].ags {
                list.push((agcu as u32, ag as u32));
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generator_serves_and_every_slice_is_served() {
        for count in 1..=12 {
            for slices in 1..=12 {
                let mut served = vec![0; count as usize];
                for slice in 0..slices {
                    let range = of_slice(count, slices, slice);
                    assert!(!range.is_empty() && range.end <= count, "{count} {slices} {slice}");
                    range.for_each(|generator| served[generator as usize] += 1);
                }
                if count <= slices {
                    let (least, most) = (served.iter().min(), served.iter().max());
                    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{count} {slices}");
                }
            }
        }
    }
}
