//! Typed ids of the tables of a section, and of the units of a chip's grid.

use rdusim_base::id_type;

pub use super::dataflow::BufferId;

id_type! {
    /// A stage of a section.
    StageId as a number
}
id_type! {
    /// An off-chip stream of a section.
    StreamId as a number
}
id_type! {
    /// A flow of a section.
    FlowId as a number
}
id_type! {
    /// A PCU: its position in the grid's row-major list.
    PcuId
}
id_type! {
    /// A PMU: its position in the grid's row-major list.
    PmuId
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKind, verifier::Place};
    use rdusim_base::index::Id;

    #[test]
    fn ids_of_a_section_are_written_as_numbers() {
        let (stage, stream, buffer, flow) =
            (StageId::from_index(3), StreamId::from_index(1), BufferId::from_index(20), FlowId::from_index(0));
        assert_eq!(format!("{stage} {stream} {buffer} {flow}"), "3 1 20 0");
        assert_eq!(format!("{:?}", FlowKind::Fill { stream, buffer }), "Fill { stream: 1, buffer: 20 }");
        assert_eq!(format!("{:?} {:?}", Place::Link(flow, 7), Some(stage)), "Link(0, 7) Some(3)");
        assert_eq!(serde_json::to_string(&[buffer]).expect("numbers serialise"), "[20]");
    }
}
