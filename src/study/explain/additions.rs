//! What could be added to a chip, one resource at a time.

use std::collections::BTreeMap;

use crate::arch::{AnyChip, Bsp, Chip, Gpu, Orchestration, Systolic, Tier, Wafer};
use crate::diagnostics::Diagnostic;
use crate::input::{Override, Root};

/// One more of a resource.
#[derive(Debug, Clone)]
pub(super) struct Addition {
    /// The resource, in the words of `bound_by` where it has one.
    pub(super) resource: String,
    /// What is added, for people.
    pub(super) what: String,
    /// The same as overrides.
    pub(super) sets: Vec<Override>,
}

/// The additions that make sense on a chip.
///
/// # Errors
/// None in practice: the overrides are well-formed by construction.
pub(super) fn additions(chip: &AnyChip) -> Result<Vec<Addition>, Diagnostic> {
    match chip {
        AnyChip::Rdu(chip) => of_grid(chip),
        AnyChip::Bsp(bsp) => of_tiles(bsp),
        AnyChip::Systolic(systolic) => of_arrays(systolic),
        AnyChip::Wafer(wafer) => of_wafer(wafer),
        AnyChip::Gpu(gpu) => of_gpu(gpu),
    }
}

/// Counts of the data types that units have.
fn native<'a, K: Ord>(
    counts: &'a BTreeMap<K, u64>,
    emulated: &'a BTreeMap<K, K>,
) -> impl Iterator<Item = (&'a K, &'a u64)> + use<'a, K> {
    counts.iter().filter(|(dtype, _)| !emulated.contains_key(dtype))
}

/// Those of a chip of tiles.
fn of_tiles(bsp: &Bsp) -> Result<Vec<Addition>, Diagnostic> {
    let (tile, exchange) = (&bsp.tile, &bsp.exchange);
    let tiles = tile.count + tile.count.div_ceil(10).next_multiple_of(2);
    let macs = native(&tile.macs, &bsp.emulated).map(|(dtype, macs)| set(&["tile", "macs", dtype.name()], macs * 2));
    let rate = exchange.bytes_per_cycle;
    let mut list = vec![
        addition(
            "compute",
            format!("a tenth more tiles ({} to {tiles})", tile.count),
            vec![set(&["tile", "count"], tiles)?],
        ),
        addition("compute", "twice the multiply units of every tile".to_owned(), macs.collect::<Result<_, _>>()?),
        addition(
            "sram",
            format!("twice the memory of every tile ({} to {} KiB)", tile.sram_bytes >> 10, tile.sram_bytes >> 9),
            vec![set(&["tile", "sram_bytes"], tile.sram_bytes * 2)?],
        ),
        addition(
            "link",
            format!("twice the exchange ({rate} to {} bytes a tile and cycle)", rate * 2.0),
            vec![set(&["exchange", "bytes_per_cycle"], number(rate * 2.0))?],
        ),
        addition(
            "fill",
            format!(
                "half the cycles of a barrier and of an exchange's setup ({})",
                exchange.sync_cycles + exchange.setup_cycles
            ),
            vec![
                set(&["exchange", "sync_cycles"], exchange.sync_cycles / 2)?,
                set(&["exchange", "setup_cycles"], exchange.setup_cycles / 2)?,
            ],
        ),
        half_the_start(bsp.program_us)?,
    ];
    list.extend(bsp.memory.iter().map(twice_the_rate).collect::<Result<Vec<_>, _>>()?);
    Ok(list)
}

/// Those of a GPU.
fn of_gpu(gpu: &Gpu) -> Result<Vec<Addition>, Diagnostic> {
    let (sm, l2, launch) = (&gpu.sm, &gpu.l2, &gpu.launch);
    let more = sm.count + sm.count.div_ceil(10);
    let macs =
        native(&sm.tensor_macs, &gpu.emulated).map(|(dtype, macs)| set(&["sm", "tensor_macs", dtype.name()], macs * 2));
    let half = |key: &str, us: f64| set(&["launch", key], number(us / 2.0));
    let mut list = vec![
        addition("compute", format!("a tenth more SMs ({} to {more})", sm.count), vec![set(&["sm", "count"], more)?]),
        addition("compute", "twice the tensor cores of every SM".to_owned(), macs.collect::<Result<_, _>>()?),
        addition(
            "vector",
            format!("twice the vector lanes of every SM ({} to {})", sm.vector_lanes, sm.vector_lanes * 2),
            vec![set(&["sm", "vector_lanes"], sm.vector_lanes * 2)?],
        ),
        addition(
            "sram",
            format!("twice the L2 ({} to {} KiB)", l2.capacity_bytes >> 10, l2.capacity_bytes >> 9),
            vec![set(&["l2", "capacity_bytes"], l2.capacity_bytes * 2)?],
        ),
        addition(
            "memory:l2",
            format!("twice the rate of the L2 ({} to {} bytes a cycle)", l2.bytes_per_cycle, l2.bytes_per_cycle * 2),
            vec![
                set(&["l2", "bytes_per_cycle"], l2.bytes_per_cycle * 2)?,
                set(&["sm", "l2_bytes_per_cycle"], sm.l2_bytes_per_cycle * 2)?,
            ],
        ),
        addition(
            "launch",
            format!("half the time between kernels ({} µs, {} in a graph)", launch.gap_us, launch.graph_gap_us),
            vec![
                half("gap_us", launch.gap_us)?,
                half("graph_gap_us", launch.graph_gap_us)?,
                half("host_us", launch.host_us)?,
                half("training_host_us", launch.training_host_us)?,
            ],
        ),
        addition(
            "fill",
            format!("half the start and end of a kernel ({} µs)", launch.ramp_us),
            vec![half("ramp_us", launch.ramp_us)?],
        ),
    ];
    list.extend(gpu.memory.iter().map(twice_the_rate).collect::<Result<Vec<_>, _>>()?);
    Ok(list)
}

/// Those of a chip of systolic arrays.
fn of_arrays(chip: &Systolic) -> Result<Vec<Addition>, Diagnostic> {
    let (array, buffer) = (&chip.array, &chip.buffer);
    let more = array.count + array.count.div_ceil(8);
    let mut list = vec![
        addition("compute", format!("more arrays ({} to {more})", array.count), vec![set(&["array", "count"], more)?]),
        addition(
            "vector",
            format!("twice the vector lanes ({} to {})", chip.vector_lanes, chip.vector_lanes * 2),
            vec![set(&["vector", "lanes"], chip.vector_lanes * 2)?],
        ),
        addition(
            "sram",
            format!("twice the buffer ({} to {} KiB)", buffer.capacity_bytes >> 10, buffer.capacity_bytes >> 9),
            vec![set(&["buffer", "capacity_bytes"], buffer.capacity_bytes * 2)?],
        ),
        addition(
            "memory:buffer",
            format!(
                "twice the buffer's rate ({} to {} bytes a cycle)",
                buffer.bytes_per_cycle,
                buffer.bytes_per_cycle * 2.0
            ),
            vec![set(&["buffer", "bytes_per_cycle"], number(buffer.bytes_per_cycle * 2.0))?],
        ),
        half_the_start(chip.start_us)?,
    ];
    list.extend(chip.memory.iter().map(twice_the_rate).collect::<Result<Vec<_>, _>>()?);
    Ok(list)
}

/// Those of a wafer.
fn of_wafer(chip: &Wafer) -> Result<Vec<Addition>, Diagnostic> {
    let (core, link) = (&chip.core, chip.fabric.link_bytes_per_cycle);
    let more = core.count + core.count.div_ceil(10);
    let macs = native(&core.macs, &chip.emulated).map(|(dtype, macs)| set(&["core", "macs", dtype.name()], macs * 2));
    let mut list = vec![
        addition(
            "compute",
            format!("a tenth more cores ({} to {more})", core.count),
            vec![set(&["core", "count"], more)?],
        ),
        addition("compute", "twice the multiply units of every core".to_owned(), macs.collect::<Result<_, _>>()?),
        addition(
            "compute",
            format!("half the cycles beside a weight's multiplications ({})", core.weight_cycles),
            vec![set(&["core", "weight_cycles"], number(core.weight_cycles / 2.0))?],
        ),
        addition(
            "link",
            format!("twice the links ({link} to {} bytes a cycle)", link * 2.0),
            vec![set(&["fabric", "link_bytes_per_cycle"], number(link * 2.0))?],
        ),
        half_the_start(chip.start_us)?,
    ];
    list.extend(chip.memory.iter().map(twice_the_rate).collect::<Result<Vec<_>, _>>()?);
    Ok(list)
}

fn addition(resource: &str, what: String, sets: Vec<Override>) -> Addition {
    Addition { resource: resource.to_owned(), what, sets }
}

/// Programs that start in half the time.
fn half_the_start(us: f64) -> Result<Addition, Diagnostic> {
    let what = format!("half the start of a program ({us} to {} µs)", us / 2.0);
    Ok(addition("launch", what, vec![set(&["program", "start_us"], number(us / 2.0))?]))
}

/// A memory tier at twice its rate.
fn twice_the_rate(tier: &Tier) -> Result<Addition, Diagnostic> {
    let rate = tier.bandwidth_bytes_per_s as f64 / 1e9;
    let field = Override::of(Root::Arch, &["memory", &tier.name, "bandwidth_gb_per_s"], &number(rate * 2.0))?;
    let what = format!("twice the rate of {} ({rate:.1} to {:.1} GB/s)", tier.name, rate * 2.0);
    Ok(addition(&format!("memory:{}", tier.name), what, vec![field]))
}

/// Those of a grid.
fn of_grid(chip: &Chip) -> Result<Vec<Addition>, Diagnostic> {
    let mut list = vec![pcus(chip)?];
    for tier in &chip.memory {
        let channels = tier.channels;
        let rate = tier.bandwidth_bytes_per_s as f64 / 1e9;
        let more = rate * (channels + 1) as f64 / channels as f64;
        let field = |key, value: String| Override::of(Root::Arch, &["memory", &tier.name, key], &value);
        list.push(Addition {
            resource: format!("memory:{}", tier.name),
            what: format!("one more channel of {} ({rate:.1} to {more:.1} GB/s)", tier.name),
            sets: vec![field("channels", (channels + 1).to_string())?, field("bandwidth_gb_per_s", number(more))?],
        });
        list.push(Addition {
            resource: "fill".to_owned(),
            what: format!("half the latency of {} ({} to {} ns)", tier.name, tier.latency_ns, tier.latency_ns / 2.0),
            sets: vec![field("latency_ns", number(tier.latency_ns / 2.0))?],
        });
    }
    list.push(one_ag(chip)?);
    let links = chip.network.links_per_direction;
    list.push(Addition {
        resource: "link".to_owned(),
        what: format!("one more link a direction between switches ({links} to {})", links + 1),
        sets: vec![set(&["network", "links_per_direction"], links + 1)?],
    });
    let ports = chip.pmu.read_ports;
    list.push(Addition {
        resource: "pmu_port".to_owned(),
        what: format!("one more read port a PMU ({ports} to {})", ports + 1),
        sets: vec![set(&["pmu", "read_ports"], ports + 1)?],
    });
    let bytes = chip.pmu.capacity_bytes;
    list.push(Addition {
        resource: "pmu_capacity".to_owned(),
        what: format!("twice the capacity of every PMU ({} to {} KiB)", bytes >> 10, bytes >> 9),
        sets: vec![set(&["pmu", "capacity_bytes"], bytes * 2)?],
    });
    list.push(half_launch(chip)?);
    Ok(list)
}

fn set(keys: &[&str], value: impl std::fmt::Display) -> Result<Override, Diagnostic> {
    Override::of(Root::Arch, keys, &value.to_string())
}

/// A TOML number that is never read as an integer with a fraction lost.
fn number(value: f64) -> String {
    format!("{value:?}")
}

/// One more column of sites in every tile column, so that tiles stay equal; PMUs come with the PCUs. Of a grid by its number of PCUs,
/// the next number that is a tenth more.
fn pcus(chip: &Chip) -> Result<Addition, Diagnostic> {
    let grid = &chip.grid;
    if let Some(shapes) = &grid.shapes {
        let pcus = chip.pcus();
        let more = shapes.at_least(pcus + pcus.div_ceil(10)).unwrap_or(pcus);
        let what = format!("{} more PCUs, and PMUs with them ({pcus} to {more})", more - pcus);
        let sets = vec![set(&["grid", "pcus"], more)?];
        return Ok(Addition { resource: "compute".to_owned(), what, sets });
    }
    let tiles = grid.columns / grid.tile.0;
    // Whole patterns of two columns, so that PCUs and PMUs stay in addition, and a tenth of the grid or the next number.
    let wanted = grid.columns.div_ceil(10).max(2);
    let more = wanted.next_multiple_of(tiles.max(1)).next_multiple_of(2).next_multiple_of(tiles.max(1));
    let columns = grid.columns + more;
    let dies = grid.columns / grid.die.0;
    let share = f64::from(more) / f64::from(grid.columns) * 100.0;
    let mut sets = vec![set(&["grid", "columns"], columns)?, set(&["grid", "tile_columns"], columns / tiles)?];
    if dies > 1 {
        sets.push(set(&["grid", "die_columns"], columns / dies)?);
    }
    let what = format!("{more} more columns of PCUs and PMUs ({share:.0} %)");
    Ok(Addition { resource: "compute".to_owned(), what, sets })
}

/// One address generator at an edge that has none, else one more in every AGCU of the top edge.
fn one_ag(chip: &Chip) -> Result<Addition, Diagnostic> {
    let grid = &chip.grid;
    let at_top = grid.agcus.iter().filter(|agcu| agcu.site.y == 0 && agcu.site.x > 0 && agcu.site.x + 1 < grid.columns);
    let at_bottom =
        grid.agcus.iter().filter(|a| a.site.y + 1 == grid.rows && a.site.x > 0 && a.site.x + 1 < grid.columns);
    let (top, bottom) = (at_top.count(), at_bottom.count());
    let ags = grid.ags();
    let middle = grid.columns / 2;
    let new = format!("{{ first = {middle}, count = 1, ags = 1 }}");
    let (sets, more) = match (top, bottom) {
        (0, _) => (vec![set(&["grid", "agcus", "top"], new)?], 1),
        (_, 0) => (vec![set(&["grid", "agcus", "bottom"], new)?], 1),
        (count, _) => {
            let most = grid.agcus.iter().filter(|a| a.site.y == 0).map(|a| a.ags).max().unwrap_or(1);
            (vec![set(&["grid", "agcus", "top", "ags"], most + 1)?], count as u64)
        }
    };
    let plural =
        if more == 1 { "one more address generator".to_owned() } else { format!("{more} more address generators") };
    let what = format!("{plural} ({ags} to {})", ags + more);
    Ok(Addition { resource: "ag".to_owned(), what, sets })
}

fn half_launch(chip: &Chip) -> Result<Addition, Diagnostic> {
    if let Some(vendor) = chip.limits() {
        let us = vendor.launch_us;
        let sets = vec![set(&["vendor", "launch_us"], number(us / 2.0))?];
        let what = format!("half the launch time of a section ({us:.1} to {:.1} µs)", us / 2.0);
        return Ok(Addition { resource: "launch".to_owned(), what, sets });
    }
    let (table, times) = match chip.launch.orchestration {
        Orchestration::Software => ("software", chip.launch.software),
        Orchestration::Hardware => ("hardware", chip.launch.hardware),
    };
    let parts = [
        ("program_load_us", times.program_load_us),
        ("argument_load_us", times.argument_load_us),
        ("execute_us", times.execute_us),
    ];
    let all: f64 = parts.iter().map(|(_, us)| us).sum();
    let sets =
        parts.iter().map(|(key, us)| set(&["launch", table, key], number(us / 2.0))).collect::<Result<Vec<_>, _>>()?;
    let what = format!("half the launch time of a section ({all:.1} to {:.1} µs)", all / 2.0);
    Ok(Addition { resource: "launch".to_owned(), what, sets })
}
