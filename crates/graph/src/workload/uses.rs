//! Who makes and who reads each tensor of a graph.

use rdusim_base::index::Id;

use super::{OperatorId, TensorId, TensorRole, Workload};

/// Who makes and who reads each tensor; views are what they are views of.
#[derive(Debug)]
pub struct Uses {
    producer: Vec<Option<OperatorId>>,
    consumers: Vec<Vec<OperatorId>>,
}

impl Uses {
    /// Of a whole graph.
    pub fn new(workload: &Workload) -> Self {
        let mut uses =
            Self { producer: vec![None; workload.tensors.len()], consumers: vec![Vec::new(); workload.tensors.len()] };
        for (id, operator) in workload.operators.iter_enumerated() {
            for &input in &operator.inputs {
                let list = &mut uses.consumers[workload.base(input).index()];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
            let made = workload.base(operator.output);
            // A state that is updated in place comes from outside all the same.
            if workload.tensors[made].role != TensorRole::Input && workload.tensors[made].role != TensorRole::Weight {
                uses.producer[made.index()] = Some(id);
            }
        }
        uses
    }

    /// The operator that makes a tensor.
    pub fn producer(&self, workload: &Workload, tensor: TensorId) -> Option<OperatorId> {
        self.producer[workload.base(tensor).index()]
    }

    /// The operators that read a tensor, in order.
    pub fn consumers(&self, workload: &Workload, tensor: TensorId) -> &[OperatorId] {
        &self.consumers[workload.base(tensor).index()]
    }
}
