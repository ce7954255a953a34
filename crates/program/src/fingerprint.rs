//! Short marks of a chip and of a workload: a configuration, or a certificate, is for one of each.

use std::fmt::{self, Write};

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{Operator, Phase, Tensor, Workload};

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

fn mark(write: impl FnOnce(&mut Fnv) -> fmt::Result) -> String {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    write(&mut hash).expect("hashing does not fail");
    format!("{:016x}", hash.0)
}

/// A mark of everything a chip file says.
pub fn of_chip(chip: &Chip) -> String {
    mark(|hash| write!(hash, "{chip:?}"))
}

/// A mark of a graph: shapes, operators, and which elements of its weights are stored.
pub fn of_workload(workload: &Workload) -> String {
    mark(|hash| {
        for tensor in &workload.tensors {
            let Tensor { name, rows, columns, dtype, role, mask, packed, pruned, declared: _, view, repeat } = tensor;
            write!(hash, "{name:?} {rows} {columns} {dtype:?} {role:?};")?;
            if view.is_some() || *repeat > 1 {
                write!(hash, "{view:?} {repeat};")?;
            }
            if let Some(packed) = packed {
                write!(hash, "{packed:?};")?;
            }
            if let Some(pruned) = pruned {
                write!(hash, "{pruned:?};")?;
            }
            let Some(mask) = mask else { continue };
            if mask.is_selection() {
                write!(hash, "selection;")?;
            }
            write!(hash, "{} {};", mask.block_rows(), mask.block_columns())?;
            for column in 0..mask.n_blocks() {
                write!(hash, "{:x?}", mask.column_words(column))?;
            }
        }
        for op in &workload.operators {
            write!(hash, "{} {:?} {:?} {:?};", op.name, op.kind, op.inputs, op.output)?;
            let Operator { form, heads, vectors, block, repeat, phase, every, .. } = op;
            if *every > 1 {
                write!(hash, "{every};")?;
            }
            if form.is_some() || *heads > 1 || !vectors.is_empty() || block.is_some() || *phase != Phase::Forward {
                write!(hash, "{form:?} {heads} {vectors:?} {block:?} {repeat} {phase:?};")?;
            }
        }
        Ok(())
    })
}
