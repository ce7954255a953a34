//! How a result was made: the command as typed and the files that it read, for pages.

use std::path::Path;

use crate::input;
use crate::report::{Made, PageInput};

/// This command and the files that it read.
pub(super) fn made(inputs: &[&Path]) -> Made {
    made_by(command_line(), inputs)
}

/// Most bytes of an input that a page shows.
const MOST_INPUT_BYTES: usize = 400_000;

/// A command and the files that it read.
fn made_by(command: String, inputs: &[&Path]) -> Made {
    // Read before, so only a file that has just gone is left out.
    let text = |path: &&Path| {
        let mut text = input::text_of(path)?;
        if text.len() > MOST_INPUT_BYTES {
            text = format!("{} bytes, too many for a page", text.len());
        }
        Some(PageInput { name: path.display().to_string(), text })
    };
    Made::new(command, inputs.iter().filter_map(text).collect())
}

/// The command that runs a study at one go and the files that it reads: what `merge` joins is what it would have made.
pub(super) fn made_by_sweep(arguments: &[String], inputs: &[&Path]) -> Made {
    made_by(joined(std::iter::once("sweep".to_owned()).chain(arguments.iter().cloned())), inputs)
}

/// Options that change no result: where it is written, and on how many threads it was found.
const WITHOUT_EFFECT: [&str; 3] = ["--out", "-o", "--threads"];

/// The same of options without a value: what is told on standard error.
const TOLD: [&str; 4] = ["-v", "-vv", "-vvv", "--verbose"];

/// The command as typed but for [`WITHOUT_EFFECT`] and [`TOLD`].
fn command_line() -> String {
    joined(with_effect(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())).into_iter())
}

/// A command of these arguments, words with blanks or signs in quotes.
fn joined(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    let word = |word: String| {
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    std::iter::once("rdusim".to_owned()).chain(arguments.map(word)).collect::<Vec<_>>().join(" ")
}

/// Arguments but for [`WITHOUT_EFFECT`] and their values, and for [`TOLD`].
fn with_effect(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for argument in arguments {
        let option = argument.split_once('=').map_or(argument.as_str(), |(option, _)| option);
        let is_left_out = WITHOUT_EFFECT.contains(&option);
        if !is_left_out && !is_value && !TOLD.contains(&argument.as_str()) {
            kept.push(argument.clone());
        }
        is_value = is_left_out && !argument.contains('=');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_records_what_changes_results() {
        let kept = |text: &str| with_effect(text.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            kept("sweep a.toml --out b --threads 2 --set workload.dims.tokens=8"),
            "sweep a.toml --set workload.dims.tokens=8"
        );
        assert_eq!(kept("run --out=b --arch a.toml -o"), "run --arch a.toml");
        assert_eq!(kept("-v run --arch a.toml -vv --verbose --seed 1"), "run --arch a.toml --seed 1");
    }
}
