//! A system: a chip, the levels of topology above it, and what its software takes.

use std::path::PathBuf;

use super::dragonfly::Dragonfly;
use rdusim_graph::arch::{AnyChip, Orchestration};

/// Most chips that a system is grown to.
const MOST_GROWN: u64 = 1 << 20;

/// How the members of a level are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// Every member has links into a switch that blocks nobody.
    Switch,
    /// A link from each member to each other.
    FullyConnected,
    /// Each member has two neighbours.
    Ring,
    /// Rings along each dimension; the members are numbered with the first dimension fastest.
    Torus(Vec<u64>),
    /// Groups of routers, joined pairwise.
    Dragonfly(Dragonfly),
}

impl Topology {
    /// Names in system files.
    pub const NAMES: [&'static str; 5] = ["switch", "fully_connected", "ring", "torus", "dragonfly"];

    /// The name in system files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Switch => Self::NAMES[0],
            Self::FullyConnected => Self::NAMES[1],
            Self::Ring => Self::NAMES[2],
            Self::Torus(_) => Self::NAMES[3],
            Self::Dragonfly(_) => Self::NAMES[4],
        }
    }
}

/// One level: its members are chips, or what the level below makes of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Name, for example `node`.
    pub name: String,
    /// Members; of the highest level, the most there can be.
    pub members: u64,
    /// How they are joined.
    pub topology: Topology,
    /// Links of one member.
    pub links: u64,
    /// 10^9 bytes a second of a link, each direction.
    pub link_gb_per_s: f64,
    /// Share of that rate that long messages sustain.
    pub sustained_share: f64,
    /// Microseconds of a message beside its bytes.
    pub message_us: f64,
}

impl Level {
    /// 10^9 bytes a second that a member sends, and as many that it receives, sustained.
    pub fn member_gb_per_s(&self) -> f64 {
        self.link_gb_per_s * self.links as f64 * self.sustained_share
    }
}

/// How a collective goes over the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Parts go around a ring.
    Ring,
    /// Up a binary tree and down again.
    Tree,
    /// Two binary trees, each for half of the data, in which no member is an inner node of both (Sanders, Speck and
    /// Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*, 2009).
    DoubleTree,
    /// Pairs at distances 1, 2, 4 ... exchange everything (Thakur, Rabenseifner and Gropp, 2005).
    RecursiveDoubling,
    /// Rings in both directions, along one dimension of a torus after the other.
    Torus,
    /// Within each member of the highest level that a group spans, then between them, then within again.
    Hierarchical,
    /// All-to-all within each member of the highest level that a group spans, so that those with the same place have what goes to it,
    /// then between these (Rajbhandari et al., *`DeepSpeed-MoE`*, 2022; Hwang et al., *Tutel*, 2023, 2DH).
    TwoLevel,
    /// Every member sends to every other at once.
    Direct,
    /// Every member reads the whole operand of every other.
    OneShot,
    /// A switch adds what members send, and sends them all the sum (NVLS: each member asks for the sum of its part, and has it written
    /// to all).
    InSwitch,
    /// Sends and receives between all pairs, as one call: all-to-all of libraries that have no other.
    Pairwise,
}

impl Algorithm {
    /// Names in files and on the command line.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("ring", Self::Ring),
        ("tree", Self::Tree),
        ("double-tree", Self::DoubleTree),
        ("recursive-doubling", Self::RecursiveDoubling),
        ("torus", Self::Torus),
        ("hierarchical", Self::Hierarchical),
        ("two-level", Self::TwoLevel),
        ("direct", Self::Direct),
        ("one-shot", Self::OneShot),
        ("in-switch", Self::InSwitch),
        ("pairwise", Self::Pairwise),
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }
}

/// One way in which a library runs collectives.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocol {
    /// Name, for messages.
    pub name: String,
    /// Library that has it.
    pub library: String,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Microseconds of a call.
    pub base_us: f64,
    /// Microseconds of a step, by level, the lowest first; the last value holds for further levels.
    pub step_us: Vec<f64>,
    /// Share of the links' sustained rate that it reaches.
    pub rate_share: f64,
    /// Rate at which it copies the part of the operand that stays on its device, in 10^9 bytes a second; without a value, the copy
    /// takes no time beside the links.
    pub own_copy_gb_per_s: Option<f64>,
}

/// Which list of kernels a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackKind {
    /// Megatron-LM of 2021: attention an operator a kernel, with dropout of scores.
    Megatron,
    /// The same with fused attention.
    Flash,
    /// An RDU's sections, as many operators as pay.
    Rdu,
    /// An RDU, an operator a section.
    RduKbk,
    /// A graph program on a chip of tiles, with dropout.
    Popart,
    /// A program on systolic arrays.
    Xla,
    /// A program on a wafer, to which weights stream and from which gradients leave.
    WeightStreaming,
    /// Prefill and decode alone, at the chip's best: captured graphs of kernels, sections that the chip itself launches.
    Serving,
    /// Prefill and decode as `SambaNova`'s software was measured.
    Sambanova,
    /// Serving by `TensorRT-LLM`, as engines of it were measured.
    TensorRtLlm,
    /// The same by vLLM.
    Vllm,
    /// The same by `SGLang`.
    Sglang,
}

impl StackKind {
    /// Names in files and on the command line.
    pub const NAMES: [(&'static str, Self); 12] = [
        ("megatron-2021", Self::Megatron),
        ("flash", Self::Flash),
        ("rdu", Self::Rdu),
        ("rdu-kbk", Self::RduKbk),
        ("popart", Self::Popart),
        ("xla", Self::Xla),
        ("weight-streaming", Self::WeightStreaming),
        ("serving", Self::Serving),
        ("sambanova", Self::Sambanova),
        ("trtllm", Self::TensorRtLlm),
        ("vllm", Self::Vllm),
        ("sglang", Self::Sglang),
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether it has a training step.
    pub fn trains(self) -> bool {
        !matches!(self, Self::Serving | Self::Sambanova) && !self.is_an_engine()
    }

    /// Whether it is an engine that serves on GPUs.
    pub fn is_an_engine(self) -> bool {
        matches!(self, Self::TensorRtLlm | Self::Vllm | Self::Sglang)
    }

    /// Whether the kernels of a pass on a GPU are a captured graph.
    pub fn captures_graphs(self) -> bool {
        self == Self::Serving || self.is_an_engine()
    }

    /// Whether it runs on a chip.
    pub fn runs_on(self, chip: &AnyChip) -> bool {
        let kind = match self {
            Self::Megatron | Self::Flash | Self::TensorRtLlm | Self::Vllm | Self::Sglang => "gpu",
            Self::Rdu | Self::RduKbk | Self::Sambanova => "rdu",
            Self::Popart => "bsp",
            Self::Xla => "systolic",
            Self::WeightStreaming => "wafer",
            Self::Serving => return true,
        };
        chip.device().kind() == kind
    }

    /// Whether gradients of replicas are added up on their way to the memory that has the weights, beside the passes.
    pub fn reduces_on_the_way(self) -> bool {
        self == Self::WeightStreaming
    }

    /// Whether with `ZeRO`-3 every parameter (a matrix, a bias, a norm's scale) has collectives of its own; else a layer has one each way.
    pub fn shards_by_parameter(self) -> bool {
        self == Self::Megatron
    }

    /// Whether it has prefill and decode.
    pub fn serves(self) -> bool {
        !matches!(self, Self::Megatron | Self::Popart | Self::WeightStreaming)
    }
}

/// How an engine puts requests into passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// Tokens of prompts in a pass at most, where the engine has such a limit.
    pub pass_tokens: Option<u64>,
    /// Prompts, or parts of them, go with the tokens of requests that run in one pass.
    pub mixes_prompts: bool,
    /// While prompts start, requests that run wait.
    pub prompts_first: bool,
    /// Caches grow token by token (Kwon et al., *`PagedAttention`*, SOSP 2023): a request starts where its prompt has room, and where none
    /// is left the last that started loses its place and starts again; else a request waits until its whole answer has room.
    pub grows_caches: bool,
}

impl Scheduler {
    /// Tokens of prompts that go with the tokens of requests that run.
    pub fn chunk(&self) -> Option<u64> {
        self.pass_tokens.filter(|_| self.mixes_prompts)
    }
}

/// How a stack gathers weights and scatters gradients that lie on the replicas in parts (`ZeRO`-2 and -3).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sharding {
    /// Nothing is computed beside a gather or a scatter, and no two of them run at the same time.
    pub waits: bool,
    /// Parameters that have no more elements than this stay whole on every replica and are not gathered.
    pub persistent_parameters: u64,
    /// A parameter stays whole between two passes that read it if fewer parameters than this are read from the first to the second, itself
    /// included.
    pub reuse_parameters: u64,
    /// Collectives that take a list with a tensor of each rank, which the host makes before: microseconds for each rank of a gather and
    /// of a scatter. 0 where collectives take one tensor.
    pub gather_rank_us: f64,
    /// Of a scatter, of which the host also launches the copy of each rank's part before the collective.
    pub scatter_rank_us: f64,
    /// Share of a chip's rate of computing that a collective takes which runs beside it.
    pub compute_share: f64,
}

/// Software of a system.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// Which one.
    pub kind: StackKind,
    /// Library of its collectives.
    pub library: String,
    /// Microseconds of the host for each kernel of a forward pass, the interpreter included.
    pub host_us: f64,
    /// The same in a backward pass, which the framework's own engine launches.
    pub backward_host_us: f64,
    /// Time of a kernel in a training run over its time alone.
    pub kernel_factor: f64,
    /// The sender of activations waits until they are received.
    pub blocking: bool,
    /// The members of a tensor group each send their part of the activations between stages only.
    pub scatter_gather: bool,
    /// How what lies on the replicas in parts is gathered and scattered.
    pub sharding: Sharding,
    /// With sequence parallelism, parts in which a tensor collective and the product beside it run, each part of the one beside another
    /// of the other; 1 exposes all of it.
    pub tensor_parts: u64,
    /// Training: microseconds of each step of several chips beside its passes, collectives and updates, whatever the number of
    /// micro-batches: the host's call, data and metrics, the replicas' sync.
    pub training_step_us: f64,
    /// Serving: microseconds of the host between one step of the model and the next.
    pub step_us: f64,
    /// Serving: microseconds of the host for each token that it hands to a user.
    pub token_us: f64,
    /// Serving: how requests are put into passes.
    pub scheduler: Scheduler,
    /// Serving: share of the time around kernels that programmatic launches hide under the kernel before.
    pub hidden_launches: f64,
    /// Serving: microseconds that each layer takes beside its kernels.
    pub layer_us: f64,
    /// Serving: microseconds of the front end beside a request's passes, many requests at a time.
    pub first_us: f64,
    /// Serving: how much longer kernels take at the clock that power leaves, for a pass that keeps all tensor cores busy, less one.
    pub power_slowdown: f64,
    /// Measured serving points: how unevenly routers choose experts, as an exponent of Zipf's law; 0 where each is equally likely.
    pub expert_skew: f64,
    /// Serving: microseconds of a call of experts in a narrow format beside its kernels, in place of those of the chip's measured library.
    pub expert_call_us: Option<f64>,
    /// Serving: microseconds of the front end for each request, one after the other.
    pub request_us: f64,
    /// Serving: kernels of decoding read keys once for all heads of a group, whatever the chip's file says of one library's.
    pub groups_heads: bool,
    /// Serving: share of a chip's memory that the engine fills with weights, activations, keys and values.
    pub memory_share: f64,
    /// Serving on RDUs: who launches sections, if not as the chip's file says.
    pub orchestration: Option<Orchestration>,
}

impl Stack {
    /// Microseconds of a training step beside its passes, collectives and updates; a chip alone has none.
    pub(super) fn beside_us(&self, chips: u64) -> f64 {
        if chips > 1 { self.training_step_us } else { 0.0 }
    }

    /// What of a training step does not follow from what is trained.
    pub(super) fn beside_note(&self, beside_us: f64) -> Option<String> {
        let name = self.kind.name();
        (beside_us > 0.0).then(|| {
            format!(
                "{} ms of each step are `stack.{name}.training_step_us`, the same for every model: the system file says what it is from",
                beside_us / 1e3
            )
        })
    }
}

/// The host of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// 10^9 bytes a second between a chip and the host, each direction.
    pub link_gb_per_s: f64,
    /// Bytes of its memory.
    pub memory_bytes: u64,
}

/// A system, checked.
#[derive(Debug, Clone)]
pub struct System {
    /// Name for people.
    pub name: String,
    /// The chip's file.
    pub chip_file: PathBuf,
    /// The chip.
    pub chip: AnyChip,
    /// Levels, the lowest first.
    pub levels: Vec<Level>,
    /// What its libraries offer.
    pub protocols: Vec<Protocol>,
    /// What can run on it.
    pub stacks: Vec<Stack>,
    /// Its hosts.
    pub host: Host,
}

impl System {
    /// The most chips it can have.
    pub fn most_chips(&self) -> u64 {
        self.levels.iter().fold(1, |chips, level| chips.saturating_mul(level.members))
    }

    /// The system with as many members of its highest level as so many chips need, and what is to be said of it; `None` if the file's own
    /// are enough, or if the highest level is of a fixed size. A switch that blocks nobody takes more members at the same links each.
    pub fn grown(&self, chips: u64) -> Option<(Self, String)> {
        let (most, top) = (self.most_chips(), self.levels.last()?);
        if chips <= most || chips > MOST_GROWN || top.topology != Topology::Switch {
            return None;
        }
        let mut grown = self.clone();
        let members = chips.div_ceil(most / top.members);
        if let Some(top) = grown.levels.last_mut() {
            top.members = members;
        }
        let note = format!(
            "{chips} chips are more than the {most} of {}: its {} is taken to have {members} members on the same links, which is assumed",
            self.name, top.name
        );
        Some((grown, note))
    }

    /// Bytes of off-chip memory of a chip.
    pub fn chip_memory_bytes(&self) -> u64 {
        self.chip.device().tiers().iter().map(|tier| tier.capacity_bytes).sum()
    }
}
