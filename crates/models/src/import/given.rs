//! What the shapes of a node's results follow from.

use std::collections::BTreeMap;

use super::constant::Numbers;
use super::fold::{Array, axis_of};
use super::net::{Net, NetNode, ValueId};

/// Why a node's shapes are not known.
#[derive(Debug)]
pub(super) enum Unknown {
    /// Of an input, which has its own reason.
    Input,
    /// The operator is not known.
    Operator,
    /// The shapes contradict each other.
    Wrong(String),
}

/// Lengths of the axes.
pub(super) type Shape = Vec<u64>;

pub(super) fn wrong<T>(why: impl Into<String>) -> Result<T, Unknown> {
    Err(Unknown::Wrong(why.into()))
}

/// What a node's shapes follow from.
pub(super) struct Given<'n> {
    pub(super) net: &'n Net<'n>,
    pub(super) node: &'n NetNode<'n>,
    pub(super) arrays: &'n BTreeMap<ValueId, Array>,
}

impl Given<'_> {
    pub(super) fn shape(&self, index: usize) -> Result<&[u64], Unknown> {
        let id = self.node.input(index).ok_or(Unknown::Input)?;
        self.net.values[id].shape.as_deref().ok_or(Unknown::Input)
    }

    pub(super) fn list(&self, index: usize) -> Option<Vec<i64>> {
        let array = self.arrays.get(&self.node.input(index)?)?;
        match &array.numbers {
            Numbers::Ints(list) => Some(list.to_vec()),
            Numbers::Reals(list) => Some(list.iter().map(|&x| x as i64).collect()),
        }
    }

    pub(super) fn reals(&self, index: usize) -> Option<Vec<f64>> {
        let array = self.arrays.get(&self.node.input(index)?)?;
        Some(match &array.numbers {
            Numbers::Ints(list) => list.iter().map(|&x| x as f64).collect(),
            Numbers::Reals(list) => list.to_vec(),
        })
    }

    /// Numbers that are an attribute in early versions and an input in later ones.
    pub(super) fn either(&self, name: &str, index: usize) -> Option<Vec<i64>> {
        self.node.ints(name).map(<[i64]>::to_vec).or_else(|| self.list(index))
    }

    pub(super) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, Unknown> {
        list.iter()
            .map(|&axis| axis_of(axis, rank))
            .collect::<Option<_>>()
            .ok_or_else(|| Unknown::Wrong(format!("the axes {list:?} are not among {rank}")))
    }

    pub(super) fn axis(&self, default: i64, rank: usize) -> Result<usize, Unknown> {
        Ok(Self::axes(&[self.node.int("axis").unwrap_or(default)], rank)?[0])
    }
}
