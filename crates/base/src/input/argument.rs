//! A `--set` argument as text: where its value starts, and how an error shows it.

use std::ops::Range;

use crate::diagnostics::{COMMAND_LINE, Origin};

/// A part of the argument as the origin of an error.
pub(super) fn origin(argument: &str, span: Range<usize>, label: &str) -> Origin {
    let flag = "--set ";
    Origin {
        path: COMMAND_LINE.into(),
        text: format!("{flag}{argument}").into(),
        span: span.start + flag.len()..span.end + flag.len(),
        label: label.into(),
    }
}

/// The first `=` that is not inside a quoted key.
pub(super) fn equals_outside_quotes(argument: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in argument.bytes().enumerate() {
        match (quote, byte) {
            (None, b'=') => return Some(at),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}
