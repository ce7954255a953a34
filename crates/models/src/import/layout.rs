//! How a value of any rank lies in a matrix.
//!
//! A workload's tensors are matrices. An axis of a value is a list of parts, outermost first; a part runs along the rows
//! or the columns of its matrix with a stride, or is a copy that is stored once. Transposing and most reshaping then
//! change the list and move nothing: heads stay side by side in a row whatever a network calls its axes.

/// Along what a part of an axis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Row,
    Column,
    /// Stored once, seen several times.
    Copy,
}

/// A part of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) extent: u64,
    pub(super) side: Side,
    /// Rows or columns from one to the next.
    pub(super) stride: u64,
}

/// A value in a matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Index of the tensor.
    pub(super) tensor: usize,
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// One list an axis, without parts of extent 1.
    pub(super) axes: Vec<Vec<Part>>,
}

impl Layout {
    /// The last axis along the columns, the others along the rows.
    pub(super) fn of_rows(tensor: usize, shape: &[u64]) -> Self {
        let (&columns, leading) = shape.split_last().unwrap_or((&1, &[]));
        let mut axes = along(leading, Side::Row);
        axes.push(part(columns, Side::Column, 1));
        Self { tensor, rows: leading.iter().product(), columns, axes }
    }

    /// Images: the second axis (channels) along the columns, the others along the rows.
    pub(super) fn of_image(tensor: usize, shape: &[u64]) -> Self {
        let pixels: Vec<u64> = shape.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, &dim)| dim).collect();
        let mut axes = along(&pixels, Side::Row);
        let channels = shape.get(1).copied().unwrap_or(1);
        axes.insert(1.min(axes.len()), part(channels, Side::Column, 1));
        Self { tensor, rows: pixels.iter().product(), columns: channels, axes }
    }

    /// The same on another tensor.
    pub(super) fn on(&self, tensor: usize) -> Self {
        Self { tensor, ..self.clone() }
    }

    /// The extent of an axis.
    pub(super) fn extent(&self, axis: usize) -> u64 {
        self.axes[axis].iter().map(|part| part.extent).product()
    }

    /// Axes in another order.
    pub(super) fn transposed(&self, order: &[usize]) -> Self {
        Self { axes: order.iter().map(|&axis| self.axes[axis].clone()).collect(), ..self.clone() }
    }

    /// The same elements under other axes; `None` where an axis would have to be cut across.
    pub(super) fn reshaped(&self, shape: &[u64]) -> Option<Self> {
        let mut parts: Vec<Part> = self.axes.iter().rev().flat_map(|axis| axis.iter().rev()).copied().collect();
        let mut axes = Vec::with_capacity(shape.len());
        for &wanted in shape {
            let mut left = wanted;
            let mut axis: Vec<Part> = Vec::new();
            while left > 1 {
                let next = parts.pop()?;
                if left.is_multiple_of(next.extent) {
                    left /= next.extent;
                    axis.push(next);
                } else if next.extent.is_multiple_of(left) {
                    let inner = next.extent / left;
                    axis.push(Part { extent: left, stride: next.stride * inner, ..next });
                    parts.push(Part { extent: inner, ..next });
                    left = 1;
                } else {
                    return None;
                }
            }
            axes.push(merged(axis));
        }
        parts.is_empty().then(|| Self { axes, ..self.clone() })
    }

    /// Broadcast to a shape: new and stretched axes are copies.
    pub(super) fn expanded(&self, shape: &[u64]) -> Option<Self> {
        let new = shape.len().checked_sub(self.axes.len())?;
        let mut axes = Vec::with_capacity(shape.len());
        for (index, &extent) in shape.iter().enumerate() {
            let own = index.checked_sub(new).map(|axis| (self.extent(axis), &self.axes[axis]));
            axes.push(match own {
                Some((have, parts)) if have == extent => parts.clone(),
                Some((1, _)) | None => part(extent, Side::Copy, 0),
                Some(_) => return None,
            });
        }
        Some(Self { axes, ..self.clone() })
    }

    /// The one part of an axis; `None` if it has several.
    pub(super) fn single(&self, axis: usize) -> Option<Part> {
        match self.axes[axis].as_slice() {
            [] => Some(Part { extent: 1, side: Side::Copy, stride: 1 }),
            [part] => Some(*part),
            _ => None,
        }
    }

    /// Whether an axis is the innermost along a side, without gaps.
    pub(super) fn is_inner(&self, axis: usize, side: Side) -> bool {
        self.single(axis).is_some_and(|part| part.extent == 1 || (part.side == side && part.stride == 1))
    }

    /// Whether an axis is all columns, in order.
    pub(super) fn is_columns(&self, axis: usize) -> bool {
        self.is_inner(axis, Side::Column) && self.extent(axis) == self.columns
    }

    /// Whether it is a plain matrix: the last axis along the columns, the others in order along the rows.
    pub(super) fn is_of_rows(&self) -> bool {
        let shape: Vec<u64> = (0..self.axes.len()).map(|axis| self.extent(axis)).collect();
        *self == Self::of_rows(self.tensor, &shape)
    }

    /// Whether it is an image with channels along the columns.
    pub(super) fn is_of_image(&self) -> bool {
        let shape: Vec<u64> = (0..self.axes.len()).map(|axis| self.extent(axis)).collect();
        *self == Self::of_image(self.tensor, &shape)
    }

    /// With the inner axis along the columns of another extent.
    pub(super) fn with_columns(&self, axis: usize, extent: u64, tensor: usize) -> Self {
        let old = self.extent(axis);
        let mut layout = Self { tensor, columns: self.columns / old * extent, ..self.clone() };
        for part in layout.axes.iter_mut().flatten().filter(|part| part.side == Side::Column) {
            part.stride = part.stride / old * extent;
        }
        layout.axes[axis] = part(extent, Side::Column, 1);
        layout
    }

    /// With an axis of another extent: what lies outside it on its side moves closer or farther.
    pub(super) fn resized(&self, axis: usize, extent: u64, tensor: usize) -> Option<Self> {
        let own = self.single(axis)?;
        let mut layout = Self { tensor, ..self.clone() };
        let all = match own.side {
            Side::Row => &mut layout.rows,
            Side::Column => &mut layout.columns,
            Side::Copy => return None,
        };
        *all = *all / own.extent * extent;
        for other in layout.axes.iter_mut().flatten().filter(|other| other.side == own.side) {
            if other.stride > own.stride {
                other.stride = other.stride / own.extent * extent;
            }
        }
        layout.axes[axis] = part(extent, own.side, own.stride);
        Some(layout)
    }
}

fn part(extent: u64, side: Side, stride: u64) -> Vec<Part> {
    if extent == 1 { Vec::new() } else { vec![Part { extent, side, stride }] }
}

/// Axes one inside the other along a side.
fn along(shape: &[u64], side: Side) -> Vec<Vec<Part>> {
    let mut axes = vec![Vec::new(); shape.len()];
    let mut stride = 1;
    for (axis, &extent) in axes.iter_mut().zip(shape).rev() {
        *axis = part(extent, side, stride);
        stride *= extent;
    }
    axes
}

/// Parts that follow each other without a gap become one.
fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut list: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts.into_iter().filter(|part| part.extent > 1) {
        match list.last_mut() {
            Some(last) if last.side == part.side && last.stride == part.stride * part.extent => {
                *last = Part { extent: last.extent * part.extent, ..part };
            }
            _ => list.push(part),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_stay_side_by_side() {
        // [batch, sequence, width] to [batch, heads, sequence, head] and back moves nothing.
        let x = Layout::of_rows(0, &[2, 8, 12]);
        let heads = x.reshaped(&[2, 8, 3, 4]).unwrap().transposed(&[0, 2, 1, 3]);
        assert_eq!(heads.single(1), Some(Part { extent: 3, side: Side::Column, stride: 4 }));
        assert!(heads.is_inner(2, Side::Row) && heads.is_inner(3, Side::Column) && !heads.is_columns(3));
        assert_eq!(heads.transposed(&[0, 2, 1, 3]).reshaped(&[2, 8, 12]), Some(x.clone()));
        assert_eq!(heads.reshaped(&[6, 8, 4]).unwrap().axes[0].len(), 2);
        let scores = heads.with_columns(3, 8, 1);
        assert_eq!((scores.rows, scores.columns), (16, 24));
        assert_eq!(scores.single(1), Some(Part { extent: 3, side: Side::Column, stride: 8 }));
        assert_eq!(x.reshaped(&[2, 8, 5]), None);
    }

    #[test]
    fn images_have_channels_as_columns() {
        let x = Layout::of_image(0, &[2, 3, 4, 5]);
        assert_eq!((x.rows, x.columns), (40, 3));
        assert!(x.is_of_image() && !x.is_of_rows() && x.is_columns(1));
        // Tokens of a vision transformer: [2, 3, 20] to [2, 20, 3].
        assert!(x.reshaped(&[2, 3, 20]).unwrap().transposed(&[0, 2, 1]).is_of_rows());
        let pooled = Layout::of_image(1, &[2, 3, 1, 1]);
        assert!(pooled.reshaped(&[2, 3]).unwrap().is_of_rows());
    }

    #[test]
    fn copies_and_pieces() {
        let x = Layout::of_rows(0, &[4, 6]).reshaped(&[4, 2, 1, 3]).unwrap();
        let copied = x.expanded(&[4, 2, 5, 3]).unwrap().reshaped(&[4, 10, 3]).unwrap();
        assert_eq!(copied.axes[1].len(), 2);
        let half = Layout::of_rows(0, &[4, 6]).reshaped(&[4, 2, 3]).unwrap().resized(1, 1, 1).unwrap();
        assert_eq!((half.rows, half.columns), (4, 3));
        let fewer = Layout::of_rows(0, &[2, 8, 6]).resized(1, 1, 1).unwrap();
        assert_eq!((fewer.rows, fewer.single(0)), (2, Some(Part { extent: 2, side: Side::Row, stride: 1 })));
    }
}
