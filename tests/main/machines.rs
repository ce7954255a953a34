//! Chips of systolic arrays and wafers, through the binary: training steps of sparse layers that are repeated.

use serde_json::Value;

use crate::first_steps::rdusim;

/// A training step of three layers, of whose weights an eighth is stored, in each mode.
fn trained(arch: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let size =
        "--layers 3 --hidden 256 --heads 4 --ffn 1024 --vocabulary 512 --sequence 64 --sparsity 0.875 --block 16";
    let words = format!("model gpt --phase training --optimizer adam {size} -o layers.toml");
    let (code, _, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{stderr}");
    let words = format!("compare --arch {arch} --workload layers.toml --format json");
    let (code, stdout, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    json["runs"].as_array().expect("runs").clone()
}

/// Bytes read and written of tensors whose names begin so.
fn moved(run: &Value, begins: &str) -> (u64, u64) {
    let tensors = run["traffic"]["by_tensor"].as_object().expect("tensors");
    let of = |key: &str| {
        let named = tensors.iter().filter(|(name, _)| name.starts_with(begins));
        named.map(|(_, bytes)| bytes[key].as_u64().expect("bytes")).sum()
    };
    (of("off_chip_read_bytes"), of("off_chip_write_bytes"))
}

fn holds_its_laws(run: &Value) {
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(number(&run["bound_cycles"]) <= number(&run["cycles"]), "{} of {}", run["bound_cycles"], run["cycles"]);
    let sections: u64 =
        run["sections"].as_array().expect("sections").iter().map(|section| number(&section["cycles"])).sum();
    assert_eq!(sections, number(&run["cycles"]));
}

#[test]
fn what_layers_keep_for_the_backward_phase_does_not_stay_in_a_buffer() {
    let runs = trained("tpu-v4");
    runs.iter().for_each(holds_its_laws);
    // Gradients of the three matrices go from the backward phase to the update, which takes the eighth that is stored.
    let (read, written) = moved(&runs[2], "d_w_down");
    assert!(written >= 3 * 256 * 1024 * 2 && read >= written / 8, "{read} read, {written} written");
}

#[test]
fn weights_stream_over_a_wafer_forward_and_backward_and_gradients_leave() {
    let runs = trained("cs2");
    runs.iter().for_each(holds_its_laws);
    // An eighth of 256 x 1,024 in three layers, two bytes of value and two of index.
    let stored = 3 * 256 * 1024 / 8 * 4;
    let (read, written) = moved(&runs[2], "w_down");
    assert_eq!((read, written), (2 * stored, 0));
    let (read, written) = moved(&runs[2], "d_w_down");
    assert_eq!((read, written), (0, stored));
}
