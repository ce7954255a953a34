//! The `activation_sparsity` of tensors: what a file may ask for, checked, and given to the tensors.

use std::ops::Range;

use toml::Spanned;

use super::graph::{Operator, OperatorId, Tensor, TensorId, TensorRole};
use super::kind::OperatorKind;
use super::pruned::PrunedActivation;
use super::spec::ActivationSpec;
use crate::sparsity::MOST_GROUP;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::IndexVec;
use rdusim_base::input::{Source, Table};

/// A checked `activation_sparsity` of a tensor, and where it is written.
#[derive(Debug, Clone)]
pub(super) struct Pruning {
    pruned: PrunedActivation,
    span: Range<usize>,
}

/// Checks the `activation_sparsity` of a tensor.
pub(super) fn pruning(
    source: &Source,
    name: &str,
    spec: Option<&Spanned<Table<ActivationSpec>>>,
) -> Result<Option<Pruning>, Diagnostic> {
    let Some(spec) = spec else { return Ok(None) };
    let field = |key: &str| format!("tensors.{name}.activation_sparsity.{key}");
    let m = source.count(&field("m"), &spec.get_ref().m, 2..=MOST_GROUP)?;
    let n = source.count(&field("n"), &spec.get_ref().n, 1..=m - 1)?;
    Ok(Some(Pruning { pruned: PrunedActivation { n, m }, span: spec.span() }))
}

/// Marks the tensors that the drafts say are pruned, where each is made by an operator and read as the first operand of plain products
/// with dense matrices alone, and nothing is trained.
pub(super) fn prune(
    source: &Source,
    prunings: &[Option<Pruning>],
    tensors: &mut IndexVec<TensorId, Tensor>,
    operators: &IndexVec<OperatorId, Operator>,
    is_trained: bool,
) -> Result<(), Diagnostic> {
    for (id, pruning) in tensors.ids().collect::<Vec<_>>().into_iter().zip(prunings) {
        let Some(Pruning { pruned, span }) = pruning else { continue };
        if let Some(what) = misused(id, tensors, operators, is_trained) {
            let title = format!("`tensors.{}.activation_sparsity`: {what}", tensors[id].name);
            let label = "expected an intermediate that plain `gemm`s with dense matrices read as their first operand";
            return Err(source.error(span.clone(), title, label).with_help("leave it out"));
        }
        tensors[id].pruned = Some(*pruned);
    }
    Ok(())
}

/// What keeps a tensor from being pruned, if something does.
fn misused(
    id: TensorId,
    tensors: &IndexVec<TensorId, Tensor>,
    operators: &IndexVec<OperatorId, Operator>,
    is_trained: bool,
) -> Option<String> {
    if is_trained {
        return Some("the workload is a training step".to_owned());
    }
    if tensors[id].role != TensorRole::Intermediate || tensors[id].view.is_some() {
        return Some("no operator makes it for others alone".to_owned());
    }
    if let Some(view) = tensors.iter().find(|tensor| tensor.view.is_some_and(|view| view.base == id)) {
        return Some(format!("an operator sees it in another shape (`{}`)", view.name));
    }
    let readers = operators.iter().filter(|operator| operator.inputs.contains(&id));
    let is_first = |operator: &&Operator| {
        operator.kind == OperatorKind::Gemm
            && operator.form.is_none()
            && operator.inputs.first() == Some(&id)
            && operator.inputs.get(1).is_some_and(|&second| second != id && tensors[second].mask.is_none())
    };
    let other = readers.clone().find(|operator| !is_first(operator))?;
    Some(format!("`{}` ({}) uses it otherwise", other.name, other.kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse;

    const FFN: &str = "schema = 1\nname = \"ffn\"\n[dims]\ntokens = 8\nd = 16\nwide = 64\n\
        [[tensors]]\nname = \"x\"\nshape = [\"tokens\", \"d\"]\nrole = \"input\"\n\
        [[tensors]]\nname = \"up\"\nshape = [\"d\", \"wide\"]\nrole = \"weight\"\n\
        [[tensors]]\nname = \"down\"\nshape = [\"wide\", \"d\"]\nrole = \"weight\"\n\
        [[tensors]]\nname = \"g\"\nactivation_sparsity = { n = 2, m = 4 }\n\
        [[operators]]\nname = \"first\"\nkind = \"gemm\"\ninputs = [\"x\", \"up\"]\noutput = \"h\"\n\
        [[operators]]\nname = \"act\"\nkind = \"relu\"\ninputs = [\"h\"]\noutput = \"g\"\n\
        [[operators]]\nname = \"second\"\nkind = \"gemm\"\ninputs = [\"g\", \"down\"]\noutput = \"y\"\n";

    #[test]
    fn two_of_four_take_nine_sixteenths_of_bf16() {
        let two_of_four = PrunedActivation { n: 2, m: 4 };
        // Two values of 2 bytes and two places of 2 bits for every four of 8 bytes.
        assert_eq!(two_of_four.bytes(2048, 20_480, 2) * 16, 2048 * 20_480 * 2 * 9);
        assert_eq!(two_of_four.bytes(3, 5, 2), 3 * 4 * 2 + 3);
        assert_eq!(PrunedActivation { n: 1, m: 8 }.bytes(1, 16, 2), 2 * 2 + 1);
        assert!(two_of_four.is_two_of_four() && !PrunedActivation { n: 3, m: 4 }.is_two_of_four());
    }

    #[test]
    fn an_intermediate_that_products_read_first_can_be_pruned() {
        let workload = parse("ffn", FFN, &[], 0).unwrap();
        let pruned = workload.tensors.iter().find(|tensor| tensor.pruned.is_some()).unwrap();
        assert_eq!((pruned.name.as_str(), pruned.stored_bytes()), ("g", 8 * 64 * 2));
        assert_eq!(workload.pruned_as_dense(true), None);
        let other = parse("ffn", &FFN.replace("m = 4", "m = 8"), &[], 0).unwrap();
        assert!(other.pruned_as_dense(true).is_some_and(|told| told.contains("`g`")));
        let refused = |text: &str| parse("ffn", text, &[], 0).unwrap_err().render(false);
        let cases = [
            (FFN.replace("n = 2, m", "n = 4, m"), "`tensors.g.activation_sparsity.n`"),
            (
                FFN.replace(
                    "\"wide\"]\nrole = \"weight\"",
                    "\"wide\"]\nactivation_sparsity = { n = 2, m = 4 }\nrole = \"weight\"",
                ),
                "no operator makes it",
            ),
            (
                FFN.replace("[\"g\", \"down\"]", "[\"g\", \"down\"]\ntranspose_a = true")
                    .replace("tokens = 8", "tokens = 64"),
                "an operator sees it in another shape",
            ),
            (FFN.replace("[dims]", "[training]\noptimizer = \"sgd\"\n[dims]"), "training step"),
            (
                FFN.replace(
                    "\"d\"]\nrole = \"weight\"",
                    "\"d\"]\nrole = \"weight\"\nsparsity = { pattern = \"nm\", n = 2, m = 4 }",
                ),
                "`second` (gemm) uses it otherwise",
            ),
        ];
        for (text, expected) in cases {
            let message = refused(&text);
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }
}
