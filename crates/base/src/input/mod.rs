//! Reading TOML inputs: the text, the `--set` overrides applied to it, and errors that point into either.

mod argument;
mod builtin;
mod explain;
mod field;
mod file;
mod flat;
mod given;
mod kind;
mod overrides;
mod patch;
mod range;
mod source;
mod suffix;
mod suggest;
mod template;
mod value;

pub use builtin::{BUILTINS, Builtin, builtin, named, referenced, text_of};
pub use field::field_of;
pub use flat::{Fields, fields};
pub use given::Given;
pub use kind::FileKind;
pub use overrides::{Override, Root};
pub use range::{RangeValues, SetRange};

pub use file::{MOST_NETWORK_BYTES, line_of_record, open, open_inside, read_bytes, refuse_repeated};
pub use file::{read_piped_text, read_text};
pub use source::Source;
pub use suggest::suggest;
pub use template::Template;
pub use value::{Count, Real, Table};
