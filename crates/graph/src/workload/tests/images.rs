use super::*;

/// A convolution of two images of 6 x 8 pixels with 4 channels, a pooling of what it makes, and a classifier.
const IMAGES: &str = r#"
schema = 1
name = "images"
notes = ["said by every result"]
[[tensors]]
name = "x"
shape = [96, 4]
role = "input"
[[tensors]]
name = "w"
shape = [36, 6]
role = "weight"
[[tensors]]
name = "flat"
shape = [2, 36]
[[tensors]]
name = "classes"
shape = [36, 5]
role = "weight"
[[operators]]
name = "conv"
kind = "conv"
inputs = ["x", "w"]
output = "a"
image = [6, 8]
kernel = [3, 3]
stride = [2, 2]
padding = [1, 1, 1, 1]
[[operators]]
name = "pool"
kind = "max_pool"
inputs = ["a"]
output = "b"
image = [3, 4]
kernel = [2, 2]
[[operators]]
name = "flatten"
kind = "reshape"
inputs = ["b"]
output = "flat"
[[operators]]
name = "classify"
kind = "gemm"
inputs = ["flat", "classes"]
output = "y"
"#;

#[test]
fn images_are_views_of_pixels() {
    let workload = read(IMAGES);
    assert_eq!(names(&workload), ["conv", "pool", "classify"]);
    let of = |name: &str| workload.operators.iter().find(|operator| operator.name == name).expect("is there");
    let windows = &workload.tensors[of("conv").inputs[0]];
    // 3 x 4 places an image; every pixel comes once: 96 x 4 elements of 2 bytes. A kernel has a line in common with its
    // neighbours, of 8 pixels, and a run has two pixels more of two lines at each end.
    assert_eq!((windows.rows, windows.columns, windows.dense_bytes()), (24, 36, 96 * 4 * 2));
    let window = windows.window().expect("windows");
    assert_eq!((window.elements, window.halo_elements, window.image.stride), (384, (8 + 4) * 4, [2, 2]));
    assert_eq!((0..24).map(|row| windows.elements_of(row..row + 1, 36)).sum::<u64>(), 384);
    assert_eq!(windows.elements_to_hold(12, 36), 192 + 48);
    assert_eq!(workload.gemm_shape(workload.operators.ids().next().expect("conv")), Some((24, 6, 36)));
    assert_eq!(workload.tensors[of("pool").output].rows, 2 * 2 * 3);
    let flat = &workload.tensors[of("classify").inputs[0]];
    assert_eq!((flat.rows, flat.columns, flat.view.is_some()), (2, 36, true));
    assert_eq!(workload.parameters(), 36 * 6 + 36 * 5);
    assert_eq!(workload.notes, ["said by every result"]);
}

#[test]
fn groups_are_heads_and_pixels_plain_products() {
    let grouped = with_sets(IMAGES, &["workload.operators.conv.groups=2", "workload.tensors.w.shape=[18, 6]"]);
    let form = grouped.expect("groups").operators.iter().next().expect("conv").form.expect("heads");
    assert_eq!((form.heads, form.m, form.n, form.k), (2, 24, 3, 18));
    let one = IMAGES.replace("kernel = [3, 3]\nstride = [2, 2]\npadding = [1, 1, 1, 1]", "kernel = [1, 1]");
    let one = one.replace("[36, 6]", "[4, 6]").replace("image = [3, 4]", "image = [6, 8]").replace("[2, 2]", "[5, 6]");
    let plain = read(&one);
    assert!(plain.tensors[plain.operators.iter().next().expect("conv").inputs[0]].view.is_none());
}

#[test]
fn images_that_do_not_fit_are_refused() {
    for (set, error) in [
        ("workload.operators.conv.image=[5, 8]", "an image has 5 x 8 pixels"),
        ("workload.operators.conv.image=[6]", "has length 1, expected 2"),
        ("workload.operators.conv.kernel=[9, 3]", "the kernel is larger than the padded image"),
        ("workload.operators.conv.stride=[0, 1]", "must be from 1 to 1048576, found 0"),
        ("workload.operators.conv.groups=3", "3 groups do not divide 4 channels"),
        ("workload.operators.classify.image=[1, 2]", "`gemm` has no `image`"),
        ("workload.tensors.flat.shape=[2, 35]", "operator \"flatten\": \"b\" is [12, 6] bf16 and \"flat\" is [2, 35]"),
        ("workload.tensors.w.shape=[35, 6]", "\"w\" is [35, 6]"),
    ] {
        let found = with_sets(IMAGES, &[set]).expect_err(set).to_string();
        assert!(found.contains(error), "{set}: {found}");
    }
    let trained = format!("{IMAGES}[training]\noptimizer = \"sgd\"\n");
    let found = parse("w", &trained, &[], 0).expect_err("is refused").to_string();
    assert!(found.contains("operator `conv` cannot be trained"), "{found}");
}
