//! Ports, switches and links, flit by flit.
//!
//! Every flow has a FIFO at each switch it enters. A flit stays in it until every branch of the tree has taken it; a
//! branch takes it when its link or port serves the flow and there is room behind it. A link or port serves its flows
//! in turn, at most a packet each; a packet holds flits of one event only. A credit needs as long back as its flit
//! needed.
//!
//! A branch knows the cycle from which it can send its next flit as soon as that flit and the room behind it are known;
//! nothing that happens later changes it. So a link or port is served only in cycles in which it can send. A flow that
//! is alone on a link between two switches competes with nobody there: its flits are sent as soon as their times are known, as far
//! ahead as flits and room last (a stream of one producer and one consumer needs no global order).

use rdusim_base::index::Id;
use rdusim_program::{Fabric, FlowId, Resource};

use super::timing_wheel::TimingWheel;
use super::tree::Tree;

/// A time that has not been fixed yet.
pub(super) const NEVER: u64 = u64::MAX;

/// The FIFO of a flow at a switch input. Flits of a flow are equal and in order, so that it is counters and times.
#[derive(Debug)]
struct Fifo {
    /// Flits sent into it.
    pushed: u64,
    /// Flits that all branches have taken.
    freed: u64,
    /// Its row of [`Times`].
    row: usize,
    /// Its branches: first, behind the last.
    branches: (u32, u32),
    /// The branch that fills it.
    filled_by: u32,
}

/// Times of the latest flits of every FIFO: a row each, as long as the depth rounded up to a power of two.
#[derive(Debug)]
struct Times {
    depth: u64,
    mask: u64,
    /// When flit n arrives, at n in the row.
    arrives: Vec<u64>,
    /// When flit n left, likewise.
    left: Vec<u64>,
}

impl Times {
    fn new(depth: u64) -> Self {
        Self { depth, mask: depth.next_power_of_two() - 1, arrives: Vec::new(), left: Vec::new() }
    }

    /// Adds a row; its number.
    fn add(&mut self) -> usize {
        let row = self.arrives.len();
        let end = row + self.mask as usize + 1;
        self.arrives.resize(end, 0);
        self.left.resize(end, 0);
        row
    }

    fn at(&self, row: usize, n: u64) -> usize {
        row + (n & self.mask) as usize
    }
}

#[derive(Debug, Clone, Copy)]
enum From {
    Source,
    Fifo(u32),
}

#[derive(Debug, Clone, Copy)]
enum To {
    Fifo(u32),
    Sink(u32),
}

/// One way of one flow over one link or port.
#[derive(Debug)]
struct Branch {
    flow: u32,
    from: From,
    to: To,
    /// Index into `servers`.
    server: u32,
    /// Index into `users` and `sends_at`.
    user: u32,
    /// Whether it is alone on a link between two switches.
    is_alone: bool,
    /// Cycles to the other end.
    cycles: u64,
    /// Flits sent.
    sent: u64,
    /// Which event of the flow they belong to, and flits of the flow up to its end.
    event: u32,
    event_end: u64,
}

/// A link or port.
#[derive(Debug)]
struct Server {
    /// Its branches in `users`: first, behind the last.
    users: (u32, u32),
    /// Whose turn it is in `users`, and how many flits of its packet have gone.
    turn: u32,
    in_packet: u32,
    cycles_per_flit: u64,
    free_at: u64,
    flits: u64,
    resource: Resource,
}

/// Where flits leave the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sink {
    /// Flow.
    pub(super) flow: u32,
    /// The port.
    pub(super) resource: Resource,
    /// Whether a unit takes them; what comes a second way to a switch is dropped.
    pub(super) is_unit: bool,
    /// Flits that came out.
    pub(super) delivered: u64,
    /// Flits that the unit has taken from its input FIFO.
    taken: u64,
    /// Flits the input FIFO holds; memories take whatever comes.
    depth: u64,
    branch: u32,
}

/// The network of a section.
#[derive(Debug)]
pub(super) struct Wires {
    packet: u32,
    branches: Vec<Branch>,
    fifos: Vec<Fifo>,
    times: Times,
    servers: Vec<Server>,
    /// Branches, server by server.
    users: Vec<u32>,
    /// From which cycle each of `users` can send its next flit; `NEVER` until that is known.
    sends_at: Vec<u64>,
    /// When each server may have a flit to move.
    wheel: TimingWheel,
    /// Branches alone on their links that may have more to send.
    alone: Vec<u32>,
    /// Flits that each flow's source has given it.
    ready: Vec<u64>,
    /// Branch of each flow out of its source.
    first: Vec<u32>,
    /// Flits of each flow up to the end of every event in which it moves some.
    ends: Vec<Box<[u64]>>,
    /// Sinks, flow by flow.
    pub(super) sinks: Vec<Sink>,
    /// Sinks that got a flit in this cycle.
    pub(super) delivered: Vec<u32>,
    /// Flows whose source sent a flit in this cycle.
    pub(super) injected: Vec<u32>,
}

impl Wires {
    /// Wires up trees, whose events end after so many flits (`ends`); FIFOs hold `depth` flits and packets at most
    /// `packet`. PCU inputs (`holds` tells them by their port) have a FIFO of so many flits.
    pub(super) fn new(
        fabric: &Fabric,
        trees: &[Tree],
        ends: Vec<Box<[u64]>>,
        depth: u64,
        packet: u64,
        hop: u64,
        holds: &dyn Fn(usize, Resource) -> Option<u64>,
    ) -> Self {
        let mut wires = Self {
            packet: u32::try_from(packet).unwrap_or(u32::MAX),
            branches: Vec::new(),
            fifos: Vec::new(),
            times: Times::new(depth),
            servers: Vec::new(),
            users: Vec::new(),
            sends_at: Vec::new(),
            wheel: TimingWheel::default(),
            alone: Vec::new(),
            ready: vec![0; trees.len()],
            first: Vec::new(),
            ends,
            sinks: Vec::new(),
            delivered: Vec::new(),
            injected: Vec::new(),
        };
        let mut server_of = vec![u32::MAX; fabric.count()];
        for (flow, tree) in trees.iter().enumerate() {
            let base = wires.fifos.len() as u32;
            wires.first.push(wires.branches.len() as u32);
            let server = wires.server(fabric, &mut server_of, tree.source);
            wires.branch(flow, From::Source, To::Fifo(base), server, hop);
            for _ in &tree.nodes {
                let row = wires.times.add();
                wires.fifos.push(Fifo {
                    pushed: 0,
                    freed: 0,
                    row,
                    branches: (0, 0),
                    filled_by: wires.branches.len() as u32 - 1,
                });
            }
            for (node, leaves) in tree.nodes.iter().enumerate() {
                let from = From::Fifo(base + node as u32);
                let first = wires.branches.len() as u32;
                for leave in leaves {
                    let branch = wires.branches.len() as u32;
                    let to = if let Some(node) = leave.to {
                        wires.fifos[base as usize + node].filled_by = branch;
                        To::Fifo(base + node as u32)
                    } else {
                        let depth = holds(flow, leave.resource).unwrap_or(NEVER);
                        let (resource, flow) = (leave.resource, flow as u32);
                        let is_unit = leave.is_sink;
                        wires.sinks.push(Sink { flow, resource, is_unit, delivered: 0, taken: 0, depth, branch });
                        To::Sink(wires.sinks.len() as u32 - 1)
                    };
                    let server = wires.server(fabric, &mut server_of, leave.resource);
                    wires.branch(flow, from, to, server, leave.cycles);
                }
                wires.fifos[base as usize + node].branches = (first, wires.branches.len() as u32);
            }
        }
        wires.wheel = TimingWheel::new(wires.servers.len());
        wires.number_users();
        wires
    }

    /// Gives the branches of each server neighbouring places in `users`.
    fn number_users(&mut self) {
        let mut users: Vec<u32> = (0..self.branches.len() as u32).collect();
        users.sort_by_key(|&branch| self.branches[branch as usize].server);
        for (user, &branch) in users.iter().enumerate() {
            let branch = &mut self.branches[branch as usize];
            branch.user = user as u32;
            let server = &mut self.servers[branch.server as usize];
            if server.users.1 == 0 {
                (server.users.0, server.turn) = (user as u32, user as u32);
            }
            server.users.1 = user as u32 + 1;
        }
        for branch in &mut self.branches {
            let (first, behind) = self.servers[branch.server as usize].users;
            branch.is_alone = behind - first == 1 && matches!((branch.from, branch.to), (From::Fifo(_), To::Fifo(_)));
        }
        self.sends_at = vec![NEVER; users.len()];
        self.users = users;
    }

    /// The server of a resource, added if `server_of` knows none yet.
    fn server(&mut self, fabric: &Fabric, server_of: &mut [u32], resource: Resource) -> u32 {
        let known = &mut server_of[resource as usize];
        if *known == u32::MAX {
            *known = self.servers.len() as u32;
            self.servers.push(Server {
                users: (0, 0),
                turn: 0,
                in_packet: 0,
                cycles_per_flit: fabric.cycles_per_flit(resource),
                free_at: 0,
                flits: 0,
                resource,
            });
        }
        *known
    }

    fn branch(&mut self, flow: usize, from: From, to: To, server: u32, cycles: u64) {
        let event_end = self.ends[flow].first().copied().unwrap_or(NEVER);
        let flow = flow as u32;
        self.branches.push(Branch {
            flow,
            from,
            to,
            server,
            user: 0,
            is_alone: false,
            cycles,
            sent: 0,
            event: 0,
            event_end,
        });
    }

    /// Flits that a flow's source has sent.
    #[inline]
    pub(super) fn sent(&self, flow: FlowId) -> u64 {
        self.branches[self.first[flow.index()] as usize].sent
    }

    /// Flits that a flow's source has given.
    #[inline]
    pub(super) fn ready(&self, flow: FlowId) -> u64 {
        self.ready[flow.index()]
    }

    /// Gives a flow's source flits to send, up to a total.
    #[inline]
    pub(super) fn give(&mut self, flow: FlowId, total: u64, now: u64) {
        let flow = flow.index();
        if total > self.ready[flow] {
            self.ready[flow] = total;
            self.prepare(self.first[flow], now);
        }
    }

    /// A unit takes flits from the input FIFO at a sink, up to a total.
    #[inline]
    pub(super) fn take(&mut self, sink: usize, total: u64, now: u64) {
        let sink = &mut self.sinks[sink];
        if total > sink.taken {
            sink.taken = total;
            let branch = sink.branch;
            self.prepare(branch, now);
        }
    }

    /// When something next may move.
    pub(super) fn next_at(&self) -> u64 {
        self.wheel.next().unwrap_or(NEVER)
    }

    /// From which cycle a branch can send its next flit: `NEVER` until something else moves.
    #[inline]
    fn can_send_at(&self, branch: &Branch) -> u64 {
        let n = branch.sent;
        let here = match branch.from {
            From::Source if n < self.ready[branch.flow as usize] => 0,
            From::Source => return NEVER,
            From::Fifo(f) => {
                let fifo = &self.fifos[f as usize];
                if n >= fifo.pushed {
                    return NEVER;
                }
                self.times.arrives[self.times.at(fifo.row, n)]
            }
        };
        let room = match branch.to {
            To::Fifo(f) => {
                let fifo = &self.fifos[f as usize];
                let depth = self.times.depth;
                if n < depth {
                    0
                } else if n - depth < fifo.freed {
                    self.times.left[self.times.at(fifo.row, n - depth)] + branch.cycles
                } else {
                    return NEVER;
                }
            }
            To::Sink(s) => {
                let sink = &self.sinks[s as usize];
                if sink.delivered >= sink.depth.saturating_add(sink.taken) {
                    return NEVER;
                }
                0
            }
        };
        here.max(room)
    }

    /// Finds out when a branch can send its next flit, if that was not known.
    #[inline]
    fn prepare(&mut self, b: u32, now: u64) {
        let branch = &self.branches[b as usize];
        if branch.is_alone {
            self.alone.push(b);
            return;
        }
        if self.sends_at[branch.user as usize] < NEVER {
            return;
        }
        let at = self.can_send_at(branch);
        if at < NEVER {
            self.sends_at[branch.user as usize] = at;
            let free_at = self.servers[branch.server as usize].free_at;
            self.wheel.add(branch.server, at.max(free_at).max(now));
        }
    }

    /// One cycle of every link and port; whether a flit moved.
    pub(super) fn tick(&mut self, now: u64) -> bool {
        self.delivered.clear();
        self.injected.clear();
        let mut moved = false;
        self.wheel.begin(now);
        while let Some(server) = self.wheel.pop() {
            moved |= self.serve(server, now);
        }
        moved
    }

    /// Serves the first branch in turn that can send.
    fn serve(&mut self, s: u32, now: u64) -> bool {
        let server = &mut self.servers[s as usize];
        if server.free_at > now {
            self.wheel.add(s, server.free_at);
            return false;
        }
        let (first, behind) = server.users;
        let mut in_turn = (server.turn..behind).chain(first..server.turn);
        let Some(user) = in_turn.find(|&user| self.sends_at[user as usize] <= now) else {
            self.look_again(s);
            return false;
        };
        if user != server.turn {
            (server.turn, server.in_packet) = (user, 0);
        }
        server.in_packet += 1;
        server.flits += 1;
        server.free_at = now + server.cycles_per_flit;
        let b = self.users[user as usize];
        let branch = &mut self.branches[b as usize];
        let n = branch.sent;
        branch.sent += 1;
        let ends_event = branch.sent == branch.event_end;
        if ends_event {
            branch.event += 1;
            let ends = &self.ends[branch.flow as usize];
            branch.event_end = ends.get(branch.event as usize).copied().unwrap_or(NEVER);
        }
        if ends_event || server.in_packet >= self.packet {
            (server.turn, server.in_packet) = (if user + 1 < behind { user + 1 } else { first }, 0);
        }
        let (from, to, cycles, flow) = (branch.from, branch.to, branch.cycles, branch.flow);
        match from {
            From::Source => self.injected.push(flow),
            From::Fifo(fifo) => self.free(fifo, n, now),
        }
        match to {
            To::Fifo(fifo) => self.push(fifo, n, now + cycles),
            To::Sink(sink) => {
                self.sinks[sink as usize].delivered += 1;
                self.delivered.push(sink);
            }
        }
        self.run_ahead();
        self.sends_at[user as usize] = self.can_send_at(&self.branches[b as usize]);
        self.look_again(s);
        true
    }

    /// Sends all flits of flows that are alone on a link whose times are known.
    fn run_ahead(&mut self) {
        while let Some(b) = self.alone.pop() {
            let branch = &self.branches[b as usize];
            let at = self.can_send_at(branch);
            let (From::Fifo(from), To::Fifo(to)) = (branch.from, branch.to) else { continue };
            if at == NEVER {
                continue;
            }
            let server = &mut self.servers[branch.server as usize];
            let at = at.max(server.free_at);
            server.free_at = at + server.cycles_per_flit;
            server.flits += 1;
            let branch = &mut self.branches[b as usize];
            let (n, arrives) = (branch.sent, at + branch.cycles);
            branch.sent += 1;
            self.alone.push(b);
            self.free(from, n, at);
            self.push(to, n, arrives);
        }
    }

    /// Looks at a server again when it is free and the first of its branches can send.
    #[inline]
    fn look_again(&mut self, s: u32) {
        let server = &self.servers[s as usize];
        let (first, behind) = server.users;
        let earliest = self.sends_at[first as usize..behind as usize].iter().copied().min().unwrap_or(NEVER);
        if earliest < NEVER {
            self.wheel.add(s, earliest.max(server.free_at));
        }
    }

    /// A branch takes flit `n` from a FIFO at `now`, which may be ahead of others: it leaves when the last has.
    fn free(&mut self, f: u32, n: u64, now: u64) {
        let fifo = &mut self.fifos[f as usize];
        let left = &mut self.times.left[fifo.row + (n & self.times.mask) as usize];
        *left = now.max(*left);
        let (first, behind) = fifo.branches;
        let others = first as usize..behind as usize;
        if n > fifo.freed || (others.len() > 1 && self.branches[others].iter().any(|branch| branch.sent <= n)) {
            return;
        }
        fifo.freed = n + 1;
        let back = fifo.filled_by;
        // The one flit that waits for this credit.
        if self.branches[back as usize].sent == n + self.times.depth {
            self.prepare(back, now);
        }
    }

    /// Flit `n` is on its way into a FIFO.
    fn push(&mut self, f: u32, n: u64, arrives: u64) {
        let fifo = &mut self.fifos[f as usize];
        let at = self.times.at(fifo.row, n);
        self.times.arrives[at] = arrives;
        fifo.pushed = n + 1;
        for next in fifo.branches.0..fifo.branches.1 {
            if self.branches[next as usize].sent == n {
                self.prepare(next, arrives);
            }
        }
    }

    /// Flits that went over each link and port.
    pub(super) fn loads(&self) -> impl Iterator<Item = (Resource, u64)> {
        self.servers.iter().map(|server| (server.resource, server.flits))
    }
}
