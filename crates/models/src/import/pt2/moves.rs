//! Operators of PyTorch that move, cut, join, look up or make numbers.

use super::build::{Build, Call, data_type};
use crate::import::proto::Attribute;

/// Beyond every axis.
const END: i64 = i64::MAX;

impl Build<'_> {
    /// Adds what a call that moves elements stands for; `None` if it is none.
    pub(super) fn moved(&mut self, call: Call<'_>, name: &str, outputs: &[String]) -> Option<()> {
        let output = outputs.first()?;
        match name {
            "view" | "reshape" | "_unsafe_view" | "view_copy" | "_reshape_copy" => {
                let x = self.given(call, &["self", "input"])?;
                let list = call.sizes("size").or_else(|| call.sizes("shape"))?;
                let sizes = self.sizes_of(&list)?;
                self.step("Reshape", &[x, sizes], output, Vec::new());
            }
            "flatten" | "unflatten" | "view_as" | "reshape_as" => {
                let x = self.given(call, &["self", "input"])?;
                let sizes = self.known_sizes(output)?;
                self.step("Reshape", &[x, sizes], output, Vec::new());
            }
            "squeeze" | "squeeze_copy" | "unsqueeze" => {
                let x = self.given(call, &["self", "input"])?;
                let axes = call.ints("dim");
                if name == "unsqueeze" {
                    self.step("Unsqueeze", &[x], output, vec![("axes", Attribute::Ints(axes?))]);
                } else {
                    self.squeeze(call, x, axes, output)?;
                }
            }
            "permute" => self.turn(call, call.ints("dims")?, output)?,
            "t" if self.rank(call.tensor("self")?)? < 2 => return self.same(call, output),
            "t" | "mT" => {
                let rank = self.rank(call.tensor("self")?)?;
                self.turn(call, (0..rank - 2).chain([rank - 1, rank - 2]).collect(), output)?;
            }
            "transpose" => {
                let rank = self.rank(call.tensor("self")?)?;
                let mut order: Vec<i64> = (0..rank).collect();
                let at = |axis: i64| usize::try_from(if axis < 0 { axis + rank } else { axis }).ok();
                let (a, b) = (at(call.int("dim0")?)?, at(call.int("dim1")?)?);
                if a.max(b) >= order.len() {
                    return None;
                }
                order.swap(a, b);
                self.turn(call, order, output)?;
            }
            "expand" | "expand_copy" | "expand_as" => {
                let x = self.given(call, &["self", "input"])?;
                let sizes = match call.sizes("size") {
                    Some(mut list) => {
                        // What stays as it is is broadcast to itself.
                        for size in &mut list {
                            size.as_int = size.as_int.map(|size| if size < 0 { 1 } else { size });
                        }
                        self.sizes_of(&list)?
                    }
                    None => self.known_sizes(output)?,
                };
                self.step("Expand", &[x, sizes], output, Vec::new());
            }
            "cat" | "concat" | "stack" => self.join(call, name, output)?,
            "split" | "split_with_sizes" | "chunk" | "unbind" => self.split(call, name, outputs)?,
            "slice" | "slice_copy" | "narrow" => self.slice(call, name, output)?,
            "select" | "select_copy" => {
                let x = self.given(call, &["self"])?;
                let index = self.int(call.int("index")?);
                self.step("Gather", &[x, index], output, vec![("axis", Attribute::Int(call.int("dim")?))]);
            }
            "embedding" => {
                let (table, indices) = (self.given(call, &["weight"])?, self.given(call, &["indices"])?);
                self.step("Gather", &[table, indices], output, Vec::new());
            }
            "topk" => {
                let x = self.given(call, &["self"])?;
                let k = self.ints(&[call.int("k")?]);
                let axis = vec![("axis", Attribute::Int(call.int("dim").unwrap_or(-1)))];
                self.steps_of("TopK", &[x, k], outputs, axis);
            }
            _ => return self.numbers(call, name, output),
        }
        Some(())
    }

    fn same(&mut self, call: Call<'_>, output: &str) -> Option<()> {
        let x = self.given(call, &["self", "input"])?;
        self.step("Identity", &[x], output, Vec::new());
        Some(())
    }

    fn turn(&mut self, call: Call<'_>, order: Vec<i64>, output: &str) -> Option<()> {
        let x = self.given(call, &["self", "input"])?;
        self.step("Transpose", &[x], output, vec![("perm", Attribute::Ints(order))]);
        Some(())
    }

    /// The sizes of a value of which at most one is open.
    fn known_sizes(&mut self, value: &str) -> Option<String> {
        let sizes = self.sizes(value)?;
        if sizes.iter().filter(|size| size.is_none()).count() > 1 {
            return None;
        }
        let list: Vec<i64> = sizes.into_iter().map(|size| size.unwrap_or(-1)).collect();
        Some(self.ints(&list))
    }

    /// Axes that are longer than 1 stay.
    fn squeeze(&mut self, call: Call<'_>, x: String, axes: Option<Vec<i64>>, output: &str) -> Option<()> {
        let of = call.tensor("self").or_else(|| call.tensor("input"))?;
        let (sizes, rank) = (self.sizes(of)?, self.rank(of)?);
        let axes = axes.unwrap_or_else(|| (0..rank).collect());
        let is_one = |axis: &i64| {
            let at = usize::try_from(if *axis < 0 { axis + rank } else { *axis }).ok();
            at.and_then(|at| sizes.get(at)) == Some(&Some(1))
        };
        let axes: Vec<i64> = axes.into_iter().filter(is_one).collect();
        if axes.is_empty() {
            self.step("Identity", &[x], output, Vec::new());
        } else {
            self.step("Squeeze", &[x], output, vec![("axes", Attribute::Ints(axes))]);
        }
        Some(())
    }

    fn join(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let axis = call.int("dim").unwrap_or(0);
        let mut parts: Vec<String> = call.tensors("tensors")?.into_iter().map(|tensor| self.name(tensor)).collect();
        if name == "stack" {
            for part in &mut parts {
                *part = self.made(
                    "Unsqueeze",
                    std::slice::from_ref(part),
                    output,
                    vec![("axes", Attribute::Ints(vec![axis]))],
                );
            }
        }
        self.step("Concat", &parts, output, vec![("axis", Attribute::Int(axis))]);
        Some(())
    }

    fn split(&mut self, call: Call<'_>, name: &str, outputs: &[String]) -> Option<()> {
        let tensor = call.tensor("self").or_else(|| call.tensor("input"))?;
        let x = self.name(tensor);
        let axis = call.int("dim").unwrap_or(0);
        let attributes = vec![("axis", Attribute::Int(axis))];
        if name == "unbind" {
            let parts: Vec<String> = outputs.iter().map(|output| self.fresh(output, "part")).collect();
            self.steps_of("Split", &[x], &parts, attributes);
            for (part, output) in parts.into_iter().zip(outputs) {
                self.step("Squeeze", &[part], output, vec![("axes", Attribute::Ints(vec![axis]))]);
            }
            return Some(());
        }
        // Parts of a length of their own are told by the shapes of the results.
        let rank = self.rank(tensor)?;
        let at = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let lengths = outputs.iter().map(|output| *self.sizes(output)?.get(at)?).collect::<Option<Vec<i64>>>()?;
        let lengths = self.ints(&lengths);
        self.steps_of("Split", &[x, lengths], outputs, attributes);
        Some(())
    }

    fn slice(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let x = self.given(call, &["self", "input"])?;
        let axis = self.ints(&[call.int("dim").unwrap_or(0)]);
        let start = call.int("start").unwrap_or(0);
        let (end, step) = if name == "narrow" {
            (self.ints(&[start.checked_add(call.int("length")?)?]), 1)
        } else {
            let end = match call.size("end") {
                Some(computed) => self.sizes_of(&[computed])?,
                None => self.ints(&[END]),
            };
            (end, call.int("step").unwrap_or(1))
        };
        let (start, step) = (self.ints(&[start]), self.ints(&[step]));
        self.step("Slice", &[x, start, end, axis, step], output, Vec::new());
        Some(())
    }

    /// Numbers that are made: ranges, constants, triangles, sizes.
    fn numbers(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        match name {
            "sym_size" => {
                let x = self.given(call, &["self"])?;
                let shape = self.made("Shape", &[x], output, Vec::new());
                let index = self.int(call.int("dim")?);
                self.step("Gather", &[shape, index], output, Vec::new());
            }
            "arange" => {
                let start = call.operand(self, "start").unwrap_or_else(|| self.int(0));
                let (end, step) = (call.operand(self, "end")?, call.operand(self, "step"));
                let step = step.unwrap_or_else(|| self.int(1));
                self.step("Range", &[start, end, step], output, Vec::new());
            }
            "full" | "ones" | "zeros" | "full_like" | "ones_like" | "zeros_like" | "scalar_tensor" | "new_ones"
            | "new_zeros" | "new_full" => {
                let is_real = call.scalar_type("dtype").map(data_type).is_some_and(|of| matches!(of, 1 | 10 | 11 | 16));
                let value = match name {
                    "scalar_tensor" => call.operand(self, "s")?,
                    _ if name.contains("full") => call.operand(self, "fill_value")?,
                    _ if is_real => self.real(f64::from(u8::from(name.contains("ones")))),
                    _ => self.int(i64::from(name.contains("ones"))),
                };
                let sizes = match call.sizes("size").filter(|_| !name.ends_with("_like")) {
                    Some(list) => self.sizes_of(&list)?,
                    None => self.known_sizes(output)?,
                };
                self.step("Expand", &[value, sizes], output, Vec::new());
            }
            "tril" | "triu" => {
                let x = self.given(call, &["self"])?;
                let diagonal = self.int(call.int("diagonal").unwrap_or(0));
                let upper = vec![("upper", Attribute::Int(i64::from(name == "triu")))];
                self.step("Trilu", &[x, diagonal], output, upper);
            }
            _ => return None,
        }
        Some(())
    }
}
