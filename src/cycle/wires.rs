//! Ports, switches and links, flit by flit.
//!
//! Every flow has a FIFO at each switch it enters. A flit stays in it until every branch of the tree has taken it; a
//! branch takes it when its link or port serves the flow and there is room behind it. A link or port serves its flows
//! in turn, at most a packet each; a packet holds flits of one event only. A credit needs as long back as its flit
//! needed.

use crate::index::Id;
use crate::program::{Fabric, FlowId, Resource};

use super::timing_wheel::TimingWheel;
use super::tree::Tree;

/// A time that has not been fixed yet.
pub(super) const NEVER: u64 = u64::MAX;

/// The FIFO of a flow at a switch input. Flits of a flow are alike and in order, so that it is counters and times.
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
    /// Flits sent.
    sent: u64,
    /// Which event of the flow they belong to.
    event: u32,
    /// Cycles to the other end.
    cycles: u64,
}

/// A link or port.
#[derive(Debug)]
struct Server {
    resource: Resource,
    cycles_per_flit: u64,
    users: Vec<u32>,
    /// Whose turn it is, and how many flits of its packet have gone.
    turn: usize,
    in_packet: u64,
    free_at: u64,
    flits: u64,
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
    packet: u64,
    branches: Vec<Branch>,
    fifos: Vec<Fifo>,
    times: Times,
    servers: Vec<Server>,
    /// When each server may have a flit to move.
    wheel: TimingWheel,
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
            packet,
            branches: Vec::new(),
            fifos: Vec::new(),
            times: Times::new(depth),
            servers: Vec::new(),
            wheel: TimingWheel::default(),
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
        wires
    }

    /// The server of a resource, added if `server_of` knows none yet.
    fn server(&mut self, fabric: &Fabric, server_of: &mut [u32], resource: Resource) -> u32 {
        let known = &mut server_of[resource as usize];
        if *known == u32::MAX {
            *known = self.servers.len() as u32;
            self.servers.push(Server {
                resource,
                cycles_per_flit: fabric.cycles_per_flit(resource),
                users: Vec::new(),
                turn: 0,
                in_packet: 0,
                free_at: 0,
                flits: 0,
            });
        }
        *known
    }

    fn branch(&mut self, flow: usize, from: From, to: To, server: u32, cycles: u64) {
        self.servers[server as usize].users.push(self.branches.len() as u32);
        self.branches.push(Branch { flow: flow as u32, from, to, server, sent: 0, event: 0, cycles });
    }

    /// Flits that a flow's source has sent.
    pub(super) fn sent(&self, flow: FlowId) -> u64 {
        self.branches[self.first[flow.index()] as usize].sent
    }

    /// Flits that a flow's source has given.
    pub(super) fn ready(&self, flow: FlowId) -> u64 {
        self.ready[flow.index()]
    }

    /// Gives a flow's source flits to send, up to a total.
    pub(super) fn give(&mut self, flow: FlowId, total: u64, now: u64) {
        let flow = flow.index();
        if total > self.ready[flow] {
            self.ready[flow] = total;
            self.wake(self.first[flow], now);
        }
    }

    /// A unit takes flits from the input FIFO at a sink, up to a total.
    pub(super) fn take(&mut self, sink: usize, total: u64, now: u64) {
        let sink = &mut self.sinks[sink];
        if total > sink.taken {
            sink.taken = total;
            let branch = sink.branch;
            self.wake(branch, now);
        }
    }

    /// When something next may move.
    pub(super) fn next_at(&self) -> u64 {
        self.wheel.next().unwrap_or(NEVER)
    }

    /// When a branch can send its next flit, as far as that is known: `NEVER` until something else moves.
    fn sends_at(&self, branch: &Branch) -> u64 {
        let n = branch.sent;
        let here = match branch.from {
            From::Source => {
                if n < self.ready[branch.flow as usize] {
                    0
                } else {
                    return NEVER;
                }
            }
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
                if sink.delivered - sink.taken.min(sink.delivered) < sink.depth {
                    0
                } else {
                    return NEVER;
                }
            }
        };
        here.max(room)
    }

    /// One cycle of every link and port; whether a flit moved.
    pub(super) fn tick(&mut self, now: u64) -> bool {
        self.delivered.clear();
        self.injected.clear();
        let mut moved = false;
        self.wheel.begin(now);
        while let Some(server) = self.wheel.pop() {
            moved |= self.serve(server as usize, now);
        }
        moved
    }

    fn serve(&mut self, s: usize, now: u64) -> bool {
        let server = &self.servers[s];
        if server.free_at > now {
            self.wheel.add(s as u32, server.free_at);
            return false;
        }
        let users = server.users.len();
        let mut earliest = NEVER;
        let mut chosen = None;
        for step in 0..users {
            let mut user = server.turn + step;
            if user >= users {
                user -= users;
            }
            let at = self.sends_at(&self.branches[server.users[user] as usize]);
            if at <= now {
                chosen = Some(user);
                break;
            }
            earliest = earliest.min(at);
        }
        let Some(user) = chosen else {
            if earliest < NEVER {
                self.wheel.add(s as u32, earliest);
            }
            return false;
        };
        let packet = self.packet;
        let server = &mut self.servers[s];
        if user != server.turn {
            (server.turn, server.in_packet) = (user, 0);
        }
        server.in_packet += 1;
        let branch = &mut self.branches[server.users[user] as usize];
        let ends_event = self.ends[branch.flow as usize].get(branch.event as usize) == Some(&(branch.sent + 1));
        branch.event += u32::from(ends_event);
        if ends_event || server.in_packet >= packet {
            (server.turn, server.in_packet) = ((user + 1) % users, 0);
        }
        server.flits += 1;
        server.free_at = now + server.cycles_per_flit;
        let (free_at, branch) = (server.free_at, server.users[user]);
        self.wheel.add(s as u32, free_at);
        self.send(branch as usize, now);
        true
    }

    fn wake(&mut self, branch: u32, at: u64) {
        self.wheel.add(self.branches[branch as usize].server, at);
    }

    fn send(&mut self, b: usize, now: u64) {
        let branch = &mut self.branches[b];
        let (n, cycles, flow) = (branch.sent, branch.cycles, branch.flow);
        branch.sent += 1;
        let (from, to) = (branch.from, branch.to);
        match from {
            From::Source => self.injected.push(flow),
            From::Fifo(f) => {
                let (first, last) = self.fifos[f as usize].branches;
                let taken = (first..last).map(|b| self.branches[b as usize].sent).min().unwrap_or(0);
                let fifo = &mut self.fifos[f as usize];
                if taken > fifo.freed {
                    let at = self.times.at(fifo.row, fifo.freed);
                    self.times.left[at] = now;
                    fifo.freed = taken;
                    let back = fifo.filled_by;
                    let cycles = self.branches[back as usize].cycles;
                    self.wake(back, now + cycles);
                }
            }
        }
        match to {
            To::Fifo(f) => {
                let fifo = &mut self.fifos[f as usize];
                let at = self.times.at(fifo.row, n);
                self.times.arrives[at] = now + cycles;
                fifo.pushed += 1;
                let (first, last) = fifo.branches;
                for next in first..last {
                    self.wake(next, now + cycles);
                }
            }
            To::Sink(s) => {
                self.sinks[s as usize].delivered += 1;
                self.delivered.push(s);
            }
        }
    }

    /// Flits that went over each link and port.
    pub(super) fn loads(&self) -> impl Iterator<Item = (Resource, u64)> {
        self.servers.iter().map(|server| (server.resource, server.flits))
    }
}
