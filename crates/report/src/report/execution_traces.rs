//! Execution traces of a pod as files.

use std::path::Path;

use super::write::{File, WriteError, write};
use rdusim_pod::ExecutionTraces;

/// Writes the traces of all chips, one at a time (of many chips they are larger than memory may be), and the groups of their collectives.
///
/// # Errors
/// A file cannot be written.
pub fn write_traces(directory: &Path, traces: &ExecutionTraces<'_>) -> Result<(), WriteError> {
    for chip in 0..traces.chips() {
        let file = File { name: format!("rank.{chip}.et"), bytes: traces.chakra(chip) };
        write(directory, &[file])?;
    }
    let file = File { name: "comm_groups.json".to_owned(), bytes: traces.chakra_groups().into_bytes() };
    write(directory, &[file])
}
