//! Execution traces in the form of Chakra (`MLCommons`), which ASTRA-sim reads: a file for each chip, `PREFIX.RANK.et`, of a
//! `GlobalMetadata` and `Node`s, each a Protocol Buffers message behind its length. The schema is `et_def.proto` of
//! github.com/mlcommons/chakra at 6dc63e1, the fields of 0.0.4 alone; attributes have the names and types that the feeder reads.

use super::collective::CollectiveKind;
use super::execution_trace::{ExecutionTraces, Operation, TraceNode};

/// Version of the schema that files say.
const VERSION: &str = "0.0.4";

/// `NodeType`.
const COMPUTE: u64 = 4;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;

/// Fields of `AttributeProto` by the type of their value.
const INT32: u64 = 7;
const INT64: u64 = 9;
const BOOL: u64 = 27;
const STRING: u64 = 29;

impl ExecutionTraces<'_> {
    /// The file of a chip.
    pub fn chakra(&self, chip: u64) -> Vec<u8> {
        let mut metadata = Message::default();
        metadata.text(1, VERSION);
        let mut file = Message::default();
        file.delimited(&metadata);
        for (id, node) in self.of(chip).iter().enumerate() {
            file.delimited(&message(id as u64, node));
        }
        file.0
    }

    /// The groups of chips that collectives name, as ASTRA-sim's file of communicators has them.
    pub fn chakra_groups(&self) -> String {
        let groups = self.groups().iter().enumerate();
        let lines: Vec<String> = groups.map(|(id, chips)| format!("  \"{id}\": {chips:?}")).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }
}

/// `Node`. Identifiers are indices and one, as zero is not written.
fn message(index: u64, node: &TraceNode) -> Message {
    let (kind, micros) = match node.operation {
        Operation::Compute { micros } => (COMPUTE, micros),
        Operation::Send { .. } => (SEND, 0),
        Operation::Receive { .. } => (RECEIVE, 0),
        Operation::Collective { .. } => (COLLECTIVE, 0),
    };
    let mut message = Message::default();
    message.varint(1, index + 1);
    message.text(2, &node.name);
    message.varint(3, kind);
    let mut after = Message::default();
    node.after.iter().for_each(|&before| after.bare(before + 1));
    if !node.after.is_empty() {
        message.nested(5, &after);
    }
    message.varint(7, micros);
    let mut attribute = |name: &str, field: u64, value: u64| message.attribute(name, |of| of.varint(field, value));
    attribute("is_cpu_op", BOOL, 0);
    match node.operation {
        Operation::Compute { .. } => {}
        Operation::Send { to: peer, bytes, tag } | Operation::Receive { from: peer, bytes, tag } => {
            attribute(if kind == SEND { "comm_dst" } else { "comm_src" }, INT32, peer);
            attribute("comm_size", INT64, bytes);
            attribute("comm_tag", INT32, tag);
        }
        Operation::Collective { kind, bytes, group } => {
            attribute("comm_type", INT64, number(kind));
            attribute("comm_size", INT64, bytes);
            message.attribute("pg_name", |of| of.text(STRING, &group.to_string()));
        }
    }
    message
}

/// `CollectiveCommType`.
fn number(kind: CollectiveKind) -> u64 {
    match kind {
        CollectiveKind::AllReduce => 0,
        CollectiveKind::AllGather => 2,
        CollectiveKind::Broadcast | CollectiveKind::SendReceive => 5,
        CollectiveKind::AllToAll => 6,
        CollectiveKind::ReduceScatter => 7,
    }
}

/// A message as it lies in a file.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    /// A number of seven bits a byte, the lowest first.
    fn bare(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.bare(field << 3);
        self.bare(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.bare(field << 3 | 2);
        self.bare(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn nested(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn delimited(&mut self, message: &Self) {
        self.bare(message.0.len() as u64);
        self.0.extend(&message.0);
    }

    /// An `AttributeProto` of a node.
    fn attribute(&mut self, name: &str, value: impl FnOnce(&mut Self)) {
        let mut attribute = Self::default();
        attribute.text(1, name);
        value(&mut attribute);
        self.nested(10, &attribute);
    }
}
