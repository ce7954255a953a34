//! Recurrences and linear attention by their keys.

use serde_json::Value;

use super::Reader;
use crate::model::{Decay, DeltaNet, LayerOrder, Lightning, Mamba, Mixer};
use rdusim_base::diagnostics::Diagnostic;

impl Reader<'_> {
    /// A Mamba-2 recurrence.
    pub(super) fn recurrence(&mut self) -> Result<Mamba, Diagnostic> {
        let heads = self.count(&["mamba_n_heads", "mamba_num_heads"])?;
        let head = self.count(&["mamba_d_head", "mamba_head_dim"])?;
        let state = self.count(&["mamba_d_state", "ssm_state_size", "state_size"])?;
        let groups = self.count(&["mamba_n_groups", "n_groups"])?;
        let taps = self.count(&["mamba_d_conv", "conv_kernel"])?;
        let span = self.count(&["mamba_chunk_size", "chunk_size"])?;
        let narrow = |name: &str, count: u64| {
            u16::try_from(count).map_err(|_| self.refused(&format!("`{name}` is {count}, too many")))
        };
        let wide = |name: &str, count: u64| {
            u32::try_from(count).map_err(|_| self.refused(&format!("`{name}` is {count}, too many")))
        };
        if !heads.is_multiple_of(groups) {
            return Err(self.refused(&format!(
                "`n_groups` is {groups}, which does not divide the {heads} heads of the recurrence"
            )));
        }
        Ok(Mamba {
            layers: 0,
            attention: 0,
            feeds: 0,
            order: LayerOrder::default(),
            has_feed: false,
            heads: wide("mamba_num_heads", heads)?,
            head: narrow("mamba_head_dim", head)?,
            state: narrow("ssm_state_size", state)?,
            groups: narrow("n_groups", groups)?,
            taps: narrow("conv_kernel", taps)?,
            span: wide("chunk_size", span)?,
        })
    }

    /// Linear attention: a gated delta rule where its keys are there, else lightning attention.
    pub(super) fn linear(&mut self) -> Result<Mixer, Diagnostic> {
        if let Some(config) = self.map().get("linear_attn_config") {
            let of = |name: &str| {
                let count = config.get(name).and_then(Value::as_u64).filter(|n| (1..=1 << 40).contains(n));
                count.ok_or_else(|| self.refused(&format!("`linear_attn_config.{name}`: expected a count")))
            };
            let (heads, head) = (of("num_heads")?, of("head_dim")?);
            let taps = of("short_conv_kernel_size")?;
            return Ok(Mixer::Delta(DeltaNet {
                key_heads: heads,
                value_heads: heads,
                key: head,
                value: head,
                taps,
                decay: Decay::Column,
            }));
        }
        let is_delta = self.map().keys().any(|name| name.starts_with("linear_")) || self.family.starts_with("qwen3");
        if !is_delta {
            let head = self.any(&["head_dim"])?.unwrap_or(self.hidden / self.heads);
            return Ok(Mixer::Lightning(Lightning { heads: self.heads, head }));
        }
        let net = DeltaNet {
            key_heads: self.count(&["linear_num_key_heads"])?,
            value_heads: self.count(&["linear_num_value_heads"])?,
            key: self.count(&["linear_key_head_dim"])?,
            value: self.count(&["linear_value_head_dim"])?,
            taps: self.count(&["linear_conv_kernel_dim"])?,
            decay: Decay::Head,
        };
        if !net.value_heads.is_multiple_of(net.key_heads) {
            let title = format!(
                "`linear_num_key_heads` is {}, which does not divide the {} heads of values",
                net.key_heads, net.value_heads
            );
            return Err(self.refused(&title));
        }
        Ok(Mixer::Delta(net))
    }
}
