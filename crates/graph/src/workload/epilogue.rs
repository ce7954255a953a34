//! Kernels with epilogues: a GEMM and the elementwise operators behind it that a GPU library computes in the same kernel
//! (cuBLASLt's epilogues with auxiliary inputs and outputs, CUTLASS's epilogue visitor trees).
//!
//! The rule is closed and knows no chip. GEMMs take their epilogues in the order of the graph. From the GEMM on, the first
//! operator that reads the last result joins if it
//!
//! - computes each element of its result from the same element of its inputs (functions, their gradients, sums, products,
//!   masks, dropout, biases; no reduction, no norm, no exchange of rows and columns, no optimiser's step),
//! - has a result of the GEMM's shape, and stands in the same repeated block and phase,
//! - finds its other inputs in the kernel or in memory: the kernel makes them, or no operator behind the GEMM does.
//!
//! A result that others read too, or that leaves the graph, is written as well (an auxiliary output). Every other operator is
//! a kernel of its own.

use rdusim_base::index::Id;

use super::{OperatorId, OperatorKind, TensorId, Uses, Workload};

/// The operators of each kernel, kernels in the order they run: every operator once, a GEMM before its epilogue.
pub fn kernels_with_epilogues(workload: &Workload) -> Vec<Vec<OperatorId>> {
    let uses = Uses::new(workload);
    let mut taken = vec![false; workload.operators.len()];
    let mut kernels = Vec::new();
    for op in workload.operators.ids() {
        if std::mem::replace(&mut taken[op.index()], true) {
            continue;
        }
        let mut kernel = vec![op];
        if workload.operators[op].kind == OperatorKind::Gemm {
            kernel.extend(epilogue_of(workload, &uses, op, |op| !taken[op.index()]));
        }
        for &op in &kernel {
            taken[op.index()] = true;
        }
        kernels.push(kernel);
    }
    kernels
}

/// The operators, among those that are free, that a GEMM's kernel computes behind it, in order.
pub fn epilogue_of(
    workload: &Workload,
    uses: &Uses,
    gemm: OperatorId,
    is_free: impl Fn(OperatorId) -> bool,
) -> Vec<OperatorId> {
    let mut epilogue: Vec<OperatorId> = Vec::new();
    loop {
        let last = epilogue.last().copied().unwrap_or(gemm);
        let made = workload.operators[last].output;
        let joins = |&op: &OperatorId| {
            let operator = &workload.operators[op];
            let is_there = |&input: &TensorId| {
                let is_made_here = |by: OperatorId| workload.operators[by].output == input;
                uses.producer(workload, input)
                    .is_none_or(|by| if by == gemm || epilogue.contains(&by) { is_made_here(by) } else { by < gemm })
            };
            operator.kind.folds_into_a_gemm()
                && operator.inputs.contains(&made)
                && operator.inputs.iter().all(is_there)
                && runs_with(workload, gemm, op)
                && is_free(op)
                && !epilogue.contains(&op)
        };
        match uses.consumers(workload, made).iter().copied().find(joins) {
            Some(next) => epilogue.push(next),
            None => return epilogue,
        }
    }
}

/// Whether two operators are of the same repeated block and phase, and have results of the same shape.
pub fn runs_with(workload: &Workload, a: OperatorId, b: OperatorId) -> bool {
    let (a, b) = (&workload.operators[a], &workload.operators[b]);
    let shape = |t: TensorId| (workload.tensors[t].rows, workload.tensors[t].columns);
    (a.block, a.phase, a.repeat, a.every) == (b.block, b.phase, b.repeat, b.every) && shape(a.output) == shape(b.output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse;

    /// The kernels of a graph on 8 x 8 tensors, by name. Operators are `(name, kind, inputs)`, their results are named like
    /// them; `x` and `w` come from outside.
    fn kernels(extra: &str, operators: &[(&str, &str, &str)]) -> Vec<String> {
        let tensor =
            |name: &str, role: &str| format!("[[tensors]]\nname = \"{name}\"\nshape = [8, 8]\nrole = \"{role}\"\n");
        let mut text = format!("schema = 1\nname = \"k\"\n{extra}{}{}", tensor("x", "input"), tensor("w", "weight"));
        text.extend(operators.iter().map(|(name, kind, inputs)| {
            let inputs = inputs.replace(' ', "\", \"");
            format!(
                "[[operators]]\nname = \"{name}\"\nkind = \"{kind}\"\ninputs = [\"{inputs}\"]\noutput = \"{name}\"\n"
            )
        }));
        let workload = parse("k", &text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let names = |kernel: &Vec<OperatorId>| {
            kernel.iter().map(|&op| workload.operators[op].name.as_str()).collect::<Vec<_>>().join("+")
        };
        kernels_with_epilogues(&workload).iter().map(names).collect()
    }

    #[test]
    fn a_gemm_takes_the_elementwise_operators_behind_it() {
        let found = kernels(
            "",
            &[
                ("up", "gemm", "x w"),
                ("gelu", "gelu", "up"),
                ("drop", "scale", "gelu"),
                ("down", "gemm", "drop w"),
                ("sum", "add", "down x"),
            ],
        );
        assert_eq!(found, ["up+gelu+drop", "down+sum"]);
    }

    #[test]
    fn reductions_and_what_stands_behind_them_are_kernels_of_their_own() {
        let found = kernels(
            "",
            &[
                ("up", "gemm", "x w"),
                ("norm", "layer_norm", "up"),
                ("gelu", "gelu", "norm"),
                ("turned", "transpose", "gelu"),
            ],
        );
        assert_eq!(found, ["up", "norm", "gelu", "turned"]);
    }

    #[test]
    fn a_sum_of_two_products_belongs_to_the_later_one() {
        let found = kernels("", &[("a", "gemm", "x w"), ("b", "gemm", "x w"), ("sum", "add", "a b")]);
        assert_eq!(found, ["a", "b+sum"]);
        // `late` is made behind both products: neither can wait for it.
        let found = kernels(
            "",
            &[("a", "gemm", "x w"), ("late", "softmax", "a"), ("gated", "mul", "a late"), ("b", "gemm", "gated w")],
        );
        assert_eq!(found, ["a", "late", "gated", "b"]);
    }

    #[test]
    fn a_result_that_others_read_is_no_obstacle() {
        // `up` has two readers in the kernel, and one outside.
        let found = kernels(
            "",
            &[
                ("up", "gemm", "x w"),
                ("curve", "sigmoid", "up"),
                ("gated", "mul", "curve up"),
                ("norm", "rms_norm", "up"),
            ],
        );
        assert_eq!(found, ["up+curve+gated", "norm"]);
    }

    #[test]
    fn gradients_fold_as_functions_do_and_steps_of_the_optimiser_do_not() {
        let found = kernels(
            "[training]\noptimizer = \"sgd\"\n",
            &[("first", "gemm", "x w"), ("gelu", "gelu", "first"), ("second", "gemm", "gelu w")],
        );
        assert!(found.contains(&"first+gelu".to_owned()), "{found:?}");
        let is_gradient = |kernel: &&String| kernel.contains("+gelu");
        assert_eq!(found.iter().filter(is_gradient).count(), 2, "{found:?}");
        assert!(found.iter().all(|kernel| !kernel.contains("update") || !kernel.contains('+')), "{found:?}");
    }
}
