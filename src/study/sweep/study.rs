//! A study file, checked: what is varied, how it is run, and what is recorded.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use toml::Spanned;
use xxhash_rust::xxh3::xxh3_128;

use crate::arch::Quality;
use crate::compile::Effort;
use crate::diagnostics::Diagnostic;
use crate::import;
use crate::input::{self, FileKind, Given, Override, Root, Source, referenced};
use crate::mode::Mode;

use super::axis::{Axis, Change, Values};
use super::design::{Design, MOST_POINTS, Point, Points};
use super::expression::Constraint;
use super::kept::KeptWhile;
use super::metric::Metric;
use super::spec::StudySpec;
use super::wanted::{Best, Named, Pareto, Plot, unknown};

/// How closely a point's time is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// The lower bound of the graph on the chip: nothing is compiled.
    Bound,
    /// Compiled and simulated.
    Simulated(crate::outcome::Fidelity),
}

/// When a point is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compile {
    /// For its own chip and workload; what poorer points run competes.
    EveryPoint,
    /// For its own chip and workload alone.
    Alone,
    /// For the chip and workload without the axes that only change rates: what would this configuration do elsewhere?
    Once,
    /// For its own workload and for the chips of a few points that differ from its own in rates alone: the fastest of those
    /// configurations on its own chip.
    Shared,
}

/// A study, ready to run.
#[derive(Debug)]
pub struct Study {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) arch: PathBuf,
    pub(super) workload: PathBuf,
    /// Texts that stand for files, by the path that names them.
    pub(super) texts: IndexMap<PathBuf, String>,
    /// How a `config.json` becomes a workload.
    pub(super) model: import::Options,
    pub(super) base: Vec<Override>,
    pub(super) fidelity: Fidelity,
    pub(super) compile: Compile,
    pub(super) effort: Effort,
    pub(super) mapping: Quality,
    pub(super) modes: Vec<Mode>,
    pub(super) seed: u64,
    pub(super) axes: Arc<[Axis]>,
    pub(super) points: Points,
    /// Points are drawn at random: no two differ in one axis alone.
    pub(super) is_sampled: bool,
    pub(super) constraints: Vec<(Constraint, Range<usize>)>,
    pub(super) metrics: Vec<Metric>,
    /// Axis paths, then metric names.
    pub(super) columns: Vec<String>,
    /// Columns that are axis paths.
    pub(super) axis_columns: usize,
    pub(super) pareto: Option<Pareto>,
    pub(super) best: Vec<Best>,
    pub(super) plots: Vec<Plot>,
    /// A hash of the file and the overrides of the command line.
    pub(super) fingerprint: u128,
    /// What its points have in common, by the names and hashes of its files.
    pub(super) kept: KeptWhile<Vec<(String, String)>>,
}

impl Study {
    /// Reads a study file; `sets` are overrides that hold for every point, before the file's own, and `mapping` how good
    /// mappings are taken to be, if it is not to be the file's.
    ///
    /// # Errors
    /// What is wrong with the file, with its place.
    pub fn open(path: &Path, sets: &[Override], mapping: Option<Quality>) -> Result<Self, Diagnostic> {
        Self::take(&path.into(), IndexMap::new(), sets, mapping)
    }

    /// The same of a file or a text; `texts` stand for chip and workload files, by the path that the study names them with.
    ///
    /// # Errors
    /// As [`Study::open`].
    pub fn take(
        given: &Given,
        texts: IndexMap<PathBuf, String>,
        sets: &[Override],
        mapping: Option<Quality>,
    ) -> Result<Self, Diagnostic> {
        let source = match given {
            Given::File(path) => Source::open_as(path, FileKind::Study, Root::Arch, &[])?,
            Given::Text { name, text } => Source::new(name, text, Root::Arch, &[])?,
        };
        let spec: StudySpec = source.read()?;
        let name = given.name();
        let study = Checker { source: &source, path: Path::new(&name) }.check(&spec, sets, mapping)?;
        Ok(Self { texts, ..study })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Points, those that a constraint leaves out included.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Axes, each of one or several fields.
    pub fn axes(&self) -> usize {
        self.axes.len()
    }

    /// Its columns: axis paths, then metric names.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

struct Checker<'a> {
    source: &'a Source,
    path: &'a Path,
}

impl Checker<'_> {
    fn check(&self, spec: &StudySpec, sets: &[Override], mapping: Option<Quality>) -> Result<Study, Diagnostic> {
        let source = self.source;
        source.count("schema", &spec.schema, 1..=1)?;
        let seed = spec.seed.as_ref().map_or(Ok(0), |seed| source.count("seed", seed, 0..=u64::MAX))?;
        let design = self.design(spec)?;
        let sampled = matches!(design, Design::Random(_) | Design::LatinHypercube(_));
        let axes: Arc<[Axis]> = self.axes(spec, design, sampled)?.into();
        let points = Points::new(design, Arc::clone(&axes), seed)?.ok_or_else(|| {
            let title = format!("the product of the axes has more than {MOST_POINTS} points");
            let error = source.error(spec.axes.span(), title, "too many");
            error.with_help("use `design = \"random\"` or \"latin_hypercube\" with `points`")
        })?;
        let mut base: Vec<Override> = sets.to_vec();
        for set in &spec.set {
            base.push(Override::parse(set.get_ref()).map_err(|error| source.restated(set.span(), &error))?);
        }
        let fidelity = self.fidelity(spec)?;
        let compile = match &spec.compile {
            None => Compile::EveryPoint,
            Some(word) => {
                let known = [
                    ("every_point", Compile::EveryPoint),
                    ("alone", Compile::Alone),
                    ("coarse", Compile::EveryPoint),
                    ("once", Compile::Once),
                    ("shared", Compile::Shared),
                ];
                known[source.keyword("compile", word, &known.map(|(name, _)| name))?].1
            }
        };
        let Recorded { metrics, names } = self.metrics(spec, fidelity)?;
        let mut modes = self.modes(spec)?;
        if modes.is_empty() {
            let needed: Vec<Mode> = metrics.iter().flat_map(|metric| metric.needs()).collect();
            modes = Mode::ALL.into_iter().filter(|mode| needed.contains(mode)).collect();
        }
        for word in spec.metrics.get_ref() {
            let Some(metric) = Metric::named(word.get_ref()) else { continue };
            if compile == Compile::Shared && metric.is_range() {
                let title = format!("the metric `{}` needs one configuration a point", word.get_ref());
                return Err(source.error(word.span(), title, "not with `compile = \"shared\"`"));
            }
            if let Some(mode) = metric.needs().into_iter().find(|mode| !modes.contains(mode)) {
                let title = format!("the metric `{}` needs the mode {}", word.get_ref(), mode.name());
                return Err(source.error(word.span(), title, "not among `modes`"));
            }
        }
        let axis_names = axes.iter().flat_map(|axis| axis.paths.iter().cloned());
        let columns: Vec<String> = axis_names.chain(names).collect();
        let axis_columns = columns.len() - metrics.len();
        let named = Named { source, columns: &columns, axes: axis_columns, metrics: &metrics };
        Ok(Study {
            name: source.name("name", &spec.name)?,
            arch: referenced(self.path, spec.arch.get_ref()),
            workload: referenced(self.path, spec.workload.get_ref()),
            texts: IndexMap::new(),
            model: self.model(spec)?,
            base,
            fidelity,
            compile,
            effort: self.effort(spec)?,
            mapping: self.mapping(spec, mapping)?,
            modes,
            seed,
            constraints: named.constraints(&spec.constraints)?,
            pareto: named.pareto(spec)?,
            best: spec.best.iter().map(|best| named.best(best)).collect::<Result<_, _>>()?,
            plots: spec.plots.iter().map(|plot| named.plot(plot)).collect::<Result<_, _>>()?,
            fingerprint: fingerprint(source, sets, mapping),
            kept: KeptWhile::default(),
            points,
            is_sampled: sampled,
            axes,
            metrics,
            axis_columns,
            columns: columns.clone(),
            source: source.clone(),
        })
    }

    fn model(&self, spec: &StudySpec) -> Result<import::Options, Diagnostic> {
        let mut options = import::Options::default();
        let Some(spec) = spec.model.as_ref().map(Spanned::get_ref) else { return Ok(options) };
        if let Some(word) = &spec.phase {
            let known = import::PHASES.map(|(name, _)| name);
            options.phase = import::PHASES[self.source.keyword("model.phase", word, &known)?].1;
        }
        if let Some(word) = &spec.dtype {
            let known = ["bf16", "fp16", "fp32", "int8"];
            known[self.source.keyword("model.dtype", word, &known)?].clone_into(&mut options.dtype);
        }
        if let Some(word) = &spec.expert_load {
            let refused =
                |why: &str| self.source.error(word.span(), format!("`model.expert_load`: {why}"), "not a load");
            let load = import::expert_load_word(word.get_ref()).map_err(refused)?;
            options.expert_load = load.ok_or_else(|| refused("expected `even`, `uniform` or `zipf:EXPONENT`"))?;
        }
        let sizes =
            [("batch", "batch", &spec.batch), ("seq", "sequence", &spec.seq), ("context", "context", &spec.context)];
        for (key, name, size) in sizes {
            if let Some(size) = size {
                let size = self.source.count(&format!("model.{key}"), size, 1..=1 << 40)?;
                options.dims.push((name.to_owned(), size));
            }
        }
        Ok(options)
    }

    fn design(&self, spec: &StudySpec) -> Result<Design, Diagnostic> {
        let names = ["product", "zip", "random", "latin_hypercube"];
        let chosen = spec.design.as_ref().map_or(Ok(0), |word| self.source.keyword("design", word, &names))?;
        let count = |make: fn(u64) -> Design| {
            if let Some(points) = &spec.points {
                return self.source.count("points", points, 1..=MOST_POINTS).map(make);
            }
            let span = spec.design.as_ref().map_or(0..0, Spanned::span);
            Err(self.source.error(span, "`points` is missing: this design needs a number of points", ""))
        };
        match chosen {
            2 => count(Design::Random),
            3 => count(Design::LatinHypercube),
            other => match &spec.points {
                None => Ok([Design::Product, Design::Zip][other]),
                Some(points) => {
                    let title = "`points` belongs to the designs random and latin_hypercube";
                    Err(self.source.error(points.span(), title, "not used by this design"))
                }
            },
        }
    }

    fn axes(&self, spec: &StudySpec, design: Design, sampled: bool) -> Result<Vec<Axis>, Diagnostic> {
        let source = self.source;
        let mut axes: Vec<Axis> = Vec::new();
        for axis in spec.axes.get_ref() {
            let axis = Axis::check(source, axis, self.path, sampled)?;
            for (at, path) in axis.paths.iter().enumerate() {
                if axes.iter().any(|earlier| earlier.paths.contains(path)) || axis.paths[..at].contains(path) {
                    return Err(source.error(axis.span, format!("`{path}` is on an axis twice"), "the second of them"));
                }
            }
            axes.push(axis);
        }
        if axes.is_empty() {
            return Err(source.error(spec.axes.span(), "`axes` is empty", "expected at least one axis"));
        }
        if design == Design::Zip
            && let Some(other) = axes.iter().find(|axis| axis.len() != axes[0].len())
        {
            let lengths = [axes[0].len(), other.len()].map(Option::unwrap_or_default);
            let title = format!("zipped axes need equally many values, found {} and {}", lengths[0], lengths[1]);
            return Err(source.error(other.span.clone(), title, "not as many as the first axis"));
        }
        Ok(axes)
    }

    fn fidelity(&self, spec: &StudySpec) -> Result<Fidelity, Diagnostic> {
        let known = [
            ("event", Fidelity::Simulated(crate::outcome::Fidelity::Event)),
            ("mapped_bound", Fidelity::Simulated(crate::outcome::Fidelity::Bound)),
            ("bound", Fidelity::Bound),
        ];
        let Some(word) = &spec.fidelity else { return Ok(known[0].1) };
        Ok(known[self.source.keyword("fidelity", word, &known.map(|(name, _)| name))?].1)
    }

    /// `compile = "coarse"` is `effort = "quick"` by its older name.
    fn effort(&self, spec: &StudySpec) -> Result<Effort, Diagnostic> {
        let is_coarse = spec.compile.as_ref().is_some_and(|word| word.get_ref() == "coarse");
        let known = [("quick", Effort::Low), ("normal", Effort::Full), ("thorough", Effort::Thorough)];
        let Some(word) = &spec.effort else { return Ok(if is_coarse { Effort::Low } else { Effort::Full }) };
        let effort = known[self.source.keyword("effort", word, &known.map(|(name, _)| name))?].1;
        if is_coarse && effort != Effort::Low {
            let title = format!("`effort = \"{}\"` contradicts `compile = \"coarse\"`", word.get_ref());
            let error = self.source.error(word.span(), title, "expected \"quick\", which is what \"coarse\" says");
            return Err(error.with_help("leave out `compile`"));
        }
        Ok(effort)
    }

    fn mapping(&self, spec: &StudySpec, asked: Option<Quality>) -> Result<Quality, Diagnostic> {
        let known = [Quality::Ideal, Quality::Vendor];
        let of_file = match &spec.mapping {
            Some(word) => known[self.source.keyword("mapping", word, &known.map(Quality::name))?],
            None => Quality::Ideal,
        };
        Ok(asked.unwrap_or(of_file))
    }

    fn modes(&self, spec: &StudySpec) -> Result<Vec<Mode>, Diagnostic> {
        let mut modes = Vec::new();
        for word in spec.modes.iter().flat_map(Spanned::get_ref) {
            let mode = Mode::ALL[self.source.keyword("modes", word, &Mode::ALL.map(Mode::name))?];
            if !modes.contains(&mode) {
                modes.push(mode);
            }
        }
        modes.sort_unstable();
        Ok(modes)
    }

    fn metrics(&self, spec: &StudySpec, fidelity: Fidelity) -> Result<Recorded, Diagnostic> {
        let source = self.source;
        let mut recorded = Recorded { metrics: Vec::new(), names: Vec::new() };
        let has_gaps = fidelity == Fidelity::Simulated(crate::outcome::Fidelity::Event);
        for (at, word) in spec.metrics.get_ref().iter().enumerate() {
            let name = word.get_ref();
            let Some(metric) = Metric::named(name) else {
                return Err(unknown(source, word.span(), "metric", name, &Metric::names()));
            };
            if fidelity == Fidelity::Bound && !metric.is_bounded() {
                let title = format!("the metric `{name}` needs a compiled configuration");
                let error = source.error(word.span(), title, "not known at fidelity bound");
                return Err(error.with_help("use `fidelity = \"event\"` or \"mapped_bound\""));
            }
            if spec.metrics.get_ref()[..at].iter().any(|earlier| earlier.get_ref() == name) {
                return Err(source.error(word.span(), format!("the metric `{name}` is named twice"), "again"));
            }
            recorded.metrics.push(metric);
            recorded.names.push(name.clone());
            for name in metric.with().into_iter().filter(|_| has_gaps) {
                let is_asked_for = spec.metrics.get_ref().iter().any(|word| *word.get_ref() == name);
                if let Some(metric) = Metric::named(&name).filter(|_| !is_asked_for) {
                    recorded.metrics.push(metric);
                    recorded.names.push(name);
                }
            }
        }
        if recorded.metrics.is_empty() {
            return Err(source.error(spec.metrics.span(), "`metrics` is empty", "expected at least one metric"));
        }
        Ok(recorded)
    }
}

/// Metrics of a study with their names, in the order of their columns.
struct Recorded {
    metrics: Vec<Metric>,
    names: Vec<String>,
}

fn fingerprint(source: &Source, sets: &[Override], mapping: Option<Quality>) -> u128 {
    let mut text = source.text().to_owned();
    if let Some(mapping) = mapping {
        text.push('\0');
        text.push_str(mapping.name());
    }
    for set in sets {
        text.push('\0');
        text.push_str(set.raw());
    }
    xxh3_128(text.as_bytes())
}

impl Study {
    /// Chip and workload files of a point, where an axis replaces the study's own.
    pub(super) fn files(&self, point: &Point) -> (PathBuf, PathBuf) {
        let (mut arch, mut workload) = (self.arch.clone(), self.workload.clone());
        for value in point {
            match &value.change {
                Change::Arch(path) => arch.clone_from(path),
                Change::Workload(path) => workload.clone_from(path),
                Change::Fields(_) | Change::Seed(_) => {}
            }
        }
        (arch, workload)
    }

    /// Remarks of the workloads of a study, each once; a workload that cannot be read has none.
    pub(super) fn notes(&self) -> Vec<String> {
        let workloads: IndexSet<PathBuf> = self.file_pairs().into_iter().map(|(_, workload)| workload).collect();
        let read = |path: &PathBuf| import::take(&self.given(path), &self.base, self.seed, &self.model).ok();
        let notes: IndexSet<String> = workloads.iter().filter_map(read).flat_map(|workload| workload.notes).collect();
        notes.into_iter().collect()
    }

    /// A chip or workload file of the study, or the text that stands for it.
    pub(super) fn given(&self, path: &Path) -> Given {
        match self.texts.get(path) {
            Some(text) => Given::Text { name: path.display().to_string(), text: text.clone() },
            None => path.into(),
        }
    }

    /// What chips and workloads on an axis are called in their files, by the cell that names the file; files of one name keep theirs.
    pub(super) fn names(&self) -> IndexMap<String, String> {
        let listed = self.axes.iter().flat_map(Axis::listed);
        let named = listed.filter_map(|value| match &value.change {
            Change::Arch(path) | Change::Workload(path) => Some((value.cell.clone(), self.name_in(path)?)),
            Change::Fields(_) | Change::Seed(_) => None,
        });
        let all: IndexMap<String, String> = named.collect();
        let is_unique = |name: &String| all.values().filter(|other| *other == name).count() == 1;
        all.iter().filter(|(_, name)| is_unique(name)).map(|(cell, name)| (cell.clone(), name.clone())).collect()
    }

    /// The `name` of a file; nothing of one that is no TOML or has none.
    fn name_in(&self, path: &Path) -> Option<String> {
        let text = match self.given(path) {
            Given::Text { text, .. } => text,
            Given::File(path) => input::text_of(&path)?,
        };
        Some(text.parse::<toml::Table>().ok()?.get("name")?.as_str()?.to_owned())
    }

    /// Chip and workload files that points use, each once.
    pub fn input_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for (arch, workload) in self.file_pairs() {
            for file in [arch, workload] {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        files
    }

    /// Every pair of files that points use, in order of first use.
    pub(super) fn file_pairs(&self) -> Vec<(PathBuf, PathBuf)> {
        let replaced = |wanted: fn(&Change) -> Option<&PathBuf>, own: &PathBuf| -> Vec<PathBuf> {
            let lists = self.axes.iter().filter_map(|axis| match &axis.values {
                Values::Listed(values) => Some(values),
                Values::Between { .. } => None,
            });
            let mut found: Vec<PathBuf> = lists.flatten().filter_map(|value| wanted(&value.change)).cloned().collect();
            if found.is_empty() {
                found.push(own.clone());
            }
            found
        };
        let arches = replaced(|c| if let Change::Arch(path) = c { Some(path) } else { None }, &self.arch);
        let workloads = replaced(|c| if let Change::Workload(path) = c { Some(path) } else { None }, &self.workload);
        arches.iter().flat_map(|a| workloads.iter().map(move |w| (a.clone(), w.clone()))).collect()
    }
}
