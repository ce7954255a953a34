//! What the L2 still holds of the tensors that kernels have just touched.

use std::collections::VecDeque;

use rdusim_graph::workload::TensorId;

/// Tensors in the L2, least recently touched first. A tensor is there as a whole or not at all.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: f64,
    held: VecDeque<(TensorId, f64)>,
    sum: f64,
}

impl Cache {
    /// An empty cache of so many bytes.
    pub(super) fn new(capacity: f64) -> Self {
        Self { capacity, held: VecDeque::new(), sum: 0.0 }
    }

    /// Whether a tensor is there.
    pub(super) fn holds(&self, tensor: TensorId) -> bool {
        self.held.iter().any(|&(held, _)| held == tensor)
    }

    /// Reads or writes a tensor: it comes last, others make room.
    pub(super) fn touch(&mut self, tensor: TensorId, bytes: f64) {
        let known = self.held.iter().position(|&(held, _)| held == tensor);
        if let Some((_, bytes)) = known.and_then(|at| self.held.remove(at)) {
            self.sum -= bytes;
        }
        self.held.push_back((tensor, bytes));
        self.sum += bytes;
        while self.sum > self.capacity {
            let Some((_, bytes)) = self.held.pop_front() else { return };
            self.sum -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_base::index::Id;

    #[test]
    fn what_was_touched_longest_ago_goes_first() {
        let [a, b, c] = [0, 1, 2].map(TensorId::from_index);
        let mut cache = Cache::new(10.0);
        cache.touch(a, 4.0);
        cache.touch(b, 4.0);
        cache.touch(a, 4.0);
        cache.touch(c, 4.0);
        assert!(cache.holds(a) && cache.holds(c) && !cache.holds(b));
        cache.touch(b, 11.0);
        assert!(!cache.holds(b) && !cache.holds(a), "a stream that does not fit leaves nothing");
    }
}
