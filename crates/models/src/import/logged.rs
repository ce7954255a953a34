//! What an importer has read, as lines of the log, target `import`, level debug.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::draft::Draft;
use super::net::Net;
use super::subject::Subject;

/// The target of the records.
const TARGET: &str = "import";

/// Logs a model that was read from its `config.json`: its family, its sizes, its kinds of layers.
pub(super) fn subject(subject: &Subject) {
    if !log::log_enabled!(target: TARGET, log::Level::Debug) {
        return;
    }
    let mut text = format!(
        "read as `{}`, sequences of at most {} tokens: {:?}",
        subject.family, subject.sequence, subject.architecture
    );
    if let Some(stack) = &subject.layers {
        for (at, kind) in stack.kinds.iter().enumerate() {
            let layers = stack.order.iter().filter(|&&of| usize::from(of) == at).count();
            let _ = write!(text, "\n{layers} of {} layers: {kind:?}", stack.order.len());
        }
    }
    log::debug!(target: TARGET, "{text}");
}

/// Logs a network: the nodes of its file by their functions, those that were folded into others or that nobody reads, and the
/// operators that it became.
pub(super) fn network(net: &Net<'_>, draft: &Draft<'_>) {
    if !log::log_enabled!(target: TARGET, log::Level::Debug) {
        return;
    }
    let gone = net.nodes.iter().filter(|node| node.is_gone).map(|node| node.op.as_str());
    let kept = net.nodes.iter().filter(|node| !node.is_gone).map(|node| node.op.as_str());
    let operators = draft.operators.iter().map(|operator| operator.kind);
    let lines = [("nodes that are read", counted(kept)), ("nodes that are folded or unread", counted(gone))];
    let mut text = format!("{} operators: {}", draft.operators.len(), counted(operators));
    for (name, counts) in lines.iter().filter(|(_, counts)| !counts.is_empty()) {
        let _ = write!(text, "\n{name}: {counts}");
    }
    log::debug!(target: TARGET, "{text}");
}

/// How often each word occurs, as in `Add x 3, Mul x 1`.
fn counted<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(word, count)| format!("{word} x {count}")).collect();
    parts.join(", ")
}
