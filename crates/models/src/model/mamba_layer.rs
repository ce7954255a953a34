//! Layers of Mamba-2 (state-space duality, Dao and Gu 2024, arXiv:2405.21060): projections, depthwise convolutions along the rows,
//! a linear recurrence on a state of `head x state` numbers a head, and a gated norm.
//!
//! With all tokens at once the recurrence is written in chunks (section 6 of the paper): products with a decay mask inside a chunk,
//! a state for each chunk, a scan over these, and products of each token with the state that entered its chunk. With chunks of one
//! row it is the recurrence itself: outer products, a scan over rows, contractions. Decoding is one step of that, with the state and
//! the last inputs of the convolutions as cache.

use super::mamba::Mamba;
use super::options::Phase;
use super::write::{Writer, shape, with};
use rdusim_graph::workload::{Kept, OperatorOptions};

/// Names and sizes of a layer's tensors.
struct Sizes {
    rows: u64,
    width: u64,
    heads: u64,
    state: u64,
    groups: u64,
    taps: u64,
    chunks: u64,
    batch: u64,
    chunk: u64,
}

impl Writer<'_> {
    /// What a recurrence makes of the normed rows `h`.
    pub(super) fn recurrence(&mut self, h: &str, m: &Mamba) -> String {
        let (batch, sequence, rows) = (self.options.batch, self.options.sequence, self.tokens());
        let decoding = self.options.phase == Phase::Decode;
        let chunk = m.chunk_of(sequence);
        let chunks = if decoding { 1 } else { batch * (sequence / chunk) };
        let sizes = Sizes {
            rows,
            width: m.width(),
            heads: m.heads.into(),
            state: m.state.into(),
            groups: m.groups.into(),
            taps: m.taps.into(),
            chunks,
            batch,
            chunk,
        };
        let of_groups = sizes.groups * sizes.state;
        let numbers = |n: u64| n.to_string();
        self.projected_by("z", h, &numbers(sizes.width), "z");
        for (name, made, columns) in [("x", "x_open", sizes.width), ("b", "b", of_groups), ("c", "c", of_groups)] {
            self.projected_by(&format!("{name}_in"), h, &numbers(columns), &format!("{name}_plain"));
            self.convolved(name, made, columns, &sizes);
        }
        // Steps and what they leave of a state are fp32, as states are between chunks.
        let of_heads = shape(rows, sizes.heads);
        self.matrix("w_step", "hidden", &numbers(sizes.heads));
        self.sized("step_plain", of_heads, &Kept::of_type("fp32"));
        self.tensor("step_bias", "1", &numbers(sizes.heads), "weight", &Kept::default());
        let bias = self.named("step_bias");
        self.operator("step", "gemm", &[h, "w_step"], "step_plain", &with().vectors([bias]));
        self.sized("dt", of_heads, &Kept::of_type("fp32"));
        self.operator("softplus", "softplus", &["step_plain"], "dt", &with());
        self.sized("a", of_heads, &Kept::of_type("fp32"));
        self.tensor("a_log", "1", &numbers(sizes.heads), "weight", &Kept::default());
        let log = self.named("a_log");
        self.operator("decay", "exp_decay", &["dt"], "a", &with().vectors([&log]));
        let heads = with().heads(sizes.heads);
        self.operator("scale_by_step", "head_scale", &["x_open", "dt"], "x_dt", &heads);
        if decoding {
            self.state_step(&sizes);
        } else if chunk == 1 {
            self.scanned_rows(&sizes);
        } else {
            self.chunked(&sizes);
        }
        // What passes the state by, the gate, the norm.
        self.tensor("d_skip", "1", &numbers(sizes.width), "weight", &Kept::default());
        let skip = self.named("d_skip");
        self.operator("skip_state", "batch_norm", &["x_open"], "x_skip", &with().vectors([&skip]));
        self.operator("add_skip", "add", &["y_state", "x_skip"], "y_all", &with());
        self.operator("silu_gate", "silu", &["z"], "z_open", &with());
        self.operator("gated_state", "mul", &["y_all", "z_open"], "y_gated", &with());
        self.norm_of("y_gated", "y_normed_state", &numbers(sizes.width));
        self.matrix("w_out", &numbers(sizes.width), "hidden");
        self.product("out", "y_normed_state", "w_out", "recurred", None, &with());
        self.dropped("recurred")
    }

    fn projected_by(&mut self, name: &str, h: &str, columns: &str, output: &str) {
        let weight = format!("w_{name}");
        self.matrix(&weight, "hidden", columns);
        self.product(&format!("project_{name}"), h, &weight, output, None, &with());
    }

    /// The depthwise convolution of a projection, and its activation.
    fn convolved(&mut self, name: &str, made: &str, columns: u64, sizes: &Sizes) {
        let (plain, conv, taps, bias) =
            (format!("{name}_plain"), format!("{name}_conv"), format!("taps_{name}"), format!("conv_bias_{name}"));
        self.tensor(&taps, "1", &(columns * sizes.taps).to_string(), "weight", &Kept::default());
        self.tensor(&bias, "1", &columns.to_string(), "weight", &Kept::default());
        let vectors = with().vectors([self.named(&taps), self.named(&bias)]);
        match self.options.phase {
            Phase::Decode if sizes.taps > 1 => {
                // A ring: the new input takes the place of the oldest.
                let cache = format!("{name}_cache");
                self.tensor(
                    &cache,
                    &sizes.rows.to_string(),
                    &(columns * (sizes.taps - 1)).to_string(),
                    "input",
                    &Kept::default(),
                );
                self.tensor(&plain, &sizes.rows.to_string(), &columns.to_string(), "output", &Kept::default());
                self.operator(&format!("convolve_{name}"), "conv_step", &[&plain, &cache], &conv, &vectors);
            }
            _ => {
                let more = with().batch(sizes.batch).and(&vectors);
                self.operator(&format!("convolve_{name}"), "causal_conv", &[&plain], &conv, &more);
            }
        }
        self.operator(&format!("silu_{name}"), "silu", &[&conv], made, &with());
    }

    /// One step of the recurrence for each sequence.
    fn state_step(&mut self, sizes: &Sizes) {
        let (heads, grouped) = heads_and_groups(sizes);
        let columns = (sizes.width * sizes.state).to_string();
        self.tensor("state_cache", &sizes.rows.to_string(), &columns, "input", &Kept::default());
        self.tensor("state", &sizes.rows.to_string(), &columns, "output", &Kept::default());
        self.operator("put_in", "outer", &["x_dt", "b"], "u", &grouped);
        self.operator("decay_state", "head_scale", &["state_cache", "a"], "state_kept", &heads);
        self.operator("step_state", "add", &["state_kept", "u"], "state", &with());
        self.operator("take_out", "contract", &["state", "c"], "y_state", &grouped);
    }

    /// The recurrence, row by row.
    fn scanned_rows(&mut self, sizes: &Sizes) {
        let (heads, grouped) = heads_and_groups(sizes);
        self.operator("put_in", "outer", &["x_dt", "b"], "u", &grouped);
        self.operator("scan", "scan", &["u", "a"], "h", &with().and(&heads).batch(sizes.batch));
        self.operator("take_out", "contract", &["h", "c"], "y_state", &grouped);
    }

    /// The recurrence in chunks.
    fn chunked(&mut self, sizes: &Sizes) {
        let (heads, grouped) = heads_and_groups(sizes);
        let Sizes { rows, width, chunks, batch, chunk, groups, .. } = *sizes;
        let by_chunk = with().batch(chunks);
        let fp32 = &Kept::of_type("fp32");
        // Inside a chunk: attention with a mask of decays in the place of the softmax.
        let causal = with().and(&by_chunk).causal(true);
        let by_group = if groups > 1 { with().heads(groups) } else { with() };
        self.operator("pair", "gemm", &["c", "b"], "cb", &with().and(&by_group).transpose_b().and(&causal));
        self.operator("mask_by_decay", "decay_mask", &["cb", "a"], "m", &with().and(&grouped).and(&by_chunk));
        self.operator("mix_in_chunk", "gemm", &["m", "x_dt"], "y_chunk", &with().and(&heads).and(&causal));
        // What each chunk adds to the state, decayed to the chunk's end.
        self.sized("a_rest", shape(rows, sizes.heads), fp32);
        let window = with().image([1, chunk]).kernel([1, chunk]).padding([0, 0, 0, chunk - 1]);
        self.operator("decay_to_end", "rest_product", &["a"], "a_rest", &window);
        self.operator("scale_to_end", "head_scale", &["x_dt", "a_rest"], "x_end", &heads);
        let of_states = shape(chunks * (width / groups), groups * sizes.state);
        self.sized("s", of_states, fp32);
        let turned = with().and(&by_group).transpose_a().and(&by_chunk);
        self.operator("state_of_chunk", "gemm", &["x_end", "b"], "s", &turned);
        // What a whole chunk leaves of the state before it: its first factor and what is left after that.
        for (from, name) in [("a", "a_first"), ("a_rest", "rest_first")] {
            let flat = format!("{name}_flat");
            self.sized(&flat, shape(chunks, chunk * sizes.heads), fp32);
            self.operator(&format!("flatten_{from}"), "reshape", &[from], &flat, &with());
            self.sized(name, shape(chunks, sizes.heads), fp32);
            self.operator(&format!("first_of_{from}"), "slice", &[&flat], name, &with());
        }
        self.sized("a_chunk", shape(chunks, sizes.heads), fp32);
        self.operator("decay_of_chunk", "mul", &["a_first", "rest_first"], "a_chunk", &with());
        // From chunk to chunk.
        // A product leaves groups side by side, a state has them one after the other.
        let by_groups = shape(chunks * groups, width / groups * sizes.state);
        if groups > 1 {
            self.sized("s_grouped", by_groups, fp32);
            self.operator("group_states", "head_transpose", &["s"], "s_grouped", &by_group.clone().and(&by_chunk));
        }
        self.sized("s_flat", shape(chunks, width * sizes.state), fp32);
        let made = if groups > 1 { "s_grouped" } else { "s" };
        self.operator("flatten_states", "reshape", &[made], "s_flat", &with());
        self.sized("s_before", shape(chunks, width * sizes.state), &Kept::of_type(&self.options.dtype));
        self.operator("scan", "scan_before", &["s_flat", "a_chunk"], "s_before", &with().and(&heads).batch(batch));
        let dtype = Kept::of_type(&self.options.dtype);
        if groups > 1 {
            self.sized("s_apart", by_groups, &dtype);
            self.operator("unflatten_states", "reshape", &["s_before"], "s_apart", &with());
            self.sized("s_in", of_states, &dtype);
            let of_group = with().heads(width / groups).and(&by_chunk);
            self.operator("ungroup_states", "head_transpose", &["s_apart"], "s_in", &of_group);
        } else {
            self.sized("s_in", of_states, &dtype);
            self.operator("unflatten_states", "reshape", &["s_before"], "s_in", &with());
        }
        if self.options.phase == Phase::Prefill {
            self.last_state(sizes);
        }
        // What the state that entered the chunk gives each row.
        self.operator(
            "read_state",
            "gemm",
            &["c", "s_in"],
            "y_in",
            &with().and(&by_group).transpose_b().and(&by_chunk),
        );
        self.sized("a_so_far", shape(rows, sizes.heads), fp32);
        self.operator("decay_from_start", "running_product", &["a"], "a_so_far", &by_chunk);
        self.operator("scale_from_start", "head_scale", &["y_in", "a_so_far"], "y_before", &heads);
        self.operator("add_chunk", "add", &["y_chunk", "y_before"], "y_state", &with());
    }

    /// The state behind the last chunk, which decoding begins with.
    fn last_state(&mut self, sizes: &Sizes) {
        let (heads, _) = heads_and_groups(sizes);
        let dtype = Kept::of_type(&self.options.dtype);
        let state = shape(sizes.batch, sizes.width * sizes.state);
        self.sized("before_last", state, &dtype);
        self.operator("last_before", "slice", &["s_before"], "before_last", &with());
        self.sized("a_last", shape(sizes.batch, sizes.heads), &Kept::of_type("fp32"));
        self.operator("last_decay", "slice", &["a_chunk"], "a_last", &with());
        self.sized("kept_last", state, &Kept::of_type("fp32"));
        self.operator("decay_last", "head_scale", &["before_last", "a_last"], "kept_last", &heads);
        self.sized("s_last", state, &Kept::of_type("fp32"));
        self.operator("last_added", "slice", &["s_flat"], "s_last", &with());
        self.sized("state", state, &dtype);
        self.operator("add_last", "add", &["kept_last", "s_last"], "state", &with());
    }
}

/// Fields of operators over heads, and over heads in groups.
fn heads_and_groups(sizes: &Sizes) -> (OperatorOptions, OperatorOptions) {
    let heads = with().heads(sizes.heads);
    let grouped = with().and(&heads).kv_heads(sizes.groups);
    (heads, grouped)
}
