//! What a change of the active set costs under max-min fair sharing: `cargo bench --bench fluid`.

use divan::Bencher;
use divan::counter::ItemsCount;
use rdusim::fluid::{ActivityId, Fluid, Rate, ResourceId, Usage};
use rdusim::index::Id;
use rdusim_testing::replay::{Recording, Replay};

fn main() {
    divan::main();
}

/// A random system in which every activity starts again when it completes.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    resources: u64,
    activities: u64,
    /// Resources that each activity uses.
    uses: u64,
    /// Capacity of a resource over what its users would take together at their caps, in percent.
    headroom: u64,
}

/// The contended links and ports of a large fused section with its transfer groups, mostly paced by their units and never
/// paced at all; and the links of a pod with the steps of its collectives.
const CASES: [Case; 3] = [
    Case { name: "section", resources: 180, activities: 80, uses: 16, headroom: 130 },
    Case { name: "crowded section", resources: 180, activities: 80, uses: 16, headroom: 70 },
    Case { name: "pod", resources: 2_000, activities: 1_000, uses: 4, headroom: 70 },
];

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Amount of an activity, and the ticks that it takes at least.
type Job = (u64, u64);

impl Case {
    /// The system with all activities under way.
    fn build(self) -> (Fluid, Vec<(ActivityId, Job)>) {
        let mut random = Random(1);
        let uses: Vec<Vec<(u64, u32)>> = (0..self.activities)
            .map(|_| (0..self.uses).map(|_| (random.below(self.resources), random.below(4) as u32 + 1)).collect())
            .collect();
        // At its cap an activity moves about 64 a tick.
        let mut demand = vec![1u64; self.resources as usize];
        uses.iter().flatten().for_each(|&(resource, weight)| demand[resource as usize] += 64 * u64::from(weight));
        let mut fluid = Fluid::default();
        let capacity = |demand: &u64| (demand * self.headroom / 100) as u32;
        let resources: Vec<ResourceId> = demand.iter().map(|demand| fluid.add_resource(capacity(demand))).collect();
        let mut jobs = Vec::new();
        for uses in uses {
            let usage = |(resource, weight): (u64, u32)| Usage { resource: resources[resource as usize], weight };
            let usages: Vec<Usage> = uses.into_iter().map(usage).collect();
            let activity = fluid.add_activity(&usages).expect("the resources exist");
            let ticks = 1_000 + random.below(1_000);
            jobs.push((activity, (64 * ticks, ticks)));
        }
        for &(activity, job) in &jobs {
            start(&mut fluid, activity, job);
        }
        (fluid, jobs)
    }
}

fn start(fluid: &mut Fluid, activity: ActivityId, (amount, ticks): Job) {
    fluid.start(activity, amount, Some(Rate::to_finish(amount, ticks))).expect("it is not active");
}

/// Completions, each followed by a start: two changes in one solve.
#[divan::bench(args = CASES, sample_count = 20, sample_size = 1)]
fn completions(bencher: Bencher, case: Case) {
    const COMPLETIONS: u64 = 500;
    bencher.counter(ItemsCount::new(COMPLETIONS)).with_inputs(|| case.build()).bench_values(|(mut fluid, jobs)| {
        let mut completed = Vec::new();
        let mut count = 0;
        while let Some(next) = fluid.next_completion().filter(|_| count < COMPLETIONS) {
            fluid.advance(next.at, &mut completed);
            for end in completed.drain(..) {
                count += 1;
                let (_, job) = jobs[end.activity.index()];
                start(&mut fluid, end.activity, job);
            }
        }
        fluid.now()
    });
}

/// The whole system at once, from nothing.
#[divan::bench(args = CASES, sample_count = 20, sample_size = 1)]
fn whole(bencher: Bencher, case: Case) {
    bencher.with_inputs(|| case.build()).bench_values(|(mut fluid, _)| fluid.next_completion());
}

/// Firings of lockstep groups in a recorded section (`examples/fluid`), with links and ports at a percentage of their rate.
#[divan::bench(args = [100, 80, 60, 55, 50], sample_count = 20, sample_size = 1)]
fn recorded(bencher: Bencher, percent: u64) {
    const PERIODS: u64 = 12;
    let recording = Recording::read(include_str!("../examples/fluid/sn40l-sparse.txt")).expect("a recording");
    bencher
        .counter(ItemsCount::new(PERIODS * recording.firings))
        .with_inputs(|| Replay::new(&recording, percent))
        .bench_local_values(|mut replay| {
            for period in 0..PERIODS {
                replay.run(period, |_, _| (), |_| ());
            }
            replay.fluid.now()
        });
}
