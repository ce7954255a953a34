//! Operators of PyTorch as standard ones: products, norms, functions. Those that move and those of images stand beside.

use super::build::{Attributes, Build, Call, data_type};
use super::schema::Node;
use crate::import::proto::Attribute;

/// Checks of a program, which compute nothing.
const CHECKS: [&str; 6] = [
    "aten._assert_tensor_metadata",
    "aten._assert_scalar",
    "aten._assert_async",
    "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
    "aten._guards_fn",
];

/// Adds what every node stands for; a node that is not known stays under its own name, for the error that lists it.
pub(super) fn translate(build: &mut Build<'_>, nodes: &[Node]) {
    for node in nodes {
        let call = Call(node);
        let name = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
        // The overload tells types that do not matter here.
        let plain = if name.starts_with('_') { name } else { name.rsplit_once('.').map_or(name, |(plain, _)| plain) };
        if CHECKS.contains(&plain) {
            continue;
        }
        if build.translated(call, plain).is_none() {
            let inputs: Vec<String> = call.all_tensors().into_iter().map(|tensor| build.name(tensor)).collect();
            build.steps_of(name, &inputs, &call.outputs(), Vec::new());
        }
    }
}

/// Functions of one operand that are called alike up to their names.
const FUNCTIONS: [(&str, &str); 27] = [
    ("relu", "Relu"),
    ("relu6", "Clip"),
    ("hardtanh", "Clip"),
    ("clamp", "Clip"),
    ("leaky_relu", "LeakyRelu"),
    ("elu", "Elu"),
    ("gelu", "Gelu"),
    ("silu", "Silu"),
    ("hardswish", "HardSwish"),
    ("mish", "Mish"),
    ("sigmoid", "Sigmoid"),
    ("hardsigmoid", "HardSigmoid"),
    ("softplus", "Softplus"),
    ("tanh", "Tanh"),
    ("erf", "Erf"),
    ("exp", "Exp"),
    ("log", "Log"),
    ("sqrt", "Sqrt"),
    ("reciprocal", "Reciprocal"),
    ("neg", "Neg"),
    ("abs", "Abs"),
    ("cos", "Cos"),
    ("sin", "Sin"),
    ("floor", "Floor"),
    ("ceil", "Ceil"),
    ("bitwise_not", "Not"),
    ("logical_not", "Not"),
];

/// Functions of two operands.
const PAIRS: [(&str, &str); 22] = [
    ("aten.mul", "Mul"),
    ("aten.div", "Div"),
    ("aten.pow", "Pow"),
    ("aten.remainder", "Mod"),
    ("aten.minimum", "Min"),
    ("aten.maximum", "Max"),
    ("aten.eq", "Equal"),
    ("aten.gt", "Greater"),
    ("aten.lt", "Less"),
    ("aten.ge", "GreaterOrEqual"),
    ("aten.le", "LessOrEqual"),
    ("aten.logical_and", "And"),
    ("aten.bitwise_and", "And"),
    ("aten.logical_or", "Or"),
    ("aten.bitwise_or", "Or"),
    ("_operator.add", "Add"),
    ("_operator.sub", "Sub"),
    ("_operator.mul", "Mul"),
    ("_operator.floordiv", "Div"),
    ("_operator.mod", "Mod"),
    ("_operator.pow", "Pow"),
    ("aten.floor_divide", "Div"),
];

/// What hands on what it gets.
const COPIES: [&str; 12] = [
    "clone",
    "contiguous",
    "detach",
    "detach_",
    "alias",
    "lift_fresh_copy",
    "dropout",
    "dropout_",
    "feature_dropout",
    "native_dropout",
    "_to_copy",
    "to",
];

impl Build<'_> {
    /// Adds what a call stands for; `None` if it is not known.
    fn translated(&mut self, call: Call<'_>, name: &str) -> Option<()> {
        let outputs = call.outputs();
        let output = outputs.first().filter(|output| !output.is_empty())?.clone();
        if let Some((_, op)) = PAIRS.iter().find(|(known, _)| *known == name) {
            return self.pair(call, op, &output);
        }
        let name = name.strip_prefix("aten.")?;
        // What is written in place is a value of its own here.
        let name = name.strip_suffix('_').filter(|name| !name.ends_with('_')).unwrap_or(name);
        if let Some((_, op)) = FUNCTIONS.iter().find(|(known, _)| *known == name) {
            let x = self.given(call, &["self", "input"])?;
            self.step(op, &[x], &output, Vec::new());
            return Some(());
        }
        if COPIES.contains(&name) {
            let x = self.given(call, &["self", "input"])?;
            self.copy(call, x, &output);
            return Some(());
        }
        self.product(call, name, &output)
            .or_else(|| self.norm(call, name, &output))
            .or_else(|| self.function(call, name, &output))
            .or_else(|| self.moved(call, name, &outputs))
            .or_else(|| self.image(call, name, &outputs))
    }

    /// A tensor under the first of several names that the operator has.
    pub(super) fn given(&self, call: Call<'_>, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| call.tensor(name)).map(|tensor| self.name(tensor))
    }

    fn pair(&mut self, call: Call<'_>, op: &str, output: &str) -> Option<()> {
        let first = ["self", "a", "input"].iter().find_map(|name| call.operand(self, name))?;
        let second = ["other", "exponent", "b"].iter().find_map(|name| call.operand(self, name))?;
        self.step(op, &[first, second], output, Vec::new());
        Some(())
    }

    fn copy(&mut self, call: Call<'_>, x: String, output: &str) {
        match call.scalar_type("dtype").map(data_type).filter(|&to| to != 0) {
            Some(to) => self.step("Cast", &[x], output, vec![("to", Attribute::Int(to))]),
            None => self.step("Identity", &[x], output, Vec::new()),
        }
    }

    fn product(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        match name {
            "linear" => {
                let (x, weight) = (self.given(call, &["input"])?, self.given(call, &["weight"])?);
                let turned = vec![("perm", Attribute::Ints(vec![1, 0]))];
                let turned = self.made("Transpose", &[weight], output, turned);
                let bias = self.given(call, &["bias"]);
                self.product_and(&[x, turned], bias, output);
            }
            "addmm" | "baddbmm" => {
                let bias = self.given(call, &["self", "input"])?;
                let x = self.given(call, &["mat1", "batch1"])?;
                let y = self.given(call, &["mat2", "batch2"])?;
                self.product_and(&[x, y], Some(bias), output);
            }
            "mm" | "bmm" | "matmul" => {
                let (x, y) = (self.given(call, &["self", "input"])?, self.given(call, &["other", "mat2"])?);
                self.step("MatMul", &[x, y], output, Vec::new());
            }
            "scaled_dot_product_attention"
            | "_scaled_dot_product_flash_attention"
            | "_scaled_dot_product_flash_attention_for_cpu"
            | "_scaled_dot_product_efficient_attention"
            | "_scaled_dot_product_cudnn_attention" => return self.attention(call, output),
            _ => return None,
        }
        Some(())
    }

    /// A product, and what is added to it.
    fn product_and(&mut self, operands: &[String], bias: Option<String>, output: &str) {
        match bias {
            Some(bias) => {
                let product = self.made("MatMul", operands, output, Vec::new());
                self.step("Add", &[product, bias], output, Vec::new());
            }
            None => self.step("MatMul", operands, output, Vec::new()),
        }
    }

    fn attention(&mut self, call: Call<'_>, output: &str) -> Option<()> {
        let mut inputs = Vec::with_capacity(4);
        for name in ["query", "key", "value"] {
            let tensor = call.tensor(name)?;
            if self.rank(tensor)? != 4 {
                return None;
            }
            inputs.push(self.name(tensor));
        }
        inputs.extend(self.given(call, &["attn_mask", "attn_bias"]));
        let is_causal = i64::from(call.flag("is_causal").unwrap_or(false));
        self.step("Attention", &inputs, output, vec![("is_causal", Attribute::Int(is_causal))]);
        Some(())
    }

    fn norm(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let mut inputs = vec![self.given(call, &["input", "self"])?];
        let affine = |build: &Self| ["weight", "bias"].map(|name| build.given(call, &[name]));
        match name {
            "layer_norm" | "native_layer_norm" | "rms_norm" | "_fused_rms_norm" => {
                // Norms over several axes are other operators.
                if call.ints("normalized_shape")?.len() != 1 {
                    return None;
                }
                let op = if name.ends_with("rms_norm") { "RMSNormalization" } else { "LayerNormalization" };
                inputs.extend(affine(self).into_iter().map_while(|given| given));
                self.step(op, &inputs, output, Vec::new());
            }
            "batch_norm" | "_native_batch_norm_legit_no_training" | "cudnn_batch_norm" => {
                let [gain, bias] = affine(self);
                inputs.extend([gain?, bias?]);
                inputs.extend(["running_mean", "running_var"].into_iter().filter_map(|name| self.given(call, &[name])));
                self.step("BatchNormalization", &inputs, output, Vec::new());
            }
            _ => return None,
        }
        Some(())
    }

    fn function(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        match name {
            "add" | "sub" | "rsub" => return self.sum(call, name, output),
            "rsqrt" => {
                let x = self.given(call, &["self", "input"])?;
                let root = self.made("Sqrt", &[x], output, Vec::new());
                self.step("Reciprocal", &[root], output, Vec::new());
            }
            "square" => {
                let x = self.given(call, &["self"])?;
                self.step("Mul", &[x.clone(), x], output, Vec::new());
            }
            "softmax" | "_softmax" | "_safe_softmax" | "log_softmax" | "_log_softmax" => {
                let x = self.given(call, &["self", "input"])?;
                let op = if name.ends_with("log_softmax") { "LogSoftmax" } else { "Softmax" };
                self.step(op, &[x], output, vec![("axis", Attribute::Int(call.int("dim")?))]);
            }
            "mean" | "sum" | "amax" => {
                let x = self.given(call, &["self", "input"])?;
                let op = match name {
                    "mean" => "ReduceMean",
                    "sum" => "ReduceSum",
                    _ => "ReduceMax",
                };
                let keeps = i64::from(call.flag("keepdim").unwrap_or(false));
                let mut attributes: Attributes = vec![("keepdims", Attribute::Int(keeps))];
                if let Some(axes) = call.ints("dim").filter(|axes| !axes.is_empty()) {
                    attributes.push(("axes", Attribute::Ints(axes)));
                }
                self.step(op, &[x], output, attributes);
            }
            "where" => {
                let condition = self.given(call, &["condition"])?;
                let (x, y) = (call.operand(self, "self")?, call.operand(self, "other")?);
                self.step("Where", &[condition, x, y], output, Vec::new());
            }
            "masked_fill" => {
                let (x, mask) = (self.given(call, &["self"])?, self.given(call, &["mask"])?);
                let value = call.operand(self, "value")?;
                self.step("Where", &[mask, value, x], output, Vec::new());
            }
            _ => return None,
        }
        Some(())
    }

    /// Sums and differences; `alpha` times the second operand.
    fn sum(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let first = call.operand(self, "self")?;
        let mut second = call.operand(self, "other")?;
        if let Some(alpha) = call.real("alpha").filter(|alpha| (alpha - 1.0).abs() > f64::EPSILON) {
            let alpha = self.real(alpha);
            second = self.made("Mul", &[second, alpha], output, Vec::new());
        }
        match name {
            "add" => self.step("Add", &[first, second], output, Vec::new()),
            "sub" => self.step("Sub", &[first, second], output, Vec::new()),
            _ => self.step("Sub", &[second, first], output, Vec::new()),
        }
        Some(())
    }
}
