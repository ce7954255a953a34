//! Operator graphs of known models ([`model`]) and of files of other programs ([`import`]): ONNX, `torch.export` and
//! `config.json`.
//!
//! Files that are imported are not trusted: no length that a file claims is allocated before it is checked.

pub mod import;
pub mod model;
