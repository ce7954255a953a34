//! Typed ids and the vectors they index, so that ids of different tables cannot be mixed up.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An id that indexes one table.
pub trait Id: Copy + Ord {
    /// The id of row `index`.
    fn from_index(index: usize) -> Self;
    /// The row this id names.
    fn index(self) -> usize;
}

/// Declares a `u32` id type that implements [`Id`]. With `as a number` behind its name, an id is written as the number of
/// its row alone, to users and in debug text.
#[macro_export]
macro_rules! id_type {
    ($(#[$meta:meta])* $name:ident as a number) => {
        $crate::id_type! {
            @type #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
            $(#[$meta])* $name
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }
    };
    ($(#[$meta:meta])* $name:ident) => {
        $crate::id_type! {
            @type #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
            $(#[$meta])* $name
        }
    };
    (@type $(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        pub struct $name(u32);

        impl $crate::index::Id for $name {
            #[inline]
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables stay below 2^32 rows"))
            }
            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

/// A vector indexed by one id type only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexVec<I, T> {
    rows: Vec<T>,
    id: PhantomData<fn(I)>,
}

impl<I: Id, T> IndexVec<I, T> {
    /// An empty table.
    pub fn new() -> Self {
        Self { rows: Vec::new(), id: PhantomData }
    }
    /// Appends a row and returns its id.
    pub fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::from_index(self.rows.len() - 1)
    }
    /// Removes the last row, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        self.rows.pop()
    }
    /// Removes the row of `id`; those behind it move up to other ids.
    pub fn remove(&mut self, id: I) -> T {
        self.rows.remove(id.index())
    }
    /// Keeps the rows that are wanted; those behind one that goes move up to other ids.
    pub fn retain(&mut self, is_wanted: impl FnMut(&T) -> bool) {
        self.rows.retain(is_wanted);
    }
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Rows in id order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.rows.iter()
    }
    /// Rows in id order, to be changed.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.rows.iter_mut()
    }
    /// Ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.rows.len()).map(I::from_index)
    }
    /// Ids with their rows, in order.
    pub fn iter_enumerated(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + Clone {
        self.rows.iter().enumerate().map(|(i, row)| (I::from_index(i), row))
    }
    /// The row of `id`, if there is one.
    pub fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.index())
    }
    /// The id of the first row that `is_wanted`.
    pub fn position(&self, is_wanted: impl FnMut(&T) -> bool) -> Option<I> {
        self.rows.iter().position(is_wanted).map(I::from_index)
    }
}

impl<I: Id, T: Clone> IndexVec<I, T> {
    /// A table of `len` rows that are all `row`.
    pub fn filled(len: usize, row: T) -> Self {
        Self { rows: vec![row; len], id: PhantomData }
    }
}

impl<I: Id, T> From<Vec<T>> for IndexVec<I, T> {
    fn from(rows: Vec<T>) -> Self {
        Self { rows, id: PhantomData }
    }
}

impl<I: Id, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Id, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(rows: It) -> Self {
        Self { rows: rows.into_iter().collect(), id: PhantomData }
    }
}

impl<'a, I: Id, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<'a, I: Id, T> IntoIterator for &'a mut IndexVec<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter_mut()
    }
}

impl<I: Id, T> IntoIterator for IndexVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<I: Id, T> Index<I> for IndexVec<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.rows[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IndexVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.index()]
    }
}
