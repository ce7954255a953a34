//! Lower bounds worked by hand.

use std::path::Path;

use rdusim::arch;
use rdusim::cost::compulsory_bytes;
use rdusim::input::Override;
use rdusim::program::tensor_tiers;
use rdusim::workload::{self, OperatorId};

/// A product of 16,384 x 16,384 x 16,384 in bf16 on a Plasticine with PMUs of 4 KiB. What is on chip holds
///
/// - in 64 PMUs 262,144 bytes,
/// - in 64 PCUs x 16 lanes x 6 stages x 2 sets of accumulators of 4 bytes 49,152 bytes,
/// - in FIFOs of 4 x 64 bytes, of which each of 128 units has 4 x 2 at links and 3 + 3 + 1 + 1 at ports, and each of 34 address
///   generators one, 2082 x 256 = 532,992 bytes:
///
/// 844,288 bytes, room for 422,144 elements. At least 2 x 2^42 / sqrt(422,144) - 2 x 422,144 elements move (arXiv:1702.02017).
#[test]
fn a_product_moves_what_the_room_on_chip_leaves() {
    let set = Override::parse("arch.pmu.capacity_bytes=4096").expect("a field");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("arch/plasticine.toml");
    let chip = arch::load(&path, &[set]).expect("a chip");
    let text = "schema = 1\nname = \"square\"\ndtype = \"bf16\"\n\
        [[tensors]]\nname = \"x\"\nshape = [16384, 16384]\nrole = \"input\"\n\
        [[tensors]]\nname = \"w\"\nshape = [16384, 16384]\nrole = \"weight\"\n\
        [[operators]]\nname = \"y\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n";
    let workload = workload::parse("square", text, &[], 0).expect("a graph");
    let tiers = tensor_tiers(&chip, &workload).expect("it fits off chip");
    let all: Vec<OperatorId> = workload.operators.ids().collect();
    let moved: u64 = compulsory_bytes(&chip, &workload, &tiers, &all, 1).iter().sum();
    let expected = 2.0 * (2.0 * 2.0_f64.powi(42) / 422_144.0_f64.sqrt() - 2.0 * 422_144.0);
    assert!((moved as f64 / expected - 1.0).abs() < 1e-8, "{moved} for {expected}");
}
