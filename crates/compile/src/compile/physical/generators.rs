//! Address generators: how many each off-chip stream has, and which.

use crate::compile::mapping::plan::SectionPlan;
use rdusim_base::index::{Id, IndexVec};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_program::{OffChip, Stream, StreamId};

/// Gives every stream its address generators; `None` if there are fewer than streams. A stream's are spread over all AGCUs:
/// it moves in bursts that no switch should bear alone.
pub(crate) fn give(
    chip: &Chip,
    plan: &SectionPlan,
    streams: &IndexVec<StreamId, Stream>,
    tiers: &[TierId],
) -> Option<IndexVec<StreamId, OffChip>> {
    let counts = counts(chip, plan, streams, tiers)?;
    let mut generators = spread(chip).into_iter();
    let give = |(&stream, count): (&Stream, usize)| {
        let ags = generators.by_ref().take(count).collect();
        OffChip { stream, tier: tiers[stream.tensor.index()], ags }
    };
    Some(streams.iter().zip(counts).map(give).collect())
}

fn moved_bytes(stream: &Stream) -> f64 {
    stream.tensor_bytes.saturating_mul(stream.passes) as f64
}

/// What decides how many generators a stream gets.
struct Wants {
    /// Bytes of a slot: of the first nothing hides the way in, of the last nothing hides the way out.
    slot_bytes: f64,
    /// Those with which a slot moves at the tier's rate.
    at_tier_rate: f64,
    /// Flits of a slot: beyond these each would send one that is hardly filled.
    most: usize,
}

/// Generators of each stream: one each, then by bytes until a tier's rate is covered as often as the plan has it; each of those that are
/// left to the stream whose slot it makes faster by most.
fn counts(
    chip: &Chip,
    plan: &SectionPlan,
    streams: &IndexVec<StreamId, Stream>,
    tiers: &[TierId],
) -> Option<Vec<usize>> {
    let all = chip.grid.ags() as usize;
    let spare = all.checked_sub(streams.len())? as f64;
    let port_rate = chip.ag_bytes_per_cycle.min(chip.network.flit_bytes) as f64;
    let ag_rate = |tier| chip.window_rate(tier, 1).map_or(port_rate, |rate| rate.bytes_per_cycle().min(port_rate));
    let total: f64 = streams.iter().map(moved_bytes).sum::<f64>().max(1.0);
    let wants = |stream: &Stream| {
        let tier = tiers[stream.tensor.index()];
        let slot_bytes = moved_bytes(stream) / plan.nest.count(stream.level) as f64;
        Wants {
            slot_bytes,
            at_tier_rate: chip.tier_rate(tier).bytes_per_cycle() / ag_rate(tier),
            most: (slot_bytes / chip.network.flit_bytes as f64).ceil().max(1.0) as usize,
        }
    };
    let wants: Vec<Wants> = streams.iter().map(wants).collect();
    let by_bytes = |(stream, wants): (&Stream, &Wants)| {
        let covers = plan.covers as f64 * wants.at_tier_rate;
        (1 + (spare * moved_bytes(stream) / total).min(covers).floor() as usize).min(wants.most)
    };
    let mut counts: Vec<usize> = streams.iter().zip(&wants).map(by_bytes).collect();
    for _ in counts.iter().sum()..all {
        let gain = |(wants, &count): (&Wants, &usize)| {
            let n = count as f64;
            let gains = count < wants.most && n < wants.at_tier_rate;
            if gains { wants.slot_bytes / n - wants.slot_bytes / (n + 1.0).min(wants.at_tier_rate) } else { 0.0 }
        };
        let best =
            wants.iter().zip(&counts).map(gain).enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let Some((stream, _)) = best.filter(|(_, gain)| *gain > 0.0) else { break };
        counts[stream] += 1;
    }
    Some(counts)
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
