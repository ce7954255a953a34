//! Inputs as a caller gives them: by the name of a file, or as their text.

use std::path::{Path, PathBuf};

/// Where the text of an input is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// In a file, or in the built-in file of this name.
    File(PathBuf),
    /// Here; `name` stands for the file in errors.
    Text {
        /// Name in errors.
        name: String,
        /// The text.
        text: String,
    },
}

impl Given {
    /// The path of a file, or the name of a text.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } => name.clone(),
        }
    }
}

impl From<&Path> for Given {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}
