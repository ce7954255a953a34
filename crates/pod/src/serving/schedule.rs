//! Requests on a system, iteration by iteration (Yu et al., *Orca: a distributed serving system for transformer-based
//! generative models*, OSDI 2022): requests join and leave between steps of the model, first come, first served.
//!
//! A request is admitted when the caches of its whole prompt and answer fit beside those of the requests that run, so that
//! none is ever interrupted; or when its prompt fits, and where caches that grow find no room the last that was admitted loses its
//! place and is made again from its prompt and the tokens that it has (Kwon et al., *Efficient memory management for large language
//! model serving with `PagedAttention`*, SOSP 2023). The prompts of an iteration's new requests take their prefill one after the other, then those
//! that run get a token each; or parts of prompts go with the tokens, in one pass.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use xxhash_rust::xxh3::xxh3_128;

use super::grid::Grid;
use super::mixed::Chunk;
use super::requests::Request;
use super::service::RequestSize;
use super::time::Cost;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::interrupt;

/// Draws of accepted tokens have seeds of their own: arrivals and lengths are drawn with the same `--seed`.
const ACCEPTANCE: u64 = 0x6163_6365_7074_6564;

/// Most points of the picture over time.
const MOST_SAMPLES: usize = 512;

/// Limits of a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Requests that run at one time.
    pub users: u64,
    /// Tokens whose keys and values are held at one time; of a model without any, states.
    pub kv_tokens: u64,
    /// What a request takes of them.
    pub size: RequestSize,
    /// Tokens of prompts that start in one iteration; a longer prompt starts alone.
    pub prefill_tokens: u64,
    /// Share of each prompt, from its start, whose keys and values are at hand from requests before.
    pub prefix_share: f64,
    /// Tokens of prompts that go with the tokens of requests that run, at most, in a pass; if not given prompts go alone.
    pub chunk: Option<u64>,
    /// Iterations are rounds in which another model drafts.
    pub drafted: Option<Drafted>,
    /// A closed loop: so many users each send a request when their last one is answered, whatever times of arrival requests have.
    pub concurrency: Option<u64>,
    /// While prompts start, requests that run wait: an iteration has prompts or tokens.
    pub prompts_first: bool,
    /// Requests have the room of the tokens that they have, in place of that of all they will have.
    pub grows_caches: bool,
    /// Seconds of the engine's front end for each request before it can start, one request after the other.
    pub request_s: f64,
    /// Seconds beside that, for many requests at a time.
    pub first_s: f64,
}

impl Limits {
    /// Units that a whole request takes.
    fn units(&self, request: &Request) -> u64 {
        self.size.units(request.prompt + request.output)
    }

    /// Units of room that are kept free of new requests where caches grow: a hundredth [M vLLM's watermark].
    fn kept_free(&self) -> u64 {
        if self.grows_caches { self.kv_tokens / 100 } else { 0 }
    }

    /// Tokens of a prompt whose keys and values are at hand; at least one is not.
    pub fn cached(&self, prompt: u64) -> u64 {
        ((prompt as f64 * self.prefix_share) as u64).min(prompt.saturating_sub(1))
    }
}

/// Tokens that another model drafts, and how many of them users get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drafted {
    /// Tokens of a round.
    pub tokens: u64,
    /// Probability that one is accepted, each for itself.
    pub accept: f64,
    /// Seed of the generators that draw which are, one for each replica.
    pub seed: u64,
}

impl Drafted {
    /// Tokens that a round gives in the mean: a sum of 1, a, a^2 ... a^K.
    pub fn expected(&self) -> f64 {
        (0..=self.tokens).map(|drafted| self.accept.powf(drafted as f64)).sum()
    }

    /// The generator of a replica, whose draws have nothing to do with those of another one.
    fn generator(&self, replica: u64) -> Pcg64Mcg {
        let words = [self.seed, ACCEPTANCE, replica].map(u64::to_le_bytes);
        Pcg64Mcg::from_seed(xxh3_128(words.as_flattened()).to_le_bytes())
    }

    /// Tokens that a round gives: those before the first that is rejected, and one more.
    fn given(&self, rng: &mut Pcg64Mcg) -> u64 {
        let accepted = (0..self.tokens).take_while(|_| rng.random::<f64>() < self.accept);
        1 + accepted.count() as u64
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
    /// Requests that had tokens of an iteration, of all of them.
    pub served: u64,
    /// Tokens of answers.
    pub tokens: u64,
    /// Most tokens that were reserved at one time.
    pub most_kv_tokens: u64,
    /// Seconds between a token and the next of the same request, and the requests that waited so long.
    pub gaps: Vec<(f64, u64)>,
    /// Over time.
    pub samples: Vec<Sample>,
}

/// Runs requests of a replica, of which there may be others, in the order of their arrival, to their ends.
///
/// # Errors
/// A request that fits no empty replica.
pub fn replay(requests: &[Request], grid: &Grid, limits: &Limits, replica: u64) -> Result<Replayed, Diagnostic> {
    if let Some(large) = requests.iter().find(|request| limits.units(request) > limits.kv_tokens) {
        let title = format!(
            "a request of {} and {} tokens does not fit the {} tokens of keys and values that a replica can hold",
            large.prompt, large.output, limits.kv_tokens
        );
        return Err(Diagnostic::new(title).with_help("use more chips a replica (tp, pp), or leave such requests out"));
    }
    let mut state = Replica::new(requests, grid, limits, replica);
    while state.iterate() {
        interrupt::check();
    }
    Ok(state.finished())
}

/// A request that has its first token.
struct Active {
    index: usize,
    /// Tokens of its answer that are to come.
    left: u64,
}

struct Replica<'r> {
    requests: &'r [Request],
    grid: &'r Grid,
    limits: &'r Limits,
    /// Seconds at which each request is sent; of a closed loop those that are.
    sent: Vec<f64>,
    /// Seconds at which the front end has each of these ready to start.
    arrivals: Vec<f64>,
    /// The first request that was never admitted.
    next: usize,
    /// Requests that lost their places, the first that came first.
    again: VecDeque<usize>,
    /// Tokens of each request's answer that it had when it lost its place.
    made: Vec<u64>,
    now_s: f64,
    /// Requests that have their first token.
    active: Vec<Active>,
    /// Tokens of their contexts, and tokens reserved for all that are admitted.
    held: u64,
    reserved: u64,
    /// Prompts that have begun, the first that came first, with the tokens that are done; and the sum of those.
    filling: VecDeque<(usize, u64)>,
    filled: u64,
    rng: Pcg64Mcg,
    /// Seconds since those that run had a token.
    held_s: f64,
    /// Iterations from sample to sample.
    every: u64,
    first_s: Vec<f64>,
    last_s: Vec<f64>,
    done: Replayed,
}

impl<'r> Replica<'r> {
    fn new(requests: &'r [Request], grid: &'r Grid, limits: &'r Limits, replica: u64) -> Self {
        let rng = limits.drafted.as_ref().map(|drafted| drafted.generator(replica));
        let sent = match limits.concurrency {
            None => requests.iter().map(|request| request.arrival_s).collect(),
            Some(users) => vec![0.0; requests.len().min(users as usize)],
        };
        let mut replica = Self {
            requests,
            grid,
            limits,
            sent,
            arrivals: Vec::new(),
            next: 0,
            again: VecDeque::new(),
            made: vec![0; requests.len()],
            now_s: 0.0,
            active: Vec::new(),
            held: 0,
            reserved: 0,
            filling: VecDeque::new(),
            filled: 0,
            rng: rng.unwrap_or_else(|| Pcg64Mcg::seed_from_u64(0)),
            held_s: 0.0,
            every: 1,
            first_s: vec![0.0; requests.len()],
            last_s: vec![0.0; requests.len()],
            done: Replayed::default(),
        };
        replica.received();
        replica
    }

    /// The front end takes what is sent, one request after the other.
    fn received(&mut self) {
        let mut free = self.arrivals.last().map_or(0.0, |last| last - self.limits.first_s);
        for &sent in &self.sent[self.arrivals.len()..] {
            free = free.max(sent) + self.limits.request_s;
            self.arrivals.push(free + self.limits.first_s);
        }
    }

    /// Tokens that a request starts with: its prompt, and those of its answer that it had before.
    fn begins_with(&self, index: usize) -> u64 {
        self.requests[index].prompt + self.made[index]
    }

    /// Units of room that a request takes as it starts.
    fn taken(&self, index: usize) -> u64 {
        if self.limits.grows_caches {
            return self.limits.size.units(self.begins_with(index));
        }
        self.limits.units(&self.requests[index])
    }

    /// The next request that can start by now, if there is one, and whether it lost its place before.
    fn waiting(&self) -> Option<(usize, bool)> {
        let first = self.arrivals.get(self.next).filter(|&&arrival_s| arrival_s <= self.now_s).map(|_| self.next);
        self.again.front().map(|&index| (index, true)).or(first.map(|index| (index, false)))
    }

    /// Requests that start now: as many as have arrived and fit.
    fn admitted(&mut self) -> Vec<usize> {
        let begun = self.active.len() + self.filling.len();
        // With parts of prompts those that are admitted fill the next pass, and no more.
        let mut left: u64 = self.filling.iter().map(|&(index, done)| self.begins_with(index) - done).sum();
        let (mut prompts, mut list) = (0, Vec::new());
        while let Some((index, is_again)) = self.waiting() {
            let tokens = self.begins_with(index);
            let starts = match self.limits.chunk {
                Some(chunk) => left < chunk,
                None => list.is_empty() || prompts + tokens <= self.limits.prefill_tokens,
            };
            // An empty replica takes whatever fits it.
            let kept_free = if begun + list.len() == 0 { 0 } else { self.limits.kept_free() };
            let fits = ((begun + list.len()) as u64) < self.limits.users
                && self.reserved + self.taken(index) + kept_free <= self.limits.kv_tokens
                && starts;
            if !fits {
                break;
            }
            prompts += tokens;
            left += tokens - self.cached(index);
            self.reserved += self.taken(index);
            if is_again {
                self.again.pop_front();
            } else {
                self.next += 1;
            }
            list.push(index);
        }
        list
    }

    /// Tokens of a request's start whose keys and values are at hand.
    fn cached(&self, index: usize) -> u64 {
        self.limits.cached(self.requests[index].prompt)
    }

    /// Where caches that grew have no room, the last requests that started lose their places until there is some.
    fn make_room(&mut self) {
        while self.limits.grows_caches && self.reserved > self.limits.kv_tokens && self.active.len() > 1 {
            let Some(lost) = self.active.pop() else { break };
            let request = &self.requests[lost.index];
            let made = request.output - lost.left;
            self.made[lost.index] = made;
            // The last token is in no cache.
            let held = request.prompt + made - 1;
            self.held -= held;
            self.reserved -= self.limits.size.units(held);
            self.again.push_front(lost.index);
        }
    }

    /// One iteration; whether there was one.
    fn iterate(&mut self) -> bool {
        let admitted = self.admitted();
        if admitted.is_empty() && self.active.is_empty() && self.filling.is_empty() {
            let Some(&arrival_s) = self.arrivals.get(self.next) else { return false };
            self.now_s = arrival_s;
            return true;
        }
        let users = self.active.len() as u64;
        // The token that is made now is part of its context.
        let context = if users > 0 { self.held as f64 / users as f64 + 1.0 } else { 0.0 };
        let waits = self.limits.prompts_first && self.limits.chunk.is_none() && !admitted.is_empty();
        let (cost, begun) =
            if self.limits.chunk.is_some() { self.mixed(admitted, context) } else { self.apart(admitted, context) };
        self.now_s += cost.seconds;
        self.done.iterations += 1;
        self.done.busy_s += cost.seconds;
        self.done.joules += cost.joules;
        self.done.most_kv_tokens = self.done.most_kv_tokens.max(self.reserved);
        self.held_s += cost.seconds;
        if users > 0 && !waits {
            self.done.gaps.push((self.held_s, users));
        }
        self.held_s = if waits && users > 0 { self.held_s } else { 0.0 };
        for active in self.active.iter_mut().filter(|_| !waits) {
            let given = self.limits.drafted.as_ref().map_or(1, |drafted| drafted.given(&mut self.rng)).min(active.left);
            active.left -= given;
            self.held += given;
            self.reserved += if self.limits.grows_caches && self.limits.size.grows { given } else { 0 };
            self.done.tokens += given;
        }
        for index in begun {
            let made = self.made[index];
            if made == 0 {
                self.first_s[index] = self.now_s;
            }
            self.done.tokens += 1;
            self.held += self.begins_with(index);
            self.active.push(Active { index, left: self.requests[index].output - made - 1 });
        }
        self.done.served += self.active.len() as u64;
        self.sample();
        let (requests, now_s, limits) = (self.requests, self.now_s, self.limits);
        let before = self.active.len();
        self.active.retain(|active| {
            if active.left > 0 {
                return true;
            }
            let request = &requests[active.index];
            self.last_s[active.index] = now_s;
            // The last token needs no keys and values: nothing follows it.
            let held = request.prompt + request.output - 1;
            self.held -= held;
            self.reserved -= if limits.grows_caches { limits.size.units(held) } else { limits.units(request) };
            false
        });
        if limits.concurrency.is_some() {
            let answered = before - self.active.len();
            self.sent.resize((self.sent.len() + answered).min(requests.len()), now_s);
            self.received();
        }
        self.make_room();
        true
    }

    /// New requests take their prefill alone, one after the other, before a step of those that run.
    fn apart(&self, admitted: Vec<usize>, context: f64) -> (Cost, Vec<usize>) {
        let mut cost = Cost::default();
        for &index in &admitted {
            cost = cost.plus(self.grid.prefill_behind(self.cached(index), self.begins_with(index)));
        }
        let waits = self.limits.prompts_first && !admitted.is_empty();
        if !self.active.is_empty() && !waits {
            cost = cost.plus(self.grid.decode(self.active.len() as u64, context));
        }
        (cost, admitted)
    }

    /// Parts of prompts go with the tokens of those that run, the first that came first; and the prompts that end.
    fn mixed(&mut self, admitted: Vec<usize>, context: f64) -> (Cost, Vec<usize>) {
        for index in admitted {
            let done = self.cached(index);
            self.filled += done;
            self.filling.push_back((index, done));
        }
        let (mut budget, mut chunks, mut begun) = (self.limits.chunk.unwrap_or(0), Vec::new(), Vec::new());
        while let Some((index, done)) = self.filling.front_mut().filter(|_| budget > 0) {
            let prompt = self.requests[*index].prompt + self.made[*index];
            let tokens = budget.min(prompt - *done);
            let ends = *done + tokens == prompt;
            chunks.push(Chunk { tokens, before: *done, ends });
            budget -= tokens;
            *done += tokens;
            self.filled += tokens;
            if ends {
                self.filled -= prompt;
                begun.push(*index);
                self.filling.pop_front();
            }
        }
        (self.grid.mixed(self.active.len() as u64, context, &chunks), begun)
    }

    fn sample(&mut self) {
        if !self.done.iterations.is_multiple_of(self.every) {
            return;
        }
        let behind = &self.arrivals[self.next..];
        let waiting = behind.partition_point(|&arrival_s| arrival_s <= self.now_s) as u64;
        let running = (self.active.len() + self.filling.len()) as u64;
        let size = &self.limits.size;
        let kv_tokens = running * size.state + if size.grows { self.held + self.filled } else { 0 };
        self.done.samples.push(Sample { at_s: self.now_s, running, waiting, kv_tokens });
        // Every second one is dropped when there are too many, and from then on not taken: the picture stays even.
        if self.done.samples.len() > 64 * MOST_SAMPLES {
            self.every *= 2;
            let mut at = 0;
            self.done.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    fn finished(mut self) -> Replayed {
        let answer = |(index, request): (usize, &Request)| {
            let (first, last, sent) = (self.first_s[index], self.last_s[index], self.sent[index]);
            Answer {
                ttft_s: first - sent,
                token_s: (request.output > 1).then(|| (last - first) / (request.output - 1) as f64),
                latency_s: last - sent,
            }
        };
        self.done.answers = self.requests.iter().enumerate().map(answer).collect();
        self.done.end_s = self.now_s;
        let every = self.done.samples.len().div_ceil(MOST_SAMPLES).max(1);
        self.done.samples = self.done.samples.iter().step_by(every).copied().collect();
        self.done
    }
}
