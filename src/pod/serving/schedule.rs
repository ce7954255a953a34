//! Requests on a system, iteration by iteration (Yu et al., *Orca: a distributed serving system for transformer-based
//! generative models*, OSDI 2022): requests join and leave between steps of the model, first come, first served.
//!
//! A request is admitted when the caches of its whole prompt and answer fit beside those of the requests that run, so that
//! none is ever interrupted. The prompts of an iteration's new requests take their prefill one after the other, then those
//! that run get a token each.

use std::collections::BTreeMap;

use super::grid::{Cost, Grid};
use super::requests::Request;
use crate::diagnostics::Diagnostic;
use crate::interrupt;

/// Most points of the picture over time.
const MOST_SAMPLES: usize = 512;

/// Limits of a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Requests that run at one time.
    pub users: u64,
    /// Tokens whose keys and values are held at one time.
    pub kv_tokens: u64,
    /// Tokens of prompts that start in one iteration; a longer prompt starts alone.
    pub prefill_tokens: u64,
    /// Share of each prompt, from its start, whose keys and values are at hand from requests before.
    pub prefix_share: f64,
}

impl Limits {
    /// Tokens of a prompt whose keys and values are at hand; at least one is not.
    pub fn cached(&self, prompt: u64) -> u64 {
        ((prompt as f64 * self.prefix_share) as u64).min(prompt.saturating_sub(1))
    }
}

/// What a request saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Seconds from its arrival to its first token.
    pub ttft_s: f64,
    /// Mean seconds from token to token; nothing where the answer is one token.
    pub token_s: Option<f64>,
    /// Seconds from its arrival to its last token.
    pub latency_s: f64,
}

/// A replica at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Seconds.
    pub at_s: f64,
    /// Requests that run.
    pub running: u64,
    /// Requests that have arrived and wait.
    pub waiting: u64,
    /// Tokens whose keys and values are in use.
    pub kv_tokens: u64,
}

/// What a replica did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// Answers in the order of arrival.
    pub answers: Vec<Answer>,
    /// Seconds until the last token.
    pub end_s: f64,
    /// Of these, in iterations.
    pub busy_s: f64,
    /// Joules in iterations.
    pub joules: f64,
    /// Iterations.
    pub iterations: u64,
    /// Tokens of answers.
    pub tokens: u64,
    /// Most tokens that were reserved at one time.
    pub most_kv_tokens: u64,
    /// Over time.
    pub samples: Vec<Sample>,
}

/// Runs requests, in the order of their arrival, to their ends.
///
/// # Errors
/// A request that fits no empty replica.
pub fn replay(requests: &[Request], grid: &Grid, limits: &Limits) -> Result<Replayed, Diagnostic> {
    if let Some(large) = requests.iter().find(|request| request.prompt + request.output > limits.kv_tokens) {
        let title = format!(
            "a request of {} and {} tokens does not fit the {} tokens of keys and values that a replica can hold",
            large.prompt, large.output, limits.kv_tokens
        );
        return Err(Diagnostic::new(title).with_help("use more chips a replica (tp, pp), or leave such requests out"));
    }
    let mut state = Replica::new(requests, grid, limits);
    while state.iterate() {
        interrupt::check();
    }
    Ok(state.finished())
}

struct Replica<'r> {
    requests: &'r [Request],
    grid: &'r Grid,
    limits: &'r Limits,
    /// The first request that is not admitted.
    next: usize,
    now_s: f64,
    running: u64,
    /// Tokens of the contexts of those that run, and tokens reserved for them.
    held: u64,
    reserved: u64,
    /// Requests by the iteration that gives their last token.
    ends: BTreeMap<u64, Vec<usize>>,
    first_s: Vec<f64>,
    last_s: Vec<f64>,
    done: Replayed,
}

impl<'r> Replica<'r> {
    fn new(requests: &'r [Request], grid: &'r Grid, limits: &'r Limits) -> Self {
        Self {
            requests,
            grid,
            limits,
            next: 0,
            now_s: 0.0,
            running: 0,
            held: 0,
            reserved: 0,
            ends: BTreeMap::new(),
            first_s: vec![0.0; requests.len()],
            last_s: vec![0.0; requests.len()],
            done: Replayed::default(),
        }
    }

    /// Requests that start now: as many as have arrived and fit.
    fn admitted(&mut self) -> std::ops::Range<usize> {
        let from = self.next;
        let mut prompts = 0;
        while let Some(request) = self.requests.get(self.next) {
            let admitted = (self.next - from) as u64;
            let fits = self.running + admitted < self.limits.users
                && self.reserved + request.prompt + request.output <= self.limits.kv_tokens
                && (admitted == 0 || prompts + request.prompt <= self.limits.prefill_tokens);
            if request.arrival_s > self.now_s || !fits {
                break;
            }
            prompts += request.prompt;
            self.reserved += request.prompt + request.output;
            self.next += 1;
        }
        from..self.next
    }

    /// One iteration; whether there was one.
    fn iterate(&mut self) -> bool {
        let admitted = self.admitted();
        if admitted.is_empty() && self.running == 0 {
            let Some(request) = self.requests.get(self.next) else { return false };
            self.now_s = request.arrival_s;
            return true;
        }
        let mut cost = Cost::default();
        let mut add = |more: Cost| {
            cost.seconds += more.seconds;
            cost.joules += more.joules;
        };
        for request in &self.requests[admitted.clone()] {
            add(self.grid.prefill_behind(self.limits.cached(request.prompt), request.prompt));
        }
        if self.running > 0 {
            // The token that is made now is part of its context.
            add(self.grid.decode(self.running, self.held as f64 / self.running as f64 + 1.0));
        }
        let at = self.done.iterations;
        self.now_s += cost.seconds;
        self.done.iterations += 1;
        self.done.busy_s += cost.seconds;
        self.done.joules += cost.joules;
        self.done.most_kv_tokens = self.done.most_kv_tokens.max(self.reserved);
        self.held += self.running;
        self.done.tokens += self.running;
        for index in admitted {
            let request = &self.requests[index];
            self.first_s[index] = self.now_s;
            self.running += 1;
            self.done.tokens += 1;
            self.held += request.prompt;
            self.ends.entry(at + request.output - 1).or_default().push(index);
        }
        self.sample();
        for index in self.ends.remove(&at).unwrap_or_default() {
            let request = &self.requests[index];
            self.last_s[index] = self.now_s;
            self.running -= 1;
            // The last token needs no keys and values: nothing follows it.
            self.held -= request.prompt + request.output - 1;
            self.reserved -= request.prompt + request.output;
        }
        true
    }

    fn sample(&mut self) {
        let behind = &self.requests[self.next..];
        let waiting = behind.partition_point(|request| request.arrival_s <= self.now_s) as u64;
        self.done.samples.push(Sample { at_s: self.now_s, running: self.running, waiting, kv_tokens: self.held });
        // Every second one is dropped when there are too many: the picture stays even.
        if self.done.samples.len() > 64 * MOST_SAMPLES {
            let mut at = 0;
            self.done.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    fn finished(mut self) -> Replayed {
        let answer = |(index, request): (usize, &Request)| {
            let (first, last) = (self.first_s[index], self.last_s[index]);
            Answer {
                ttft_s: first - request.arrival_s,
                token_s: (request.output > 1).then(|| (last - first) / (request.output - 1) as f64),
                latency_s: last - request.arrival_s,
            }
        };
        self.done.answers = self.requests.iter().enumerate().map(answer).collect();
        self.done.end_s = self.now_s;
        let every = self.done.samples.len().div_ceil(MOST_SAMPLES).max(1);
        self.done.samples = self.done.samples.iter().step_by(every).copied().collect();
        self.done
    }
}
