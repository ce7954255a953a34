//! Typed ids of the units of a chip's grid.

use crate::id_type;

id_type! {
    /// A PCU: its position in the grid's row-major list.
    PcuId
}
id_type! {
    /// A PMU: its position in the grid's row-major list.
    PmuId
}
