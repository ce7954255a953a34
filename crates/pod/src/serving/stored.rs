//! Bytes of a stage's weights on a chip, in the formats that a checkpoint stores its matrices in.

use super::service::{ELEMENT, Parameters, Service};
use rdusim_base::units::Dtype;
use rdusim_graph::workload::StoredAs;
use rdusim_machines::gpu::ProductFormat;
use rdusim_models::model::{ActivationFormat, Stack, StorageFormat};

/// A matrix of a block on a chip.
struct Matrix {
    name: &'static str,
    /// The depth of its products.
    rows: u64,
    columns: u64,
}

impl Service {
    /// Whether matrices are stored otherwise than in elements of two bytes.
    pub fn is_quantised(&self) -> bool {
        let has_formats = |stack: &Stack| stack.kinds.iter().any(|kind| !kind.formats.is_empty());
        self.stack.as_ref().is_some_and(|stack| has_formats(stack))
            || self.activations.is_some()
            || self.storage.of_matrices().next().is_some()
    }

    /// The format of products with matrices of the layers.
    pub(super) fn product_format(&self) -> ProductFormat {
        let stored = self.storage.weights.as_ref().map(|format| format.format.as_str());
        match (&self.activations, stored) {
            (Some(_), Some("nvfp4")) => ProductFormat::Nvfp4,
            (Some(of), _) if of.is_by_token => ProductFormat::Fp8Block,
            (Some(of), _) => ProductFormat::named(&of.dtype).unwrap_or(ProductFormat::Plain(Dtype::Bf16)),
            (None, _) => ProductFormat::Plain(Dtype::Bf16),
        }
    }

    /// Sets the format of the layers' products with matrices, and so of the matrices. Where tensor cores do not multiply four bits,
    /// matrices of NVFP4 are expanded for products of the type of the model.
    pub fn set_format(&mut self, format: ProductFormat, multiplies_four_bits: bool) {
        let narrow = |stored: &str, dtype: &str, is_by_token: bool| {
            let activations = ActivationFormat { dtype: dtype.to_owned(), is_by_token };
            (Some(StorageFormat::new(stored)), Some(activations))
        };
        let fp8 = Dtype::Fp8E4m3.name();
        self.storage.others.clear();
        (self.storage.weights, self.activations) = match format {
            ProductFormat::Plain(dtype) if dtype.bytes() > 1 => (None, None),
            ProductFormat::Plain(dtype) => narrow(dtype.name(), dtype.name(), false),
            ProductFormat::Fp8Block => narrow(fp8, fp8, true),
            ProductFormat::Nvfp4 if multiplies_four_bits => narrow(format.name(), fp8, false),
            ProductFormat::Nvfp4 => (Some(StorageFormat::new(format.name())), None),
            ProductFormat::Mxfp4Weights => (Some(StorageFormat::new("mxfp4")), None),
            ProductFormat::Mxfp4Mxfp8 => narrow("mxfp4", fp8, false),
            ProductFormat::ByteWeights => (Some(StorageFormat::new(fp8)), None),
        };
    }

    /// Bytes of a stage's weights on a chip that no other tensor rank has.
    pub(super) fn own_weight_bytes(&self, stage: u64) -> u64 {
        if let Some(stack) = &self.stack {
            return self.layered_own_bytes(stack, stage);
        }
        let plain = ELEMENT * self.parameters(stage).own;
        if !self.is_quantised() && self.expert_ranks.is_none() {
            return plain;
        }
        let share = self.share();
        let (hidden, wide, narrow) = (share.hidden, share.query_width(), share.kv_width());
        let matrix = |name, rows, columns| Matrix { name, rows, columns };
        let attention = [
            matrix("w_query", hidden, wide),
            matrix("w_key", hidden, narrow),
            matrix("w_value", hidden, narrow),
            matrix("w_project", wide, hidden),
        ];
        let feed = [
            matrix("w_gate", hidden, share.feed_forward),
            matrix("w_up", hidden, share.feed_forward),
            matrix("w_down", share.feed_forward, hidden),
        ];
        let blocks = self.blocks(stage);
        let without_gate = usize::from(share.feed_matrices() < 3);
        let mut bytes = i128::from(plain);
        // With latent keys and with experts, formats are counted by elements.
        let (without, with) = self.mixed_layers();
        let mut lists = vec![(blocks.attention, &attention[..]), (blocks.feeds, &feed[without_gate..])];
        if self.expert_ranks.is_some() {
            lists = vec![(if share.extras.latent.is_some() { 0 } else { blocks.attention }, &attention[..])];
            lists.push((without, &feed[without_gate..]));
            let saved = |elements: u64, format: ProductFormat| {
                (elements as f64 * (ELEMENT as f64 - format.weight_bytes())).round() as i128
            };
            let own = self.product_format();
            let shared = self.experts().map_or(0, |experts| experts.shared / self.parallel.tp);
            bytes -= saved(with * self.expert_elements(shared), own);
            if share.extras.latent.is_some() {
                bytes -= saved(blocks.attention * self.attention_elements(), own);
            }
            if let Some(ranks) = &self.expert_ranks {
                bytes -= saved(self.expert_parameters().own, ranks.format);
            }
        }
        for (count, list) in lists {
            for matrix in list {
                let elements = i128::from(ELEMENT) * i128::from(matrix.rows) * i128::from(matrix.columns);
                bytes += i128::from(count) * (i128::from(self.stored_bytes(matrix)) - elements);
            }
        }
        u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)
    }

    /// Bytes of a stage's weights on a chip.
    pub fn weight_bytes(&self, stage: u64) -> u64 {
        if let Some(stack) = &self.stack {
            return self.layered_weight_bytes(stack, stage);
        }
        let Parameters { copied, .. } = self.parameters(stage);
        self.own_weight_bytes(stage) + ELEMENT * copied
    }

    fn stored_bytes(&self, matrix: &Matrix) -> u64 {
        let plain = ELEMENT * matrix.rows * matrix.columns;
        let narrow = self.activations.as_ref().filter(|_| !self.storage.leaves_out(matrix.name));
        let of_narrow = narrow.map(|narrow| StorageFormat::new(&narrow.dtype));
        let Some(format) = self.storage.of_matrix(matrix.name).or(of_narrow.as_ref()) else { return plain };
        let StorageFormat { format, group, has_one_scale, has_zero_points } = format;
        let stored =
            StoredAs { format, group: *group, has_one_scale: *has_one_scale, has_zero_points: *has_zero_points };
        stored.bytes(matrix.rows, matrix.columns).unwrap_or(plain)
    }

    /// Bits of an element of keys and values; a scale for all of a tensor adds nothing that counts.
    pub(super) fn cache_bits(&self) -> u64 {
        match self.storage.cache.as_ref().map(|format| format.format.as_str()) {
            None => 8 * ELEMENT,
            Some("int4" | "mxfp4" | "nvfp4") => 4,
            Some(_) => 8,
        }
    }
}
