//! How often the tensors of repeated operators are held at the same time.

use rdusim_base::index::Id;

use super::graph::{OperatorId, TensorId, TensorRole, Workload};

impl Workload {
    /// Instances of each tensor that are held at once. Of what a repeated block makes and reads itself, one: the next
    /// repetition writes over it, and behind the last only its result is read. Of what another loop reads repetition by
    /// repetition (a training step's backward pass, its update), of weights, of inputs and of results, as many as there
    /// are repetitions. What is made outside the block, or passed on to another, is held once. Views count as their base does.
    pub fn held_at_once(&self) -> Vec<u64> {
        let in_loop = |op: OperatorId| {
            let operator = &self.operators[op];
            (operator.repeat > 1).then_some((operator.block, operator.phase))
        };
        let count = self.tensors.len();
        let mut made_in = vec![None; count];
        let mut is_kept = vec![false; count];
        for (op, operator) in self.operators.iter_enumerated() {
            let made_in = &mut made_in[self.base(operator.output).index()];
            is_kept[self.base(operator.output).index()] |= made_in.is_some_and(|other| other != in_loop(op));
            *made_in = Some(in_loop(op));
        }
        for (op, operator) in self.operators.iter_enumerated().filter(|&(op, _)| in_loop(op).is_some()) {
            for &read in operator.inputs.iter().chain(&operator.vectors).chain(&operator.indices) {
                let base = self.base(read).index();
                let is_of_block = made_in[base].flatten().is_some_and(|(block, _)| block == operator.block);
                is_kept[base] |= is_of_block && made_in[base] != Some(in_loop(op));
            }
        }
        let of = |t: TensorId| {
            let base = self.base(t);
            let passes = self.tensors[base].role == TensorRole::Intermediate && made_in[base.index()].is_some();
            if passes && !is_kept[base.index()] { 1 } else { self.tensors[base].repeat }
        };
        self.tensors.ids().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::parse;

    const BLOCK: &str = "schema = 1\nname = \"two layers\"\ndtype = \"bf16\"\n\
        [dims]\ntokens = 64\nd = 32\nwide = 128\n\
        [[blocks]]\nname = \"layer\"\nrepeat = 2\n\
        [[tensors]]\nname = \"x\"\nshape = [\"tokens\", \"d\"]\nrole = \"input\"\n\
        [[tensors]]\nname = \"w_up\"\nshape = [\"d\", \"wide\"]\nrole = \"weight\"\n\
        [[tensors]]\nname = \"w_down\"\nshape = [\"wide\", \"d\"]\nrole = \"weight\"\n\
        [[operators]]\nname = \"up\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"x\", \"w_up\"]\noutput = \"h\"\n\
        [[operators]]\nname = \"act\"\nkind = \"gelu\"\nblock = \"layer\"\ninputs = [\"h\"]\noutput = \"a\"\n\
        [[operators]]\nname = \"down\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"a\", \"w_down\"]\noutput = \"y\"\n\
        [[operators]]\nname = \"norm\"\nkind = \"layer_norm\"\ninputs = [\"y\"]\noutput = \"z\"\n";

    fn held(text: &str) -> Vec<(String, u64)> {
        let workload = parse("test", text, &[], 0).unwrap();
        let held = workload.held_at_once();
        workload.tensors.iter().zip(held).map(|(tensor, held)| (tensor.name.clone(), held)).collect()
    }

    #[test]
    fn what_a_repeated_block_keeps_to_itself_is_held_once() {
        let held = held(BLOCK);
        let of = |name: &str| held.iter().find(|(tensor, _)| tensor == name).map(|(_, held)| *held);
        assert_eq!(["h", "a", "y", "z"].map(of), [Some(1); 4]);
        assert_eq!(["w_up", "w_down"].map(of), [Some(2); 2]);
    }

    #[test]
    fn what_the_backward_pass_reads_is_held_for_every_repetition() {
        let held = held(&BLOCK.replace("[[blocks]]", "[training]\noptimizer = \"sgd\"\n[[blocks]]"));
        let of = |name: &str| held.iter().find(|(tensor, _)| tensor == name).map(|(_, held)| *held);
        // The derivative of gelu needs what it was given, that of the weight what it was multiplied with.
        assert_eq!(["h", "a", "w_up"].map(of), [Some(2); 3]);
        // Read by the norm's derivative, behind the last repetition.
        assert_eq!(of("y"), Some(1));
        // The gradient of an activation passes on, that of a weight waits for the update.
        assert_eq!((of("d_a"), of("d_w_up")), (Some(1), Some(2)));
    }
}
