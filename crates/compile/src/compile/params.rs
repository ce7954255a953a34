//! The tuning constants of the compiler, in one type, so that a study can vary them.
//!
//! Each field says what it bounds, its unit (a share or a ratio has none), and what it does. Unless a field says otherwise,
//! its value was chosen by hand on the shipped workloads and on the development seeds of `examples/search.rs` and
//! `examples/placement.rs`. What follows from the hardware or from the data structures is no parameter and stands where
//! it is used.

/// All tuning constants of the compiler.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Params {
    /// Partition of the graph into sections.
    pub partition: PartitionParams,
    /// Evaluation of the mappings of a section: trial budgets, and when a mapping is good enough.
    pub evaluation: EvaluationParams,
    /// Loop nests that are tried.
    pub nests: NestsParams,
    /// Mappings of a stage that are tried.
    pub mapping: MappingParams,
    /// The analytic estimate that mappings are ranked by.
    pub estimate: EstimateParams,
    /// Placement of PCUs and buffers.
    pub placement: PlacementParams,
    /// Routing by negotiated congestion (`PathFinder`, `McMurchie` and Ebeling, FPGA 1995).
    pub routing: RoutingParams,
    /// Prefetch of the next section's weights.
    pub prefetch: PrefetchParams,
    /// Mappings applied to smaller sizes.
    pub retarget: RetargetParams,
}

/// Partition of the graph into sections.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PartitionParams {
    /// Equivalence classes of sections times PCUs up to which every section is measured, not only those that estimates
    /// prefer.
    pub all_measured_pcus: u64,
    /// Share of its estimate that measuring a section may leave, at best: estimates of crowded links are up to 10 % too long.
    pub optimistic_estimate: f64,
    /// Share of its score at low effort that planning a section at full effort is taken to leave at best.
    pub refined_score: f64,
    /// Operators of a run that is a candidate from the start, at most: longer ones are joined from neighbours of the best partition.
    pub most_listed: usize,
    /// Operators of a run, at most, counting row reductions that get sections of their own behind it.
    pub most_with_row_reductions: usize,
    /// Operators of a repeated block that is tried as one section, at most.
    pub most_in_a_block: usize,
    /// Partitions whose sections in a row are measured, at most.
    pub most_linked: usize,
}

/// Evaluation of the mappings of a section: trial budgets, and when a mapping is good enough.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EvaluationParams {
    /// Measured over estimated cycles up to which a mapping is as expected: good enough at low effort.
    pub as_estimated: f64,
    /// Score over the best score up to which mappings are placed and routed in several ways, on chips of few PCUs.
    pub near_best: f64,
    /// Mappings placed and routed in several ways, at most.
    pub most_final: usize,
    /// Parts of the work that is left of which a run takes one to show how much all of it takes.
    pub trial_part: u64,
    /// Measured over estimated cycles up to which links are not taken to slow a mapping down: it is not routed once more.
    pub slowed_by_routes: f64,
    /// Share of its time that a mapping with less full links may be slower.
    pub as_fast: f64,
    /// Optimistic factor: a full-effort search is assumed to reach at best this share of the estimate, or of the low-
    /// effort measurement.
    pub optimistic_factor: f64,
    /// Share of the time of a partition that a section may gain, by its floor, for which it is given the patience of the effort.
    pub worth_patience: f64,
    /// Times over that a section that may gain more is given it, at most.
    pub most_patience: f64,
    /// Share of the time by which a mapping must be faster to count as a gain.
    pub worth_a_step: f64,
    /// PCUs up to which a chip has few.
    pub few_pcus: u64,
    /// Limits at low effort.
    pub quick: SectionLimits,
    /// Limits at full effort.
    pub normal: SectionLimits,
    /// Limits at thorough effort.
    pub thorough: SectionLimits,
    /// What working out, placing and routing a mapping takes, in steps of the event engine: a millisecond or two on the smallest chip, ...
    pub layout_steps: u64,
    /// ... and more for each PCU: about 40 ms on the 1,040 PCUs of an SN40L, where a step takes 15 ns.
    pub layout_steps_per_pcu: u64,
    /// Mappings that are placed and measured together.
    pub batch: usize,
    /// Mappings that are run on an ideal network together.
    pub ideal_batch: usize,
    /// Work of measuring a mapping over that of its run on an ideal network, about: transfers over links take most of it (8 to 27
    /// times on SN40L). One that takes more than all the work there is comes last.
    pub work_over_ideal: u64,
    /// Runs on an ideal network that are set up in the time in which one mapping is placed and routed.
    pub setups_per_layout: u64,
    /// Standard deviation of the Gaussian by which mappings are similar, in octaves of tile sizes and numbers of lockstep groups.
    pub similar_octaves: f64,
    /// Weight of the assumption that a mapping is not off, beside 1 of a mapping like it.
    pub weight_of_no_change: f64,
    /// Expected over the best score from which on a mapping is neither run on an ideal network nor placed: estimates of mappings like
    /// others that were run are off by 2 to 7 % (one standard deviation). With 1.25 searches take 10 to 20 % longer and find the same.
    pub most_expected: f64,
    /// PCUs up to which allocations of fewer PCUs are tried in finer steps.
    pub handful_of_pcus: u64,
    /// Sixteenths of the PCUs that allocations next to a mapping are tried with.
    pub pcu_sixteenths: [u64; 2],
    /// The same on a handful of PCUs.
    pub pcu_sixteenths_of_a_handful: [u64; 3],
}

/// When the evaluation of a section's mappings ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SectionLimits {
    /// Share of the section's floor that the best may lie above it.
    pub gap: f64,
    /// Work of placing, routing and measuring, in steps of the event engine ([`rdusim_cost::cost::Limits::work`], about 15 ns each).
    pub work: u64,
    /// The same without a gain, after which none is tried for.
    pub patience: u64,
}

/// How far the walk over the nests of a section goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WalkLimits {
    /// Nests that are priced, about.
    pub priced: usize,
    /// Nests that are priced as long as none fits, about.
    pub priced_until_one_fits: usize,
    /// Of those, the best that get eager stages and splits of K, at most.
    pub finished: usize,
}

/// Loop nests that are tried.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NestsParams {
    /// Where a section of a large graph is planned before it is known to be wanted.
    pub outlined: WalkLimits,
    /// At low effort.
    pub quick: WalkLimits,
    /// At full effort.
    pub normal: WalkLimits,
    /// At thorough effort.
    pub thorough: WalkLimits,
    /// Nests that may be priced in the time that dealing the tiles of a mask takes for one more cut.
    pub nests_per_masked_cut: usize,
    /// Score over the best score of a section up to which choices are kept for evaluation.
    pub near_best: f64,
    /// Banks for every PCU from which on an allocation that does not fit is not retried on fewer PCUs.
    pub ample_banks_per_pcu: u64,
}

/// Mappings of a stage that are tried.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MappingParams {
    /// Work of the busiest slice of K of a sparse weight over an even share, as assumed before it is worked out.
    pub uneven_k_slices: f64,
    /// Multicast widths that are tried for sparse weights, beside all columns and those of a block.
    pub multicast_widths: [u64; 3],
    /// The same for gathering.
    pub gather_multicast_widths: [u64; 3],
    /// Block columns under one multicast beyond which their union is taken as dense while searching.
    pub most_union_blocks: u64,
    /// Slices of K that are tried, where a slice is no shorter than its partial sums take.
    pub k_splits: [u64; 7],
    /// Rows of a section up to which row tiles need not be multiples of what a PCU takes at once.
    pub few_rows: u64,
    /// Share by which a split of K must be faster than as many PCUs side by side.
    pub worth_splitting_k: f64,
    /// Share of the slowest stage's time that filling the pipeline takes at least, for PCUs to be given to it.
    pub worth_filling: f64,
    /// Shares of the PCUs that are kept from balancing the stages, and given to those that delay the first row tile.
    pub kept_for_filling: [f64; 3],
    /// Part of the slowest stage's cycles that is tried for stages whose work grows along a sequence: they are the slowest at its
    /// end alone.
    pub growing_part: f64,
    /// Column tiles that load imbalance is estimated from.
    pub sampled_column_tiles: usize,
    /// Times over that the address generators of a stream cover the rate of its tier at first: generators that share a
    /// slot wait for each other.
    pub generator_cover: u64,
    /// Slots of the operand buffers of sparse stages, at most, where memory is to spare: lockstep groups then wait less
    /// for each other.
    pub deepest_operand: u64,
    /// Row tiles over which lockstep groups of the gradient of a sparse weight are assumed to run apart: slots of their operands.
    pub slots_apart: u64,
    /// Share of the banks that deeper buffers may fill.
    pub filled_banks: f64,
    /// Slots that a buffer is given to hide the latency of memory, at most.
    pub most_latency_slots: u64,
}

/// The analytic estimate that mappings are ranked by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EstimateParams {
    /// Share of a section's time in which its links should be able to move all they move, if its stages need less.
    pub links_busy: f64,
    /// Share of the shorter of computing and moving that is taken not to overlap with the longer.
    pub unhidden: f64,
    /// Price of an off-chip byte as a share of the time it takes: of mappings about as fast, the one that moves less is
    /// taken.
    pub byte_price: f64,
    /// Links that a partial sum crosses between two slices of K.
    pub partial_sum_links: f64,
    /// Links from the PMUs of an operand to the first PCU that reads it, where places are not known: about what placed sections of
    /// the FFN have.
    pub typical_distance: f64,
    /// Mean over fullest load of the links around a stage (measured on routed sections: the fullest carries three to
    /// five times the mean).
    pub routable: f64,
}

/// Placement of PCUs and buffers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacementParams {
    /// Share of a port's rate that placement fills before it takes another PMU.
    pub port_full: f64,
    /// Hops that avoiding a port with twice its rate is worth.
    pub overload_hops: f64,
    /// Hops that avoiding a port is worth on which two buffers would always be served at the same time.
    pub shared_port_hops: f64,
    /// Seed of the annealing walk.
    pub anneal_seed: u64,
    /// Temperatures of a walk.
    pub temperatures: u32,
    /// Moves tried for each unit at each temperature.
    pub moves_per_unit: usize,
    /// First temperature over the mean change of a random move.
    pub warmest: f64,
    /// Last over first temperature.
    pub cooling: f64,
    /// Share of accepted moves that the range of moves is adapted to, as in VPR (Betz and Rose, FPL 1997).
    pub accepted_moves: f64,
}

/// Routing by negotiated congestion (`PathFinder`, `McMurchie` and Ebeling, FPGA 1995).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoutingParams {
    /// Share of a flow's burst rate beyond its mean that links are kept free for.
    pub burst_weight: f64,
    /// Rounds of negotiation of a mapping that is tried, at most.
    pub trial_rounds: u32,
    /// Rounds of negotiation at final effort, at most.
    pub rounds: u32,
    /// Share of a link's rate beyond which flows look for another route. Links that are far from full already make operand
    /// feeds wait for bursts: with 0.9 in place of 0.45, the sparse GPT-13B block on SN10 took 7 % longer.
    pub full_link: f64,
    /// The same where shorter routes over fuller links are tried.
    pub fuller_link: f64,
    /// Overuse over the least so far up to which a round of negotiation is progress.
    pub progress: f64,
    /// Rounds without progress after which negotiation ends.
    pub patience: u32,
    /// Hops farther than the nearest that a path may leave a tree.
    pub detour_hops: u32,
    /// Rows or columns beside the box around both ends that a path may use; half of that in a trial.
    pub margin: u32,
    /// Share of a link's rate below which a flow is not rerouted.
    pub light_flow: f64,
}

/// Prefetch of the next section's weights.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PrefetchParams {
    /// Share of a tier's idle time that prefetches may fill.
    pub idle_share: f64,
    /// Share of a section's time that its prefetches must gain.
    pub worth: f64,
    /// Share of the run's time that could be gained by more prefetches before a section is mapped once more in half of the
    /// banks: that takes as long as to search for one more section.
    pub worth_room: f64,
}

/// Mappings applied to smaller sizes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RetargetParams {
    /// Row tiles of a section, or of a sequence in it, at most: the first, those in between, and a short last one.
    pub most_row_tiles: u64,
    /// Row blocks, at most.
    pub most_blocks: u64,
}

/// The values in use.
pub(super) const PARAMS: Params = Params {
    partition: PartitionParams {
        all_measured_pcus: 256,
        optimistic_estimate: 0.85,
        refined_score: 0.95,
        most_listed: 12,
        most_with_row_reductions: 18,
        most_in_a_block: 24,
        most_linked: 24,
    },
    evaluation: EvaluationParams {
        as_estimated: 1.03,
        near_best: 1.15,
        most_final: 6,
        trial_part: 8,
        slowed_by_routes: 1.01,
        as_fast: 0.0002,
        worth_patience: 0.0125,
        most_patience: 2.0,
        worth_a_step: 0.002,
        optimistic_factor: 0.96,
        few_pcus: 128,
        quick: SectionLimits { gap: 0.05, work: 24_000_000, patience: 8_000_000 },
        normal: SectionLimits { gap: 0.002, work: 64_000_000, patience: 16_000_000 },
        thorough: SectionLimits { gap: 0.001, work: 256_000_000, patience: 64_000_000 },
        layout_steps: 150_000,
        layout_steps_per_pcu: 2_500,
        batch: 2,
        ideal_batch: 4,
        work_over_ideal: 16,
        setups_per_layout: 64,
        similar_octaves: 0.7,
        weight_of_no_change: 0.2,
        most_expected: 1.05,
        handful_of_pcus: 16,
        pcu_sixteenths: [13, 10],
        pcu_sixteenths_of_a_handful: [12, 8, 4],
    },
    nests: NestsParams {
        outlined: WalkLimits { priced: 24, priced_until_one_fits: 96, finished: 2 },
        quick: WalkLimits { priced: 96, priced_until_one_fits: 768, finished: 16 },
        normal: WalkLimits { priced: 192, priced_until_one_fits: 768, finished: 192 },
        thorough: WalkLimits { priced: 768, priced_until_one_fits: 768, finished: 768 },
        nests_per_masked_cut: 5,
        near_best: 1.5,
        ample_banks_per_pcu: 8,
    },
    mapping: MappingParams {
        multicast_widths: [1, 2, 4],
        gather_multicast_widths: [1, 2, 4],
        most_union_blocks: 16,
        k_splits: [2, 3, 4, 6, 8, 12, 16],
        uneven_k_slices: 1.05,
        few_rows: 64,
        worth_splitting_k: 0.03,
        worth_filling: 0.01,
        kept_for_filling: [0.0, 0.01, 0.03],
        growing_part: 0.7,
        sampled_column_tiles: 4,
        generator_cover: 2,
        deepest_operand: 4,
        slots_apart: 2,
        filled_banks: 0.9,
        most_latency_slots: 64,
    },
    estimate: EstimateParams {
        links_busy: 0.6,
        unhidden: 0.03,
        byte_price: 0.1,
        partial_sum_links: 4.0,
        typical_distance: 3.0,
        routable: 0.3,
    },
    placement: PlacementParams {
        port_full: 0.95,
        overload_hops: 2000.0,
        shared_port_hops: 16.0,
        anneal_seed: 1,
        temperatures: 8,
        moves_per_unit: 8,
        warmest: 0.001,
        cooling: 0.002,
        accepted_moves: 0.44,
    },
    routing: RoutingParams {
        burst_weight: 0.5,
        trial_rounds: 1,
        rounds: 16,
        full_link: 0.45,
        fuller_link: 0.9,
        progress: 0.95,
        patience: 2,
        detour_hops: 4,
        margin: 4,
        light_flow: 0.03,
    },
    prefetch: PrefetchParams { idle_share: 0.8, worth: 0.001, worth_room: 0.01 },
    retarget: RetargetParams { most_row_tiles: 4, most_blocks: 2 },
};
