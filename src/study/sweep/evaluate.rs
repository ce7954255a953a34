//! From a point to the cells of its row.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use crate::arch::{AnyChip, Chip};
use crate::compile::{BaseCache, Compiled, compare_fused_with_others, compile_until, handed_on, simulate_until};
use crate::cost::{Stop, bound_cycles};
use crate::diagnostics::{COMMAND_LINE, Diagnostic};
use crate::input::{Override, Root};
use crate::machine::{Machine, machine};
use crate::mode::Mode;
use crate::outcome::{Fidelity as RunFidelity, Outcome};
use crate::program::{Configuration, divided_over_tiers};
use crate::report::Document;
use crate::sim::{simulate, simulate_known, simulate_within};
use crate::study::gaps::add_least_cycles;
use crate::study::inputs::{Inputs, drained, run_plain};
use crate::study::uncertainty::{Draws, SAMPLES, of_plain, of_rdu, ranges};
use crate::workload::Workload;

use super::axis::Change;
use super::design::Point;
use super::families::{Families, is_amount};
use super::fingerprints::fingerprints;
use super::kept::Kept;
use super::metric::{Measured, Metric};
use super::study::{Compile, Fidelity, Study};

/// Workloads kept for points that share one: masks take long to draw.
const KEPT_WORKLOADS: usize = 64;
/// Splits of GEMMs kept for points that share workload and PCUs.
const KEPT_BASES: usize = 64;

/// The inputs of a study's points.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    study: &'a Study,
    inputs: Vec<Inputs>,
    kept: Arc<Kept>,
}

/// What a point changes.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    /// Index among the pairs of files.
    pair: usize,
    inputs: &'a Inputs,
    sets: Vec<&'a Override>,
    seed: Option<u64>,
}

/// Chip and workload of a point.
pub(super) struct Built {
    pub(super) chip: AnyChip,
    pub(super) workload: Arc<Workload>,
    /// The graph that runs: the workload's, or with blocks divided over the chip's memory tiers.
    graph: Arc<Workload>,
}

impl Built {
    /// What nothing beats in a mode.
    pub(super) fn bound_cycles(&self, mode: Mode) -> u64 {
        let of_grid = |chip: &Chip| bound_cycles(chip, &self.graph, mode);
        let of_kernels = |chip: &dyn Machine| chip.bound_cycles(&self.workload, mode);
        // A chip has a grid or is a machine.
        self.chip.rdu().map(of_grid).or_else(|| machine(&self.chip).map(of_kernels)).unwrap_or(0)
    }
}

/// What was found for the points of one ground.
#[derive(Debug)]
pub(super) struct Found {
    /// The chip that it was found for: what runs on another is carried from this one.
    chip: Chip,
    /// Mode by mode.
    compiled: Vec<Compiled>,
}

impl Found {
    /// What was compiled for a point; `None` of a chip without a grid.
    pub(super) fn new(built: Built, compiled: Vec<Compiled>) -> Option<Self> {
        Some(Self { chip: built.chip.into_rdu().ok()?, compiled })
    }

    pub(super) fn compiled(&self) -> &[Compiled] {
        &self.compiled
    }
}

/// Points of equal content have equal results; those of equal ground share their configurations; those of one family differ only in
/// how much their chips have of some resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Keys {
    pub(super) content: u128,
    pub(super) ground: u128,
    pub(super) family: u128,
}

impl<'a> Bench<'a> {
    /// Reads every pair of files that the points use.
    pub(super) fn open(study: &'a Study) -> Result<Self, Diagnostic> {
        let open = |(arch, workload): (PathBuf, PathBuf)| {
            Inputs::open(
                &study.given(&arch),
                &study.given(&workload),
                &study.model,
                &study.base,
                study.seed,
                study.mapping,
            )
        };
        let inputs = study.file_pairs().into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { study, inputs, kept: study.kept.of(fingerprints(study)?) })
    }

    pub(super) fn setting(&'a self, point: &'a Point) -> Setting<'a> {
        let files = self.study.files(point);
        let pair = if self.inputs.len() == 1 {
            0
        } else {
            self.study.file_pairs().iter().position(|pair| *pair == files).unwrap_or(0)
        };
        let mut setting = Setting { pair, inputs: &self.inputs[pair], sets: Vec::new(), seed: None };
        for value in point {
            match &value.change {
                Change::Fields(sets) => setting.sets.extend(sets),
                Change::Seed(seed) => setting.seed = Some(*seed),
                Change::Arch(_) | Change::Workload(_) => {}
            }
        }
        setting
    }

    pub(super) fn built(&self, setting: &Setting<'_>) -> Result<Built, Diagnostic> {
        let (chip, workload) = (setting.inputs.any_chip(&setting.sets)?, self.workload(setting)?);
        Ok(Built { graph: on(&chip, Arc::clone(&workload)), workload, chip })
    }

    fn workload(&self, setting: &Setting<'_>) -> Result<Arc<Workload>, Diagnostic> {
        if setting.seed.is_none() && setting.sets.iter().all(|set| set.root() == Root::Arch) {
            return setting.inputs.workload(&[], None);
        }
        let Some(content) = setting.inputs.workload_content(&setting.sets, setting.seed) else {
            return setting.inputs.workload(&setting.sets, setting.seed);
        };
        let key = content ^ (setting.pair as u128);
        // Poisoned or not, the map holds whole entries only.
        if let Some(known) = self.kept.workloads.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let workload = setting.inputs.workload(&setting.sets, setting.seed)?;
        let mut kept = self.kept.workloads.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_WORKLOADS {
            kept.shift_remove_index(0);
        }
        kept.insert(key, Arc::clone(&workload));
        Ok(workload)
    }

    /// Whether every constraint holds. A name without a value (an area without `[area]`, an axis of words) is an error.
    pub(super) fn holds(&self, point: &Point, built: &Built) -> Result<bool, Diagnostic> {
        let study = self.study;
        let value = |name: &str| {
            let axis = study.axes.iter().zip(point).find(|(axis, _)| axis.paths.iter().any(|path| path == name));
            if let Some((_, value)) = axis {
                return value.number();
            }
            let cell = Metric::named(name)?.of(&built.chip, &built.workload, &Measured::Bounds(Vec::new()))?;
            cell.to_string().parse().ok()
        };
        for (constraint, span) in &study.constraints {
            match constraint.holds(&value) {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => {
                    let unknown = constraint.names().into_iter().find(|(name, _)| value(name).is_none());
                    let name = unknown.map_or("", |(name, _)| name);
                    let title = format!("`{name}` has no value at a point of this study");
                    let error = study.source.error(span.clone(), title, "in this constraint");
                    return Err(
                        error.with_help("figures of area need `[area]` in the chip file, see docs/arch-format.md")
                    );
                }
            }
        }
        Ok(true)
    }

    /// Hashes of what a point runs; `None` if its overrides do not apply.
    pub(super) fn keys(&self, setting: &Setting<'_>) -> Option<Keys> {
        let workload = setting.inputs.workload_content(&setting.sets, setting.seed)?;
        let once = self.study.compile == Compile::Once;
        let for_all_rates = once || self.study.compile == Compile::Shared;
        let join = |chip: u128, pair: usize| chip.rotate_left(32) ^ workload ^ ((pair as u128) << 120);
        let is_left_out = |path: &str| is_price(path) || (for_all_rates && is_rate(path));
        let ground = setting.inputs.chip_content(&setting.sets, &is_left_out)?;
        let is_resource = |path: &str| is_price(path) || is_rate(path) || is_amount(path);
        Some(Keys {
            family: join(setting.inputs.chip_content(&setting.sets, &is_resource)?, setting.pair),
            content: join(setting.inputs.chip_content(&setting.sets, &|_| false)?, setting.pair),
            // What is compiled once is compiled for the rates of the point's own files.
            ground: join(ground, if once { setting.pair } else { 0 }),
        })
    }

    /// The configurations that points of one ground share.
    pub(super) fn configurations(&self, setting: &Setting<'_>, stop: Stop<'_>) -> Result<Vec<Compiled>, Diagnostic> {
        let mut sets = setting.sets.clone();
        if self.study.compile == Compile::Once {
            sets.retain(|set| set.root() != Root::Arch || !is_rate(&set.path().join(".")));
        }
        // What is no grid has no configurations.
        let chip = setting.inputs.any_chip(&sets)?;
        let workload = on(&chip, self.workload(setting)?);
        let Some(chip) = chip.rdu() else { return Ok(Vec::new()) };
        compile_until(chip, &workload, &self.study.modes, self.study.effort, &self.bases(setting), stop)
    }

    /// What is known of the GEMMs of a point's workload on PCUs such as its chip's.
    fn bases(&self, setting: &Setting<'_>) -> Arc<BaseCache> {
        let sets = &setting.sets;
        let workload = setting.inputs.workload_content(sets, setting.seed);
        let of_pcus = |path: &str| {
            // Capacities of memory tiers divide blocks: another graph.
            let is_of_memory = path.starts_with("memory.") && !path.ends_with(".capacity_bytes");
            !(is_price(path) || is_rate(path) || is_of_memory || path == "pmu.capacity_bytes")
        };
        let Some((chip, workload)) = setting.inputs.chip_content(sets, &|path| !of_pcus(path)).zip(workload) else {
            return Arc::default();
        };
        let key = chip.rotate_left(32) ^ workload ^ ((setting.pair as u128) << 120);
        let mut kept = self.kept.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_BASES && !kept.contains_key(&key) {
            kept.shift_remove_index(0);
        }
        Arc::clone(kept.entry(key).or_default())
    }

    /// Runs a point.
    pub(super) fn measured(&self, built: &Built, compiled: &[Compiled], stop: Stop<'_>) -> Measured {
        let Built { chip, workload, graph } = built;
        let chip = match (chip.rdu(), self.study.fidelity) {
            (_, Fidelity::Bound) => {
                let bound = |&mode| (mode, built.bound_cycles(mode));
                return Measured::Bounds(self.study.modes.iter().map(bound).collect());
            }
            (Some(chip), Fidelity::Simulated(_)) => chip,
            (None, Fidelity::Simulated(_)) => {
                return match run_plain(chip, workload, &self.study.modes) {
                    Ok(outcomes) => Measured::Runs(Box::new(Document::new(chip.device(), workload, &outcomes))),
                    Err(error) => Measured::Refused(error.title().to_owned()),
                };
            }
        };
        match self.study.fidelity {
            Fidelity::Bound => Measured::Bounds(Vec::new()),
            Fidelity::Simulated(fidelity) => {
                // Prices change no run; rates do, and a configuration that is kept for them is run again.
                let runs = compiled.iter().map(|c| match self.study.compile {
                    Compile::EveryPoint | Compile::Alone => drained(simulate_until(chip, graph, c, fidelity, stop)),
                    Compile::Once | Compile::Shared => {
                        drained(simulate_known(chip, graph, &c.configuration, fidelity, &[], stop))
                    }
                });
                self.document(built, chip, runs.collect())
            }
        }
    }

    /// Runs a point: of several compilations, mode by mode the fastest on the point's chip; of equals the first.
    pub(super) fn best_measured(
        &self,
        built: &Built,
        all: &[Result<Vec<Compiled>, Diagnostic>],
        stop: Stop<'_>,
    ) -> Measured {
        let compiled: Vec<&Vec<Compiled>> = all.iter().filter_map(|compiled| compiled.as_ref().ok()).collect();
        match (&compiled[..], all.iter().find_map(|compiled| compiled.as_ref().err())) {
            ([], Some(error)) => return Measured::Refused(error.title().to_owned()),
            ([], None) => return Measured::Refused("nothing was compiled".to_owned()),
            ([one], _) => return self.measured(built, one, stop),
            _ => {}
        }
        let graph = &built.graph;
        let Some(chip) = built.chip.rdu() else { return self.measured(built, compiled[0], stop) };
        let Fidelity::Simulated(fidelity) = self.study.fidelity else { return self.measured(built, compiled[0], stop) };
        let fastest = |mode: usize| {
            let configurations: Vec<&Configuration> =
                compiled.iter().map(|compiled| &compiled[mode].configuration).collect();
            fastest(chip, graph, &configurations, fidelity, stop)
        };
        self.document(built, chip, (0..self.study.modes.len()).map(fastest).collect())
    }

    /// Which mappings compete where, if any do.
    pub(super) fn families(&self, of_study: impl FnOnce() -> Families) -> &Families {
        self.kept.families.get_or_init(of_study)
    }

    /// Of what was compiled for a point and what poorer points run, mode by mode the fastest on the point's chip; of equals what was
    /// compiled for it.
    pub(super) fn with_poorer(
        &self,
        built: &Built,
        own: Result<Vec<Compiled>, Diagnostic>,
        poorer: &[Arc<Found>],
        stop: Stop<'_>,
    ) -> Result<Vec<Compiled>, Diagnostic> {
        let graph = &built.graph;
        let Some(chip) = built.chip.rdu() else { return own };
        if poorer.is_empty() {
            return own;
        }
        let cycles = |Compiled { configuration, runs }: &Compiled, most: u64| {
            let run = if runs.iter().all(Option::is_some) {
                Some(simulate_known(chip, graph, configuration, RunFidelity::Event, runs, stop))
            } else {
                simulate_within(chip, graph, configuration, RunFidelity::Event, most, stop)
            };
            Some(drained(run?).ok()?.cycles)
        };
        let modes = self.study.modes.len();
        let mut error = Diagnostic::new("no run comes to an end");
        let mut best: Vec<Option<(u64, Compiled)>> = match own {
            Ok(own) => own.into_iter().map(|own| Some((cycles(&own, u64::MAX)?, own))).collect(),
            Err(why) => {
                error = why;
                vec![None; modes]
            }
        };
        for (mode, best) in best.iter_mut().enumerate() {
            for Found { chip: of, compiled } in poorer.iter().map(|found| &**found) {
                let Some(other) = compiled.get(mode) else { continue };
                let Some(other) = handed_on(of, chip, graph, &other.configuration, stop) else { continue };
                let fastest = best.as_ref().map_or(u64::MAX, |(cycles, _)| *cycles);
                if let Some(cycles) = cycles(&other, fastest).filter(|&cycles| cycles < fastest) {
                    *best = Some((cycles, other));
                }
            }
        }
        let found: Option<Vec<Compiled>> = best.into_iter().map(|best| Some(best?.1)).collect();
        let mut found = found.ok_or(error)?;
        compare_fused_with_others(chip, graph, &mut found);
        Ok(found)
    }

    /// The runs of a point, with their gaps if a metric needs them.
    fn document(&self, built: &Built, chip: &Chip, runs: Result<Vec<Outcome>, Diagnostic>) -> Measured {
        match runs {
            Ok(mut outcomes) => {
                if self.study.metrics.iter().any(|metric| metric.needs_gaps()) {
                    add_least_cycles(chip, &built.graph, &mut outcomes);
                }
                Measured::Runs(Box::new(Document::new(chip, &built.workload, &outcomes)))
            }
            Err(error) => Measured::Refused(error.title().to_owned()),
        }
    }

    /// Adds ranges to what was measured of a point, if a metric is one: its mapping on draws of the chip's uncertain fields.
    pub(super) fn with_ranges(
        &self,
        mut measured: Measured,
        setting: &Setting<'_>,
        built: &Built,
        all: &[Result<Vec<Compiled>, Diagnostic>],
        stop: Stop<'_>,
    ) -> Measured {
        if let (Measured::Runs(document), Fidelity::Simulated(fidelity), Some(compiled)) =
            (&mut measured, self.study.fidelity, all.iter().find_map(|compiled| compiled.as_ref().ok()))
            && self.study.metrics.iter().any(|metric| metric.is_range())
        {
            let known: Vec<&Override> = self.study.base.iter().chain(setting.sets.iter().copied()).collect();
            let draws = Draws::new(setting.inputs.chip_text(), &known, SAMPLES, self.study.seed);
            let with = |sets: &[Override]| {
                stop.check();
                setting.sets.iter().copied().chain(sets).cloned().collect::<Vec<Override>>()
            };
            let sampled = match built.chip.rdu() {
                Some(own) => of_rdu(draws, own, &built.graph, compiled, fidelity, &|sets: &[Override]| {
                    setting.inputs.chip(&with(sets).iter().collect::<Vec<_>>())
                }),
                None => of_plain(draws, &built.workload, &self.study.modes, &|sets: &[Override]| {
                    setting.inputs.any_chip(&with(sets).iter().collect::<Vec<_>>())
                }),
            };
            ranges(document, &sampled, self.study.seed);
        }
        measured
    }

    /// Cells of the metrics; empty where there is no value.
    pub(super) fn cells(&self, built: Option<&Built>, measured: &Measured) -> Vec<String> {
        let cell = |metric: &Metric| match (built, metric, measured) {
            (Some(built), _, _) => metric.of(&built.chip, &built.workload, measured).map(|cell| cell.to_string()),
            (None, Metric::Status, Measured::Refused(why)) => Some(why.clone()),
            _ => None,
        };
        self.study.metrics.iter().map(|metric| cell(metric).unwrap_or_default()).collect()
    }

    /// An error about a field that an axis set, told where the axis stands.
    pub(super) fn told_at_axis(&self, error: Diagnostic) -> Diagnostic {
        let Some(text) = error.origin().filter(|o| o.path == COMMAND_LINE).map(|o| o.text.to_string()) else {
            return error;
        };
        let argument = text.trim_start_matches("--set ");
        let sets = |path: &String| argument.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('='));
        match self.study.axes.iter().find(|axis| axis.paths.iter().any(sets)) {
            Some(axis) => self.study.source.restated(axis.span.clone(), &error),
            None => error,
        }
    }
}

/// The graph that runs on a chip: the workload's, or with blocks divided over its memory tiers.
fn on(chip: &AnyChip, workload: Arc<Workload>) -> Arc<Workload> {
    chip.rdu().and_then(|chip| divided_over_tiers(chip, &workload)).map_or(workload, Arc::new)
}

/// The fastest run of several configurations of one mode; of equals the first. The one with the least bound runs first, and none
/// runs longer than the fastest so far (branch and bound).
fn fastest(
    chip: &Chip,
    workload: &Workload,
    configurations: &[&Configuration],
    fidelity: RunFidelity,
    stop: Stop<'_>,
) -> Result<Outcome, Diagnostic> {
    let bound = |configuration: &Configuration| simulate(chip, workload, configuration, RunFidelity::Bound).cycles;
    let mut order: Vec<(u64, usize)> = (0..).zip(configurations).map(|(at, of)| (bound(of), at)).collect();
    order.sort_unstable();
    let mut best: Option<(u64, usize, Outcome)> = None;
    let mut failed: Option<(usize, Diagnostic)> = None;
    for (bound, at) in order {
        let most_cycles = best.as_ref().map_or(u64::MAX, |&(cycles, _, _)| cycles);
        if bound > most_cycles {
            break;
        }
        match simulate_within(chip, workload, configurations[at], fidelity, most_cycles, stop).map(drained) {
            Some(Ok(run)) if best.as_ref().is_none_or(|&(cycles, of, _)| (run.cycles, at) < (cycles, of)) => {
                best = Some((run.cycles, at, run));
            }
            Some(Err(error)) if failed.as_ref().is_none_or(|&(of, _)| at < of) => failed = Some((at, error)),
            _ => {}
        }
    }
    match (best, failed) {
        (Some((_, _, run)), _) => Ok(run),
        (None, Some((_, error))) => Err(error),
        (None, None) => Err(Diagnostic::new("nothing was compiled")),
    }
}

/// Fields that energy, area and names depend on, and neither mapping nor time.
fn is_price(path: &str) -> bool {
    path == "name"
        || ["energy", "area", "ranges"].iter().any(|table| path.starts_with(table))
        || path.ends_with("pj_per_bit")
}

/// Fields that change how long things take and not what a configuration may use.
fn is_rate(path: &str) -> bool {
    path == "clock_ghz"
        || path.starts_with("launch.")
        || (path.starts_with("memory.") && (path.ends_with(".bandwidth_gb_per_s") || path.ends_with(".latency_ns")))
}
