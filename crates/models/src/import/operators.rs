//! One function for each family of nodes.

use super::layout::{Layout, Side};
use super::lower::{Done, Lower, Stop, unsupported};
use super::net::{NetNode, ValueId};
use rdusim_graph::workload::OperatorOptions;

impl Lower<'_, '_> {
    /// Lowers a node.
    pub(super) fn node(&mut self, index: usize) -> Done {
        let net = self.net;
        let node = &net.nodes[index];
        for &value in node.inputs.iter().flatten() {
            if self.is_constant(value) {
                continue;
            }
            let shape = self.shape(value)?;
            if shape.is_empty() {
                return unsupported(format!("{:?} is a number", net.values[value].name));
            }
            if shape.contains(&0) {
                return unsupported(format!("{:?} has no elements", net.values[value].name));
            }
        }
        if let Some(output) = node.output()
            && net.values[output].shape.is_none()
        {
            return unsupported("the shape of its result is not known");
        }
        match node.op.as_str() {
            "MatMul" => self.matmul(node),
            "Gemm" => self.gemm(node),
            "Conv" => self.conv(node),
            "MaxPool" => self.pool(node, "max_pool"),
            "AveragePool" => self.pool(node, "average_pool"),
            "GlobalAveragePool" => self.global_pool(node, "average_pool"),
            "GlobalMaxPool" => self.global_pool(node, "max_pool"),
            "BatchNormalization" => self.batch_norm(node),
            "LayerNormalization" => self.norm(node, "layer_norm", 2),
            "RMSNormalization" | "SimplifiedLayerNormalization" => self.norm(node, "rms_norm", 1),
            "com.microsoft.SkipLayerNormalization" => self.skip_norm(node),
            "ConvTranspose" => self.conv_transpose(node),
            "Resize" | "Upsample" => self.resize(node),
            "LRN" => self.local_norm(node),
            "TopK" => self.top_k(node),
            "Attention" => unsupported("the shapes of its operands are not known"),
            "Softmax" | "LogSoftmax" => self.softmax(node),
            "Relu" | "Clip" | "LeakyRelu" | "PRelu" | "ThresholdedRelu" => self.unary(node, "relu", "Relu"),
            "Gelu" | "com.microsoft.Gelu" | "com.microsoft.FastGelu" | "com.microsoft.BiasGelu" => {
                self.unary(node, "gelu", &node.op)
            }
            "Silu" | "Swish" | "HardSwish" | "Mish" | "com.microsoft.QuickGelu" => self.unary(node, "silu", "Silu"),
            "Sigmoid" | "HardSigmoid" => self.unary(node, "sigmoid", "Sigmoid"),
            "Softplus" => self.unary(node, "softplus", "Softplus"),
            "Tanh" | "Softsign" => self.unary(node, "tanh", "Tanh"),
            "Mask" | "CausalMask" => {
                self.unary(node, if node.op == "Mask" { "scale" } else { "causal_mask" }, &node.op)
            }
            "Rotary" | "RotaryEmbedding" => self.rotary(node),
            "Exp" | "Log" | "Sqrt" | "Neg" | "Abs" | "Reciprocal" | "Erf" | "Floor" | "Ceil" | "Round" | "Sign"
            | "Elu" | "Selu" | "Celu" | "Sin" | "Cos" | "Cast" | "Trilu" => self.unary(node, "scale", "a scale"),
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Min" | "Max" | "Where" | "Sum" | "Mean" => self.binary(node),
            "Concat" => self.concat(node),
            "Split" => self.split(node),
            "Slice" => self.slice(node),
            "Gather" => self.gather(node),
            "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => self.reshape(node),
            "Transpose" => self.transpose(node),
            "Expand" => self.expand(node),
            "ReduceMean" | "ReduceSum" | "ReduceMax" => self.reduce(node),
            _ => unsupported("the operator is not known"),
        }
    }

    fn matmul(&mut self, node: &NetNode<'_>) -> Done {
        let (a, b) = (Self::input(node, 0)?, Self::input(node, 1)?);
        if self.is_constant(a) {
            return self.weight_times(node, a, b);
        }
        if !self.is_constant(b) {
            return self.product(node, a, b);
        }
        let shape = self.shape(b)?.to_vec();
        let (&columns, leading) = shape.split_last().ok_or(Stop::Behind)?;
        let (&k, batch) = leading.split_last().unwrap_or((&columns, &[]));
        let n = if leading.is_empty() { 1 } else { columns };
        if batch.iter().any(|&dim| dim != 1) {
            return self.grouped(node, a, b);
        }
        self.linear(node, a, b, k, n, false)
    }

    fn gemm(&mut self, node: &NetNode<'_>) -> Done {
        let (a, b) = (Self::input(node, 0)?, Self::input(node, 1)?);
        let flag = |name: &str| node.int(name).unwrap_or(0) != 0;
        if self.is_constant(a) {
            return unsupported("its first operand is constant");
        }
        if !self.is_constant(b) {
            return unsupported("its second operand is no constant: MatMul is expected");
        }
        let &[rows, columns] = self.shape(b)? else { return unsupported("its weight is no matrix") };
        let (k, n) = if flag("transB") { (columns, rows) } else { (rows, columns) };
        if flag("transA") {
            let weight = self.weight(b, (k, n), flag("transB"), (0, n));
            self.columns_times(node, a, weight, n)?;
        } else {
            self.linear(node, a, b, k, n, flag("transB"))?;
        }
        if let (Some(bias), Some(output)) = (node.input(2).filter(|&bias| self.is_constant(bias)), node.output())
            && self.shape(bias)?.iter().product::<u64>() == n
        {
            self.add_vector(output, bias, n);
        }
        Ok(())
    }

    /// Activations times a weight of K x N.
    fn linear(&mut self, node: &NetNode<'_>, a: ValueId, b: ValueId, k: u64, n: u64, stored_turned: bool) -> Done {
        let mut layout = self.place(a)?;
        let Some(last) = layout.axes.len().checked_sub(1) else { return unsupported("a number times a matrix") };
        if !layout.is_columns(last) {
            // The order of the rows does not matter, and a weight's rows can lie in any order.
            layout = self.as_rows(a)?;
        }
        // A table of tokens may be the output matrix too.
        let (weight, options) = match self.known_weight(b, (n, k)) {
            Some(table) => (table, OperatorOptions::default().transpose_b()),
            None => (self.weight(b, (k, n), stored_turned, (0, n)), OperatorOptions::default()),
        };
        let tensor = self.emit(node, "gemm", vec![layout.tensor, weight], (layout.rows, n), options);
        self.mark_narrow(node);
        let mut result = layout.with_columns(last, n, tensor);
        // A vector times a matrix loses an axis.
        if let Some(output) = node.output().and_then(|output| self.net.values[output].shape.clone())
            && output.len() != result.axes.len()
        {
            result = result.reshaped(&output).ok_or_else(|| Stop::Unsupported("its axes".to_owned()))?;
        }
        self.settle(node, result)
    }

    /// Says of the product that was added last whether its activations are quantised.
    pub(super) fn mark_narrow(&mut self, node: &NetNode<'_>) {
        if let Some(operator) = self.draft.operators.last_mut() {
            operator.is_narrow = node.output().is_some_and(|output| self.net.quantised.contains(&output));
        }
    }

    /// A bias for the operator behind a value, if it can take one.
    pub(super) fn add_vector(&mut self, value: ValueId, bias: ValueId, columns: u64) -> bool {
        let Some(layout) = self.places[value].clone().filter(|layout| layout.columns == columns) else { return false };
        let takes = |kind: &str| matches!(kind, "gemm" | "conv");
        if !self.draft.maker(layout.tensor).is_some_and(|op| takes(op.kind) && op.vectors.is_empty()) {
            return false;
        }
        let vector = self.vector(bias, columns);
        if let Some(operator) = self.draft.maker(layout.tensor) {
            operator.vectors.push(vector);
        }
        true
    }

    /// A product of activations: one for every head and sequence.
    pub(super) fn product(&mut self, node: &NetNode<'_>, a: ValueId, b: ValueId) -> Done {
        let (mut x, mut y) = (self.place(a)?, self.place(b)?);
        let (n, m) = (x.axes.len(), y.axes.len());
        if n < 2 || m < 2 {
            return unsupported("a vector times a matrix of activations");
        }
        let fits_a = |x: &Layout| x.is_inner(n - 2, Side::Row) && x.is_inner(n - 1, Side::Column);
        let turned = |y: &Layout| y.is_inner(m - 1, Side::Row) && y.is_inner(m - 2, Side::Column);
        let straight = |y: &Layout| y.is_inner(m - 2, Side::Row) && y.is_inner(m - 1, Side::Column);
        let (rows, depth) = (x.extent(n - 2), x.extent(n - 1));
        let columns = y.extent(m - 1);
        let equal = |x: &Layout, y: &Layout| {
            let is_turned = y.extent(m - 2) > 1 && turned(y);
            let (inner_rows, inner_columns) = if is_turned { (columns, depth) } else { (depth, columns) };
            let groups = (x.rows / rows.max(1), y.rows / inner_rows.max(1));
            let heads = (x.columns / depth.max(1), y.columns / inner_columns.max(1));
            groups.0 == groups.1 && heads.1 > 0 && heads.0.is_multiple_of(heads.1)
        };
        if !fits_a(&x) || !(turned(&y) || straight(&y)) || !equal(&x, &y) {
            // Every sequence and head then is a group of rows of its own.
            x = self.as_rows(a)?;
            y = if straight(&y) { self.as_rows(b)? } else { self.rows_turned(b)? };
            if !fits_a(&x) || !(turned(&y) || straight(&y)) || !equal(&x, &y) {
                return self.broadcast_product(node, a, b);
            }
        }
        let is_turned = y.extent(m - 2) > 1 && turned(&y) || !straight(&y);
        let (heads, batch) = (x.columns / depth, x.rows / rows);
        let kv_heads = y.columns / if is_turned { depth } else { columns };
        let mut options = OperatorOptions::default().causal(node.is_causal);
        if is_turned {
            options = options.transpose_b();
        }
        if batch != 1 {
            options = options.batch(batch);
        }
        if heads != 1 {
            options = options.heads(heads);
        }
        if kv_heads != heads {
            options = options.kv_heads(kv_heads);
        }
        let tensor = self.emit(node, "gemm", vec![x.tensor, y.tensor], (x.rows, heads * columns), options);
        self.settle(node, x.with_columns(n - 1, columns, tensor))
    }

    /// A value as a plain matrix with the last axis inside the rows.
    pub(super) fn rows_turned(&mut self, value: ValueId) -> Result<Layout, Stop> {
        let layout = self.place(value)?;
        let mut shape = self.shape(value)?.to_vec();
        let rank = shape.len();
        shape.swap(rank - 2, rank - 1);
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        if layout.transposed(&order).is_of_rows() {
            return Ok(layout);
        }
        Ok(self.reread(value, &layout, &Layout::of_rows(0, &shape))?.transposed(&order))
    }

    fn batch_norm(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let (gain, bias) = (Self::input(node, 1)?, Self::input(node, 2)?);
        if !self.is_constant(gain) || !self.is_constant(bias) {
            return unsupported("gain and bias are no constants");
        }
        let layout = if self.shape(x)?.len() > 2 { self.image(x)? } else { self.as_rows(x)? };
        // Behind a convolution it goes into filters and bias.
        let folds = self.is_read_once(layout.tensor)
            && self.draft.maker(layout.tensor).is_some_and(|operator| matches!(operator.kind, "conv" | "gemm"));
        if folds {
            self.add_vector(x, bias, layout.columns);
            return self.settle(node, layout);
        }
        let vectors = vec![self.vector(gain, layout.columns), self.vector(bias, layout.columns)];
        self.elementwise(node, "batch_norm", &layout)?;
        self.give_vectors(node, vectors);
        Ok(())
    }

    fn give_vectors(&mut self, node: &NetNode<'_>, vectors: Vec<usize>) {
        let tensor = node.output().and_then(|output| self.places[output].as_ref()).map(|layout| layout.tensor);
        if let Some(operator) = tensor.and_then(|tensor| self.draft.maker(tensor)) {
            operator.vectors = vectors;
        }
    }

    fn norm(&mut self, node: &NetNode<'_>, kind: &'static str, most: usize) -> Done {
        let x = Self::input(node, 0)?;
        let mut layout = self.place(x)?;
        let last = layout.axes.len().saturating_sub(1);
        if !layout.is_columns(last) {
            layout = self.as_rows(x)?;
        }
        let columns = layout.columns;
        let mut vectors = Vec::new();
        for index in 1..=most {
            let Some(value) = node.input(index).filter(|&value| self.is_constant(value)) else { break };
            if self.shape(value)?.iter().product::<u64>() != columns {
                return unsupported("a gain or bias of another width");
            }
            vectors.push(self.vector(value, columns));
        }
        self.elementwise(node, kind, &layout)?;
        self.give_vectors(node, vectors);
        Ok(())
    }

    /// Each channel over a power of the squares around it.
    fn local_norm(&mut self, node: &NetNode<'_>) -> Done {
        let layout = self.image(Self::input(node, 0)?)?;
        if let Some(size) = node.int("size").filter(|&size| size != 5) {
            self.notes.insert(format!(
                "`local_norm` sums squares of five channels, here for windows of {size}: the same elements are read and \
                 written, and a stage more or less adds"
            ));
        }
        self.elementwise(node, "local_norm", &layout)
    }

    /// The largest of each row, and where they are.
    fn top_k(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let rank = self.shape(x)?.len();
        let axis = super::fold::axis_of(node.int("axis").unwrap_or(-1), rank).unwrap_or(0);
        let values = node.output().ok_or_else(|| Stop::Unsupported("its values have no name".to_owned()))?;
        let k = self.shape(values)?.get(axis).copied().unwrap_or(1);
        let mut layout = self.place(x)?;
        if !layout.is_columns(axis) {
            layout = self.as_rows(x)?;
        }
        if !layout.is_columns(axis) {
            return unsupported(format!("the largest along axis {axis} of {rank}"));
        }
        let tensor = self.emit(node, "select", vec![layout.tensor], (layout.rows, k), OperatorOptions::default());
        self.draft.tensors[tensor].states_shape = true;
        let result = layout.with_columns(axis, k, tensor);
        self.settle(node, result.clone())?;
        self.notes.insert("TopK is `select`: the largest of each row by magnitude, in the order of the row".to_owned());
        let Some(indices) = node.outputs.get(1).copied().flatten() else { return Ok(()) };
        if self.net.values[indices].is_output {
            let name = self.net.values[indices].name.clone();
            let made = self.draft.made(&name, (layout.rows, k));
            self.draft.push(&name, "scale", vec![tensor], made);
            self.set(indices, result.on(made));
            self.notes.insert("indices of TopK are written as numbers of the workload's type".to_owned());
        }
        Ok(())
    }

    /// `layer_norm(x + skip)`.
    fn skip_norm(&mut self, node: &NetNode<'_>) -> Done {
        let (x, skip) = (self.as_rows(Self::input(node, 0)?)?, self.as_rows(Self::input(node, 1)?)?);
        let sum = self.emit(node, "add", vec![x.tensor, skip.tensor], (x.rows, x.columns), OperatorOptions::default());
        let vectors: Vec<ValueId> = [2, 3].into_iter().filter_map(|index| node.input(index)).collect();
        let vectors = vectors.into_iter().map(|value| self.vector(value, x.columns)).collect();
        self.elementwise(node, "layer_norm", &x.on(sum))?;
        self.give_vectors(node, vectors);
        // The sum itself may be wanted too.
        if let Some(output) = node.outputs.get(3).copied().flatten() {
            self.set(output, x.on(sum));
        }
        Ok(())
    }

    fn softmax(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let rank = self.shape(x)?.len();
        let default = if self.net.opset < 13 { 1 } else { -1 };
        let axis = super::fold::axis_of(node.int("axis").unwrap_or(default), rank).unwrap_or(0);
        let shape = self.shape(x)?.to_vec();
        // Until version 13 everything from the axis on is one.
        let is_last = axis + 1 == rank || self.net.opset < 13 && shape[axis + 1..].iter().all(|&dim| dim == 1);
        let mut layout = self.place(x)?;
        if !layout.is_inner(axis, Side::Column) {
            layout = self.as_rows(x)?;
        }
        if !is_last || !layout.is_inner(axis, Side::Column) {
            return unsupported(format!("a softmax along axis {axis} of {rank}"));
        }
        let heads = layout.columns / layout.extent(axis).max(1);
        self.elementwise(node, "softmax", &layout)?;
        self.give_heads(node, heads);
        Ok(())
    }

    fn give_heads(&mut self, node: &NetNode<'_>, heads: u64) {
        let tensor = node.output().and_then(|output| self.places[output].as_ref()).map(|layout| layout.tensor);
        if let Some(operator) = tensor.and_then(|tensor| self.draft.maker(tensor)).filter(|_| heads > 1) {
            operator.options = std::mem::take(&mut operator.options).heads(heads);
        }
    }

    fn rotary(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let layout = self.place(x)?;
        let last = layout.axes.len().saturating_sub(1);
        let heads = if layout.is_inner(last, Side::Column) { layout.columns / layout.extent(last).max(1) } else { 1 };
        self.elementwise(node, "rotary", &layout)?;
        self.give_heads(node, heads);
        Ok(())
    }

    fn unary(&mut self, node: &NetNode<'_>, kind: &'static str, plain: &str) -> Done {
        let layout = self.place(Self::input(node, 0)?)?;
        if node.op != plain {
            self.notes.insert(format!("{} is taken as `{kind}`: one pass over as many elements", node.op));
        }
        self.elementwise(node, kind, &layout)
    }

    /// Two operands, or more one after the other.
    fn binary(&mut self, node: &NetNode<'_>) -> Done {
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let (constants, activations): (Vec<ValueId>, Vec<ValueId>) =
            inputs.iter().partition(|&&value| self.is_constant(value));
        let output = node.output().ok_or(Stop::Behind)?;
        let wanted = self.shape(output)?.to_vec();
        // What has the shape of the result goes first.
        let Some(&main) = activations.iter().find(|&&value| self.shape(value).is_ok_and(|shape| shape == wanted))
        else {
            return unsupported("both operands are stretched to a larger shape");
        };
        let multiplies = matches!(node.op.as_str(), "Mul" | "Div" | "Pow");
        let others: Vec<ValueId> = activations.into_iter().filter(|&value| value != main).collect();
        let mut layout = self.place(main)?;
        if others.is_empty() && constants.is_empty() {
            // Twice the same.
            let kind = if multiplies { "mul" } else { "add" };
            let inputs = vec![layout.tensor, layout.tensor];
            let tensor = self.emit(node, kind, inputs, (layout.rows, layout.columns), OperatorOptions::default());
            return self.settle(node, layout.on(tensor));
        }
        for other in others {
            let mut with = self.place(other)?;
            if self.shape(other)? != wanted.as_slice() {
                return unsupported(format!("{:?} is stretched to the other's shape", self.net.values[other].name));
            }
            if (with.rows, with.columns, &with.axes) != (layout.rows, layout.columns, &layout.axes) {
                layout = if layout.is_of_rows() { layout } else { self.as_rows(main)? };
                with = self.as_rows(other)?;
            }
            if !matches!(node.op.as_str(), "Add" | "Mul" | "Sum") {
                let kind = if multiplies { "mul" } else { "add" };
                self.notes.insert(format!("{} of two tensors is taken as `{kind}`: one pass over both", node.op));
            }
            let kind = if multiplies { "mul" } else { "add" };
            let tensor = self.emit(
                node,
                kind,
                vec![layout.tensor, with.tensor],
                (layout.rows, layout.columns),
                OperatorOptions::default(),
            );
            layout = layout.on(tensor);
            self.settle(node, layout.clone())?;
        }
        for constant in constants {
            layout = self.with_constant(node, main, constant, &layout, multiplies)?;
            self.settle(node, layout.clone())?;
        }
        Ok(())
    }

    /// An activation and a constant that is broadcast to it.
    fn with_constant(
        &mut self,
        node: &NetNode<'_>,
        value: ValueId,
        constant: ValueId,
        layout: &Layout,
        multiplies: bool,
    ) -> Result<Layout, Stop> {
        let shape = self.shape(constant)?.to_vec();
        let all: u64 = shape.iter().product();
        let rank = layout.axes.len();
        let scale = |lower: &mut Self| {
            let shape = (layout.rows, layout.columns);
            Ok(layout.on(lower.emit(node, "scale", vec![layout.tensor], shape, OperatorOptions::default())))
        };
        if all <= 1 || node.op == "Where" || shape.len() > rank {
            return scale(self);
        }
        let axis_of = |index: usize| index + rank - shape.len();
        let long: Vec<usize> = (0..shape.len()).filter(|&index| shape[index] > 1).map(axis_of).collect();
        let is_column = |&axis: &usize| layout.axes[axis].iter().all(|part| part.side == Side::Column);
        if long.iter().all(is_column) && all == layout.columns {
            if !multiplies && self.is_read_once(layout.tensor) && self.add_vector(value, constant, all) {
                return Ok(layout.clone());
            }
            // Scale and shift behind a batch norm go into its own.
            let is_normed = self.draft.maker(layout.tensor).is_some_and(|operator| operator.kind == "batch_norm");
            if is_normed && self.is_read_once(layout.tensor) {
                return Ok(layout.clone());
            }
            let vector = self.vector(constant, all);
            let kind = if multiplies { "batch_norm" } else { "bias" };
            let tensor =
                self.emit(node, kind, vec![layout.tensor], (layout.rows, layout.columns), OperatorOptions::default());
            if let Some(operator) = self.draft.maker(tensor) {
                operator.vectors = vec![vector];
            }
            return Ok(layout.on(tensor));
        }
        let is_last = long.contains(&(rank - 1)) && layout.is_columns(rank - 1);
        if multiplies || !is_last || !all.is_multiple_of(layout.columns) {
            return scale(self);
        }
        // A table with a row for every position: looked up, then added.
        let rows = all / layout.columns;
        let table = self.weight(constant, (rows, layout.columns), false, (0, layout.columns));
        let looked_up = self.look_up(node, table, (layout.rows, layout.columns));
        let shape = (layout.rows, layout.columns);
        Ok(layout.on(self.emit(node, "add", vec![layout.tensor, looked_up], shape, OperatorOptions::default())))
    }

    /// Rows of a table by indices that come from off chip.
    pub(super) fn look_up(&mut self, node: &NetNode<'_>, table: usize, shape: (u64, u64)) -> usize {
        let name = format!("{}_indices", self.draft.tensors[table].name);
        let indices = self.draft.tensor(&name, (shape.0, 1), super::draft::Role::Input);
        self.draft.tensors[indices].dtype = Some("fp32");
        self.emit(node, "embedding", vec![indices, table], shape, OperatorOptions::default())
    }

    fn reduce(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let shape = self.shape(x)?.to_vec();
        let given = node.input(1).and_then(|id| self.net.values[id].constant.as_ref()?.ints());
        let mut axes: Vec<usize> = match node.ints("axes").or(given.as_deref()) {
            Some(list) => list.iter().filter_map(|&axis| super::fold::axis_of(axis, shape.len())).collect(),
            None => (0..shape.len()).collect(),
        };
        axes.sort_unstable();
        let layout = self.place(x)?;
        let is_max = node.op == "ReduceMax";
        let output = node.output().ok_or(Stop::Behind)?;
        let result = self.shape(output)?.to_vec();
        if let &[axis] = axes.as_slice()
            && layout.is_columns(axis)
        {
            let kind = if is_max { "row_max" } else { "row_sum" };
            let tensor = self.emit(node, kind, vec![layout.tensor], (layout.rows, 1), OperatorOptions::default());
            let with_one = layout.with_columns(axis, 1, tensor);
            let placed = with_one.reshaped(&result).ok_or_else(|| Stop::Unsupported("its axes".to_owned()))?;
            return self.settle(node, placed);
        }
        // Pixels of whole images, or tokens of whole sequences.
        let kind = if is_max { "max_pool" } else { "average_pool" };
        let image: Vec<u64> = axes.iter().map(|&axis| shape[axis]).collect();
        if shape.len() > 2 && axes == (2..shape.len()).collect::<Vec<_>>() {
            let layout = self.image(x)?;
            return self.whole_pool(node, kind, &layout, &image);
        }
        if shape.len() == 3 && axes == [1] {
            let layout = self.as_rows(x)?;
            return self.whole_pool(node, kind, &layout, &image);
        }
        unsupported(format!("a reduction along the axes {axes:?} of {}", shape.len()))
    }
}
