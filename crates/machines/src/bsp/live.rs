//! What a tile's memory holds when: tensors that live throughout, and those that live from their producer to their last reader.
//!
//! Tensors lie spread over all tiles; one that is read in the backward phase of a repeated block lives once for every
//! repetition. What cannot be resident is in the memory off the chip, and is streamed in for every operator that reads it, or once
//! for a subgraph of several.

use super::vertex;
use rdusim_base::index::Id;
use rdusim_graph::arch::{Bsp, BspPart};
use rdusim_graph::workload::{OperatorId, OperatorKind, Phase, TensorId, TensorRole, Workload};

/// Parts that a streamed tensor comes in at most.
pub(super) const MOST_PARTS: f64 = 64.0;

/// Why a tensor is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An operator makes it.
    Made,
    Weight,
    /// The sum of a weight's gradients of several micro-batches.
    Sum,
    /// Of an optimiser.
    State,
    /// What enters a repeated block and is read again in its backward phase: every repetition's is kept.
    Carried,
    /// Another input of every repetition of a block.
    Repeated,
    /// Another input.
    Input,
}

/// Bytes of all tiles from one operator to another, the last included.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
    bytes: f64,
}

/// The tensors of a workload in tile memory.
#[derive(Debug, Clone)]
pub(super) struct Live {
    /// Bytes of all tiles that hold something throughout.
    pub(super) always_bytes: f64,
    /// Bytes of all tiles, operator by operator.
    at: Vec<f64>,
    /// Whether a tensor is streamed, by its index.
    pub(super) streamed: Vec<bool>,
    kinds: Vec<Kind>,
    /// Where a tensor lives if it is resident, and where if it is streamed, beside the operators that it is streamed for.
    spans: Vec<[Vec<Span>; 2]>,
    part: BspPart,
    subgraphs: Subgraphs,
    /// Bytes of a step that a tensor has streamed if it cannot be resident, by its index.
    traffic: Vec<f64>,
    /// Streamed from the start: there is nothing to decide.
    decided: Vec<TensorId>,
}

/// Consecutive operators whose streamed weights come together.
#[derive(Debug, Clone, Default)]
struct Subgraphs {
    /// The subgraph of an operator, and whether it begins there.
    of: Vec<(usize, bool)>,
    /// The weights that are read in a subgraph, and their bytes; nothing if every operator is one of its own.
    weights: Vec<Vec<(TensorId, f64)>>,
    /// Operators of a subgraph that read weights.
    readers: Vec<u64>,
}

impl Subgraphs {
    fn new(workload: &Workload, operators: u64) -> Self {
        if operators <= 1 {
            return Self::default();
        }
        let mut all = Self::default();
        let (mut last, mut size) = (None, 0);
        for (op, operator) in workload.operators.iter_enumerated() {
            let key = Some((operator.block, operator.phase, operator.repeat, operator.every));
            let starts = last != key || size == operators;
            if starts {
                all.weights.push(Vec::new());
                all.readers.push(0);
                size = 0;
            }
            (last, size) = (key, size + 1);
            all.of.push((all.weights.len() - 1, starts));
            let (Some(own), Some(readers)) = (all.weights.last_mut(), all.readers.last_mut()) else { continue };
            let is_weight = |&t: &TensorId| workload.tensors[workload.base(t)].role == TensorRole::Weight;
            *readers += u64::from(operator.inputs.iter().any(is_weight));
            for &input in &operator.inputs {
                let base = workload.base(input);
                if workload.tensors[base].role != TensorRole::Weight || operator.phase == Phase::Update {
                    continue;
                }
                let bytes = read_bytes(workload, op, input);
                match own.iter_mut().find(|(known, _)| *known == base) {
                    Some((_, known)) => *known = known.max(bytes),
                    None => own.push((base, bytes)),
                }
            }
        }
        all
    }

    /// The weights of an operator's subgraph; `None` if no other operator of it reads some.
    fn weights(&self, op: OperatorId) -> Option<&[(TensorId, f64)]> {
        let together = self.of.get(op.index()).filter(|&&(at, _)| self.readers[at] > 1);
        together.map(|&(at, _)| self.weights[at].as_slice())
    }

    fn starts(&self, op: OperatorId) -> bool {
        self.of.get(op.index()).is_none_or(|&(_, starts)| starts)
    }
}

impl Live {
    /// Everything resident that may be.
    pub(super) fn new(chip: &Bsp, workload: &Workload) -> Self {
        let (part, kinds) = (chip.part, kinds(workload, chip.part));
        let subgraphs = Subgraphs::new(workload, chip.planner.subgraph_operators);
        let mut live = Self {
            always_bytes: 0.0,
            at: vec![0.0; workload.operators.len()],
            streamed: vec![false; workload.tensors.len()],
            spans: spans(workload, &kinds, part),
            kinds,
            part,
            subgraphs,
            traffic: vec![0.0; workload.tensors.len()],
            decided: Vec::new(),
        };
        for id in workload.tensors.ids() {
            live.add(id, 1.0);
        }
        for (op, operator) in workload.operators.iter_enumerated() {
            let times = operator.repeat as f64 / operator.every as f64;
            let moved =
                live.all_reads(workload, op, |_| true).into_iter().chain(live.all_writes(workload, op, |_| true));
            for (tensor, bytes) in moved.collect::<Vec<_>>() {
                live.traffic[workload.base(tensor).index()] += times * bytes;
            }
        }
        let is_apart = |id: &TensorId| part.is_phase && matches!(live.kinds[id.index()], Kind::State | Kind::Carried);
        let apart: Vec<TensorId> = workload.tensors.ids().filter(is_apart).collect();
        for &id in &apart {
            live.stream(id);
        }
        live.decided = apart;
        live
    }

    /// Tensors that were found not to be resident, in the order of their indices.
    pub(super) fn chosen(&self, workload: &Workload) -> Vec<TensorId> {
        let is_chosen = |id: &TensorId| self.streamed[id.index()] && !self.decided.contains(id);
        workload.tensors.ids().filter(is_chosen).collect()
    }

    /// Whether it is what enters a repeated block.
    pub(super) fn is_carried(&self, workload: &Workload, t: TensorId) -> bool {
        self.kinds[workload.base(t).index()] == Kind::Carried
    }

    fn stream(&mut self, id: TensorId) {
        self.add(id, -1.0);
        self.streamed[id.index()] = true;
        self.add(id, 1.0);
    }

    /// Adds what a tensor holds where it now lives, or takes it away.
    fn add(&mut self, id: TensorId, sign: f64) {
        for span in &self.spans[id.index()][usize::from(self.streamed[id.index()])] {
            self.at.iter_mut().take(span.to + 1).skip(span.from).for_each(|at| *at += sign * span.bytes);
            if span.from == 0 && span.to + 1 >= self.at.len() {
                self.always_bytes += sign * span.bytes;
            }
        }
    }

    /// Whether a tensor comes from off the chip, or from other chips, for an operator of its own.
    fn comes_for(&self, workload: &Workload, op: OperatorId, base: TensorId) -> bool {
        let is_update = workload.operators[op].phase == Phase::Update;
        match self.kinds[base.index()] {
            Kind::Weight if self.part.weight_shards > 1 && !is_update => true,
            Kind::Sum if self.part.is_phase && is_update => true,
            _ => self.streamed[base.index()],
        }
    }

    /// Bytes of a tile that holds them all while operator `op` runs, what is streamed for it included: in `parts`, of which one is
    /// there at a time, where the operator takes it so.
    pub(super) fn tile_bytes(&self, chip: &Bsp, workload: &Workload, op: OperatorId, parts: u64) -> f64 {
        let operator = &workload.operators[op];
        let together = self.subgraphs.weights(op);
        let mut streamed = 0.0;
        for &t in operator.inputs.iter().chain([&operator.output]) {
            let base = workload.base(t);
            let kind = self.kinds[base.index()];
            let is_elsewhere = kind == Kind::Carried || (kind == Kind::Weight && together.is_some());
            if is_elsewhere || !self.comes_for(workload, op, base) {
                continue;
            }
            let part = if comes_in_parts(workload, op, t) { 1.0 / parts as f64 } else { 1.0 };
            streamed += read_bytes(workload, op, t) * part;
        }
        let comes = together.unwrap_or(&[]).iter().filter(|(base, _)| self.comes_for(workload, op, *base));
        streamed += comes.map(|(_, bytes)| bytes).sum::<f64>();
        let at = self.at.get(op.index()).copied().unwrap_or(0.0);
        ((at + streamed) / chip.tile.count as f64).ceil()
    }

    /// Whether an operator has a streamed tensor that it takes in parts.
    pub(super) fn streams_in_parts(&self, workload: &Workload, op: OperatorId) -> bool {
        let operator = &workload.operators[op];
        let mut used = operator.inputs.iter().chain([&operator.output]);
        let is_together = self.subgraphs.weights(op).is_some();
        used.any(|&t| {
            let base = workload.base(t);
            let is_elsewhere = is_together && self.kinds[base.index()] == Kind::Weight;
            !is_elsewhere && self.comes_for(workload, op, base) && comes_in_parts(workload, op, t)
        })
    }

    /// What is read from off the chip for an operator, once.
    pub(super) fn reads(&self, workload: &Workload, op: OperatorId) -> Vec<(TensorId, f64)> {
        self.all_reads(workload, op, |base| self.is_read(workload, op, base))
    }

    /// What goes off the chip behind an operator, once.
    pub(super) fn writes(&self, workload: &Workload, op: OperatorId) -> Vec<(TensorId, f64)> {
        // The weights of a phase lie off the chip before and behind it.
        let is_phase_update = self.part.is_phase && workload.operators[op].phase == Phase::Update;
        let goes = |base: TensorId| {
            self.streamed[base.index()] || (is_phase_update && self.kinds[base.index()] == Kind::Weight)
        };
        self.all_writes(workload, op, goes)
    }

    /// Weights that other chips hold parts of are read only where this chip's part is not resident.
    fn is_read(&self, workload: &Workload, op: OperatorId, base: TensorId) -> bool {
        match self.kinds[base.index()] {
            Kind::Weight => self.streamed[base.index()],
            _ => self.comes_for(workload, op, base),
        }
    }

    fn all_reads(&self, workload: &Workload, op: OperatorId, comes: impl Fn(TensorId) -> bool) -> Vec<(TensorId, f64)> {
        let operator = &workload.operators[op];
        let mut list: Vec<(TensorId, f64)> = Vec::new();
        let together = self.subgraphs.weights(op);
        for &t in &operator.inputs {
            let base = workload.base(t);
            let kind = self.kinds[base.index()];
            let is_known = list.iter().any(|(known, _)| workload.base(*known) == base);
            let is_elsewhere = match kind {
                Kind::Weight => together.is_some(),
                // Once for the backward phase; in the forward phase the repetition before has just made it.
                Kind::Carried => {
                    operator.phase != Phase::Backward || first_reader(workload, base, Phase::Backward) != Some(op)
                }
                _ => false,
            };
            if is_known || is_elsewhere || !comes(base) {
                continue;
            }
            list.push((t, read_bytes(workload, op, t) / self.shards(workload, op, base)));
        }
        if self.subgraphs.starts(op) {
            let all = together.unwrap_or(&[]).iter().filter(|(base, _)| comes(*base));
            list.extend(all.map(|&(base, bytes)| (base, bytes / self.shards(workload, op, base))));
        }
        list
    }

    fn all_writes(&self, workload: &Workload, op: OperatorId, goes: impl Fn(TensorId) -> bool) -> Vec<(TensorId, f64)> {
        let operator = &workload.operators[op];
        let mut list: Vec<(TensorId, f64)> = Vec::new();
        for t in operator.updates.into_iter().chain([operator.output]) {
            let base = workload.base(t);
            if list.iter().any(|(known, _)| *known == base) || !goes(base) {
                continue;
            }
            list.push((base, read_bytes(workload, op, base) / self.shards(workload, op, base)));
        }
        for &t in &operator.inputs {
            let base = workload.base(t);
            let is_kept = self.kinds[base.index()] == Kind::Carried
                && first_reader(workload, base, Phase::Forward) == Some(op)
                && !list.iter().any(|(known, _)| *known == base);
            if is_kept && goes(base) {
                list.push((base, read_bytes(workload, op, base) / self.shards(workload, op, base)));
            }
        }
        list
    }

    /// Chips that have a part each of what an operator moves. The update is counted whole: the caller divides it.
    fn shards(&self, workload: &Workload, op: OperatorId, base: TensorId) -> f64 {
        let is_update = workload.operators[op].phase == Phase::Update;
        match self.kinds[base.index()] {
            Kind::Weight if !is_update => self.part.weight_shards as f64,
            Kind::Sum if !is_update => self.part.gradient_shards as f64,
            Kind::Carried => self.part.activation_shards as f64,
            _ => 1.0,
        }
    }

    /// Moves a tensor off the chip that leaves memory free while `op` runs: the one that has the fewest bytes streamed in a step for
    /// what it leaves free, the largest of equals. `None` if nothing would help.
    pub(super) fn stream_one(&mut self, workload: &Workload, op: OperatorId) -> Option<TensorId> {
        let operator = &workload.operators[op];
        let used: Vec<(TensorId, TensorId)> =
            operator.inputs.iter().chain([&operator.output]).map(|&t| (workload.base(t), t)).collect();
        let freed = |id: TensorId| -> Option<f64> {
            let kind = self.kinds[id.index()];
            if workload.tensors[id].view.is_some() || self.streamed[id.index()] || kind == Kind::Input {
                return None;
            }
            let at = |list: &[Span]| -> f64 {
                let here = list.iter().filter(|span| (span.from..=span.to).contains(&op.index()));
                here.map(|span| span.bytes).sum()
            };
            let [resident, apart] = &self.spans[id.index()];
            let comes_already = self.comes_for(workload, op, id);
            let part = |t: TensorId| if comes_in_parts(workload, op, t) { MOST_PARTS } else { 1.0 };
            let own = used.iter().find(|(base, _)| *base == id);
            let needed = match self.subgraphs.weights(op).filter(|_| kind == Kind::Weight) {
                _ if comes_already || kind == Kind::Carried => 0.0,
                Some(together) => together.iter().find(|(base, _)| *base == id).map_or(0.0, |(_, bytes)| *bytes),
                None => own.map_or(0.0, |&(_, t)| read_bytes(workload, op, t) / part(t)),
            };
            Some(at(resident) - at(apart) - needed).filter(|freed| *freed > 0.0)
        };
        let candidates = workload.tensors.ids().filter_map(|id| Some((id, freed(id)?)));
        let dear = |(id, freed): &(TensorId, f64)| self.traffic[id.index()] / freed;
        let (chosen, _) = candidates.min_by(|a, b| dear(a).total_cmp(&dear(b)).then(b.1.total_cmp(&a.1)))?;
        self.stream(chosen);
        Some(chosen)
    }

    /// Moves off the chip what surely cannot be resident: nothing would be left for the steps themselves.
    pub(super) fn stream_what_must(&mut self, chip: &Bsp, workload: &Workload) {
        let room = chip.tensor_bytes() as f64;
        loop {
            let needs = |op: OperatorId| {
                let parts = if self.streams_in_parts(workload, op) { MOST_PARTS as u64 } else { 1 };
                self.tile_bytes(chip, workload, op, parts)
            };
            let fullest = workload.operators.ids().map(|op| (op, needs(op))).max_by(|a, b| a.1.total_cmp(&b.1));
            match fullest {
                Some((op, needed)) if needed > room && self.stream_one(workload, op).is_some() => {}
                _ => return,
            }
        }
    }
}

/// The first operator of a phase that reads a tensor.
fn first_reader(workload: &Workload, base: TensorId, phase: Phase) -> Option<OperatorId> {
    let mut list = workload.operators.iter_enumerated();
    let reads = |inputs: &[TensorId]| inputs.iter().any(|&t| workload.base(t) == base);
    list.find(|(_, operator)| operator.phase == phase && reads(&operator.inputs)).map(|(op, _)| op)
}

fn kinds(workload: &Workload, part: BspPart) -> Vec<Kind> {
    let of_role = |role: TensorRole| match role {
        TensorRole::Weight => Kind::Weight,
        TensorRole::Input => Kind::Input,
        _ => Kind::Made,
    };
    let mut kinds: Vec<Kind> = workload.tensors.iter().map(|tensor| of_role(tensor.role)).collect();
    for operator in &workload.operators {
        if operator.kind == OperatorKind::AdamUpdate {
            for &input in &operator.inputs {
                let kind = &mut kinds[workload.base(input).index()];
                *kind = if *kind == Kind::Input { Kind::State } else { *kind };
            }
        }
    }
    for operator in workload.operators.iter().filter(|operator| operator.kind == OperatorKind::Add) {
        if let Some(sum) = operator.updates {
            kinds[workload.base(sum).index()] = Kind::Sum;
        }
    }
    for (id, tensor) in workload.tensors.iter_enumerated() {
        // What enters the only layer of a phase is kept as well.
        let is_of_loop = |op: OperatorId| {
            let operator = &workload.operators[op];
            operator.repeat > 1 || (part.is_phase && operator.block.is_some())
        };
        let in_loop = |phase: Phase| first_reader(workload, id, phase).is_some_and(is_of_loop);
        let is_carried = in_loop(Phase::Forward) && in_loop(Phase::Backward);
        if kinds[id.index()] == Kind::Input && is_carried && (part.is_phase || tensor.repeat > 1) {
            kinds[id.index()] = Kind::Carried;
        } else if kinds[id.index()] == Kind::Input && tensor.repeat > 1 {
            kinds[id.index()] = Kind::Repeated;
        }
    }
    kinds
}

/// Runs of consecutive operators, from the first to the last of each.
fn runs(workload: &Workload, is_in: impl Fn(Phase) -> bool) -> Vec<(usize, usize)> {
    let mut list: Vec<(usize, usize)> = Vec::new();
    for (op, _) in workload.operators.iter_enumerated().filter(|(_, operator)| is_in(operator.phase)) {
        let at = op.index();
        match list.last_mut() {
            Some((_, to)) if *to + 1 == at => *to = at,
            _ => list.push((at, at)),
        }
    }
    list
}

/// Where every tensor lives, resident and streamed.
fn spans(workload: &Workload, kinds: &[Kind], part: BspPart) -> Vec<[Vec<Span>; 2]> {
    let ends = workload.operators.len().saturating_sub(1);
    let made = made_spans(workload, kinds);
    let of = |(id, tensor): (TensorId, &rdusim_graph::workload::Tensor)| -> [Vec<Span>; 2] {
        if tensor.view.is_some() {
            return [Vec::new(), Vec::new()];
        }
        let (bytes, all) = (tensor.stored_bytes() as f64, all_bytes(workload, id));
        let whole = |bytes: f64| vec![Span { from: 0, to: ends, bytes }];
        let during = |is_in: fn(Phase) -> bool, bytes: f64| {
            runs(workload, is_in).into_iter().map(|(from, to)| Span { from, to, bytes }).collect()
        };
        match kinds[id.index()] {
            Kind::Made => [made[id.index()].into_iter().collect(), Vec::new()],
            Kind::Weight if part.is_phase => [during(|phase| phase != Phase::Update, all), Vec::new()],
            Kind::Weight => [whole(all / part.weight_shards as f64), Vec::new()],
            Kind::Sum if part.is_phase => [during(|phase| phase == Phase::Backward, all), Vec::new()],
            Kind::Sum => [whole(all / part.gradient_shards as f64), Vec::new()],
            Kind::State => [whole(all / part.state_shards as f64), Vec::new()],
            Kind::Input | Kind::Repeated => [whole(all), Vec::new()],
            Kind::Carried => {
                let one = |phase: Phase| {
                    let reads = |inputs: &[TensorId]| inputs.iter().any(|&t| workload.base(t) == id);
                    let mut list = workload
                        .operators
                        .iter_enumerated()
                        .filter(|(_, operator)| operator.phase == phase && reads(&operator.inputs));
                    let from = list.next().map(|(op, _)| op.index())?;
                    Some(Span { from, to: list.next_back().map_or(from, |(op, _)| op.index()), bytes })
                };
                [whole(all), one(Phase::Forward).into_iter().chain(one(Phase::Backward)).collect()]
            }
        }
    };
    workload.tensors.iter_enumerated().map(of).collect()
}

/// From its producer to its last reader: where every intermediate lives.
fn made_spans(workload: &Workload, kinds: &[Kind]) -> Vec<Option<Span>> {
    let count = workload.tensors.len();
    let (mut made, mut last) = (vec![None; count], vec![0; count]);
    let mut crosses = vec![false; count];
    for (op, operator) in workload.operators.iter_enumerated() {
        let adds_up = operator.updates.is_some_and(|sum| kinds[workload.base(sum).index()] == Kind::Sum);
        for &input in &operator.inputs {
            let base = workload.base(input).index();
            // A gradient is added to its sum where it is made.
            if !adds_up {
                last[base] = op.index();
            }
            crosses[base] |=
                operator.phase == Phase::Backward && made[base].is_some_and(|(_, phase)| phase == Phase::Forward);
        }
        let base = workload.base(operator.output).index();
        made[base].get_or_insert((op.index(), operator.phase));
        last[base] = last[base].max(op.index());
    }
    let bytes = |id: TensorId| workload.tensors[id].stored_bytes() as f64;
    let ends = workload.operators.len().saturating_sub(1);
    let mut list = vec![None; count];
    for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
        let Some((from, _)) = made[id.index()].filter(|_| kinds[id.index()] == Kind::Made) else { continue };
        let to = if tensor.role == TensorRole::Output { ends } else { last[id.index()] };
        let times = if crosses[id.index()] { tensor.repeat as f64 } else { 1.0 };
        list[id.index()] = Some(Span { from, to, bytes: bytes(id) * times });
    }
    // An elementwise operator writes its result over an operand that nobody reads later.
    for (op, operator) in workload.operators.iter_enumerated().filter(|(_, op)| vertex::is_in_place(op.kind)) {
        let at = op.index();
        let output = workload.base(operator.output);
        let dies = |t: TensorId| {
            let base = workload.base(t);
            let ends_here = list[base.index()].is_some_and(|span| span.to == at) && !crosses[base.index()];
            ends_here && base != output && bytes(base) >= bytes(output)
        };
        if operator.inputs.iter().any(|&t| dies(t))
            && let Some(Span { from, to, .. }) = &mut list[output.index()]
            && *from == at
            && *to > at
        {
            *from = at + 1;
        }
    }
    list
}

/// Whether an operator can work on a part of a tensor at a time: a product on columns of its weight, elementwise operators on
/// any part.
fn comes_in_parts(workload: &Workload, op: OperatorId, tensor: TensorId) -> bool {
    let operator = &workload.operators[op];
    match operator.kind {
        OperatorKind::Gemm => operator.inputs.get(1) == Some(&tensor) && workload.tensors[tensor].mask.is_none(),
        kind => vertex::is_in_place(kind),
    }
}

/// Bytes of a streamed tensor that an operator needs: of a table, the rows that are looked up.
fn read_bytes(workload: &Workload, op: OperatorId, tensor: TensorId) -> f64 {
    let operator = &workload.operators[op];
    let is_table = operator.kind == OperatorKind::Embedding
        && workload.tensors[workload.base(tensor)].role == TensorRole::Weight
        && workload.base(tensor) != workload.base(operator.output);
    let read = if is_table { operator.output } else { tensor };
    workload.tensors[read].stored_bytes() as f64
}

/// Bytes of a tensor, every repetition's.
pub(super) fn all_bytes(workload: &Workload, tensor: TensorId) -> f64 {
    workload.tensors[tensor].stored_bytes() as f64 * workload.tensors[tensor].repeat as f64
}
