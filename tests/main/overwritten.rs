//! What would be lost or forged: outputs that replace inputs, endless files, names that steer what shows them.

use crate::first_steps::rdusim;

#[test]
fn an_output_replaces_no_input() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    for (name, from) in [("chip.toml", "arch/plasticine.toml"), ("work.toml", "workloads/tiny-mlp.toml")] {
        let text = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(from)).expect(from);
        std::fs::write(directory.join(name), text).expect("a file");
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink("chip.toml", directory.join("link.toml")).expect("a link");
    let run = ["run", "--mode", "kbk", "--arch", "chip.toml", "--workload", "work.toml"];
    let prove = ["prove", "--mode", "kbk", "--arch", "chip.toml", "--workload", "work.toml"];
    let chip = std::fs::read_to_string(directory.join("chip.toml")).expect("the chip");
    for (words, more) in [
        (&run[..], &["--save-config", "chip.toml"][..]),
        (&run, &["--save-config", "link.toml"]),
        (&run, &["--save-config", "./work.toml"]),
        (&run, &["--trace", "work.toml"]),
        (&run, &["--trace", "new.json", "--save-config", "new.json"]),
        (&prove, &["--out", "chip.toml"]),
    ] {
        let (code, stdout, stderr) = rdusim(directory, &[words, more].concat());
        assert!(code == Some(2) && stdout.is_empty(), "{more:?}: {code:?} {stdout}");
        assert!(stderr.contains("would replace") || stderr.contains("are one file"), "{more:?}: {stderr}");
    }
    assert_eq!(std::fs::read_to_string(directory.join("chip.toml")).expect("the chip"), chip);
    assert!(!directory.join("new.json").exists());
    let (code, _, stderr) = rdusim(directory, &[&run[..], &["--save-config", "new.toml"]].concat());
    assert_eq!((code, directory.join("new.toml").exists()), (Some(0), true), "{stderr}");
}

#[cfg(unix)]
#[test]
fn endless_files_are_not_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (code, stdout, _) = rdusim(directory.path(), &["check", "/dev/zero"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
}

#[test]
fn names_do_not_turn_what_follows_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let text =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/tiny-mlp.toml"));
    let text = text.expect("a workload");
    let name = text.lines().find(|line| line.starts_with("name = ")).expect("a name");
    for turned in ["a\u{202e}b", "a\u{2066}b"] {
        std::fs::write(directory.join("work.toml"), text.replacen(name, &format!("name = \"{turned}\""), 1))
            .expect("a file");
        let (code, _, stderr) = rdusim(directory, &["check", "work.toml"]);
        assert!(code == Some(2) && stderr.contains("no name") && !stderr.contains(turned), "{stderr}");
    }
}

#[test]
fn a_field_that_a_stack_does_not_read_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let set = "arch.stack.popart.step_us=100";
    let (code, _, stderr) = rdusim(directory.path(), &["check", "--arch", "ipu-pod16", "--set", set]);
    assert!(code == Some(2) && stderr.contains("has no effect"), "{code:?} {stderr}");
}
