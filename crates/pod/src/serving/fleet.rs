//! The fleet that serves a model best under targets: how each replica is divided, how many users it has, how prompts start, and how
//! many replicas there are.
//!
//! Replicas share nothing, so that what users see follows from one replica. Each division has a bound that needs no simulation: no
//! step takes less than its FLOP at the peak of the chips, or than reading its weights and caches. Divisions are simulated in the order
//! of their bounds until none that is left could be better than the best that keeps to the targets (branch and bound). Of each,
//! closed loops of ever more users are run: powers of two, then by bisection between the last that keeps to the targets and the
//! first that does not.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::super::parallel::Parallel;
use super::super::system::{Stack, System};
use super::alone::Alone;
use super::phases::Server;
use super::policy::{MOST_USERS as MOST_POLICY_USERS, Policy};
use super::requests::{Arrivals, Request, drawn};
use super::schedule::{Limits, Replayed, replay};
use super::service::{Load, Service};
use super::speculation::Speculation;
use super::stream::Spread;
use super::targets::{Price, Target, Targets};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::interrupt;

/// Requests of a closed loop for each user: the first are all at once, the last end among fewer users, and neither counts.
const REQUESTS_PER_USER: u64 = 10;
/// Requests of a closed loop at least.
const LEAST_REQUESTS: u64 = 200;
/// Most users of a replica that are tried where the caller does not say.
const MOST_USERS: u64 = 1024;
/// The same of chips whose steps are compiled: some seconds for each of several numbers of users.
const MOST_USERS_COMPILED: u64 = 64;
/// Tokens of prompts in a pass that carries tokens too: what engines start with (`docs/serving.md`), and a quarter of it (assumed), with
/// which those that run wait less.
const CHUNKS: [u64; 2] = [2048, 8192];

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetObjective {
    /// The least cost of a token: dollars, or hours of chips where no price is given.
    Cost,
    /// The most tokens a second on as many chips or fewer.
    Throughput,
    /// The most users at one time on as many chips or fewer.
    Users,
}

/// What a fleet has to do, and what it is chosen by.
#[derive(Debug, Clone, Copy)]
pub struct FleetAsked {
    /// Users of all replicas that must be served at one time, if that is fixed.
    pub users: Option<u64>,
    /// Lengths of prompts and answers, and their seed; rate and count have no meaning in a closed loop.
    pub lengths: Arrivals,
    /// What the loops run under; its `users` are the most that a replica is tried with.
    pub policy: Policy,
    /// What is made least or most.
    pub objective: FleetObjective,
    /// What users are promised.
    pub targets: Targets,
    /// What chips and energy cost.
    pub price: Price,
}

/// A search among divisions of a model over the chips of a system.
#[derive(Debug, Clone)]
pub struct FleetSearch<'s> {
    /// The system whose chips replicas share out, and whose links each replica has for itself.
    pub system: &'s System,
    /// The system's software: scheduler, host times and collectives.
    pub stack: &'s Stack,
    /// The model; tp and pp of its decomposition are searched unless they are fixed.
    pub service: &'s Service,
    /// A model that drafts for it.
    pub speculation: Option<&'s Speculation>,
    /// tp, if it is fixed.
    pub tp: Option<u64>,
    /// pp, if it is fixed.
    pub pp: Option<u64>,
    /// Fewest and most chips of all replicas.
    pub chips: (u64, u64),
    /// What the fleet has to do.
    pub asked: FleetAsked,
}

/// A replica with so many users in the steady part of a closed loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operated {
    /// Chips that share every layer of a stage out (tensor parallelism).
    pub tp: u64,
    /// Stages that the layers are divided into (pipeline parallelism).
    pub pp: u64,
    /// Tokens of prompts in a pass that carries tokens too; prompts go alone if not given.
    pub chunk: Option<u64>,
    /// Users of a replica.
    pub users: u64,
    /// Time to first token.
    pub ttft_s: Spread,
    /// Mean time of a request from token to token.
    pub token_s: Spread,
    /// Tokens of answers a second of a replica.
    pub tokens_per_s: f64,
    /// Tokens of prompts a second of a replica.
    pub prompt_tokens_per_s: f64,
    /// Joules for each token of an answer.
    pub joules_per_token: f64,
}

impl Operated {
    /// Chips of a replica.
    pub fn chips(&self) -> u64 {
        self.tp * self.pp
    }

    /// Seconds of a chip for each token of an answer.
    pub fn chip_s_per_token(&self) -> f64 {
        self.chips() as f64 / self.tokens_per_s
    }

    /// Dollars for each million tokens of answers; `None` without any price.
    pub fn usd_per_million_tokens(&self, price: &Price) -> Option<f64> {
        let seconds = 1e6 / self.tokens_per_s;
        price.usd(self.chips(), seconds, 1e6 * self.joules_per_token)
    }
}

/// How far a division came.
#[derive(Debug, Clone, PartialEq)]
pub struct Division {
    /// Chips that share every layer of a stage out (tensor parallelism).
    pub tp: u64,
    /// Stages that the layers are divided into (pipeline parallelism).
    pub pp: u64,
    /// Replicas that are used.
    pub replicas: u64,
    /// The best that keeps to the targets, else the one nearest to them; nothing if none was simulated.
    pub best: Option<Operated>,
    /// It keeps to the targets.
    pub is_met: bool,
    /// Seconds that one user alone waits for a token, where that is over the target and nothing more was simulated.
    pub alone_s: Option<f64>,
    /// What speaks against it; empty for the best of all.
    pub why: String,
}

impl Division {
    /// One that is left out before any loop of it has run.
    fn left_out(parallel: &Parallel, why: String) -> Self {
        let Parallel { tp, pp, .. } = *parallel;
        Self { tp, pp, replicas: 0, best: None, is_met: false, alone_s: None, why }
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// Every division, the best first.
    pub divisions: Vec<Division>,
    /// All that were run and of which no other gives users more tokens a second at no more cost: by rising speed.
    pub front: Vec<Operated>,
    /// Everything that was run, by division, chunk and users.
    pub points: Vec<Operated>,
    /// Divisions that were simulated.
    pub simulated: usize,
    /// What the result says of itself.
    pub notes: Vec<String>,
}

impl Fleet {
    /// The best that keeps to the targets, with its replicas.
    pub fn best(&self) -> Option<(&Operated, u64)> {
        let first = self.divisions.first().filter(|division| division.is_met)?;
        first.best.as_ref().map(|best| (best, first.replicas))
    }
}

/// A division that may be simulated.
struct Candidate {
    service: Service,
    /// The objective that no point of it beats: less is better.
    bound: f64,
}

/// Finds the fleet that does what is asked best, and what speaks against each other division.
///
/// # Errors
/// Inputs out of range, or a model that no division fits.
pub fn fleet(search: &FleetSearch<'_>) -> Result<Fleet, Diagnostic> {
    let requests = search.requests()?;
    let (mut open, mut divisions) = search.candidates(&requests)?;
    open.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    let (mut points, mut simulated, mut least) = (Vec::new(), 0, f64::INFINITY);
    for Candidate { service, bound } in open {
        interrupt::check();
        if bound > least {
            let why = "its memory and arithmetic alone allow no better than the best".to_owned();
            divisions.push(Division::left_out(&service.parallel, why));
            continue;
        }
        if let Some((alone_s, why)) = search.too_slow(&service, &requests)? {
            let left_out = Division::left_out(&service.parallel, why);
            divisions.push(Division { alone_s: Some(alone_s), ..left_out });
            continue;
        }
        simulated += 1;
        match search.operated(&service, &requests) {
            Err(refused) => divisions.push(Division::left_out(&service.parallel, refused.title().to_owned())),
            Ok(found) => {
                let division = search.judged(&service, &found);
                if let Some(best) = division.best.filter(|_| division.is_met) {
                    least = least.min(search.key(&best));
                }
                divisions.push(division);
                points.extend(found);
            }
        }
    }
    search.ranked(&mut divisions);
    let front = search.front(&points);
    Ok(Fleet { divisions, front, points, simulated, notes: search.notes() })
}

/// Whether every step of another size is compiled, which takes seconds.
fn compiles(system: &System) -> bool {
    system.chip.rdu().is_some()
}

/// Most users of a replica that a search tries where the caller does not say.
pub fn most_users(system: &System) -> u64 {
    if compiles(system) { MOST_USERS_COMPILED } else { MOST_USERS }
}

impl FleetSearch<'_> {
    /// What one user alone waits for a token, and words for it, if that is longer than is promised: one step, no loop.
    fn too_slow(&self, service: &Service, requests: &[Request]) -> Result<Option<(f64, String)>, Diagnostic> {
        let Some(target) = self.asked.targets.token else { return Ok(None) };
        let server = Server::new(self.system, self.stack, service)?;
        let shortest = requests.iter().map(|request| request.prompt).min().unwrap_or(1);
        let load = Load::filling(&service.parallel, 1, shortest);
        let server = match self.speculation {
            Some(of) => server.with_draft(of, &load)?,
            None => server,
        };
        let tokens = self.speculation.map_or(1.0, Speculation::expected);
        let Ok(step) = server.iteration(&load) else { return Ok(None) };
        let found_s = step.cost.seconds / tokens;
        let why = || format!("one user: {:.1} ms a token, over {:.1}", found_s * 1e3, target.most_s * 1e3);
        Ok((found_s > target.most_s).then(|| (found_s, why())))
    }

    /// Requests of the longest loop.
    fn requests(&self) -> Result<Vec<Request>, Diagnostic> {
        let (least, most) = self.chips;
        if least == 0 || most < least || most > self.system.most_chips() {
            let title = format!("`--chips` is {least}..{most}, expected from 1 to {}", self.system.most_chips());
            return Err(Diagnostic::new(title).with_help(format!("the most that {} can have", self.system.name)));
        }
        // More users are refused with the policy.
        let users = self.asked.policy.users.min(MOST_POLICY_USERS);
        let count = (users * REQUESTS_PER_USER).max(LEAST_REQUESTS);
        drawn(&Arrivals { per_s: 1.0, count, ..self.asked.lengths })
    }

    /// Divisions that the chips and the model allow; and those whose memory is too small.
    fn candidates(&self, requests: &[Request]) -> Result<(Vec<Candidate>, Vec<Division>), Diagnostic> {
        let most = self.chips.1;
        let counts = |fixed: Option<u64>, most: u64| fixed.map_or(1..=most, |fixed| fixed..=fixed);
        let (mut open, mut misfits, mut refused) = (Vec::new(), Vec::new(), None);
        for tp in counts(self.tp, most) {
            // Stages of other lengths are compiled anew: several only where the caller asks for them.
            let most_stages = if compiles(self.system) { 1 } else { most / tp.max(1) };
            for pp in counts(self.pp, most_stages) {
                let parallel = Parallel { tp, pp, dp: 1, ..self.service.parallel };
                let service = Service { parallel, ..self.service.clone() };
                if tp * pp > most {
                    continue;
                }
                // Of several refusals the first is told: it is of the fewest chips, and says what no division mends.
                if let Err(why) = service.check() {
                    refused.get_or_insert(why);
                    continue;
                }
                match self.bound(&service, requests) {
                    Ok(Some(bound)) => open.push(Candidate { service, bound }),
                    Ok(None) => {
                        let why = "its chips have no room for a request beside the weights".to_owned();
                        misfits.push(Division::left_out(&service.parallel, why));
                    }
                    Err(why) => {
                        refused.get_or_insert(why);
                    }
                }
            }
        }
        match (open.is_empty() && misfits.is_empty(), refused) {
            (true, Some(why)) => Err(why),
            _ => Ok((open, misfits)),
        }
    }

    /// The objective that no point of a division beats; nothing if no request fits.
    fn bound(&self, service: &Service, requests: &[Request]) -> Result<Option<f64>, Diagnostic> {
        let setup = (self.system, self.stack);
        let policy = Policy { chunk: None, ..self.asked.policy };
        let alone = Alone::new(setup.0, setup.1, service, self.speculation, requests, &policy)?;
        let fits =
            |request: &Request| alone.limits.size.units(request.prompt + request.output) <= alone.limits.kv_tokens;
        if !requests.iter().all(fits) {
            return Ok(None);
        }
        let server = Server::new(self.system, self.stack, service)?;
        let shortest = requests.iter().map(|request| request.prompt).min().unwrap_or(1);
        // A round of drafts gives more tokens than a step.
        let tokens = self.speculation.map_or(1.0, Speculation::expected);
        let step_s = |users: u64| server.least_step_s(&Load::filling(&service.parallel, users, shortest)) / tokens;
        // More users make steps longer, and tokens cheaper: the most that the target of a token's time may leave.
        let (mut low, mut high) = (1, alone.range.most_users + 1);
        while high - low > 1 {
            let users = low.midpoint(high);
            let is_kept = self.asked.targets.token.is_none_or(|target| step_s(users) <= target.most_s);
            (low, high) = if is_kept { (users, high) } else { (low, users) };
        }
        let (chips, rate) = (service.parallel.chips(), low as f64 / step_s(low));
        let replicas = (self.chips.1 / chips) as f64;
        Ok(Some(match self.asked.objective {
            FleetObjective::Cost => self.cost_of(chips, rate, 0.0),
            FleetObjective::Throughput => -(replicas * rate),
            FleetObjective::Users => -(replicas * low as f64),
        }))
    }

    /// What is made least, of a point that was run.
    fn key(&self, of: &Operated) -> f64 {
        let replicas = self.replicas(of.chips(), of.users).unwrap_or(0) as f64;
        match self.asked.objective {
            FleetObjective::Cost => self.cost(of),
            FleetObjective::Throughput => -(replicas * of.tokens_per_s),
            FleetObjective::Users => -(replicas * of.users as f64),
        }
    }

    /// What a token of a point costs.
    fn cost(&self, of: &Operated) -> f64 {
        self.cost_of(of.chips(), of.tokens_per_s, of.joules_per_token)
    }

    /// Dollars a token, or seconds of chips where nothing has a price.
    fn cost_of(&self, chips: u64, tokens_per_s: f64, joules: f64) -> f64 {
        let usd = self.asked.price.usd(chips, 1.0 / tokens_per_s, joules);
        usd.unwrap_or(chips as f64 / tokens_per_s)
    }

    /// Replicas of so many chips with so many users each; nothing if they cannot serve all users.
    fn replicas(&self, chips: u64, users: u64) -> Option<u64> {
        let (least, most) = self.chips;
        let room = most / chips;
        match self.asked.users {
            None => Some(room),
            Some(all) => Some(all.div_ceil(users).max(least.div_ceil(chips))).filter(|&replicas| replicas <= room),
        }
    }

    /// Runs the loops of a division.
    fn operated(&self, service: &Service, requests: &[Request]) -> Result<Vec<Operated>, Diagnostic> {
        let mut found = Vec::new();
        for chunk in self.chunks(service) {
            let policy = Policy { chunk, ..self.asked.policy };
            let alone = match Alone::new(self.system, self.stack, service, self.speculation, requests, &policy) {
                Ok(alone) => alone,
                // Of several ways to start prompts one may be refused.
                Err(_) if !found.is_empty() => continue,
                Err(refused) => return Err(refused),
            };
            let grid = alone.grid(None)?;
            let run = |users: u64| -> Result<Operated, Diagnostic> {
                let limits = Limits { users, concurrency: Some(users), ..alone.limits };
                let count = ((users * REQUESTS_PER_USER).max(LEAST_REQUESTS) as usize).min(requests.len());
                let replayed = replay(&requests[..count], &grid, &limits, 0)?;
                Ok(steady(service, chunk, users, &requests[..count], &replayed))
            };
            let mut own: Vec<Operated> =
                tried(alone.range.most_users).par_iter().map(|&users| run(users)).collect::<Result<_, _>>()?;
            // Between the last that keeps to the targets and the first that does not.
            while let Some((low, high)) = self.gap(&own) {
                own.push(run(low.midpoint(high))?);
                own.sort_by_key(|of| of.users);
            }
            found.extend(own);
        }
        Ok(found)
    }

    /// Ways to start prompts.
    fn chunks(&self, service: &Service) -> Vec<Option<u64>> {
        let is_fixed = self.asked.policy.chunk.is_some() || self.speculation.is_some() || service.parallel.pp > 1;
        if is_fixed || compiles(self.system) {
            return vec![self.asked.policy.chunk.filter(|_| service.parallel.pp == 1)];
        }
        std::iter::once(None).chain(CHUNKS.into_iter().map(Some)).collect()
    }

    /// Users between which the first lies that breaks a target, while they are more than a 64th apart.
    fn gap(&self, own: &[Operated]) -> Option<(u64, u64)> {
        let first = own.iter().position(|of| !self.is_met(of))?;
        let (low, high) = (own.get(first.checked_sub(1)?)?.users, own[first].users);
        (high - low > (low / 64).max(1)).then_some((low, high))
    }

    /// Whether a point keeps to the targets.
    fn is_met(&self, of: &Operated) -> bool {
        self.missed(of).is_empty()
    }

    /// The targets that a point breaks, in words.
    fn missed(&self, of: &Operated) -> Vec<String> {
        let mut missed = Vec::new();
        let mut judge = |target: Option<Target>, spread: &Spread, what: &str| {
            if let Some(target) = target.filter(|target| !target.is_met(spread)) {
                let (name, found) = (target.statistic.name(), target.statistic.of(spread) * 1e3);
                missed.push(format!("{what} {name} {found:.1} ms over {:.1}", target.most_s * 1e3));
            }
        };
        judge(self.asked.targets.ttft, &of.ttft_s, "time to first token");
        judge(self.asked.targets.token, &of.token_s, "time a token");
        missed
    }

    /// How a division compares with the targets.
    fn judged(&self, service: &Service, found: &[Operated]) -> Division {
        let Parallel { tp, pp, .. } = service.parallel;
        let serves = |of: &&Operated| self.is_met(of) && self.replicas(of.chips(), of.users).is_some();
        let by_key = |a: &&Operated, b: &&Operated| self.key(a).total_cmp(&self.key(b));
        if let Some(best) = found.iter().filter(serves).min_by(by_key) {
            let replicas = self.replicas(best.chips(), best.users).unwrap_or(0);
            return Division { tp, pp, replicas, best: Some(*best), is_met: true, alone_s: None, why: String::new() };
        }
        let kept = found.iter().filter(|of| self.is_met(of)).max_by_key(|of| of.users);
        let nearest = kept.or_else(|| found.iter().min_by_key(|of| of.users)).copied();
        let why = match (kept, &nearest) {
            (Some(of), _) => format!("{} users a replica keep to the targets: too few for all users", of.users),
            (None, Some(of)) => format!("{} already with one user", self.missed(of).join(", ")),
            (None, None) => "nothing of it could be run".to_owned(),
        };
        Division { tp, pp, replicas: 0, best: nearest, is_met: false, alone_s: None, why }
    }

    /// The best first; what speaks against the others.
    fn ranked(&self, divisions: &mut [Division]) {
        let key = |of: &Division| of.best.as_ref().map_or(f64::INFINITY, |best| self.key(best));
        let rank = |of: &Division| (!of.is_met, of.best.is_none());
        let alone = |of: &Division| of.alone_s.unwrap_or(f64::INFINITY);
        divisions.sort_by(|a, b| {
            let by_place = || (a.tp * a.pp, a.tp).cmp(&(b.tp * b.pp, b.tp));
            rank(a)
                .cmp(&rank(b))
                .then(key(a).total_cmp(&key(b)))
                .then(alone(a).total_cmp(&alone(b)))
                .then_with(by_place)
        });
        let Some((best, others)) = divisions.split_first_mut() else { return };
        let of_best = key(best);
        for other in others.iter_mut().filter(|other| other.is_met) {
            let ratio = key(other) / of_best;
            other.why = match (self.asked.objective, ratio.total_cmp(&1.0)) {
                (_, Ordering::Equal) => "as good".to_owned(),
                (FleetObjective::Cost, _) => format!("a token costs {:.1} % more", (ratio - 1.0) * 100.0),
                (FleetObjective::Throughput, _) => format!("{:.1} % fewer tokens a second", (1.0 - ratio) * 100.0),
                (FleetObjective::Users, _) => format!("{:.1} % fewer users", (1.0 - ratio) * 100.0),
            };
        }
    }

    /// Points of which no other is as fast for a user at less cost.
    fn front(&self, points: &[Operated]) -> Vec<Operated> {
        let speed = |of: &Operated| 1.0 / of.token_s.mean;
        let mut list: Vec<Operated> = points.iter().copied().filter(|of| of.token_s.mean > 0.0).collect();
        list.sort_by(|a, b| speed(b).total_cmp(&speed(a)).then(self.cost(a).total_cmp(&self.cost(b))));
        let mut least = f64::INFINITY;
        list.retain(|of| {
            let is_less = self.cost(of) < least;
            least = least.min(self.cost(of));
            is_less
        });
        list.reverse();
        list
    }

    /// What the result says of itself.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!(
                "closed loops of {REQUESTS_PER_USER} requests a user; the first and the last of each user are left out, as all begin at \
                 once and the last end among fewer"
            ),
            "searched are tp, pp, users of a replica, how prompts start, and replicas; formats and drafts are those that are given, and \
             prompts and tokens run on the same chips"
                .to_owned(),
        ];
        if compiles(self.system) && self.pp.is_none() {
            notes.push(format!(
                "steps are compiled, which takes seconds each: one stage, and at most {} users of a replica (`--parallel pp=`, `--batch`)",
                self.asked.policy.users
            ));
        }
        if self.asked.objective == FleetObjective::Cost && self.asked.price == Price::default() {
            notes.push("no price is given: cost is hours of chips (`--usd-per-chip-hour`)".to_owned());
        }
        if self.asked.targets == Targets::default() {
            notes
                .push("no target is given: users wait as long as the best takes (`--ttft-ms`, `--tpot-ms`)".to_owned());
        }
        notes
    }
}

/// The steady part of a closed loop: without the first and the last request of each user. By Little's law its rate is users over the
/// mean time of a request.
fn steady(service: &Service, chunk: Option<u64>, users: u64, requests: &[Request], replayed: &Replayed) -> Operated {
    // A loop has ten requests a user.
    let middle = users as usize..requests.len() - users as usize;
    let answers = &replayed.answers[middle.clone()];
    let all_s: f64 = answers.iter().map(|answer| answer.latency_s).sum();
    let tokens = |of: fn(&Request) -> u64| requests[middle.clone()].iter().map(of).sum::<u64>() as f64;
    let rate = |tokens: f64| if all_s > 0.0 { users as f64 * tokens / all_s } else { 0.0 };
    Operated {
        tp: service.parallel.tp,
        pp: service.parallel.pp,
        chunk,
        users,
        ttft_s: Spread::of(answers.iter().map(|answer| answer.ttft_s)),
        token_s: Spread::of(answers.iter().filter_map(|answer| answer.token_s)),
        tokens_per_s: rate(tokens(|request| request.output)),
        prompt_tokens_per_s: rate(tokens(|request| request.prompt)),
        joules_per_token: replayed.joules / replayed.tokens.max(1) as f64,
    }
}

/// Numbers of users that are tried first: powers of two, and the most.
fn tried(most: u64) -> Vec<u64> {
    let powers = std::iter::successors(Some(1_u64), |users| Some(users * 2));
    let mut list: Vec<u64> = powers.take_while(|&users| users < most).collect();
    list.push(most);
    list
}
