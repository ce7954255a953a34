//! Masks from the committed files, and `rdusim sparsity`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sparsity(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
    command.current_dir(root("")).arg("sparsity").args(arguments.split_whitespace());
    command.output().expect("rdusim runs")
}

#[track_caller]
fn json(arguments: &str) -> serde_json::Value {
    let output = sparsity(&format!("{arguments} --format json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

#[track_caller]
fn refused(arguments: &str) -> String {
    let output = sparsity(arguments);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments}");
    String::from_utf8(output.stderr).expect("is text")
}

#[test]
fn files_of_every_kind_hold_the_same_mask() {
    let band = json("examples/masks/band.smtx");
    assert_eq!((&band["rows"], &band["columns"]), (&64.into(), &96.into()));
    for other in ["examples/masks/band.mtx", "examples/masks/band.npy", "examples/masks/layers.npz --key mask"] {
        let found = json(other);
        for key in ["stored_elements", "statistics", "formats"] {
            assert_eq!(found[key], band[key], "{other}: {key}");
        }
    }
    // Nothing is zero in the weights: pruning to the density of the mask keeps what it keeps.
    let pruned = json("examples/masks/layers.npz --key weight --density 0.25 --block 4x4");
    assert_eq!(pruned["stored_elements"], 64 * 96 / 4);
    let turned = json("examples/masks/layer.safetensors --key w_up --transpose --density 0.25 --block 4x4");
    assert_eq!(turned["statistics"]["occupied_blocks"], pruned["statistics"]["occupied_blocks"]);
}

#[test]
fn patterns_are_drawn_and_weights_are_found() {
    let two_of_four = json("2:4 --shape 256x512 --pcus 10");
    assert_eq!(
        (&two_of_four["stored_elements"], &two_of_four["statistics"]["balance"]["pcus"]),
        (&65536.into(), &10.into())
    );
    let blocks = json("block --shape 256x500 --block 16x16 --density 0.5");
    assert_eq!((&blocks["kept_blocks"], &blocks["ragged"]), (&256.into(), &true.into()));
    let weight = json("workloads/gpt13b-mlp-sparse.toml --key w_up");
    assert_eq!((&weight["stored_elements"], &weight["chosen"]), (&13_107_200.into(), &"bitmap".into()));
    assert_eq!(weight["formats"][0]["metadata_bytes"], 51_200);
}

#[test]
fn what_cannot_be_used_is_refused() {
    assert!(refused("nonsense").contains("neither a file of a mask nor a pattern"));
    assert!(refused("unstructured --shape 8x8").contains("`--density D`"));
    assert!(refused("unstructured --density 0.5").contains("`--shape RxC`"));
    assert!(refused("unstructured --shape 8x8 --density 1.5").contains("above 0 and at most 1"));
    assert!(refused("unstructured --shape 8x8 --density 0.001").contains("keeps none of 64 blocks"));
    assert!(refused("unstructured --shape 1000000x1000000 --density 0.5").contains("more than 2^31 bits"));
    assert!(refused("2:4 --shape 8x8 --block 2x2").contains("has no meaning"));
    assert!(refused("row_skewed --shape 8x8 --density 0.5 --exponent 9").contains("from 0 to 8"));
    assert!(refused("missing.npy").contains("cannot be opened"));
    assert!(refused("examples/masks.rs").contains("neither a file"));
    assert!(refused("examples/masks/layers.npz").contains("a key must say which: \"mask\", \"weight\""));
    assert!(refused("examples/masks/band.smtx --density 0.5").contains("no values to prune by"));
    assert!(refused("examples/masks/band.npy --shape 96x64").contains("transpose it"));
    assert!(refused("workloads/gpt13b-mlp.toml").contains("no weight is sparse"));
    assert!(refused("workloads/gpt13b-mlp-sparse.toml").contains("`--key` must say which: `w_up`, `w_down`"));
}

#[test]
fn a_workload_takes_a_mask_from_a_file() {
    let text = "schema = 1\nname = \"real\"\n[[tensors]]\nname = \"x\"\nshape = [128, 64]\nrole = \"input\"\n[[tensors]]\n\
                name = \"w\"\nshape = [64, 96]\nrole = \"weight\"\nsparsity = { pattern = \"file\", file = FILE }\n\
                [[operators]]\nname = \"up\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n";
    let place = root("examples/w.toml");
    let load = |file: &str| rdusim::workload::parse(&place.display().to_string(), &text.replace("FILE", file), &[], 0);
    let workload = load("\"masks/band.smtx\"").expect("is read");
    assert_eq!(workload.parameters(), json("examples/masks/band.smtx")["stored_elements"].as_u64().expect("a count"));
    let pruned = "\"masks/layer.safetensors\", key = \"w_up\", transpose = true, density = 0.5, block = [16, 16]";
    assert_eq!(load(pruned).expect("is read").parameters(), 64 * 96 / 2);
    let error = load("\"masks/layer.safetensors\", key = \"w_up\"").expect_err("is refused").to_string();
    assert!(error.ends_with("the matrix is 96 x 64, expected 64 x 96: transpose it"), "{error}");
}
