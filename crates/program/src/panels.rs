//! Panels of columns: which sections may cut the columns of their product, and its depth within each panel.
//!
//! `for block { for panel { for column tile { for row tile } } }` keeps the fp32 sums of a row block and a panel on chip while the
//! depth passes in column tiles (the panels of Goto and van de Geijn 2008). Of M rows in blocks of m and N columns in panels of
//! n it reads the operand `ceil(N / n)` times and the weight `ceil(M / m)` times, and holds m x n sums: where SRAM is short, less
//! than with whole rows of sums or with a whole row block of the operand.

use super::graph::SectionGraph;
use super::nest::TiledAxis;

/// The two axes of a product whose columns may be cut into panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PanelAxes {
    /// The depth that it adds up over, which passes in column tiles in every panel.
    pub depth: usize,
    /// The columns of its result, which are cut into panels.
    pub columns: usize,
}

impl SectionGraph<'_> {
    /// The axes of the section's product, if its columns may be cut into panels: the section has one product with a weight from off
    /// chip, reads its operand from there, and all that comes behind it works element by element along its columns.
    pub fn panel_axes(&self) -> Option<PanelAxes> {
        let mut products = self.stages.iter_enumerated().filter(|(_, spec)| spec.weight.is_some());
        let (product, spec) = products.next().filter(|_| products.next().is_none())?;
        let &[operand] = spec.activations.as_slice() else { return None };
        let (depth, columns) = (self.column_axis(operand)?, self.column_axis(spec.output)?);
        let is_plain = spec.sequence.is_none() && self.form(product).is_none() && self.sampled(product).is_none();
        let is_read = self.producer(operand).is_none() && self.workload.tensors[operand].window().is_none();
        let are_cut = depth != columns && self.may_cut(depth) && self.may_cut(columns) && self.sequences() == 1;
        let is_along = |tensor| self.column_axis(tensor) == Some(columns);
        let mut others = self.stages.iter_enumerated().filter(|&(stage, _)| stage != product);
        let follow = others.all(|(_, spec)| {
            spec.sums.is_none() && spec.activations.iter().chain([&spec.output]).all(|&tensor| is_along(tensor))
        });
        let has_keys = [depth, columns].iter().any(|&axis| self.axes[axis].keys.is_some());
        let may = is_plain && is_read && are_cut && spec.sums.is_none() && follow && !has_keys;
        may.then_some(PanelAxes { depth, columns })
    }

    /// Whether a cut has no panels, or those that the section may have: several, each with several column tiles.
    pub fn may_have_panels_of(&self, cut: &TiledAxis) -> bool {
        let Some(panels) = cut.panels else { return true };
        let are_axes = |axes: PanelAxes| (axes.depth, axes.columns) == (cut.axis, panels.axis);
        let are_several = panels.width > 0 && panels.count() > 1 && cut.tile > 0 && cut.tiles_of_panel() > 1;
        are_several && self.panel_axes().is_some_and(are_axes)
    }
}
