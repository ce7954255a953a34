//! The decisions of a search, one line each in the order in which they were made: why a mapping was taken, and why others lost.

use rdusim_program::{LoopOrder, Mapping, Reduction, SectionGraph};

use super::space::Choice;

/// Lines, kept only where they are asked for.
#[derive(Debug, Default)]
pub(super) struct Trace {
    is_kept: bool,
    lines: Vec<String>,
}

impl Trace {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, lines: Vec::new() }
    }

    /// Adds a line, which is made only if it is kept.
    pub(super) fn add(&mut self, line: impl FnOnce() -> String) {
        if self.is_kept {
            self.lines.push(line());
        }
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// A mapping in a line: its loop nest, what stays on chip, and the PCUs of its stages.
pub(super) fn mapping(choice: &Choice, graph: &SectionGraph<'_>) -> String {
    let nest = &choice.nest;
    let mut parts = vec![format!("{} row tiles of {}", nest.row_tiles(), nest.tile_rows)];
    if nest.blocks() > 1 {
        parts.push(format!("{} row blocks", nest.blocks()));
    }
    if let Some(cut) = nest.tiled_axis {
        let order = match nest.order {
            LoopOrder::ColumnTileOuter => "outside",
            LoopOrder::RowTileOuter => "inside",
        };
        parts.push(format!("{} column tiles of {} {order}", cut.tiles_of_panel(), cut.tile));
        if let Some(panels) = cut.panels {
            parts.push(format!("in {} panels of {}", panels.count(), panels.width));
        }
    }
    let held = choice.residency;
    if nest.column_tiles() > 1 {
        parts.push(if held.inputs { "inputs held" } else { "inputs read again" }.to_owned());
        if held.recompute {
            parts.push("wide tensors recomputed".to_owned());
        }
    }
    if nest.blocks() > 1 {
        parts.push(if held.weights { "weights held" } else { "weights read again" }.to_owned());
    }
    for (stage, candidate) in graph.stages.ids().zip(&choice.picked) {
        let name = &graph.workload.operators[graph.stages[stage].main].name;
        parts.push(match &candidate.mapping {
            Mapping::Gemm(m) => {
                let k = match m.reduction {
                    _ if m.pk == 1 => String::new(),
                    Reduction::Chain => format!(" x {} of K in a chain", m.pk),
                    Reduction::Tree => format!(" x {} of K in a tree", m.pk),
                };
                format!("`{name}` on {} x {} PCUs{k} in {} groups", m.pm, m.pn, candidate.mapping.groups())
            }
            Mapping::Simd(_) => format!("`{name}` on {} PCUs", candidate.pcus),
        });
    }
    parts.join(", ")
}
