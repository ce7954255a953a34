//! What would make a step fit: changes of its decomposition that the memory of its chips and of their hosts has room for.

use super::choices::{Offload, Optimizer};
use super::memory::{of_host, of_job};
use super::on_chips::member;
use super::parallel::{Job, Recompute, Schedule};
use super::system::{StackKind, System};

/// Most remedies that are told.
const MOST: usize = 6;
/// Most keys that are changed together on the same chips.
const MOST_KEYS: u32 = 4;
/// Most sets of changes of as many keys that are told.
const MOST_SETS: usize = 3;

/// A change of a key of `--parallel`, or of an option.
struct Change {
    /// As it is given, with its value.
    name: String,
    /// What it does, for people.
    what: &'static str,
    apply: Box<dyn Fn(&mut Job)>,
}

impl Change {
    fn new(name: impl Into<String>, what: &'static str, apply: impl Fn(&mut Job) + 'static) -> Self {
        Self { name: name.into(), what, apply: Box::new(apply) }
    }
}

/// The chips and hosts that a step has to fit.
struct Room<'s> {
    system: &'s System,
    stack: StackKind,
}

impl Room<'_> {
    /// What the job with these changes needs of a chip, if it can be run and fits.
    fn gib(&self, job: &Job, changes: &[&Change]) -> Option<f64> {
        let mut job = job.clone();
        for change in changes {
            (change.apply)(&mut job);
        }
        if job.check().is_err()
            || member(&self.system.chip).check_keys(&job).is_err()
            || job.parallel.chips() > self.system.most_chips()
        {
            return None;
        }
        let peak = of_job(&job, self.stack).peak();
        let on_host = of_host(self.system, &job, self.stack);
        let fits = peak <= self.system.chip_memory_bytes() && on_host <= self.system.host.memory_bytes;
        fits.then_some(peak as f64 / f64::from(1 << 30))
    }

    /// Adds a change to the list if it is enough.
    fn consider(&self, list: &mut Vec<String>, job: &Job, change: &Change) {
        let what = if change.what.is_empty() { String::new() } else { format!(" ({})", change.what) };
        let gib = self.gib(job, &[change]);
        list.extend(gib.map(|gib| format!("{}{what}: {gib:.1} GiB", change.name)));
    }
}

/// Changes that would make a step fit, those that cost least first: single ones on the same chips, or, where none is enough, the fewest
/// together; then more chips, or both.
pub fn remedies(system: &System, job: &Job, stack: StackKind) -> Vec<String> {
    let room = Room { system, stack };
    let mut list = Vec::new();
    let [state, rest] = zeros(job);
    let is_tiles = system.chip.bsp().is_some();
    state.iter().chain(&on_chip(job)).for_each(|change| room.consider(&mut list, job, change));
    // With the hosts no more than is needed.
    let mut enough: Vec<Offload> = Vec::new();
    for (offload, change) in offloads(job, is_tiles) {
        let found = list.len();
        if !enough.iter().any(|less| offload.includes(*less)) {
            room.consider(&mut list, job, &change);
            enough.extend((list.len() > found).then_some(offload));
        }
    }
    rest.iter().chain(&smaller(job)).for_each(|change| room.consider(&mut list, job, change));
    if list.is_empty() {
        list = fewest(&room, job);
    }
    for factor in [2, 4, 8] {
        let p = &job.parallel;
        let stages = Change::new(format!("pp={} ({factor} times the chips)", p.pp * factor), "", move |job| {
            job.parallel.pp *= factor;
        });
        let ranks = Change::new(format!("tp={} ({factor} times the chips)", p.tp * factor), "", move |job| {
            job.parallel.tp *= factor;
        });
        for change in [stages, ranks] {
            room.consider(&mut list, job, &change);
        }
    }
    if list.is_empty() {
        list = with_more_stages(&room, job);
    }
    list.truncate(MOST);
    list
}

/// What replicas may divide: the optimiser's state, and more than that.
fn zeros(job: &Job) -> [Vec<Change>; 2] {
    let p = &job.parallel;
    let zero = |stage: u64, what: &'static str| {
        let is_less = p.replicas() > 1 && p.zero < stage;
        is_less.then(|| Change::new(format!("zero={stage}"), what, move |job| job.parallel.zero = stage))
    };
    let state = zero(1, "the optimiser's state over the replicas");
    let rest = [zero(2, "gradients too over the replicas"), zero(3, "weights too over the replicas")];
    [state.into_iter().collect(), rest.into_iter().flatten().collect()]
}

/// What keeps less on a chip without moving anything.
fn on_chip(job: &Job) -> Vec<Change> {
    let p = &job.parallel;
    let mut list = Vec::new();
    if !p.sp && p.tp > 1 {
        list.push(Change::new("sp=1", "norms and dropout along the sequence", |job| job.parallel.sp = true));
    }
    if p.schedule == Schedule::GPipe {
        let schedule = Schedule::OneForwardOneBackward;
        let apply = move |job: &mut Job| job.parallel.schedule = schedule;
        list.push(Change::new("schedule=1f1b", "fewer micro-batches held", apply));
    }
    let kinds = [Recompute::Selective, Recompute::Full].into_iter();
    let more = kinds.filter(|kind| match p.recompute {
        Recompute::None => true,
        Recompute::Selective => *kind == Recompute::Full,
        Recompute::Full => false,
    });
    list.extend(more.map(|kind| {
        let name = format!("recompute={}", kind.name());
        Change::new(name, "of activations", move |job| job.parallel.recompute = kind)
    }));
    list
}

/// What may lie with the hosts beyond what does, the optimiser's state first. Chips of tiles stream other things themselves.
fn offloads(job: &Job, is_tiles: bool) -> Vec<(Offload, Change)> {
    let now = job.parallel.offload;
    let kinds = ["optimizer", "activations", "optimizer+activations", "weights", "optimizer+weights"];
    let kinds = kinds.into_iter().chain(["activations+weights", "optimizer+activations+weights"]);
    let more = kinds.filter_map(Offload::read).filter(|of| *of != now && of.includes(now));
    let more = more.filter(|of| !is_tiles || !of.moves_in_passes());
    more.map(|offload| {
        let apply = move |job: &mut Job| job.parallel.offload = offload;
        (offload, Change::new(format!("offload={}", offload.name()), "to the memory of the host", apply))
    })
    .collect()
}

/// Smaller batches of phases, and smaller micro-batches.
fn smaller(job: &Job) -> Vec<Change> {
    let mut list = Vec::new();
    let mut batch = job.batch / 2;
    while job.parallel.tiled.is_phased() && batch >= job.parallel.dp * job.micro_batch {
        list.push(Change::new(format!("--batch {batch}"), "fewer micro-batches kept", move |job| job.batch = batch));
        batch /= 2;
    }
    let mut micro = job.micro_batch / 2;
    while micro >= 1 {
        list.push(Change::new(format!("--micro-batch {micro}"), "", move |job| job.micro_batch = micro));
        micro /= 2;
    }
    list
}

/// The fewest keys that make a step fit on the same chips when they change together: of every set of as many keys the values that cost
/// least.
fn fewest(room: &Room<'_>, job: &Job) -> Vec<String> {
    let is_gpu = room.system.chip.gpu().is_some();
    let [state, mut rest] = zeros(job);
    let zero: Vec<Change> = state.into_iter().chain(rest.pop()).collect();
    let (sp, others): (Vec<Change>, Vec<Change>) =
        on_chip(job).into_iter().partition(|change| change.name.starts_with("sp"));
    let (recompute, schedule): (Vec<Change>, Vec<Change>) =
        others.into_iter().partition(|change| change.name.starts_with("recompute"));
    let offload = offloads(job, room.system.chip.bsp().is_some()).into_iter().map(|(_, change)| change);
    let micro = smaller(job).pop().filter(|_| job.micro_batch > 1);
    let with_bytes = (is_gpu && job.parallel.optimizer == Optimizer::Adam).then(|| {
        let name = format!("optimizer={}", Optimizer::Adam8bit.name());
        Change::new(name, "", |job| job.parallel.optimizer = Optimizer::Adam8bit)
    });
    let keys: Vec<Vec<Change>> = vec![
        zero,
        sp,
        schedule,
        recompute,
        offload.collect(),
        micro.into_iter().collect(),
        with_bytes.into_iter().collect(),
    ];
    for count in 1..=MOST_KEYS {
        let sets = (1_u32..1 << keys.len()).filter(|set| set.count_ones() == count);
        let found = sets.filter_map(|set| {
            let chosen: Vec<&[Change]> =
                keys.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, values)| &values[..]).collect();
            let (changes, gib) = cheapest(room, job, &chosen, &mut Vec::new())?;
            Some(format!("{} together on the same chips: {gib:.1} GiB", changes.join(", ")))
        });
        let found: Vec<String> = found.take(MOST_SETS).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// Of each key a value, the first that fit, and what a chip then needs.
fn cheapest<'c>(
    room: &Room<'_>,
    job: &Job,
    keys: &[&'c [Change]],
    chosen: &mut Vec<&'c Change>,
) -> Option<(Vec<String>, f64)> {
    let Some((first, rest)) = keys.split_first() else {
        let gib = room.gib(job, chosen)?;
        return Some((chosen.iter().map(|change| change.name.clone()).collect(), gib));
    };
    for change in *first {
        chosen.push(change);
        let found = cheapest(room, job, rest, chosen);
        chosen.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Several changes at once and more stages, with the optimiser's state divided over the replicas, else with all of it.
fn with_more_stages(room: &Room<'_>, job: &Job) -> Vec<String> {
    let p = &job.parallel;
    let mut list = Vec::new();
    for stage in [1, 3] {
        if !list.is_empty() || p.zero > stage {
            continue;
        }
        let all = move |job: &mut Job| {
            let zero = if job.parallel.replicas() > 1 { stage } else { job.parallel.zero };
            (job.parallel.zero, job.parallel.recompute) = (zero, Recompute::Full);
            (job.micro_batch, job.parallel.sp) = (1, job.parallel.tp > 1);
        };
        let changed = [
            (p.replicas() > 1 && p.zero != stage, format!("zero={stage}")),
            (p.tp > 1 && !p.sp, "sp=1".to_owned()),
            (p.recompute != Recompute::Full, format!("recompute={}", Recompute::Full.name())),
            (job.micro_batch > 1, "--micro-batch 1".to_owned()),
        ];
        let changed: Vec<String> =
            changed.into_iter().filter_map(|(is_changed, name)| is_changed.then_some(name)).collect();
        let together = if changed.len() > 1 { " together" } else { "" };
        if !changed.is_empty() {
            let name = format!("{}{together}", changed.join(", "));
            room.consider(&mut list, job, &Change::new(name, "", all));
        }
        for factor in [2, 4, 8, 16, 32, 64] {
            let more = move |job: &mut Job| {
                all(job);
                job.parallel.pp *= factor;
            };
            let stages = [changed.clone(), vec![format!("pp={} ({factor} times the chips)", p.pp * factor)]].concat();
            let name = format!("{} together", stages.join(", "));
            room.consider(&mut list, job, &Change::new(name, "", more));
        }
    }
    list
}
