//! Memory tiers: from `[[memory]]` as read to tiers whose every value is in range.
//!
//! A part fills in what the file leaves out; what the file says stands.

use toml::Spanned;

use super::limits;
use super::memory_parts::{MEMORY_PARTS, MemoryPart};
use super::spec::TierSpec;
use super::{Tier, TierEnergy, TierEnergyItems, TierId};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::IndexVec;
use rdusim_base::input::{Count, Real, Source, Table};

/// Checks the tiers of a chip.
pub(super) fn memory(
    source: &Source,
    spec: &Spanned<Vec<Table<TierSpec>>>,
) -> Result<IndexVec<TierId, Tier>, Diagnostic> {
    let count = spec.get_ref().len();
    if count == 0 {
        return Err(source.error(spec.span(), "`memory` has no tier", "expected at least one"));
    }
    if count > limits::MAX_TIERS {
        let title = format!("`memory` has {count} tiers, at most {} are possible", limits::MAX_TIERS);
        return Err(source.error(spec.span(), title, "too many"));
    }
    let mut tiers: IndexVec<TierId, Tier> = IndexVec::new();
    for tier_spec in spec.get_ref() {
        let tier = tier(source, tier_spec)?;
        if tiers.iter().any(|earlier| earlier.name == tier.name) {
            let title = format!("two memory tiers are named {:?}", tier.name);
            return Err(source.error(tier_spec.name.span(), title, "the second of them"));
        }
        tiers.push(tier);
    }
    Ok(tiers)
}

fn tier(source: &Source, spec: &TierSpec) -> Result<Tier, Diagnostic> {
    let name = source.name("memory.name", &spec.name)?;
    let field = |key: &str| format!("memory.{name}.{key}");
    let part = spec.part.as_ref().map(|word| part(source, &field("part"), word)).transpose()?;
    let channels = source.count(&field("channels"), &spec.channels, limits::CHANNELS)?;
    let time = |key: &str, ns: &Spanned<Real>| source.real(&field(key), ns, limits::LATENCY_NS);
    let interleave_bytes =
        source.count(&field("interleave_bytes"), &spec.interleave_bytes, limits::INTERLEAVE_BYTES)?;
    let write_batch = spec.write_batch_bytes.as_ref().unwrap_or(&spec.interleave_bytes);
    let burst_bytes = burst(source, spec, part, &field("burst_bytes"))?;
    if interleave_bytes % burst_bytes != 0 {
        let (burst_field, interleave_field) = (field("burst_bytes"), field("interleave_bytes"));
        let title = format!(
            "`{interleave_field}` must be a multiple of `{burst_field}`: {interleave_bytes} is not a multiple of \
             {burst_bytes}"
        );
        let burst_span = spec.burst_bytes.as_ref().map_or_else(|| spec.name.span(), Spanned::span);
        let spans = [spec.interleave_bytes.span(), burst_span];
        return Err(source.error_among(&spans, title, "bursts would straddle channels"));
    }
    Ok(Tier {
        channels,
        bandwidth_bytes_per_s: bandwidth(source, spec, part, channels, &field("bandwidth_gb_per_s"))?,
        latency_ns: time("latency_ns", &spec.latency_ns)?,
        burst_bytes,
        interleave_bytes,
        turnaround_ns: match &spec.turnaround_ns {
            Some(ns) => time("turnaround_ns", ns)?,
            None => part.map_or(0.0, MemoryPart::turnaround_ns),
        },
        write_batch_bytes: source.count(&field("write_batch_bytes"), write_batch, limits::INTERLEAVE_BYTES)?,
        non_sequential_ns: match &spec.non_sequential_ns {
            Some(ns) => time("non_sequential_ns", ns)?,
            None => 0.0,
        },
        // Whose time for an access that does not follow the last one is given needs no banks.
        banks: part.filter(|_| spec.non_sequential_ns.is_none()).map(MemoryPart::banks),
        capacity_bytes: source.count(&field("capacity_bytes"), &spec.capacity_bytes, limits::TIER_BYTES)?,
        energy: energy(source, spec, &field)?,
        name,
    })
}

fn part(source: &Source, field: &str, word: &Spanned<String>) -> Result<&'static MemoryPart, Diagnostic> {
    source.keyword(field, word, &MEMORY_PARTS.map(|part| part.name)).map(|index| &MEMORY_PARTS[index])
}

/// The sustained rate in bytes a second: as given, but no more than the part can give, or else that.
fn bandwidth(
    source: &Source,
    spec: &TierSpec,
    part: Option<&MemoryPart>,
    channels: u64,
    field: &str,
) -> Result<u64, Diagnostic> {
    let most = part.map(|part| part.channel_bytes_per_s() * channels as f64);
    let Some(given) = &spec.bandwidth_gb_per_s else {
        let Some(most) = most else { return Err(missing(source, spec, field, "bandwidth_gb_per_s = ...")) };
        return Ok(most.round() as u64);
    };
    let found = source.real(field, given, limits::BANDWIDTH_GB_PER_S)?;
    if let (Some(part), Some(most)) = (part, most)
        && found * 1e9 > most
    {
        let title = format!(
            "`{field}` must be at most {:.1}: found {found}, and {channels} channels of {} give {:.1} after refresh",
            most / 1e9,
            part.name,
            most / 1e9
        );
        return Err(source.error(given.span(), title, "more than the part can sustain"));
    }
    Ok((found * 1e9).round() as u64)
}

/// Bytes of a burst: as given, but in bursts of the part, or else one of them.
fn burst(source: &Source, spec: &TierSpec, part: Option<&MemoryPart>, field: &str) -> Result<u64, Diagnostic> {
    let Some(given): &Option<Spanned<Count>> = &spec.burst_bytes else {
        let Some(part) = part else { return Err(missing(source, spec, field, "burst_bytes = ...")) };
        return Ok(part.burst_bytes);
    };
    let found = source.count(field, given, limits::BURST_BYTES)?;
    if let Some(part) = part.filter(|part| found % part.burst_bytes != 0) {
        let title =
            format!("`{field}` must be a multiple of {}, the burst of {}: found {found}", part.burst_bytes, part.name);
        return Err(source.error(given.span(), title, "a part of a burst takes as long as all of it"));
    }
    Ok(found)
}

/// Energy of a bit: of the device, the PHY and the controller, or all of it in one number.
fn energy(source: &Source, spec: &TierSpec, field: &dyn Fn(&str) -> String) -> Result<TierEnergy, Diagnostic> {
    let items = [
        ("device_pj_per_bit", &spec.device_pj_per_bit),
        ("phy_pj_per_bit", &spec.phy_pj_per_bit),
        ("controller_pj_per_bit", &spec.controller_pj_per_bit),
    ];
    let given = items.iter().find_map(|(key, value)| Some((*key, value.as_ref()?)));
    match (&spec.pj_per_bit, given) {
        (Some(all), None) => {
            Ok(TierEnergy { pj_per_bit: source.real(&field("pj_per_bit"), all, limits::ENERGY)?, items: None })
        }
        (Some(all), Some((key, item))) => {
            let title = format!("`{}` and `{}` exclude each other", field("pj_per_bit"), field(key));
            let spans = [all.span(), item.span()];
            Err(source.error_among(&spans, title, "expected all of the energy, or its three items"))
        }
        (None, _) => {
            let [device, phy, controller] = items.map(|(key, value)| {
                let Some(value) = value else {
                    let title = format!("`{}` is missing", field(key));
                    let expected =
                        "expected device_pj_per_bit, phy_pj_per_bit and controller_pj_per_bit, or pj_per_bit";
                    return Err(source.error(spec.name.span(), title, expected));
                };
                source.real(&field(key), value, limits::ENERGY)
            });
            let (device, phy, controller) = (device?, phy?, controller?);
            let items = Some(TierEnergyItems { device, phy, controller });
            Ok(TierEnergy { pj_per_bit: device + phy + controller, items })
        }
    }
}

fn missing(source: &Source, spec: &TierSpec, field: &str, expected: &str) -> Diagnostic {
    let title = format!("`{field}` is missing, and no `part` gives it");
    source.error(spec.name.span(), title, format!("expected {expected} or part = ..."))
}
