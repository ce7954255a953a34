//! Parts of a sequence that go through a pipeline one after the other (Li et al., *`TeraPipe`*, 2021): a part needs of those before it
//! their keys and values alone, so that a stage works on the next part while the one behind it has this one. A backward pass takes
//! the last part first, whose keys and values the others' gradients are added to. In 1F1B order (Sun et al., *`Seq1F1B`*, 2024) a stage
//! holds p - s + c - 1 parts of a c-th of a micro-batch, in place of p - s micro-batches.

use super::parallel::{Job, Recompute, Schedule};
use super::pass::{PieceTime, Pieces};
use rdusim_base::diagnostics::Diagnostic;

impl Job {
    /// Forward passes of a stage's part in a step: parts of sequences of all micro-batches of a replica.
    pub fn passes(&self) -> u64 {
        self.micro_batches() * self.parallel.seq_chunks
    }

    /// Refuses parts of sequences that are not modelled, or not equal.
    pub(super) fn check_chunks(&self) -> Result<(), Diagnostic> {
        let p = &self.parallel;
        if p.seq_chunks == 1 {
            return Ok(());
        }
        let wrong = |title: String, help: &str| Err(Diagnostic::new(title).with_help(help));
        let is_fine = matches!(p.schedule, Schedule::Naive | Schedule::GPipe | Schedule::OneForwardOneBackward);
        if !is_fine {
            let title =
                format!("seq_chunks = {}: {} has no order of parts of a sequence", p.seq_chunks, p.schedule.name());
            return wrong(title, "use schedule=1f1b, gpipe or naive");
        }
        if p.cp > 1 {
            let title = format!("seq_chunks = {}: cp = {} divides the same tokens", p.seq_chunks, p.cp);
            return wrong(title, "leave one of them out");
        }
        if !self.architecture.causal {
            let title = format!("{}: a token meets those behind it too, so that no part comes first", self.model);
            return wrong(title, "leave seq_chunks out");
        }
        for (what, tokens) in [("tokens of a sequence", self.sequence), ("tokens with logits", self.predicted_tokens())]
        {
            if !tokens.is_multiple_of(p.seq_chunks) {
                let title = format!("seq_chunks = {} does not divide the {tokens} {what}", p.seq_chunks);
                return wrong(title, "change seq_chunks or `--seq`");
            }
        }
        Ok(())
    }

    /// Refuses what a pipeline that never drains is not modelled with.
    pub(super) fn check_asynchronous(&self) -> Result<(), Diagnostic> {
        let p = &self.parallel;
        if !p.schedule.never_drains() {
            return Ok(());
        }
        let (name, each) = (p.schedule.name(), if p.schedule.updates_each() { "micro-batch" } else { "batch" });
        let wrong = |title: String, help: &str| Err(Diagnostic::new(title).with_help(help));
        if p.replicas() > 1 {
            let title = format!("{name} updates after every {each}: dp x cp is {}, only 1 is modelled", p.replicas());
            return wrong(title, "use more stages, or schedule=1f1b");
        }
        if p.pp > 1 && self.architecture.tied {
            let title = format!("{name}: the first and the last stage of {} share a table", self.model);
            let help = "only models with an output matrix of their own are modelled with it; use schedule=1f1b";
            return wrong(title, help);
        }
        if p.schedule == Schedule::PipeDream2Bw && self.micro_batches() < p.pp {
            let title =
                format!("pipedream-2bw needs at least pp = {} micro-batches, found {}", p.pp, self.micro_batches());
            return wrong(title, "with fewer, two versions of the weights are not enough: change `--batch` or pp");
        }
        Ok(())
    }

    /// How old weights are, if the pipeline never drains.
    pub(super) fn stale_note(&self) -> Option<String> {
        let p = &self.parallel;
        let micro = self.micro_batches();
        match p.schedule {
            Schedule::PipeDream => Some(format!(
                "pipedream is asynchronous: an update follows every micro-batch of {}, with gradients on weights that are {} \
                 updates old on the first stage and current on the last; the step is {micro} of them, of a pipeline that is full",
                self.micro_batch,
                p.pp - 1
            )),
            Schedule::PipeDream2Bw => Some(format!(
                "pipedream-2bw is asynchronous: gradients of {micro} micro-batches are computed on weights that are one update old on \
                 every stage, and two versions of the weights are held; the step is one of a pipeline that is full"
            )),
            _ => None,
        }
    }

    /// Refuses encodings where nothing is kept that is read in passes.
    pub(super) fn check_stash(&self) -> Result<(), Diagnostic> {
        let p = &self.parallel;
        if p.gist && (p.recompute == Recompute::Full || self.experts().is_some()) {
            let title = "stash=gist: layers that are computed again keep their inputs alone, and experts are not modelled with it";
            return Err(Diagnostic::new(title).with_help("use recompute=none or selective, or leave `stash` out"));
        }
        Ok(())
    }

    /// Bytes of the gradients of keys and values of the layers of a stage, which all parts of a sequence add to.
    pub(super) fn chunk_bytes(&self, stage: u64) -> u64 {
        let (a, p) = (&self.architecture, &self.parallel);
        let columns = 2 * a.kv_width() / p.tp;
        let layers = self.layers_of_stage(stage).ceil() as u64;
        if p.seq_chunks > 1 { 2 * layers * columns * self.sequence * self.micro_batch } else { 0 }
    }
}

impl Pieces {
    /// Times of a part of a sequence, as a share of the way from the first to the last of them: attention grows evenly.
    pub(super) fn at(&self, share: f64) -> Self {
        let add = |first: PieceTime, more: PieceTime| first.plus(more.scaled(share));
        let [layers, expert_layers] = self.later;
        Self { layers: add(self.layers, layers), expert_layers: add(self.expert_layers, expert_layers), ..*self }
    }

    /// Those of the how-manieth part.
    pub(super) fn of_chunk(&self, chunk: u64, chunks: u64) -> Self {
        if chunks < 2 { *self } else { self.at(chunk as f64 / (chunks - 1) as f64) }
    }

    /// The mean of all parts.
    pub(super) fn mean(&self, chunks: u64) -> Self {
        if chunks < 2 { *self } else { self.at(0.5) }
    }
}
