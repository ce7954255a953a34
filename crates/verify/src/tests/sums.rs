//! Faults in stages that add up over rows.

use super::*;
use rdusim_program::{FlowId, StageId};

/// Two layers, trained, with all gradients of the backward phase in one section.
fn layers() -> Case {
    let tensor = |(name, shape, role)| format!("[[tensors]]\nname = \"{name}\"\nshape = {shape}\nrole = \"{role}\"\n");
    let gemm = |(name, inputs, output)| {
        format!("[[operators]]\nname = \"{name}\"\nkind = \"gemm\"\ninputs = {inputs}\noutput = \"{output}\"\n")
    };
    let section = |operators| format!("[[sections]]\noperators = [{operators}]\n");
    let head = "schema = 1\nname = \"layers\"\n[training]\noptimizer = \"sgd\"\n".to_owned();
    let tensors = [("x", "[90, 40]", "input"), ("w0", "[40, 40]", "weight"), ("w1", "[40, 70]", "weight")].map(tensor);
    let gemms = [("pre", "[\"x\", \"w0\"]", "a"), ("up", "[\"a\", \"w1\"]", "y")].map(gemm);
    let pinned = ["\"pre\", \"up\"", "\"up.dx\", \"up.dw\", \"pre.dw\"", "\"update_w0\"", "\"update_w1\""].map(section);
    let text = [vec![head], tensors.to_vec(), gemms.to_vec(), pinned.to_vec()].concat().concat();
    let workload = workload::parse("layers", &text, &[], 0).unwrap();
    let chip = arch::load(Path::new("plasticine"), &[]).unwrap();
    let configuration = compile(&chip, &workload, Mode::Fused).unwrap();
    Case { chip, workload, configuration }
}

/// The stage of a section that adds up, if there is one on several PCUs over several row tiles.
fn sums(section: &Section) -> Option<StageId> {
    let adds = |s: &Stage| s.spec.sums.is_some() && s.pcus.len() > 1;
    section.stages.position(adds).filter(|_| section.schedule.tiling().row_tiles() > 1)
}

#[test]
fn sums_over_rows_are_right_and_their_faults_are_caught() {
    let case = layers();
    let verdict = case.plain();
    assert!(verdict.passed, "{:?} {:?} {:?}", verdict.fault, verdict.by_stage, verdict.end_to_end);
    // The sums of the row tiles before are not read back.
    let verdict = case.clone().with(|section| {
        let Some(stage) = sums(section) else { return false };
        section.flows.retain(|flow| !matches!(flow.kind, FlowKind::PartialRead { stage: of, .. } if of == stage));
        true
    });
    assert!(caught(&verdict.unwrap()).contains("never arrived"));
    // Part of an operand never comes; of the first, of the second.
    for amount in [Amount::Activations, Amount::Weights] {
        let verdict = case.clone().with(|section| {
            let Some(stage) = sums(section) else { return false };
            let feeds = |f: &Flow| matches!(f.kind, FlowKind::Feed { stage: of, .. } if of == stage);
            let Some(at) = section.flows.position(|f| feeds(f) && f.amount == amount) else { return false };
            section.flows.remove(at);
            true
        });
        assert!(caught(&verdict.unwrap()).contains("never arrived"));
    }
    // Two PCUs change places: each finds the operands and the sums of the other.
    let verdict = case.clone().with(|section| {
        let Some(stage) = sums(section) else { return false };
        let last = section.stages[stage].pcus.len() - 1;
        section.stages[stage].pcus.swap(0, last);
        true
    });
    caught(&verdict.unwrap());
    // The results of two PCUs change places on their way off chip.
    let verdict = case.clone().with(|section| {
        let Some(stage) = sums(section) else { return false };
        let emits = |f: &Flow| matches!(f.kind, FlowKind::Emit { stage: of, .. } if of == stage);
        let list: Vec<FlowId> = section.flows.ids().filter(|&f| emits(&section.flows[f])).collect();
        let other = |&&f: &&FlowId| section.flows[f].writes != section.flows[list[0]].writes;
        let Some(&f) = list.iter().rev().find(other) else { return false };
        let ends = (section.flows[list[0]].writes, section.flows[f].writes);
        (section.flows[f].writes, section.flows[list[0]].writes) = ends;
        true
    });
    caught(&verdict.unwrap());
    // The sums are not kept.
    let verdict = case.with(|section| {
        let Some(stage) = sums(section) else { return false };
        section.flows.retain(|flow| !matches!(flow.kind, FlowKind::PartialWrite { stage: of, .. } if of == stage));
        true
    });
    caught(&verdict.unwrap());
}
