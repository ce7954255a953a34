//! What the compiler tells the user: why something does not fit, and what a mapping had to give up.

use crate::compile::mapping::plan::SectionPlan;
use crate::compile::mapping::streams::streams;
use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::Unplaced;
use crate::compile::search::least_room::LeastRoom;
use crate::compile::search::partition::{Unpinnable, Unplannable, WholeGraph};
use crate::compile::search::plan::NoPlan;
use rdusim_base::diagnostics::{Diagnostic, Origin};
use rdusim_base::index::IndexVec;
use rdusim_base::mode::Mode;
use rdusim_base::units::{ByteSize, MIB};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, PinnedSection, Workload, kernels_with_epilogues};
use rdusim_program::{BufferRole, BufferSpec, LoopLevel, Mapping, PassWork, Section, SectionGraph, Stream, StreamId};

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Sections that loop over the repetitions of their block, one remark each.
pub(super) fn loops(workload: &Workload, sections: &[Section], mode: Mode) -> Vec<String> {
    let of_section = |section: &Section| {
        let first = &workload.operators[*section.operators.first()?];
        section.is_looped(workload, mode).then(|| {
            let last = section.operators.last().map_or(&first.name, |&op| &workload.operators[op].name);
            format!(
                "the block `{}` to `{last}` is one section: a single launch runs all {} repetitions",
                first.name, first.repeat
            )
        })
    };
    sections.iter().filter_map(of_section).collect()
}

/// Epilogues that the chip cannot hold whole in the section of their GEMM, one remark each.
pub(super) fn shorter_epilogues(chip: &Chip, workload: &Workload, sections: &[Section]) -> Vec<String> {
    let name = |op: &OperatorId| workload.operators[*op].name.as_str();
    let shorter = |kernel: Vec<OperatorId>| {
        let section = sections.iter().find(|section| section.operators.first() == kernel.first())?;
        let (kept, others) = kernel.split_at(section.operators.len().min(kernel.len()));
        (!others.is_empty()).then(|| {
            let names = |list: &[OperatorId]| list.iter().map(name).collect::<Vec<_>>().join("+");
            format!("{} cannot hold `{}` in one section with `{}`", chip.name, names(others), names(kept))
        })
    };
    kernels_with_epilogues(workload).into_iter().filter_map(shorter).collect()
}

/// An operator that cannot run even alone.
pub(super) fn unplannable(chip: &Chip, workload: &Workload, failed: Unplannable) -> Diagnostic {
    let operator = &workload.operators[failed.operator];
    let name = &operator.name;
    let refused = |title: String, label: &str| {
        let diagnostic = Diagnostic::new(title);
        match &operator.declared {
            Some(origin) => diagnostic.with_origin(Origin { label: label.to_owned(), ..origin.clone() }),
            None => diagnostic,
        }
    };
    match failed.reason {
        NoPlan::Dtype(dtype) => {
            let known: Vec<&str> = chip.pcu.lanes.keys().map(|d| d.name()).collect();
            let title = format!("operator `{name}` computes in {dtype}, which a PCU of {} lacks", chip.name);
            refused(title, "cannot be computed").with_help(format!(
                "use one of {}, or add it to `pcu.lanes` or `emulated` of the chip",
                known.join(", ")
            ))
        }
        NoPlan::Sram(bytes) => {
            let room = LeastRoom::of(chip, workload, failed.operator, bytes);
            // Banks as small as this chip's may waste more than what is missing.
            let least = room.as_ref().map_or(bytes, |room| room.sram_bytes);
            let help = "make its rows or columns smaller, or raise the number of PMUs";
            let help = match &room {
                Some(room) => format!(
                    "{help} or `pmu.capacity_bytes`: from {} on it has room for {}",
                    room.capacity_bytes,
                    room.told()
                ),
                None => help.to_owned(),
            };
            let title = format!("operator `{name}` needs {}", short_of(chip, least));
            refused(title, "does not fit, even alone and in the smallest tiles").with_help(help)
        }
        NoPlan::Pcus(least) => refused(
            format!("operator `{name}` needs {least} PCUs at the least, {} has {}", chip.name, chip.pcus()),
            "does not fit, even alone",
        )
        .with_help("raise the number of PCUs in `grid`, or `pcu.stages`"),
    }
}

/// A pinned section that cannot be one.
pub(super) fn unpinnable(chip: &Chip, workload: &Workload, section: &PinnedSection, why: Unpinnable) -> Diagnostic {
    let names: Vec<&str> = section.operators.iter().map(|&op| workload.operators[op].name.as_str()).collect();
    let why = match why {
        Unpinnable::NoPipeline => {
            "its operators are no pipeline: their rows differ, or one makes another's second operand".to_owned()
        }
        Unpinnable::NoPlan(NoPlan::Dtype(dtype)) => format!("a PCU of {} lacks {dtype}", chip.name),
        Unpinnable::NoPlan(NoPlan::Sram(bytes)) => format!("it needs {}", short_of(chip, bytes)),
        Unpinnable::NoPlan(NoPlan::Pcus(least)) => {
            format!("it needs {least} PCUs at the least, {} has {}", chip.name, chip.pcus())
        }
        Unpinnable::Unplaced(Some(why)) => shortage(chip, why),
        Unpinnable::Unplaced(None) => "placement finds no room".to_owned(),
    };
    let diagnostic = Diagnostic::new(format!("the pinned section `{}` cannot be one: {why}", names.join("+")));
    let diagnostic = match &section.declared {
        Some(origin) => diagnostic.with_origin(Origin { label: "pinned here".into(), ..origin.clone() }),
        None => diagnostic,
    };
    diagnostic.with_help("cut it into smaller sections, or let the compiler choose")
}

/// The PMU bytes that a plan needs beside those of the chip.
fn short_of(chip: &Chip, bytes: u64) -> String {
    let (least, own) = (ByteSize(bytes), ByteSize(chip.sram_bytes()));
    let missing = ByteSize(bytes.saturating_sub(chip.sram_bytes()));
    format!("{least} of PMU at the least, {} has {own}: short by {missing}", chip.name)
}

/// What placement is short of.
fn shortage(chip: &Chip, why: Unplaced) -> String {
    match why {
        Unplaced::Generators { streams } => format!(
            "it needs {streams} off-chip streams at once, the chip has {} of the address generators they come through: short by {}",
            chip.grid.ags(),
            streams.saturating_sub(chip.grid.ags()),
        ),
        Unplaced::Banks { needed } => format!(
            "its buffers take {needed} of the chip's {} PMU banks, and the parts of a buffer find too few free banks \
             and ports in one PMU",
            chip.pmus() * chip.pmu.banks,
        ),
    }
}

/// An operator whose plans placement could not carry out, and why.
pub(super) fn unplaceable(chip: &Chip, workload: &Workload, operator: OperatorId, why: Option<Unplaced>) -> Diagnostic {
    let operator = &workload.operators[operator];
    let cannot = format!("operator `{}` cannot be placed on {}", operator.name, chip.name);
    let help = match why {
        Some(Unplaced::Generators { .. }) => "raise `ags` of the AGCUs in `grid`",
        Some(Unplaced::Banks { .. }) => "raise the number of PMUs, `pmu.banks` or `pmu.capacity_bytes`",
        None => "raise the number of PMUs or of address generators",
    };
    let title = why.map_or(cannot.clone(), |why| format!("{cannot}: {}", shortage(chip, why)));
    let diagnostic = Diagnostic::new(title).with_help(help);
    match &operator.declared {
        Some(origin) => diagnostic.with_origin(Origin { label: "cannot be placed".to_owned(), ..origin.clone() }),
        None => diagnostic,
    }
}

/// Sentences on tensors that a section moves more than once, and why.
pub(super) fn of_section(chip: &Chip, graph: &SectionGraph<'_>, plan: &SectionPlan) -> Vec<String> {
    let repeated: IndexVec<StreamId, Stream> =
        streams(graph, &plan.nest, &plan.buffers).into_iter().filter(|s| s.passes > 1).collect();
    let workload = graph.workload;
    let names: Vec<&str> = graph.operators.iter().map(|&op| workload.operators[op].name.as_str()).collect();
    let mut notes = both_ways(graph, &names.join("+"));
    notes.extend(sparse_as_dense(graph, plan, &names.join("+")));
    if repeated.is_empty() {
        return notes;
    }
    let moved: Vec<String> = repeated
        .iter()
        .map(|s| format!("`{}` ({:.1} MiB) {} times", workload.tensors[s.tensor].name, mib(s.tensor_bytes), s.passes))
        .collect();
    let nest = &plan.nest;
    let once = sram_to_read_once(chip, graph, plan);
    let weights: u64 = graph.stages.iter().filter_map(|s| s.weight).map(|w| workload.tensors[w].stored_bytes()).sum();
    notes.push(format!(
        "section `{}` reads {}: keeping activations and fp32 partial sums of all {} rows beside two weight column tiles needs \
         {:.1} MiB, keeping all weights {:.1} MiB, and {} has {:.1} MiB; {} rows at a time fit",
        names.join("+"),
        moved.join(" and "),
        nest.rows,
        mib(once),
        mib(weights),
        chip.name,
        mib(chip.sram_bytes()),
        (nest.block_tiles * nest.tile_rows).min(nest.rows),
    ));
    notes
}

/// Executed over all k-steps from which on sparse work is called dense.
const AS_DENSE: f64 = 0.97;

/// A sentence on every sparse weight that is worked through as if it were dense.
fn sparse_as_dense(graph: &SectionGraph<'_>, plan: &SectionPlan, section: &str) -> Vec<String> {
    let mut notes = Vec::new();
    for (stage, mapping) in plan.mappings.iter_enumerated() {
        let (Some(mask), Some(weight), Mapping::Gemm(m)) = (graph.mask(stage), graph.stages[stage].weight, mapping)
        else {
            continue;
        };
        if mask.stored_elements() == mask.rows() * mask.columns() {
            continue;
        }
        let work = &plan.work[stage];
        let k_of = |column_tile: usize| match plan.nest.column_range(column_tile as u64) {
            Some(range) if plan.roles.k_cut[stage] => range.end - range.start,
            // A tile of a slice of K is no deeper than the slice.
            _ => mask.rows().div_ceil(m.pk),
        };
        let of_column_tile = |(column_tile, list): (usize, &Vec<PassWork>)| {
            let tiles: u64 = list.iter().map(|work| work.tiles).sum();
            (list.iter().map(|work| work.cycles).sum::<u64>(), tiles * k_of(column_tile))
        };
        let (executed, all) = work.iter().enumerate().map(of_column_tile).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        if executed as f64 >= AS_DENSE * all as f64 {
            let tensor = &graph.workload.tensors[weight];
            let density = mask.stored_elements() as f64 / (mask.rows() as f64 * mask.columns() as f64);
            notes.push(format!(
                "section `{section}` works through `{}` (density {density:.4}) as if it were dense: {}",
                tensor.name,
                if m.multicast_width == m.pn {
                    "skipping or gathering by columns was found no faster"
                } else {
                    "under its tiles hardly a row can be skipped"
                },
            ));
        }
    }
    notes
}

/// A sentence on every tensor that comes once as activations, row tile by row tile, and once as the weights of a GEMM.
fn both_ways(graph: &SectionGraph<'_>, section: &str) -> Vec<String> {
    let weights: Vec<_> = graph.stages.iter().filter_map(|stage| stage.weight).collect();
    let mut tensors: Vec<_> = graph.stages.iter().flat_map(|stage| &stage.activations).copied().collect();
    tensors.retain(|tensor| weights.contains(tensor));
    tensors.sort_unstable();
    tensors.dedup();
    let name = |tensor| &graph.workload.tensors[tensor].name;
    let sentence =
        |t| format!("section `{section}` reads `{}` 2 times: as activations and as the weights of a GEMM", name(t));
    tensors.into_iter().map(sentence).collect()
}

/// PMU bytes the same plan would take with every row in one block.
fn sram_to_read_once(chip: &Chip, graph: &SectionGraph<'_>, plan: &SectionPlan) -> u64 {
    let row_tiles = plan.nest.row_tiles();
    let grown = |buffer: &BufferSpec| {
        let holds_block = match buffer.role {
            BufferRole::Resident { .. } | BufferRole::PartialSums { .. } => true,
            BufferRole::Operand { tensor, .. } => {
                graph.producer(tensor).is_none()
                    && buffer.level == LoopLevel::ROW_TILE
                    && buffer.depth >= plan.nest.block_tiles
            }
            BufferRole::Weight { .. }
            | BufferRole::State { .. }
            | BufferRole::Output { .. }
            | BufferRole::PartialFifo { .. } => false,
        };
        let depth = if holds_block { row_tiles } else { buffer.depth };
        BufferSpec { depth, ..*buffer }.total_banks(chip)
    };
    plan.buffers.iter().map(grown).sum::<u64>() * chip.pmu.bank_bytes()
}

/// Sections that a note names at most.
const MOST_NAMED: usize = 8;

/// Where the search for a partition was not exact: sections of many operators, and classes of sections that were not planned.
pub(super) fn left_out(operators: usize, classes: usize) -> Option<String> {
    let mut parts = Vec::new();
    let most = PARAMS.partition.most_listed;
    if operators > most {
        parts.push(format!("sections of more than {most} operators were tried only as neighbours joined"));
    }
    if classes > 0 {
        parts.push(format!(
            "{classes} kinds of longer sections were not planned, as by their lower bounds none saves time beside the \
             partition found so far"
        ));
    }
    (!parts.is_empty()).then(|| format!("the partition into sections is not proved the best: {}", parts.join(", and ")))
}

/// A fused run that still has several sections, and what one section of the whole graph would have to give up.
pub(super) fn several_sections(
    chip: &Chip,
    workload: &Workload,
    sections: &[Section],
    whole: WholeGraph<'_, '_>,
) -> String {
    let mut names: Vec<&str> = sections.iter().map(|s| s.name.as_str()).collect();
    if names.len() > MOST_NAMED {
        names.truncate(MOST_NAMED);
        names.push("...");
    }
    let found = format!(
        "the fused run of {} operators has {} sections ({})",
        workload.operators.len(),
        sections.len(),
        names.join(" | "),
    );
    let (graph, choice) = match whole {
        WholeGraph::Planned(graph, choice) => (graph, choice),
        WholeGraph::Slower => return format!("{found}: on {} one section cannot be faster", chip.name),
        WholeGraph::Impossible => {
            return format!("{found}: one section of all does not fit {}, or its operators share no rows", chip.name);
        }
    };
    let mut parts = vec![format!("{found}: on {} this is estimated faster than one section", chip.name)];
    parts.extend(of_section(chip, graph, &choice.plan(chip, graph)));
    parts.join("; in one, ")
}

/// Sentences on attention scores that leave the chip although heads and softmax could share a section.
pub(super) fn scores_off_chip(workload: &Workload, sections: &[Section]) -> Vec<String> {
    let mut told = Vec::new();
    for section in sections {
        for &op in &section.operators {
            let operator = &workload.operators[op];
            let Some(form) = operator.form.filter(|form| form.n > form.k) else { continue };
            let scores = &workload.tensors[operator.output];
            let outside: Vec<_> =
                workload.consumers(operator.output).filter(|c| !section.operators.contains(c)).collect();
            let Some(&reader) = outside.first() else { continue };
            let why = if workload.operators[reader].phase == operator.phase {
                "its section ends before them"
            } else {
                "they are saved for the backward phase; `activations = \"recomputed\"` would keep them on chip"
            };
            told.push(format!(
                "scores `{}` ({} of {} heads) go off chip to `{}`: {why}",
                scores.name,
                ByteSize(scores.dense_bytes()),
                form.heads,
                workload.operators[reader].name,
            ));
        }
    }
    told
}
