//! What points of a study have in common, kept from one call on it to the next: batches of a cluster's worker are calls of their own.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use indexmap::IndexMap;

use crate::compile::BaseCache;
use crate::workload::Workload;

use super::families::Families;

/// Workloads and splits of GEMMs, by the content of the files and overrides that they follow from; and which mappings compete where.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) families: OnceLock<Families>,
    pub(super) workloads: Mutex<IndexMap<u128, Arc<Workload>>>,
    pub(super) bases: Mutex<IndexMap<u128, Arc<BaseCache>>>,
}

/// The same as long as no file changes that the study reads.
#[derive(Debug)]
pub(super) struct KeptWhile<F>(Mutex<Option<(F, Arc<Kept>)>>);

impl<F> Default for KeptWhile<F> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<F: PartialEq> KeptWhile<F> {
    /// What is kept of these files.
    pub(super) fn of(&self, files: F) -> Arc<Kept> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, kept)) if *of == files => Arc::clone(kept),
            _ => {
                let kept = Arc::new(Kept::default());
                *last = Some((files, Arc::clone(&kept)));
                kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_that_of_the_files_as_they_are() {
        let kept = KeptWhile::default();
        let first = kept.of(["a"]);
        assert!(Arc::ptr_eq(&first, &kept.of(["a"])));
        let changed = kept.of(["b"]);
        assert!(!Arc::ptr_eq(&first, &changed) && Arc::ptr_eq(&changed, &kept.of(["b"])));
    }
}
