//! Passes that carry parts of prompts beside the tokens of requests that run (Yu et al., *Orca*, OSDI 2022; Agrawal et al.,
//! *Sarathi: efficient LLM inference by piggybacking decodes with chunked prefills*, 2023): products take all rows at once, so that
//! weights are read once; attention is each request's own.
//!
//! The time of such a pass is the sum of three that are simulated: of the products on all its rows, of the attention of the
//! tokens, and of the attention of each part. Attention is what a pass takes beyond its products alone.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::chip::Work;
use super::phases::Server;
use super::points::{between, geometric, place};
use super::service::Load;
use super::time::{Cost, ServedPhase, is_time};
use rdusim_base::diagnostics::Diagnostic;

/// Sizes of parts that are simulated, each a quarter of the one before.
const CHUNK_SIZES: u32 = 3;

/// A part of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Tokens.
    pub tokens: u64,
    /// Tokens of the prompt before them.
    pub before: u64,
    /// It is the last one: the request has its first token.
    pub ends: bool,
}

/// Simulated passes of products alone, and of parts of prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// Rows.
    pub rows: Vec<u64>,
    /// Products of so many rows.
    pub products: Vec<Cost>,
    /// Tokens of a part of a prompt.
    pub chunks: Vec<u64>,
    /// Tokens of the prompt before it.
    pub before: Vec<u64>,
    /// A pass of a part alone, by what is before it for each size.
    pub parts: Vec<Vec<Cost>>,
    /// Seconds in which the host hands a token to a user.
    pub token_s: f64,
}

impl Mixed {
    /// Simulates what passes of up to `chunk` tokens of prompts and the tokens of `users` take.
    ///
    /// # Errors
    /// What the simulation of any of them refuses.
    pub(super) fn new(server: &Server<'_>, users: &[u64], chunk: u64, prompt: u64) -> Result<Self, Diagnostic> {
        let most_users = users.last().copied().unwrap_or(1);
        let mut chunks: Vec<u64> = (0..CHUNK_SIZES).rev().map(|times| (chunk >> (2 * times)).max(1)).collect();
        chunks.dedup();
        let mut before = vec![0, prompt / 4, prompt];
        before.dedup();
        let mut rows = geometric(most_users, most_users + chunk, 2);
        rows.extend(users.iter().chain(&chunks));
        rows.push(chunk + most_users / 2);
        rows.sort_unstable();
        rows.dedup();
        // No pass has logits of more rows.
        let sampled = most_users;
        let products: Vec<Cost> = rows
            .par_iter()
            .map(|&rows| {
                let load = Load { batch: rows * server.replicas(), micro_batch: rows, tokens: 1 };
                server.step(&load, Work::Rows { sampled }, 0.0).map(|phase| server.cost(&phase))
            })
            .collect::<Result<_, _>>()?;
        let points: Vec<(u64, u64)> =
            chunks.iter().flat_map(|&chunk| before.iter().map(move |&before| (chunk, before))).collect();
        let parts: Vec<Cost> = points
            .par_iter()
            .map(|&(new, before)| {
                let load = Load { batch: server.replicas(), micro_batch: 1, tokens: before + new };
                server.step(&load, Work::Tokens { new, sampled }, 0.0).map(|phase| server.cost(&phase))
            })
            .collect::<Result<_, _>>()?;
        let parts = parts.chunks(before.len()).map(<[Cost]>::to_vec).collect();
        Ok(Self { rows, products, chunks, before, parts, token_s: server.token_s() })
    }

    /// Whether its lists fit each other and reach as far as passes of so many users and parts of such prompts.
    pub(super) fn covers(&self, users: u64, prompt: u64) -> bool {
        let rises = |list: &[u64]| !list.is_empty() && list.windows(2).all(|pair| pair[0] < pair[1]);
        let last = |list: &[u64]| list.last().copied().unwrap_or(0);
        let lists = [&self.rows, &self.chunks, &self.before];
        let fit = self.products.len() == self.rows.len()
            && self.parts.len() == self.chunks.len()
            && self.parts.iter().all(|list| list.len() == self.before.len());
        let reaches = self.chunks.first().is_some_and(|&least| least > 0)
            && last(&self.rows) >= users.saturating_add(last(&self.chunks))
            && last(&self.before) >= prompt;
        fit && lists.into_iter().all(|list| rises(list)) && reaches
    }

    /// Whether its times are times.
    pub(super) fn is_sound(&self) -> bool {
        self.products.iter().chain(self.parts.iter().flatten()).all(Cost::is_sound) && is_time(self.token_s)
    }

    /// Products of so many rows.
    pub(super) fn products_of(&self, rows: u64) -> Cost {
        let (at, part) = place(&self.rows, rows as f64);
        between(&self.products, at, part)
    }

    /// Attention of a part of a prompt: what its pass takes beyond its products; below the smallest part in proportion.
    pub(super) fn attention(&self, chunk: &Chunk) -> Cost {
        let (at, part) = place(&self.chunks, chunk.tokens as f64);
        let (column, right) = place(&self.before, chunk.before as f64);
        let of = |at: usize| {
            let (Some(list), Some(&tokens)) = (self.parts.get(at), self.chunks.get(at)) else { return Cost::default() };
            between(list, column, right).beyond(self.products_of(tokens))
        };
        let found = if part > 0.0 { of(at).towards(of(at + 1), part) } else { of(at) };
        let least = self.chunks.first().copied().unwrap_or(1);
        Cost::default().towards(found, (chunk.tokens as f64 / least as f64).min(1.0))
    }
}

impl Server<'_> {
    /// A pass of a token of each user and a part of a prompt, simulated as a whole; on GPUs only.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub fn mixed(&self, load: &Load, chunk: &Chunk) -> Result<ServedPhase, Diagnostic> {
        let handed = load.micro_batch + u64::from(chunk.ends);
        self.step(load, Work::Mixed { chunk: chunk.tokens, before: chunk.before }, handed as f64)
    }
}
