//! A default answer is one screen, whatever was asked; `--full` prints the tables behind it.

use std::path::Path;

use crate::first_steps::rdusim;

const MOST_LINES: usize = 24;
const MOST_COLUMNS: usize = 120;

fn printed(words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let (code, stdout, stderr) = rdusim(Path::new(env!("CARGO_MANIFEST_DIR")), &words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    stdout
}

/// The screen, and the tables.
fn asked(words: &str) -> (String, String) {
    let screen = printed(words);
    assert!(screen.lines().count() <= MOST_LINES, "{words}: {} lines\n{screen}", screen.lines().count());
    for line in screen.lines() {
        assert!(line.chars().count() <= MOST_COLUMNS && line == line.trim_end(), "{words}: {line}");
    }
    (screen, printed(&format!("{words} --full")))
}

#[test]
fn runs_are_told_on_one_screen() {
    for (words, verdict) in [
        ("compare --arch sn10 --workload workloads/tiny-mlp.toml", true),
        ("run --mode fused --arch plasticine --workload workloads/tiny-mlp.toml", false),
        ("compare --arch h100 --workload workloads/llama2-7b-decode.toml --against a100", true),
        ("compare --arch h100 --workload workloads/gpt2-xl-training.toml", true),
        ("compare --arch h100 --against a100,b200,h200,tpu-v4,gaudi3 --workload workloads/llama2-7b-decode.toml", true),
        ("compare --arch cs2 --workload workloads/llama2-7b-decode.toml --against tpu-v4", true),
        ("run --mode kbk --arch bow --workload workloads/gpt13b-mlp.toml", false),
        ("compare --arch sn10 --workload workloads/tiny-mlp.toml --against h100 --uncertainty --samples 2", true),
    ] {
        let (screen, full) = asked(words);
        assert_eq!(screen.contains(" as fast as "), verdict, "{words}: {screen}");
        assert!(screen.contains("bound by") && screen.contains("--full"), "{words}: {screen}");
        assert!(full.lines().count() > screen.lines().count(), "{words}: {full}");
    }
}

#[test]
fn explanations_are_told_on_one_screen() {
    for words in [
        "explain --mode fused --arch plasticine --workload workloads/tiny-mlp.toml",
        "explain --arch a100 --workload workloads/gpt13b-mlp.toml",
    ] {
        let (screen, full) = asked(words);
        assert!(screen.contains("is bound by ") && screen.contains("saves"), "{words}: {screen}");
        assert!(full.contains("Busy for"), "{words}: {full}");
    }
}

#[test]
fn pods_are_told_on_one_screen() {
    let of_training = "--phase training --parallel tp=8,pp=2 --batch 16 --seq 2048";
    for words in [
        format!("pod dgx-a100 --model gpt3-175b --chips 512 --batch 512 --search --parallel recompute=full {}", "--phase training"),
        format!("pod dgx-a100 --model gpt-13b {of_training} --mtbf-h 1000 --checkpoint-s 60"),
        format!("pod dgx-a100 --model mixtral-8x7b {of_training}"),
        "pod dgx-h100 --model llama2-7b --phase prefill --parallel tp=2 --batch 4 --seq 512".to_owned(),
        "pod dgx-h100 --model llama3-70b --phase decode --parallel tp=8 --batch 4 --seq 1024 --draft llama3-8b --speculate 4 \
         --accept 0.75"
            .to_owned(),
        "pod dgx-a100 --model llama3-8b --phase requests --parallel tp=1 --batch 8 --arrivals 2 --requests 20".to_owned(),
    ] {
        let (screen, full) = asked(&words);
        assert!(screen.contains("tokens/s"), "{words}: {screen}");
        assert!(full.lines().count() + 1 >= screen.lines().count(), "{words}: {full}");
    }
}
