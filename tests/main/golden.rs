//! What `compare` prints, to the byte. After a change that is meant to change it: `INSTA_UPDATE=always cargo test --test
//! main golden`, and read the diff.

use std::process::Command;

/// Standard output of `compare` on the tiny workload.
fn compare(format: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(["compare", "--arch", "arch/sn10.toml", "--workload", "workloads/tiny-mlp.toml", "--format", format])
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("results are UTF-8")
}

#[test]
fn table() {
    insta::assert_snapshot!("compare_table", compare("table"));
}

#[test]
fn json() {
    insta::assert_snapshot!("compare_json", compare("json"));
}
