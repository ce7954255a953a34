//! The passes of the compiler, one after the other.

use rdusim_base::diagnostics::{Diagnostic, Origin};
use rdusim_base::mode::Mode;
use rdusim_cost::cost::Stop;
use rdusim_engines::sim;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_outcome::{Fidelity, Outcome};
use rdusim_program::{Configuration, Fabric, Section, tensor_tiers, tier_remarks};

use super::compiled::Compiled;
use super::logged;
use super::mapping::bases::BaseCache;
use super::prefetch::{Prefetcher, prefetch_weights};
use super::remarks;
use super::search::chosen::Chosen;
use super::search::context::{Effort, SearchContext};
use super::search::decisions::Decisions;
use super::search::epilogues::NoKernels;
use super::search::evaluated::EvaluationLevel;
use super::search::exhaustive::{self, Exhausted};
use super::search::partition::{PartitionRequest, Partitioner};
use super::seeds;
use super::verified::after_all;

/// Hops of routes up to which a grid is mapped, 2^28: those of a large section then take a few gigabytes at most, and a search
/// takes minutes. No parameter: memory sets it.
const MOST_HOPS: u64 = 1 << 28;

/// Compiles `workload` for `chip`: one operator a section ([`Mode::Kbk`]), with epilogues ([`Mode::Epilogue`]), or as many
/// as pay ([`Mode::Fused`]). The search believes its estimates.
///
/// # Errors
/// A diagnostic that names the operator and what is short when one cannot run even alone, or when a tensor fits no
/// memory tier.
pub fn compile(chip: &Chip, workload: &Workload, mode: Mode) -> Result<Configuration, Diagnostic> {
    let asked = Asked { modes: &[mode], effort: Effort::Full, measures: false, traces: false };
    let mut compiled = compile_modes(chip, workload, asked, &BaseCache::default(), Stop::NEVER)?.0;
    compiled.pop().map(|c| c.configuration).ok_or_else(|| Diagnostic::new("no mode was asked for"))
}

/// Compiles several modes; what they have in common is searched once. Sections that may be chosen are measured by the event
/// engine, and the search goes by that instead of its own estimate.
///
/// # Errors
/// As [`compile`].
pub fn compile_measured(chip: &Chip, workload: &Workload, modes: &[Mode]) -> Result<Vec<Compiled>, Diagnostic> {
    compile_with(chip, workload, modes, Effort::Full, &BaseCache::default())
}

/// As [`compile_measured`], at an effort level. `bases` may be shared by calls for one workload and chips
/// whose PCUs and PMU banks are equal.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    effort: Effort,
    bases: &BaseCache,
) -> Result<Vec<Compiled>, Diagnostic> {
    compile_until(chip, workload, modes, effort, bases, Stop::NEVER)
}

/// As [`compile_with`], for a caller who may stop the search: it then unwinds to [`Stop::caught`].
///
/// # Errors
/// As [`compile`].
pub fn compile_until(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    effort: Effort,
    bases: &BaseCache,
    stop: Stop<'_>,
) -> Result<Vec<Compiled>, Diagnostic> {
    let asked = Asked { modes, effort, measures: true, traces: false };
    Ok(compile_modes(chip, workload, asked, bases, stop)?.0)
}

/// As [`compile_with`], with what the search has decided on the way.
///
/// # Errors
/// As [`compile`].
pub fn compile_traced(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    effort: Effort,
) -> Result<(Vec<Compiled>, Decisions), Diagnostic> {
    let asked = Asked { modes, effort, measures: true, traces: true };
    compile_modes(chip, workload, asked, &BaseCache::default(), Stop::NEVER)
}

/// The best of all mappings of a small graph, by the event engine.
///
/// `None` if the space has more than `most` mappings, or no mapping.
pub fn exhaust(chip: &Chip, workload: &Workload, most: u64) -> Option<Exhausted> {
    let (fabric, bases, tiers) = (Fabric::new(chip), BaseCache::default(), tensor_tiers(chip, workload).ok()?);
    let (fabric, tiers, bases) = (&fabric, &tiers[..], &bases);
    let (effort, stop) = (Effort::Full, Stop::NEVER);
    let context = SearchContext {
        chip,
        workload,
        fabric,
        tiers,
        effort,
        measures: true,
        prefetches: false,
        bases,
        traces: false,
        stop,
    };
    exhaustive::exhaust(&context, most)
}

/// Runs a compiled configuration as [`sim::simulate`] does, without repeating the runs that are at hand already.
pub fn simulate_measured(chip: &Chip, workload: &Workload, compiled: &Compiled, fidelity: Fidelity) -> Outcome {
    simulate_until(chip, workload, compiled, fidelity, Stop::NEVER)
}

/// As [`simulate_measured`], for a caller who may stop the run: it then unwinds to [`Stop::caught`].
pub fn simulate_until(
    chip: &Chip,
    workload: &Workload,
    compiled: &Compiled,
    fidelity: Fidelity,
    stop: Stop<'_>,
) -> Outcome {
    let runs = if fidelity == Fidelity::Event { &compiled.runs[..] } else { &[] };
    sim::simulate_known(chip, workload, &compiled.configuration, fidelity, runs, stop)
}

/// Refuses a grid whose routes would fill the memory: of a site's flow, a route crosses the grid at worst.
fn check_grid(chip: &Chip) -> Result<(), Diagnostic> {
    let (columns, rows) = (u64::from(chip.grid.columns), u64::from(chip.grid.rows));
    let hops = columns * rows * (columns + rows);
    if hops <= MOST_HOPS {
        return Ok(());
    }
    let title = format!(
        "the grid of {} is too large to be mapped: found {columns} columns and {rows} rows, which is {hops} hops if a flow \
         of every site crosses the grid, expected at most {MOST_HOPS}",
        chip.name
    );
    let help = "make `grid.columns` or `grid.rows` of the chip smaller, 512 x 512 is possible; bounds need no mapping \
                (`fidelity = \"bound\"` of a study)";
    Err(Diagnostic::new(title).with_help(help))
}

/// What a compilation is asked for.
#[derive(Debug, Clone, Copy)]
struct Asked<'m> {
    modes: &'m [Mode],
    effort: Effort,
    /// Whether sections are measured; else estimates are believed.
    measures: bool,
    /// Whether decisions are kept.
    traces: bool,
}

/// Columns of a product at most: the search holds a list of their tiles, 64 times the widest vocabulary.
const MOST_COLUMNS: u64 = 1 << 24;

/// Refuses a product of so many columns that the tiles of them alone would take gigabytes.
fn check_columns(workload: &Workload) -> Result<(), Diagnostic> {
    let columns = |op: &OperatorId| workload.gemm_shape(*op).map_or(0, |(_, columns, _)| columns);
    let Some(wide) = workload.operators.ids().find(|op| columns(op) > MOST_COLUMNS) else { return Ok(()) };
    let (operator, columns) = (&workload.operators[wide], columns(&wide));
    let title = format!("operator `{}` has {columns} columns, at most {MOST_COLUMNS} are mapped", operator.name);
    let error =
        Diagnostic::new(title).with_help("make the dimension smaller, or cut the product into several operators");
    Err(match &operator.declared {
        Some(origin) => error.with_origin(Origin { label: "too wide".to_owned(), ..origin.clone() }),
        None => error,
    })
}

fn compile_modes(
    chip: &Chip,
    workload: &Workload,
    Asked { modes, effort, measures, traces }: Asked<'_>,
    bases: &BaseCache,
    stop: Stop<'_>,
) -> Result<(Vec<Compiled>, Decisions), Diagnostic> {
    let traces = traces || logged::is_wanted();
    check_grid(chip)?;
    check_columns(workload)?;
    let tiers = tensor_tiers(chip, workload)?;
    let fabric = Fabric::new(chip);
    let is_pinned = !workload.sections.is_empty();
    let of_a_model = workload.first_of_a_model().is_some();
    // Graphs that configuration files and the `cycle` fidelity can hold are left as they are, and so are kernels, which come
    // one by one.
    let prefetches = measures && of_a_model && modes.contains(&Mode::Fused);
    let at = |effort: Effort| SearchContext {
        chip,
        workload,
        fabric: &fabric,
        tiers: &tiers,
        effort,
        measures,
        prefetches,
        bases,
        traces,
        stop,
    };
    // More effort goes on from what less has found. Where nothing is measured there is nothing to go on from.
    let ladder: &[Effort] = match effort {
        _ if !measures => &[effort],
        Effort::Low => &[Effort::Low],
        Effort::Full => &[Effort::Low, Effort::Full],
        Effort::Thorough => &[Effort::Low, Effort::Full, Effort::Thorough],
    };
    let first = at(ladder[0]);
    let pinned = (is_pinned && modes.contains(&Mode::Fused))
        .then(|| Partitioner::pinned(workload, &first))
        .transpose()
        .map_err(|(section, reason)| remarks::unpinnable(chip, workload, &workload.sections[section], reason))?;
    let searched: Vec<Mode> = modes.iter().copied().filter(|&mode| mode != Mode::Fused || !is_pinned).collect();
    let request =
        PartitionRequest { singles: modes.contains(&Mode::Kbk), fused: searched.contains(&Mode::Fused), effort };
    let free = (!searched.is_empty()).then(|| Partitioner::new(&first, workload, request));
    let free = free.transpose().map_err(|failed| remarks::unplannable(chip, workload, failed))?;
    let mut stage = Stage { pinned, free, searched };
    let mut found: Result<Vec<Compiled>, Diagnostic> = Ok(Vec::new());
    for (turn, &effort) in ladder.iter().enumerate() {
        let context = &at(effort);
        if turn > 0 {
            stage.go_on(context);
        }
        let new = stage.compiled(context, modes);
        found = match (found, new) {
            (Ok(before), Ok(new)) => Ok(seeds::faster_of_each(chip, workload, before, new)),
            // What less effort has found stands, and what it has not found does not count.
            (Ok(before), Err(_)) if !before.is_empty() => Ok(before),
            (_, new) => new,
        };
    }
    let mut found = found?;
    if !is_pinned {
        seeds::compare_fused_with_others(chip, workload, &mut found);
    }
    let decisions = if traces { stage.decisions() } else { Decisions::default() };
    if logged::is_wanted() {
        logged::decisions(chip, workload, effort, &found, &decisions);
    }
    Ok((found, decisions))
}

/// A search for the configurations of some modes, as far as it has gone.
struct Stage<'a> {
    /// The partition that the workload asks for, of the fused mode.
    pinned: Option<Partitioner<'a>>,
    /// The sections of the modes that are searched.
    free: Option<Partitioner<'a>>,
    searched: Vec<Mode>,
}

impl Stage<'_> {
    /// What was decided of every section.
    fn decisions(&self) -> Decisions {
        let partitioners = [&self.pinned, &self.free].into_iter().flatten();
        Decisions { sections: partitioners.flat_map(Partitioner::decisions).collect() }
    }

    /// Goes on at more effort.
    fn go_on(&mut self, context: &SearchContext<'_>) {
        if let Some(pinned) = &mut self.pinned {
            pinned.go_on(context);
            let all = pinned.all();
            pinned.route(&all, EvaluationLevel::Full, context);
        }
        if let Some(free) = &mut self.free {
            free.go_on(context);
        }
    }

    /// The configurations of some modes, by what has been found.
    fn compiled(&mut self, context: &SearchContext<'_>, modes: &[Mode]) -> Result<Vec<Compiled>, Diagnostic> {
        let partitions = match &mut self.free {
            Some(free) => partitions(context, free, &self.searched)?,
            None => Vec::new(),
        };
        let mut prefetcher = self.free.as_mut().map(Partitioner::take_prefetcher).unwrap_or_default();
        let mut compiled = Vec::with_capacity(modes.len());
        for &mode in modes {
            let found = partitions.iter().find(|(of, _)| *of == mode);
            let (partitioner, runs) = match (&self.free, &self.pinned, found) {
                (_, Some(pinned), _) if mode == Mode::Fused => (pinned, pinned.all()),
                (Some(free), _, Some((_, runs))) => (free, runs.clone()),
                _ => continue,
            };
            compiled.push(self.of_partition(context, mode, partitioner, &runs, &mut prefetcher));
        }
        Ok(compiled)
    }

    /// The configuration of a mode, of some runs of a partitioner.
    fn of_partition(
        &self,
        context: &SearchContext<'_>,
        mode: Mode,
        partitioner: &Partitioner<'_>,
        runs: &[usize],
        prefetcher: &mut Prefetcher,
    ) -> Compiled {
        let SearchContext { chip, workload, tiers, fabric, .. } = *context;
        let searches = mode == Mode::Fused && self.searched.contains(&mode);
        let chosen: Vec<Chosen<'_>> = runs.iter().filter_map(|&run| partitioner.chosen(run)).collect();
        let mut notes: Vec<String> = chosen.iter().flat_map(|c| remarks::of_section(chip, &c.graph, &c.plan)).collect();
        let (sections, measured): (Vec<Section>, _) = chosen.iter().map(|c| (c.section.clone(), c.run.clone())).unzip();
        if searches && sections.len() > 1 {
            notes.push(remarks::several_sections(chip, workload, &sections, partitioner.whole()));
        }
        if searches {
            notes.extend(remarks::left_out(workload.operators.len(), partitioner.left_out_classes()));
        }
        notes.extend(remarks::loops(workload, &sections, mode));
        if mode == Mode::Epilogue {
            notes.extend(remarks::shorter_epilogues(chip, workload, &sections));
        }
        notes.extend(workload.notes.iter().cloned());
        notes.extend(workload.pruned_as_dense(false));
        if workload.first_of_a_model().is_some() {
            notes.extend(remarks::scores_off_chip(workload, &sections));
            notes.extend(tier_remarks(chip, workload, tiers));
        }
        let configuration = Configuration { mode, sections, tiers: tiers.to_vec(), notes };
        after_all("partition", chip, workload, fabric, &configuration);
        let mut compiled = Compiled { configuration, runs: measured };
        if context.prefetches && mode == Mode::Fused {
            prefetch_weights(context, prefetcher, chosen, &mut compiled);
            after_all("prefetch", chip, workload, fabric, &compiled.configuration);
        }
        compiled
    }
}

/// The partition of each of some modes, as indices of the runs of operators in the partitioner, placed and routed. Fused comes
/// first, because it routes single operators on the way, at the same time; kernels with epilogues come last, because they add
/// runs.
fn partitions(
    context: &SearchContext<'_>,
    partitioner: &mut Partitioner<'_>,
    modes: &[Mode],
) -> Result<Vec<(Mode, Vec<usize>)>, Diagnostic> {
    let SearchContext { chip, workload, .. } = *context;
    let unplaceable = |partitioner: &Partitioner<'_>, run| {
        let (operator, why) = partitioner.unplaced(run);
        remarks::unplaceable(chip, workload, operator, why)
    };
    let mut partitions = Vec::with_capacity(modes.len());
    for mode in [Mode::Fused, Mode::Kbk, Mode::Epilogue] {
        if !modes.contains(&mode) {
            continue;
        }
        let runs = match mode {
            Mode::Fused => partitioner.fused(context).map_err(|run| unplaceable(partitioner, run)),
            Mode::Kbk => partitioner.kernel_by_kernel(context).map_err(|run| unplaceable(partitioner, run)),
            Mode::Epilogue => partitioner.with_epilogues(context).map_err(|failed| match failed {
                NoKernels::Unplannable(failed) => remarks::unplannable(chip, workload, failed),
                NoKernels::Unplaced(run) => unplaceable(partitioner, run),
            }),
        };
        partitions.push((mode, runs?));
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_base::input::Override;
    use rdusim_graph::arch;

    #[test]
    fn a_grid_is_mapped_up_to_its_hops() {
        let check = |columns: u64, rows: u64| {
            let sets = [("columns", columns), ("tile_columns", columns), ("rows", rows), ("tile_rows", rows)];
            let sets =
                sets.map(|(key, value)| Override::parse(&format!("arch.grid.{key}={value}")).expect("an override"));
            check_grid(&arch::load("sn10".as_ref(), &sets).expect("a chip")).is_ok()
        };
        assert!(check(512, 512) && !check(513, 512) && !check(512, 513));
        assert!(!check(900, 900));
    }
}
