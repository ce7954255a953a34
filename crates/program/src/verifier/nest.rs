//! Checks of the loop nest and of the part each stage takes in it.

use crate::configuration::Section;
use crate::ids::StageId;
use crate::nest::{LoopLevel, LoopOrder, Nest, TiledAxis};
use crate::stage::Stage;

use super::context::Verifier;
use super::fault::{Fault, Place};
use super::roles::Roles;

impl Verifier<'_> {
    /// The nest alone: rows, row tiles, row blocks, column tiles, and that the section runs as one pass.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn nest(&self, nest: &Nest) -> Result<(), Fault> {
        let rows = self.graph.rows;
        if nest.rows != rows {
            let title = format!("the nest has {} rows, the section's operators have {rows}", nest.rows);
            return Err(Fault::new(Place::Nest, title, format!("expected {rows}")));
        }
        if !(1..=rows).contains(&nest.tile_rows) {
            let title = format!("a row tile cannot have {} of the section's {rows} rows", nest.tile_rows);
            return Err(Fault::new(Place::TileRows, title, format!("expected from 1 to {rows}")));
        }
        let row_tiles = nest.row_tiles();
        if !(1..=row_tiles).contains(&nest.block_tiles) {
            let title = format!("a row block cannot have {} of the section's {row_tiles} row tiles", nest.block_tiles);
            return Err(Fault::new(Place::BlockTiles, title, format!("expected from 1 to {row_tiles}")));
        }
        self.cut(nest)?;
        if !Roles::new(self.graph, nest).is_one_pass() {
            let title = "the pipeline would stop: behind a stage that accumulates over column tiles, another works along the cut";
            return Err(Fault::new(Place::Nest, title, "expected another axis, or no cut"));
        }
        if !self.graph.keeps_statistics(nest) {
            let title =
                format!("a row block has {} row tiles, and the softmax goes over tiles of keys", nest.block_tiles);
            let expected = "expected 1, or `row_tile_outer`: maxima and sums of one row tile are kept";
            return Err(Fault::new(Place::BlockTiles, title, expected));
        }
        let sequences = self.graph.sequences();
        if sequences > 1 && nest.block_tiles.saturating_mul(nest.tile_rows).saturating_mul(sequences) != rows {
            let of_block = nest.block_tiles.saturating_mul(nest.tile_rows);
            let title = format!("a row block has {of_block} rows, every sequence has {}", rows / sequences);
            return Err(Fault::new(Place::BlockTiles, title, "expected whole row tiles, one row block a sequence"));
        }
        Ok(())
    }

    fn cut(&self, nest: &Nest) -> Result<(), Fault> {
        let Some(cut) = nest.tiled_axis else {
            if nest.order == LoopOrder::RowTileOuter {
                let title = "the order `row_tile_outer` needs a cut";
                return Err(Fault::new(Place::Nest, title, "expected `cut`, or `column_tile_outer`"));
            }
            return Ok(());
        };
        let Some(axis) = self.graph.axes.get(cut.axis).filter(|axis| axis.extent == cut.extent) else {
            let title = format!("the section has no axis {} of {} elements to cut", cut.axis, cut.extent);
            return Err(Fault::new(Place::Width, title, "expected an axis that no operator needs whole"));
        };
        self.panels(nest, cut)?;
        if !self.graph.may_cut(cut.axis) {
            let title = "sequences have second operands of their own, and column tiles do not cut their keys";
            return Err(Fault::new(Place::Width, title, "expected no cut, or one of the keys"));
        }
        let is_whole = cut.tile == cut.extent || cut.tile.is_multiple_of(axis.grain);
        if !(1..=cut.extent).contains(&cut.tile) || !is_whole {
            let title = format!("a column tile cannot be {} of {} elements wide", cut.tile, cut.extent);
            let expected =
                format!("expected at most {}, in multiples of {} (blocks of a mask)", cut.extent, axis.grain);
            return Err(Fault::new(Place::Width, title, expected));
        }
        Ok(())
    }
}

impl Verifier<'_> {
    /// The panels of a nest, if it has any.
    fn panels(&self, nest: &Nest, cut: TiledAxis) -> Result<(), Fault> {
        let Some(panels) = cut.panels else { return Ok(()) };
        if nest.order != LoopOrder::ColumnTileOuter {
            let title = "the order `row_tile_outer` has no panels: all weights lie on chip in it";
            return Err(Fault::new(Place::Width, title, "expected `column_tile_outer`, or no panels"));
        }
        if !self.graph.may_have_panels_of(&cut) {
            let title = format!("{} panels of {} column tiles cannot be", panels.count(), cut.tiles_of_panel());
            let expected =
                "expected two or more of two or more, over the columns and the depth of the one product with a weight";
            return Err(Fault::new(Place::Width, title, expected));
        }
        let Some(axis) = self.graph.axes.get(panels.axis).filter(|axis| axis.extent == panels.extent) else {
            let title = format!("the section has no axis {} of {} elements to cut", panels.axis, panels.extent);
            return Err(Fault::new(Place::Width, title, "expected the columns of its product"));
        };
        if !panels.width.is_multiple_of(axis.grain) {
            let title = format!("a panel cannot be {} of {} elements wide", panels.width, panels.extent);
            let expected = format!("expected multiples of {} (blocks of a mask)", axis.grain);
            return Err(Fault::new(Place::Width, title, expected));
        }
        Ok(())
    }
}

/// The nest of a section.
pub(super) fn check(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    verifier.nest(&section.schedule.nest())
}

/// Every stage is the one its operators make, and its loop levels are those of the nest.
pub(super) fn stages(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let graph = verifier.graph;
    let are_same = section.operators == graph.operators
        && section.stages.len() == graph.stages.len()
        && section.stages.iter().zip(&graph.stages).all(|(stage, spec)| stage.spec == *spec);
    if !are_same {
        let title = "the section's stages are not those that its operators make";
        return Err(Fault::new(Place::Section, title, format!("expected {} stages", graph.stages.len())));
    }
    let roles = Roles::new(graph, &section.schedule.nest());
    for (s, stage) in section.stages.iter_enumerated() {
        let name = verifier.stage(s);
        if stage.recomputed && !may_recompute(verifier, section, &roles, s) {
            let title = format!("`{name}` computes the same again in every column tile, and cannot");
            let expected = "expected a stage off the cut whose result only stages along the cut take";
            return Err(Fault::new(Place::Stage(s), title, expected));
        }
        let is_firing = roles.along[s] || stage.recomputed;
        let expected = match (is_firing, roles.in_panels[s]) {
            (true, _) => LoopLevel::FIRING,
            (false, true) => LoopLevel::PANEL_ROW,
            (false, false) => LoopLevel::ROW_TILE,
        };
        if stage.level != expected {
            let title = format!("`{name}` runs once a {:?}", stage.level);
            return Err(Fault::new(Place::Stage(s), title, format!("expected {expected:?} under this cut")));
        }
        let cuts = (roles.k_cut[s] && section.schedule.tiling().column_tiles() > 1, roles.n_cut[s]);
        if (stage.k_cut, stage.n_cut) != cuts {
            let title = format!("`{name}` says that its K, its columns are cut: {}, {}", stage.k_cut, stage.n_cut);
            return Err(Fault::new(Place::Stage(s), title, format!("expected {}, {}", cuts.0, cuts.1)));
        }
    }
    Ok(())
}

/// Whether a stage may compute its result again in every column tile.
fn may_recompute(verifier: &Verifier<'_>, section: &Section, roles: &Roles, s: StageId) -> bool {
    let spec = &verifier.graph.stages[s];
    let is_second = section.stages.iter().any(|stage| stage.spec.weight == Some(spec.output));
    let takes = |stage: &&Stage| stage.spec.activations.contains(&spec.output);
    let mut consumers = section.stages.iter().filter(takes).peekable();
    Verifier::repeats_rows(&section.schedule.nest())
        && !roles.along[s]
        && !roles.late[s]
        && spec.sums.is_none()
        && spec.sequence.is_none()
        && !is_second
        && !verifier.graph.leaves_section(spec.output)
        && consumers.peek().is_some()
        && consumers.all(|stage| stage.level == LoopLevel::FIRING)
}
