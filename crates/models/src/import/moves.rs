//! Nodes that move or rename: cuts, joins, reshapes, look-ups.

use super::draft::Role;
use super::fold::axis_of;
use super::layout::{Layout, Side};
use super::lower::{Done, Lower, Stop, unsupported};
use super::net::{NetNode, ValueId};
use rdusim_graph::workload::OperatorOptions;

impl Lower<'_, '_> {
    pub(super) fn reshape(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let output = node.output().ok_or(Stop::Behind)?;
        let shape = self.shape(output)?.to_vec();
        let layout = self.place(x)?;
        if let Some(layout) = layout.reshaped(&shape) {
            return self.settle(node, layout);
        }
        let layout = self.reread(x, &layout, &Layout::of_rows(0, &shape))?;
        self.settle(node, layout)
    }

    pub(super) fn transpose(&mut self, node: &NetNode<'_>) -> Done {
        let layout = self.place(Self::input(node, 0)?)?;
        let rank = layout.axes.len();
        let order: Vec<usize> = match node.ints("perm") {
            Some(perm) => perm.iter().filter_map(|&axis| axis_of(axis, rank)).collect(),
            None => (0..rank).rev().collect(),
        };
        self.settle(node, layout.transposed(&order))
    }

    pub(super) fn expand(&mut self, node: &NetNode<'_>) -> Done {
        let layout = self.place(Self::input(node, 0)?)?;
        let output = node.output().ok_or(Stop::Behind)?;
        match layout.expanded(self.shape(output)?) {
            Some(layout) => self.settle(node, layout),
            None => unsupported("its axes"),
        }
    }

    pub(super) fn gather(&mut self, node: &NetNode<'_>) -> Done {
        let (data, indices) = (Self::input(node, 0)?, Self::input(node, 1)?);
        let output = node.output().ok_or(Stop::Behind)?;
        let shape = self.shape(output)?.to_vec();
        let of = self.shape(data)?.to_vec();
        let axis = axis_of(node.int("axis").unwrap_or(0), of.len()).unwrap_or(0);
        if self.is_constant(data) {
            let (1.., 0) = (of.len(), axis) else { return unsupported("a look-up along another axis than the first") };
            let columns: u64 = of[1..].iter().product();
            let table = self.weight(data, (of[0], columns), false, (0, columns));
            let layout = self.indexed(indices)?;
            let rows: u64 = self.shape(indices)?.iter().product();
            let tensor = self.emit(node, "embedding", vec![layout, table], (rows, columns), OperatorOptions::default());
            let mut flat = self.shape(indices)?.to_vec();
            flat.push(columns);
            let placed = Layout::of_rows(tensor, &flat).reshaped(&shape);
            return self.settle(node, placed.ok_or_else(|| Stop::Unsupported("its axes".to_owned()))?);
        }
        let Some(constant) = &self.net.values[indices].constant else {
            return unsupported("rows of an activation by computed indices");
        };
        let first = constant.ints().and_then(|list| list.first().copied()).unwrap_or(0);
        let count: u64 = self.shape(indices)?.iter().product();
        let first = if first < 0 { first + of[axis].cast_signed() } else { first };
        let layout = self.place(data)?;
        let layout = self.part(node, data, &layout, axis, first.unsigned_abs(), count)?;
        let placed = layout.reshaped(&shape).ok_or_else(|| Stop::Unsupported("its axes".to_owned()))?;
        self.settle(node, placed)
    }

    /// Indices as a column: an input of the network, or one that stands for what the network computes.
    fn indexed(&mut self, indices: ValueId) -> Result<usize, Stop> {
        let rows: u64 = self.shape(indices)?.iter().product();
        if rows == 0 {
            return unsupported("no indices");
        }
        if let Some(layout) = &self.places[indices] {
            return Ok(layout.tensor);
        }
        let name = self.net.values[indices].name.clone();
        let tensor = self.draft.tensor(&name, (rows, 1), Role::Input);
        self.draft.tensors[tensor].dtype = Some("fp32");
        let mut shape = self.shape(indices)?.to_vec();
        shape.push(1);
        let layout = Layout::of_rows(tensor, &shape);
        self.set(indices, layout);
        Ok(tensor)
    }

    pub(super) fn slice(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let output = node.output().ok_or(Stop::Behind)?;
        let (from, to) = (self.shape(x)?.to_vec(), self.shape(output)?.to_vec());
        if from.len() != to.len() || to.iter().zip(&from).any(|(to, from)| to > from) {
            return unsupported("a part that is not known");
        }
        if to.contains(&0) {
            return unsupported("nothing is left");
        }
        let starts = match node.ints("starts") {
            Some(list) => list.to_vec(),
            None => node
                .input(1)
                .and_then(|id| self.net.values[id].constant.as_ref()?.ints())
                .map_or(vec![], |l| l.to_vec()),
        };
        let mut layout = self.place(x)?;
        for axis in (0..from.len()).filter(|&axis| from[axis] != to[axis]) {
            // With several cuts the first part is as good as any.
            let first = if starts.len() == 1 { starts[0] } else { 0 };
            let first = if first < 0 { first.saturating_add(from[axis].cast_signed()).max(0) } else { first };
            let first = first.unsigned_abs().min(from[axis] - to[axis]);
            layout = self.part(node, x, &layout, axis, first, to[axis])?;
        }
        self.settle(node, layout)
    }

    pub(super) fn split(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let rank = self.shape(x)?.len();
        let axis = axis_of(node.int("axis").unwrap_or(0), rank).unwrap_or(0);
        let layout = self.place(x)?;
        let mut first = 0;
        for &output in &node.outputs {
            let Some(output) = output else { return unsupported("a part without a name") };
            let extent = self.shape(output)?.get(axis).copied().unwrap_or(0);
            if extent == 0 {
                return unsupported("an empty part");
            }
            let part = self.part(node, x, &layout, axis, first, extent)?;
            self.set(output, part);
            first += extent;
        }
        Ok(())
    }

    /// Part of an axis of a value: columns of a product with a weight become a product of their own, all else is a
    /// view.
    fn part(
        &mut self,
        node: &NetNode<'_>,
        value: ValueId,
        layout: &Layout,
        axis: usize,
        first: u64,
        extent: u64,
    ) -> Result<Layout, Stop> {
        let mut layout = layout.clone();
        if layout.single(axis).is_none() {
            layout = self.as_rows(value)?;
        }
        let own = layout.single(axis).ok_or(Stop::Behind)?;
        if extent == own.extent {
            return Ok(layout);
        }
        let resized = layout.resized(axis, extent, 0).ok_or_else(|| Stop::Unsupported("a copied axis".to_owned()))?;
        let shape = (resized.rows, resized.columns);
        let is_outermost = own.side == Side::Column && own.stride * own.extent == layout.columns;
        if is_outermost && let Some(tensor) = self.piece(node, layout.tensor, first * own.stride, resized.columns) {
            return Ok(resized.on(tensor));
        }
        let name = node.output().map_or_else(String::new, |output| self.net.values[output].name.clone());
        let tensor = self.draft.made(&name, shape);
        self.draft.tensors[tensor].is_view = true;
        self.draft.push(&name, "slice", vec![layout.tensor], tensor);
        Ok(resized.on(tensor))
    }

    /// Columns of a product with a weight, as a product with those columns of the weight.
    fn piece(&mut self, node: &NetNode<'_>, tensor: usize, first: u64, columns: u64) -> Option<usize> {
        let operator = self.draft.maker(tensor)?.clone();
        let weight = *operator.inputs.get(1)?;
        let whole = self.draft.tensors[weight].shape;
        let is_plain = operator.kind == "gemm" && operator.options.is_empty();
        if !is_plain || self.draft.tensors[weight].role != Role::Weight || !whole.1.is_multiple_of(columns) {
            return None;
        }
        let rows = self.draft.tensors[tensor].shape.0;
        let number = first / columns;
        let mut pieces = Vec::with_capacity(2);
        for of in [weight].into_iter().chain(operator.vectors.iter().copied()) {
            let shape = (self.draft.tensors[of].shape.0, columns);
            let name = format!("{}_{number}", self.draft.tensors[of].name);
            let known = self.draft.tensors.iter().position(|t| t.name == name && t.shape == shape);
            let piece = known.unwrap_or_else(|| {
                let piece = self.draft.tensor(&name, shape, Role::Weight);
                self.draft.tensors[piece].origin = self.draft.tensors[of].origin.clone().map(|mut origin| {
                    origin.columns = (origin.columns.0 + first, origin.columns.1);
                    origin
                });
                piece
            });
            pieces.push(piece);
        }
        let inputs = vec![operator.inputs[0], pieces[0]];
        let name = format!("{}_{number}", operator.name);
        let value = node.output().map_or_else(String::new, |output| self.net.values[output].name.clone());
        let output = self.draft.made(&value, (rows, columns));
        self.draft.push(&name, "gemm", inputs, output).vectors = pieces.split_off(1);
        self.notes.insert(
            "products whose columns are cut up (queries, keys and values from one weight) are one product for each part"
                .to_owned(),
        );
        Some(output)
    }

    pub(super) fn concat(&mut self, node: &NetNode<'_>) -> Done {
        let output = node.output().ok_or(Stop::Behind)?;
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let rank = self.shape(output)?.len();
        let axis = axis_of(node.int("axis").unwrap_or(1), rank).unwrap_or(0);
        if let Some(&constant) = inputs.iter().find(|&&value| self.is_constant(value)) {
            return unsupported(format!("{:?} is constant", self.net.values[constant].name));
        }
        let mut layouts = Vec::with_capacity(inputs.len());
        for &value in &inputs {
            // Keys and values of earlier tokens come from off chip, with the new ones among them.
            let is_cache = self.net.values[value].is_input && inputs.len() == 2;
            let other = inputs.iter().copied().find(|&other| other != value);
            if is_cache && let Some(new) = other.filter(|&new| !self.net.values[new].is_input) {
                return self.cache(node, value, new, axis, output);
            }
            layouts.push(self.place(value)?);
        }
        let first = layouts[0].clone();
        let outermost = |layout: &Layout| {
            layout.single(axis).is_some_and(|own| match own.side {
                Side::Column => own.stride * own.extent == layout.columns,
                _ => own.extent == 1 && layout.columns == 1,
            })
        };
        let equal = |layout: &Layout| {
            let rest = |layout: &Layout| {
                let mut axes = layout.axes.clone();
                axes[axis].clear();
                axes
            };
            layout.rows == first.rows && outermost(layout) && rest(layout) == rest(&first)
        };
        if !layouts.iter().all(equal) {
            return unsupported("what is joined does not lie side by side in rows");
        }
        // What begins in the same way is joined once: the dense blocks of a DenseNet.
        let mut parts: Vec<usize> = layouts.iter().map(|layout| layout.tensor).collect();
        let known = (2..=parts.len()).rev().find_map(|n| self.joined.get(&parts[..n]).map(|&tensor| (n, tensor)));
        let (mut count, mut tensor) = known.unwrap_or((1, parts[0]));
        let mut columns: u64 = layouts[..count].iter().map(|layout| layout.columns).sum();
        while count < parts.len() {
            columns += layouts[count].columns;
            tensor = self.emit(
                node,
                "concat",
                vec![tensor, parts[count]],
                (first.rows, columns),
                OperatorOptions::default(),
            );
            count += 1;
            self.joined.insert(parts[..count].to_vec(), tensor);
        }
        parts.clear();
        let extent = self.shape(output)?[axis];
        let mut result = first.clone();
        result.axes[axis] = Vec::new();
        let inner = first.columns / first.extent(axis).max(1);
        if extent > 1 {
            result.axes[axis] = vec![super::layout::Part { extent, side: Side::Column, stride: inner }];
        }
        result.columns = columns;
        self.settle(node, result.on(tensor))
    }

    /// Keys or values of all tokens: those of earlier ones with the new ones behind them.
    fn cache(&mut self, node: &NetNode<'_>, past: ValueId, new: ValueId, axis: usize, output: ValueId) -> Done {
        let layout = self.place(new)?;
        let extent = self.shape(output)?[axis];
        let tensor = self.draft.tensor(&self.net.values[past].name.clone(), (1, 1), Role::Input);
        // A single token's axis has no part: it lies inside the rows.
        let rows = layout.rows / layout.extent(axis).max(1) * extent;
        let mut result = Layout { tensor, rows, ..layout.clone() };
        let own = layout.extent(axis);
        for part in result.axes.iter_mut().flatten().filter(|part| part.side == Side::Row) {
            part.stride = part.stride / own * extent;
        }
        result.axes[axis] = vec![super::layout::Part { extent, side: Side::Row, stride: 1 }];
        if layout.single(axis).is_some_and(|own| own.side == Side::Column) {
            return unsupported("a cache along the columns");
        }
        self.draft.tensors[tensor].shape = (result.rows, result.columns);
        // The new ones are written.
        if self.draft.tensors[layout.tensor].role == Role::Made && !self.draft.tensors[layout.tensor].is_view {
            self.draft.tensors[layout.tensor].is_output = true;
        }
        self.notes.insert(
            "keys and values of earlier tokens are inputs that hold all tokens; those of new tokens are written"
                .to_owned(),
        );
        self.settle(node, result)
    }
}
