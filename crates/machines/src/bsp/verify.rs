//! The products of a graph, each planned on a chip and its plan run on numbers.

use super::execute::{Executed, execute};
use super::gemm::{self, Product};
use super::operators::operand_types;
use super::sparse::{Blocks, SparseProduct, execute_sparse};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::{Bsp, SparseKernel};
use rdusim_graph::workload::{OperatorKind, Workload};

/// One product whose plan was run.
#[derive(Debug, Clone)]
pub struct VerifiedProduct {
    /// The operator.
    pub operator: String,
    /// Rows, columns and depth.
    pub extents: [u64; 3],
    /// Tiles at work.
    pub tiles: u64,
    /// What the run has shown.
    pub executed: Executed,
}

/// Plans the products of a graph and runs them on whole numbers drawn from `seed`: one of each operator, on the sparse kernel that
/// the chip file names where its weight has a mask.
///
/// # Errors
/// Products of more than `most_macs` multiply-accumulates together, or none.
pub fn verify(chip: &Bsp, workload: &Workload, seed: u64, most_macs: u64) -> Result<Vec<VerifiedProduct>, Diagnostic> {
    let mut forms = Vec::new();
    for (op, operator) in workload.operators.iter_enumerated() {
        if let Some(form) = workload.form(op).filter(|_| operator.kind == OperatorKind::Gemm) {
            let (a, b) = (&workload.tensors[operator.inputs[0]], &workload.tensors[operator.inputs[1]]);
            forms.push((operator.name.clone(), form, a.dtype, (b.mask.clone(), operand_types(chip, [a, b]))));
        }
    }
    let needed = forms
        .iter()
        .fold(0_u64, |sum, (_, form, _, _)| sum.saturating_add(form.m.saturating_mul(form.n).saturating_mul(form.k)));
    if forms.is_empty() {
        return Err(Diagnostic::new(format!("`{}` has no product, and products are what is verified", workload.name)));
    }
    if needed > most_macs {
        let title = format!(
            "the products of `{}` take {needed} multiply-accumulates, at most {most_macs} are run on numbers",
            workload.name
        );
        return Err(Diagnostic::new(title).with_help("make the dimensions smaller (`--set workload.dims.NAME=...`)"));
    }
    let available = chip.planner.memory_share * chip.tile.sram_bytes as f64;
    let mut list = Vec::with_capacity(forms.len());
    for (operator, form, own, (mask, (dtype, packed))) in forms {
        let extents = [form.m, form.n, form.k];
        let kernel = chip.planner.sparse;
        if let Some(mask) = mask.filter(|_| kernel != SparseKernel::Dense && form.heads * form.instances == 1) {
            let transposes = mask.rows() != form.k || mask.columns() != form.n;
            let blocks = if transposes { Blocks::of(&mask.transposed()) } else { Blocks::of(&mask) };
            let product = SparseProduct { blocks: &blocks, columns: form.m, dtype, available };
            if let Some(executed) = execute_sparse(chip, &product, kernel, seed) {
                let tiles = executed.received.len() as u64;
                list.push(VerifiedProduct { operator, extents, tiles, executed });
                continue;
            }
        }
        let product = Product {
            count: 1,
            m: form.m,
            n: form.n,
            k: form.k,
            dtype,
            a_home: true,
            b_home: true,
            available,
            windows: [None; 2],
            packed,
        };
        let plan = gemm::plan(chip, &product);
        let run = plan.and_then(|plan| Some((execute(chip, &product, &plan.grid, seed)?, plan.grid.tiles())));
        let Some((executed, tiles)) = run else {
            return Err(Diagnostic::new(format!("operator `{operator}` multiplies {own}, which {} cannot", chip.name)));
        };
        list.push(VerifiedProduct { operator, extents, tiles, executed });
    }
    Ok(list)
}
