//! What every chip without a mapping does with a workload, whatever its kind.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{AnyChip, Bsp, Gpu, Systolic, Wafer};
use rdusim_graph::workload::Workload;
use rdusim_outcome::Outcome;

use crate::{bsp, gpu, systolic, wafer};

/// A chip that runs a workload as it is: kernel by kernel, or superstep by superstep.
pub trait Machine {
    /// Runs the workload in each mode.
    ///
    /// # Errors
    /// What the model of the chip refuses: data types that it does not multiply, tensors that it has no room for.
    fn run(&self, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic>;

    /// Cycles that no run of the workload in this mode goes below.
    fn bound_cycles(&self, workload: &Workload, mode: Mode) -> u64;
}

/// The same functions of the modules of the kinds.
macro_rules! is_machine {
    ($($chip:ty: $module:ident),*) => {
        $(impl Machine for $chip {
            fn run(&self, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic> {
                $module::run(self, workload, modes)
            }
            fn bound_cycles(&self, workload: &Workload, mode: Mode) -> u64 {
                $module::bound_cycles(self, workload, mode)
            }
        })*
    };
}
is_machine!(Gpu: gpu, Bsp: bsp, Systolic: systolic, Wafer: wafer);

/// A chip that runs a workload without a mapping; none if it is an RDU.
pub fn machine(chip: &AnyChip) -> Option<&dyn Machine> {
    match chip {
        AnyChip::Rdu(_) => None,
        AnyChip::Gpu(gpu) => Some(&**gpu),
        AnyChip::Bsp(bsp) => Some(&**bsp),
        AnyChip::Systolic(systolic) => Some(&**systolic),
        AnyChip::Wafer(wafer) => Some(&**wafer),
    }
}
