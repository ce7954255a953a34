//! Prompts and tokens on workers of their own (Patel et al., *Splitwise*, ISCA 2024; Zhong et al., *`DistServe`*, OSDI 2024): a closed
//! loop of users whose prompts one kind of workers takes, whose keys and values then go over the links, and whose tokens another kind
//! makes.
//!
//! A worker of prompts takes those that wait, the first that came first, one batch after the other; a worker of tokens makes a step for
//! all that it has and takes in others between steps. Events are in the order of their times, and of equal times in the order in which
//! they were made.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::grid::Grid;
use super::requests::Request;
use super::schedule::Answer;
use rdusim_base::interrupt;

/// Workers of one kind.
#[derive(Debug, Clone, Copy)]
pub struct WorkerPool<'g> {
    /// Workers.
    pub count: u64,
    /// Replicas of the attention of each, which run together.
    pub replicas: u64,
    /// Requests of each replica at one time, at most.
    pub batch: u64,
    /// Times of a replica.
    pub grid: &'g Grid,
}

/// What moving the keys and values of a prompt takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Seconds of its message.
    pub message_s: f64,
    /// Seconds of each token.
    pub token_s: f64,
}

/// A closed loop over both kinds.
#[derive(Debug, Clone, Copy)]
pub struct Divided<'g> {
    /// Workers of prompts.
    pub prefill: WorkerPool<'g>,
    /// Workers of tokens.
    pub decode: WorkerPool<'g>,
    /// Users of all workers.
    pub users: u64,
    /// What moving keys and values between workers takes.
    pub transfer: Transfer,
    /// Seconds of the front end for a request.
    pub first_s: f64,
}

/// What happens.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request is sent.
    Sent(usize),
    /// A worker of prompts has these done.
    Filled(Vec<usize>),
    /// The keys and values of a request are where its tokens are made.
    Moved(usize),
    /// A worker of tokens ends a step.
    Stepped(usize),
}

/// A time as a number that orders as it does; times are not negative.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct At(u64);

impl At {
    fn seconds(&self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// A worker of tokens.
#[derive(Debug, Default)]
struct Decoder {
    /// Requests, and their tokens that are to come.
    active: Vec<(usize, u64)>,
    waiting: VecDeque<usize>,
    /// Tokens of the contexts of those that are active.
    held: u64,
    is_running: bool,
}

struct Loop<'r> {
    requests: &'r [Request],
    of: &'r Divided<'r>,
    events: BinaryHeap<Reverse<(At, u64, Event)>>,
    made: u64,
    waiting: VecDeque<usize>,
    idle: u64,
    decoders: Vec<Decoder>,
    sent_s: Vec<f64>,
    first_s: Vec<f64>,
    last_s: Vec<f64>,
    next: usize,
}

/// Runs requests to their ends; their times of arrival have no meaning.
pub fn divided(requests: &[Request], of: &Divided<'_>) -> Vec<Answer> {
    let zero = || vec![0.0; requests.len()];
    let mut run = Loop {
        requests,
        of,
        events: BinaryHeap::new(),
        made: 0,
        waiting: VecDeque::new(),
        idle: of.prefill.count,
        decoders: (0..of.decode.count.max(1)).map(|_| Decoder::default()).collect(),
        sent_s: zero(),
        first_s: zero(),
        last_s: zero(),
        next: 0,
    };
    for _ in 0..of.users.min(requests.len() as u64) {
        run.send(0.0);
    }
    while let Some(Reverse((at, _, event))) = run.events.pop() {
        interrupt::check();
        run.happens(event, at.seconds());
    }
    let answer = |(index, request): (usize, &Request)| {
        let (sent, first, last) = (run.sent_s[index], run.first_s[index], run.last_s[index]);
        Answer {
            ttft_s: first - sent,
            token_s: (request.output > 1).then(|| (last - first) / (request.output - 1) as f64),
            latency_s: last - sent,
        }
    };
    requests.iter().enumerate().map(answer).collect()
}

impl Loop<'_> {
    fn push(&mut self, at_s: f64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((At(at_s.max(0.0).to_bits()), self.made, event)));
    }

    /// The next request is sent, if there is one.
    fn send(&mut self, now_s: f64) {
        if self.next < self.requests.len() {
            self.sent_s[self.next] = now_s;
            self.push(now_s + self.of.first_s, Event::Sent(self.next));
            self.next += 1;
        }
    }

    fn happens(&mut self, event: Event, now_s: f64) {
        match event {
            Event::Sent(index) => self.waiting.push_back(index),
            Event::Filled(list) => {
                self.idle += 1;
                for index in list {
                    let Transfer { message_s: message, token_s: token } = self.of.transfer;
                    let moved = message + token * self.requests[index].prompt as f64;
                    self.push(now_s + moved, Event::Moved(index));
                }
            }
            Event::Moved(index) => self.moved(index, now_s),
            Event::Stepped(worker) => self.stepped(worker, now_s),
        }
        self.fill(now_s);
    }

    /// Idle workers of prompts take those that wait.
    fn fill(&mut self, now_s: f64) {
        let WorkerPool { replicas, batch, grid, .. } = self.of.prefill;
        while self.idle > 0 && !self.waiting.is_empty() {
            let count = self.waiting.len().min((batch * replicas).max(1) as usize);
            let list: Vec<usize> = self.waiting.drain(..count).collect();
            // Replicas take prompts at the same time, each its own one after the other.
            let rounds = list.chunks(replicas.max(1) as usize);
            let longest = |round: &[usize]| round.iter().map(|&index| self.requests[index].prompt).max().unwrap_or(1);
            let seconds: f64 = rounds.map(|round| grid.prefill(longest(round)).seconds).sum();
            self.idle -= 1;
            self.push(now_s + seconds, Event::Filled(list));
        }
    }

    fn moved(&mut self, index: usize, now_s: f64) {
        self.first_s[index] = now_s;
        if self.requests[index].output < 2 {
            self.last_s[index] = now_s;
            self.send(now_s);
            return;
        }
        let load = |decoder: &Decoder| decoder.active.len() + decoder.waiting.len();
        let least = (0..self.decoders.len()).min_by_key(|&worker| load(&self.decoders[worker])).unwrap_or(0);
        self.decoders[least].waiting.push_back(index);
        if !self.decoders[least].is_running {
            self.step(least, now_s);
        }
    }

    /// A worker of tokens takes in those that wait, and begins a step.
    fn step(&mut self, worker: usize, now_s: f64) {
        let WorkerPool { replicas, batch, grid, .. } = self.of.decode;
        let decoder = &mut self.decoders[worker];
        while (decoder.active.len() as u64) < (batch * replicas).max(1) {
            let Some(index) = decoder.waiting.pop_front() else { break };
            let request = &self.requests[index];
            decoder.held += request.prompt + 1;
            decoder.active.push((index, request.output - 1));
        }
        let users = decoder.active.len() as u64;
        decoder.is_running = users > 0;
        if users > 0 {
            let context = decoder.held as f64 / users as f64;
            let seconds = grid.decode(users.div_ceil(replicas.max(1)), context).seconds;
            self.push(now_s + seconds, Event::Stepped(worker));
        }
    }

    fn stepped(&mut self, worker: usize, now_s: f64) {
        let decoder = &mut self.decoders[worker];
        decoder.held += decoder.active.len() as u64;
        for (_, left) in &mut decoder.active {
            *left -= 1;
        }
        let ended: Vec<usize> = decoder.active.iter().filter(|(_, left)| *left == 0).map(|(index, _)| *index).collect();
        decoder.active.retain(|(_, left)| *left > 0);
        for &index in &ended {
            let request = &self.requests[index];
            decoder.held -= request.prompt + request.output;
            self.last_s[index] = now_s;
        }
        for _ in ended {
            self.send(now_s);
        }
        self.step(worker, now_s);
    }
}
