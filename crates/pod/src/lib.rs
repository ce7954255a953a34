//! Pods: many chips, the links between them, and training on them.
//!
//! A stage's time is the chip's own simulation of its part of the model, once for each distinct part; the schedule is then
//! simulated as events on stages and links. A time is a function of the system file, the chip file and the job alone.
//! `docs/pods.md` has the rules of overlap.

mod chakra;
mod choices;
mod chunks;
mod collective;
mod context;
mod dragonfly;
mod ends;
mod energy;
mod engine;
mod execution_trace;
mod experts;
mod goodput;
mod graph;
mod kernels;
mod memory;
mod network;
mod offload;
mod on_chips;
mod on_gpu;
mod on_kernels;
mod on_rdu;
mod optimizer;
mod parallel;
mod pass;
mod phased;
mod remedies;
mod schedule;
mod search;
mod serving;
mod sharded;
mod spec;
mod stage;
mod stragglers;
mod swapped;
mod system;
mod tensor_comm;
mod tiled;
mod tiles;
mod training;
mod unit_calls;

pub use choices::{Capacity, Context, Gradients, Mixture, Offload, Optimizer};
pub use collective::{Call, CollectiveKind, Phase, Planned, least_bytes, phases, plan};
pub use dragonfly::Dragonfly;
pub use engine::{
    Actor, Collective, Passes, Plan, Reduction, ReductionPhase, Simulated, Span, SpanKind, Spent, Stream, Unit,
    simulate,
};
pub use execution_trace::{ExecutionTraces, Operation, TraceNode};
pub use experts::ExpertUse;
pub use goodput::{Failures, Goodput};
pub use memory::{Memory, of_host, of_job};
pub use network::{Demand, Flow, Link, Network, Traffic};
pub use on_chips::{check_served_layers, check_trained};
pub use parallel::{Job, Parallel, Recompute, Schedule};
pub use remedies::remedies;
pub use schedule::{PassKind, Work, in_chunks, most_held, order};
pub use search::{Candidate, Counts, Found, Objective, Search, search};
pub use serving::{
    Answer, Arrivals, Chunk, Cost, Divided, Division, DraftUse, Drafted, ExpertRanks, Fleet, FleetAsked,
    FleetObjective, FleetSearch, Grid, Limits, Load, LoopRequests, MOST_DRAFTED, Mixed, Operated, PREFILL_TOKENS,
    Parameters, Policy, Price, Range, Replayed, Request, RequestSize, Round, Sample, Served, ServedBlocks, ServedPhase,
    Server, Service, ServingMemory, ServingTime, Speculation, Spread, Statistic, StepParts, Streamed, Target, Targets,
    TierUse, Trace, Transfer, WorkerPool, check_served, divided, drawn, fleet, memory as serving_memory, most_users,
    read_trace, replay, serve, serving_remedies, stream,
};
pub use spec::{dgx_a100, is_system, open, sn40l_16};
pub use stragglers::{Slowest, Stragglers};
pub use system::{Algorithm, Host, Level, Protocol, Scheduler, Sharding, Stack, StackKind, System, Topology};
pub use tiled::{StageBlocks, Tiled};
pub use training::{Detail, StepTime, TrainingStep, step};
