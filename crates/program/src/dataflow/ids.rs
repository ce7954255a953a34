//! Ids of the three tables of a dataflow.

use rdusim_base::id_type;

id_type! {
    /// A loop of the section's loop table.
    LoopId
}
id_type! {
    /// A process.
    ProcessId
}
id_type! {
    /// A buffer between processes: of a section, a row of its buffers.
    BufferId as a number
}
