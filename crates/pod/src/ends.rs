//! What stands before and behind the layers of a model: embedding and logits, their parameters and their FLOP.

use super::parallel::Job;
use rdusim_models::model::Position;

impl Job {
    /// Tokens of a sequence that have logits: of an image its class token.
    pub fn predicted_tokens(&self) -> u64 {
        let all = if self.architecture.extras.patches.is_some() { 1 } else { self.sequence };
        self.predicted.unwrap_or(all)
    }

    /// Parameters of the matrix behind the logits on a chip; of a tied model the token table.
    pub fn logits_parameters(&self) -> u64 {
        self.architecture.vocabulary.div_ceil(self.parallel.tp) * self.architecture.hidden
    }

    /// Parameters of the embedding on a chip: the token table, or what embeds patches, which every tensor rank has; and positions.
    pub fn embedding_parameters(&self) -> u64 {
        let a = &self.architecture;
        let positions = if let Position::Learned(rows) = a.position { rows.max(self.sequence) * a.hidden } else { 0 };
        let tokens = match a.extras.patches {
            Some(values) => (u64::from(values) + u64::from(a.bias)) * a.hidden,
            None => self.logits_parameters(),
        };
        tokens + positions
    }

    /// Whether a stage has the logits.
    pub(super) fn has_logits(&self, stage: u64) -> bool {
        stage == if self.parallel.schedule.is_v() { 0 } else { self.parallel.pp - 1 }
    }

    /// Parameters of a stage on a chip.
    pub fn stage_parameters(&self, stage: u64) -> u64 {
        let mut all = self.stage_layer_parameters(stage);
        if stage == 0 {
            all += self.embedding_parameters();
        }
        if self.has_logits(stage) && (stage > 0 || !self.architecture.tied) {
            all += self.logits_parameters();
        }
        all
    }

    /// FLOP of the logits in one forward pass of one sequence. The product that embeds patches is left out, of which a step has two
    /// in place of three.
    pub(super) fn ends_flops(&self) -> f64 {
        let a = &self.architecture;
        2.0 * self.predicted_tokens() as f64 * (a.hidden * a.vocabulary) as f64
    }
}
