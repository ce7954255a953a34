//! The first minutes of a user: the tutorial does what it shows, and messages name only flags that there are.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::sources::sources;

/// Exit code, standard output and standard error of the program.
pub(crate) fn rdusim(directory: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(words)
        .current_dir(directory)
        .output()
        .expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).collect()
}

/// What a tutorial did.
#[derive(Debug, Default)]
struct Followed {
    commands: usize,
    /// Lines that were compared with what the commands print.
    compared: usize,
}

/// Does what a page shows, in an empty directory: runs the commands of its `sh` blocks, writes a block of `json FILE` to that file, and
/// looks for the lines of every other block in what the commands before it print.
fn followed(name: &str) -> Followed {
    let page = std::fs::read_to_string(Path::new("docs").join(name)).expect("a page");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut output = String::new();
    let mut done = Followed::default();
    for (language, text) in blocks(&page) {
        if let Some(file) = language.strip_prefix("json ") {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("the directory takes files");
            continue;
        }
        if language == "sh" {
            output.clear();
            for line in text.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(words[0], "rdusim", "{line}");
                let (code, stdout, stderr) = rdusim(directory.path(), &words[1..]);
                assert_eq!(code, Some(0), "{line}: {stderr}");
                output.push_str(&stdout);
                done.commands += 1;
            }
            continue;
        }
        let mut rest = output.lines();
        let mut follows = true;
        for wanted in text.lines() {
            if wanted == "..." {
                follows = false;
                continue;
            }
            let found = if follows { rest.next() == Some(wanted) } else { rest.any(|line| line == wanted) };
            assert!(found, "docs/{name} shows {wanted:?}, which is not (or no longer) there in:\n{output}");
            follows = true;
            done.compared += 1;
        }
    }
    done
}

#[test]
fn the_tutorial_does_what_it_shows() {
    let done = followed("tutorial.md");
    assert!(done.commands >= 10 && done.compared >= 10, "{done:?}");
}

fn is_followed(name: &str) {
    let done = followed(name);
    assert!(done.commands >= 4 && done.compared >= 6, "{name}: {done:?}");
}

#[test]
fn the_tutorial_of_architects_does_what_it_shows() {
    is_followed("tutorial-architect.md");
}

#[test]
fn the_tutorial_of_models_does_what_it_shows() {
    is_followed("tutorial-models.md");
}

#[test]
fn the_tutorial_of_papers_does_what_it_shows() {
    is_followed("tutorial-paper.md");
}

/// The README's sample is what its command prints.
#[test]
fn the_readme_shows_what_its_command_prints() {
    let sample = blocks(include_str!("../../README.md")).into_iter().find(|(language, _)| *language == "text");
    let words = ["compare", "--arch", "arch/sn10.toml", "--workload", "workloads/gpt13b-mlp-sparse.toml"];
    let (code, stdout, stderr) = rdusim(Path::new(env!("CARGO_MANIFEST_DIR")), &words);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(sample.expect("a sample").1.trim_end(), stdout.trim_end());
}

#[test]
fn a_file_in_the_wrong_place_is_called_by_its_name() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let refused = |line: &str| {
        let (code, stdout, stderr) = rdusim(here, &line.split(' ').collect::<Vec<_>>());
        assert!(code == Some(2) && stdout.is_empty(), "{line}: {stdout}");
        stderr
    };
    let message = refused("compare --arch workloads/tiny-mlp.toml --workload sn10");
    assert!(
        message.contains("is a workload file") && message.contains("`--workload workloads/tiny-mlp.toml`"),
        "{message}"
    );
    let message = refused("run --mode kbk --arch sn10 --workload arch/sn10.toml");
    assert!(message.contains("is a chip file") && message.contains("`--arch arch/sn10.toml`"), "{message}");
    let message = refused("check --arch sn40");
    assert!(message.contains("did you mean `sn10`, `sn30` or `sn40l`?"), "{message}");
    let message = refused("compare --arch h300 --workload tiny-mlp");
    assert!(message.contains("did you mean `h100`, `h200` or `b300`?") && !message.contains("sn10-8"), "{message}");
    let message = refused("pod dgx-h300 --model gpt2 --phase training --parallel tp=1");
    assert!(message.contains("`dgx-h100`") && !message.contains("sn40l,"), "{message}");
    let message = refused("pod sn40l --model gpt2 --phase training --parallel tp=1");
    assert!(message.contains("is a chip file: it does not describe a system"), "{message}");
    let message = refused("sweep nothing");
    assert!(message.contains("built in are bound-space"), "{message}");
    let message = refused("sweep sn10");
    assert!(message.contains("is a chip file: it does not describe a study"), "{message}");
    let message = refused("compare --arch launch --workload tiny-mlp");
    assert!(message.contains("`rdusim sweep launch` runs a study"), "{message}");
    let message = refused("compare --arch sn10 --workload tiny-mlp --phase decode");
    assert!(message.contains("`--phase` is for models"), "{message}");
    let message = refused("new chip --from sn41l");
    assert!(message.contains("sn40l"), "{message}");
}

/// Words that look like flags in a text.
fn flags(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        let before = text[..at].chars().next_back();
        let word: String =
            text[at + 2..].chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-').collect();
        if word.starts_with(|c: char| c.is_ascii_lowercase()) && before.is_none_or(|c| !c.is_alphanumeric() && c != '-')
        {
            found.insert(format!("--{}", word.trim_end_matches('-')));
        }
    }
    found
}

#[test]
fn messages_name_only_flags_that_their_commands_have() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (_, help, _) = rdusim(root, &["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    let of_command = |command: &str| {
        let (_, text, _) = rdusim(root, &[command, "--help"]);
        // Examples may name flags of other programs' or of other commands.
        flags(text.split("Examples:").next().unwrap_or_default())
    };
    let all: BTreeSet<String> = commands.iter().filter(|name| **name != "help").flat_map(|c| of_command(c)).collect();
    assert!(commands.len() > 15 && all.len() > 50, "{commands:?}: {all:?}");
    // What cargo takes stands in the instructions for a bug report.
    let of_others = ["--release", "--lib", "--locked", "--version"];
    for source in sources().iter().filter(|source| !source.place.ends_with("/tests.rs")) {
        let code = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        // What writes a model's file is asked by `model` and by what takes a config.json.
        let known = if source.module() == "model" { of_command("model") } else { all.clone() };
        for flag in flags(&code) {
            assert!(known.contains(&flag) || of_others.contains(&flag.as_str()), "{}: `{flag}`", source.place);
        }
    }
}
