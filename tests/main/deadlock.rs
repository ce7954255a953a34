//! A run that cannot go on says why, and what would help.

use std::path::Path;

use rdusim::compile::compile;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::program::{Buffer, BufferRole};
use rdusim::sim::simulate;
use rdusim::{arch, workload};

#[test]
fn a_buffer_that_is_too_short_is_named_with_the_depth_it_needs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chip = arch::load(&root.join("arch/sn10.toml"), &[]).expect("a shipped chip");
    let workload = workload::load(&root.join("workloads/gpt13b-mlp.toml"), &[], 0).expect("a shipped workload");
    let mut configuration = compile(&chip, &workload, Mode::Fused).expect("it fits");
    let section = &mut configuration.sections[0];
    // Every chunk needs all tokens of `x` again, and the first few leave no room for the rest.
    let tokens = section.schedule.nest().block_tiles;
    let x = workload.tensors.iter_enumerated().find(|(_, tensor)| tensor.name == "x").expect("an input `x`").0;
    let holds_x = |b: &&mut Buffer| match b.spec.role {
        BufferRole::Resident { tensor, .. } | BufferRole::Operand { tensor, .. } => {
            tensor == x && b.spec.depth == tokens
        }
        _ => false,
    };
    let kept = section.buffers.iter_mut().find(holds_x).expect("`x` stays on chip");
    kept.spec.depth = tokens / 2;
    let outcome = simulate(&chip, &workload, &configuration, Fidelity::Event);
    let StopReason::Deadlock(lines) = &outcome.stop else { panic!("{:?}", outcome.stop) };
    let text = lines.join("\n");
    assert!(text.contains("stream of `x` is stalled") && text.contains("is starved at firing"), "{text}");
    assert!(text.contains("have sent all"), "{text}");
    let advice = format!("with {tokens} slots in place of {} in a buffer of `x` it would go on", tokens / 2);
    assert!(text.ends_with(&advice), "{text}");
}
