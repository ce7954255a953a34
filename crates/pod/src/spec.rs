//! A system file as it is read and checked.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::dragonfly::Dragonfly;
use super::system::{Algorithm, Host, Level, Protocol, Scheduler, Sharding, Stack, StackKind, System, Topology};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{self, Count, FileKind, Override, Real, Root, Source, Table};
use rdusim_graph::arch::{self, AnyChip, Orchestration};

/// Members of a level.
const MEMBERS: RangeInclusive<u64> = 1..=1 << 20;
/// Levels of a system.
const MOST_LEVELS: usize = 8;
/// Links of a member.
const LINKS: RangeInclusive<u64> = 1..=4096;
/// Rate of a link.
const GB_PER_S: RangeInclusive<f64> = 0.001..=1e5;
/// A time.
const US: RangeInclusive<f64> = 0.0..=1e6;
/// A share that is not 0.
/// Tokens of a pass: as many rows as are modelled.
const PASS_TOKENS: RangeInclusive<u64> = 1..=1 << 16;
const SLOWDOWN: RangeInclusive<f64> = 0.0..=4.0;
const SHARE: RangeInclusive<f64> = 0.001..=1.0;
/// Parts of a collective that runs beside a product.
const PARTS: RangeInclusive<u64> = 1..=64;
/// Topologies that have dimensions, by their place among the names.
const TORUS: usize = 3;
const DRAGONFLY: usize = 4;
/// A factor.
const FACTOR: RangeInclusive<f64> = 0.01..=100.0;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemSpec {
    schema: Spanned<Count>,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: Spanned<String>,
    chip: Spanned<String>,
    level: Spanned<Vec<Table<LevelSpec>>>,
    #[serde(default)]
    protocol: Vec<Table<ProtocolSpec>>,
    stack: Spanned<Vec<Table<StackSpec>>>,
    host: Table<HostSpec>,
}

/// `[[level]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelSpec {
    name: Spanned<String>,
    members: Spanned<Count>,
    topology: Spanned<String>,
    dimensions: Option<Spanned<Vec<Spanned<Count>>>>,
    router_links: Option<Spanned<Vec<Spanned<Count>>>>,
    links: Spanned<Count>,
    link_gb_per_s: Spanned<Real>,
    sustained_share: Spanned<Real>,
    message_us: Spanned<Real>,
}

/// `[[protocol]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolSpec {
    name: Spanned<String>,
    library: Spanned<String>,
    algorithm: Spanned<String>,
    base_us: Spanned<Real>,
    step_us: Spanned<Vec<Spanned<Real>>>,
    rate_share: Spanned<Real>,
    own_copy_gb_per_s: Option<Spanned<Real>>,
}

/// `[[stack]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackSpec {
    name: Spanned<String>,
    library: Spanned<String>,
    host_us: Spanned<Real>,
    backward_host_us: Spanned<Real>,
    kernel_factor: Spanned<Real>,
    blocking: Spanned<bool>,
    scatter_gather: Spanned<bool>,
    tensor_parts: Option<Spanned<Count>>,
    sharding: Option<Table<ShardingSpec>>,
    training_step_us: Option<Spanned<Real>>,
    step_us: Option<Spanned<Real>>,
    token_us: Option<Spanned<Real>>,
    pass_tokens: Option<Spanned<Count>>,
    mixes_prompts: Option<Spanned<bool>>,
    prompts_first: Option<Spanned<bool>>,
    grows_caches: Option<Spanned<bool>>,
    expert_call_us: Option<Spanned<Real>>,
    expert_skew: Option<Spanned<Real>>,
    request_us: Option<Spanned<Real>>,
    power_slowdown: Option<Spanned<Real>>,
    hidden_launches: Option<Spanned<Real>>,
    layer_us: Option<Spanned<Real>>,
    first_us: Option<Spanned<Real>>,
    groups_heads: Option<Spanned<bool>>,
    memory_share: Option<Spanned<Real>>,
    orchestration: Option<Spanned<String>>,
}

/// `[stack.sharding]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardingSpec {
    waits: Spanned<bool>,
    persistent_parameters: Spanned<Count>,
    reuse_parameters: Spanned<Count>,
    gather_rank_us: Spanned<Real>,
    scatter_rank_us: Spanned<Real>,
    compute_share: Spanned<Real>,
}

/// `[host]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostSpec {
    link_gb_per_s: Spanned<Real>,
    memory_bytes: Spanned<Count>,
}

#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
}

/// Whether a file says that it describes a system; what is wrong with it otherwise is for its reader to say.
pub fn is_system(path: &Path) -> bool {
    Source::open(path, Root::Arch, &[])
        .and_then(|source| source.read::<Head>())
        .is_ok_and(|head| head.kind.as_deref() == Some("system"))
}

/// Reads a system file and the chip file that it names, with the `arch.` overrides among `sets` applied to the system.
///
/// # Errors
/// What is wrong with either file, and where.
pub fn open(path: &Path, sets: &[Override]) -> Result<System, Diagnostic> {
    let source = Source::open_as(path, FileKind::System, Root::Arch, sets)?;
    system(&source, |chip, span| {
        let file = input::referenced(path, chip);
        let read = arch::open(&file, &[]);
        // A file that cannot be opened has no place of its own.
        let read = read.map_err(|error| {
            if file.exists() || input::builtin(&file).is_some() { error } else { source.restated(span, &error) }
        })?;
        Ok((file, read))
    })
}

/// The DGX A100 that comes with the program, whose measurements the validation is made on.
///
/// # Errors
/// Overrides that do not apply to it.
pub fn dgx_a100(sets: &[Override]) -> Result<System, Diagnostic> {
    let text = include_str!("../../../arch/systems/dgx-a100.toml");
    let source = Source::new("arch/systems/dgx-a100.toml", text, Root::Arch, sets)?;
    let chip = include_str!("../../../arch/a100.toml");
    system(&source, |_, _| Ok((PathBuf::from("arch/a100.toml"), arch::parse_any("arch/a100.toml", chip, &[])?)))
}

/// The SN40L-16 that comes with the program, on which batches of users were measured.
///
/// # Errors
/// Overrides that do not apply to it.
pub fn sn40l_16(sets: &[Override]) -> Result<System, Diagnostic> {
    let text = include_str!("../../../arch/systems/sn40l-16.toml");
    let source = Source::new("arch/systems/sn40l-16.toml", text, Root::Arch, sets)?;
    let chip = include_str!("../../../arch/sn40l.toml");
    system(&source, |_, _| Ok((PathBuf::from("arch/sn40l.toml"), arch::parse_any("arch/sn40l.toml", chip, &[])?)))
}

fn system(
    source: &Source,
    chip: impl Fn(&str, std::ops::Range<usize>) -> Result<(PathBuf, AnyChip), Diagnostic>,
) -> Result<System, Diagnostic> {
    let spec: SystemSpec = source.read()?;
    source.count("schema", &spec.schema, 1..=1)?;
    let name = source.name("name", &spec.name)?;
    let (chip_file, chip) = chip(&source.name("chip", &spec.chip)?, spec.chip.span())?;
    let list = spec.level.get_ref();
    if list.is_empty() || list.len() > MOST_LEVELS {
        let title = format!("`level` has {} tables, expected from 1 to {MOST_LEVELS}", list.len());
        return Err(source.error(spec.level.span(), title, "expected [[level]], the lowest first"));
    }
    let levels = list.iter().map(|spec| level(source, spec)).collect::<Result<Vec<_>, _>>()?;
    if let Some((at, twice)) =
        levels.iter().enumerate().find(|(at, level)| levels[..*at].iter().any(|other| other.name == level.name))
    {
        let title = format!("two levels are named {:?}", twice.name);
        return Err(source.error(list[at].name.span(), title, "the second of them"));
    }
    let protocols = spec.protocol.iter().map(|spec| protocol(source, spec)).collect::<Result<Vec<_>, _>>()?;
    if spec.stack.get_ref().is_empty() {
        return Err(source.error(spec.stack.span(), "`stack` has no table", "expected at least one [[stack]]"));
    }
    let mut stacks: Vec<Stack> = Vec::new();
    for table in spec.stack.get_ref() {
        let stack = stack(source, table, &protocols, &chip)?;
        if stacks.iter().any(|known| known.kind == stack.kind) {
            let title = format!("two stacks are named {:?}", stack.kind.name());
            return Err(source.error(table.name.span(), title, "the second of them"));
        }
        stacks.push(stack);
    }
    Ok(System {
        name,
        chip_file,
        chip,
        levels,
        protocols,
        stacks,
        host: Host {
            link_gb_per_s: source.real("host.link_gb_per_s", &spec.host.link_gb_per_s, GB_PER_S)?,
            memory_bytes: source.count("host.memory_bytes", &spec.host.memory_bytes, 1..=1 << 52)?,
        },
    })
}

fn level(source: &Source, spec: &LevelSpec) -> Result<Level, Diagnostic> {
    let name = source.name("level.name", &spec.name)?;
    let field = |key: &str| format!("level.{name}.{key}");
    let members = source.count(&field("members"), &spec.members, MEMBERS)?;
    let topology = topology(source, spec, members, &field)?;
    Ok(Level {
        members,
        topology,
        links: source.count(&field("links"), &spec.links, LINKS)?,
        link_gb_per_s: source.real(&field("link_gb_per_s"), &spec.link_gb_per_s, GB_PER_S)?,
        sustained_share: source.real(&field("sustained_share"), &spec.sustained_share, SHARE)?,
        message_us: source.real(&field("message_us"), &spec.message_us, US)?,
        name,
    })
}

fn topology(
    source: &Source,
    spec: &LevelSpec,
    members: u64,
    field: &impl Fn(&str) -> String,
) -> Result<Topology, Diagnostic> {
    let chosen = source.keyword(&field("topology"), &spec.topology, &Topology::NAMES)?;
    let name = Topology::NAMES[chosen];
    let has =
        [(&spec.dimensions, "dimensions", chosen >= TORUS), (&spec.router_links, "router_links", chosen == DRAGONFLY)];
    for (list, key, is_taken) in has {
        if let Some(list) = list.as_ref().filter(|_| !is_taken) {
            let title = format!("`{}` has no effect on a {name}", field(key));
            let help = if key == "dimensions" { "only a torus and a dragonfly have" } else { "only a dragonfly has" };
            return Err(source.error(list.span(), title, format!("{help} `{key}`")));
        }
    }
    let list = |list: &Option<Spanned<Vec<Spanned<Count>>>>, key: &str, range: RangeInclusive<u64>, example: &str| {
        let Some(list) = list else {
            let title = format!("`{}` is missing: a {name} has it", field(key));
            return Err(source.error(spec.topology.span(), title, format!("expected `{key} = {example}` beside it")));
        };
        let values = list.get_ref().iter().map(|value| source.count(&field(key), value, range.clone()));
        Ok((list.span(), values.collect::<Result<Vec<u64>, _>>()?))
    };
    match chosen {
        0 => return Ok(Topology::Switch),
        1 => return Ok(Topology::FullyConnected),
        2 => return Ok(Topology::Ring),
        _ => {}
    }
    let example = if chosen == TORUS { "[x, y]" } else { "[members of a router, routers of a group, groups]" };
    let (span, sizes) = list(&spec.dimensions, "dimensions", MEMBERS, example)?;
    let product = sizes.iter().fold(1u64, |product, size| product.saturating_mul(*size));
    if product != members {
        let title = format!("`{}` have {product} places, `{}` is {members}", field("dimensions"), field("members"));
        return Err(source.error_among(&[span, spec.members.span()], title, "their product must be equal"));
    }
    if chosen == TORUS {
        return Ok(Topology::Torus(sizes));
    }
    let &[of_router, routers, groups] = &sizes[..] else {
        let title = format!("`{}` has {} numbers, a dragonfly has 3", field("dimensions"), sizes.len());
        return Err(source.error(span, title, format!("expected {example}")));
    };
    let (span, links) =
        list(&spec.router_links, "router_links", LINKS, "[to each router of its group, to other groups]")?;
    let &[local_links, global_links] = &links[..] else {
        let title = format!("`{}` has {} numbers, expected 2", field("router_links"), links.len());
        return Err(source.error(span, title, "expected [to each router of its group, to other groups]"));
    };
    let others = (groups - 1).max(1);
    if groups > 1 && (routers * global_links % others != 0 || routers * global_links / others > *LINKS.end()) {
        let title = format!(
            "the {routers} x {global_links} links of a group to other groups do not divide over the {others} others, or are \
             more than {} to each",
            LINKS.end()
        );
        return Err(source.error(span, title, "expected routers x links a multiple of groups - 1"));
    }
    Ok(Topology::Dragonfly(Dragonfly { members: of_router, routers, groups, local_links, global_links }))
}

fn protocol(source: &Source, spec: &ProtocolSpec) -> Result<Protocol, Diagnostic> {
    let name = source.name("protocol.name", &spec.name)?;
    let field = |key: &str| format!("protocol.{name}.{key}");
    let names = Algorithm::NAMES;
    let algorithm = names[source.keyword(&field("algorithm"), &spec.algorithm, &names.map(|(name, _)| name))?].1;
    let steps = spec.step_us.get_ref();
    if steps.is_empty() {
        let title = format!("`{}` is empty", field("step_us"));
        return Err(source.error(spec.step_us.span(), title, "expected a time for each level, the lowest first"));
    }
    Ok(Protocol {
        library: source.name(&field("library"), &spec.library)?,
        algorithm,
        base_us: source.real(&field("base_us"), &spec.base_us, US)?,
        step_us: steps.iter().map(|us| source.real(&field("step_us"), us, US)).collect::<Result<_, _>>()?,
        rate_share: source.real(&field("rate_share"), &spec.rate_share, SHARE)?,
        own_copy_gb_per_s: (spec.own_copy_gb_per_s.as_ref())
            .map(|rate| source.real(&field("own_copy_gb_per_s"), rate, GB_PER_S))
            .transpose()?,
        name,
    })
}

fn tensor_parts(source: &Source, spec: &StackSpec, field: &impl Fn(&str) -> String) -> Result<u64, Diagnostic> {
    let Some(parts) = &spec.tensor_parts else { return Ok(1) };
    source.count(&field("tensor_parts"), parts, PARTS)
}

fn sharding(source: &Source, spec: &StackSpec, field: &impl Fn(&str) -> String) -> Result<Sharding, Diagnostic> {
    let Some(spec) = &spec.sharding else { return Ok(Sharding::default()) };
    let field = |key: &str| field(&format!("sharding.{key}"));
    let us = |key: &str, value: &Spanned<Real>| source.real(&field(key), value, US);
    let count = |key: &str, value: &Spanned<Count>| source.count(&field(key), value, 0..=1 << 50);
    Ok(Sharding {
        waits: *spec.waits.get_ref(),
        persistent_parameters: count("persistent_parameters", &spec.persistent_parameters)?,
        reuse_parameters: count("reuse_parameters", &spec.reuse_parameters)?,
        gather_rank_us: us("gather_rank_us", &spec.gather_rank_us)?,
        scatter_rank_us: us("scatter_rank_us", &spec.scatter_rank_us)?,
        compute_share: source.real(&field("compute_share"), &spec.compute_share, 0.0..=0.9)?,
    })
}

/// Fields of a stack that say something of kernels and engines on GPUs.
const GPU_FIELDS: [&str; 4] = ["expert_skew", "expert_call_us", "hidden_launches", "groups_heads"];

/// The field of a stack that only training reads.
const TRAINING_STEP_US: &str = "training_step_us";

/// Refuses a field of a stack that has no effect on its chips.
fn check_read(
    source: &Source,
    kind: StackKind,
    chip: &AnyChip,
    key: &str,
    span: std::ops::Range<usize>,
) -> Result<(), Diagnostic> {
    let field = format!("stack.{}.{key}", kind.name());
    if GPU_FIELDS.contains(&key) && chip.gpu().is_none() {
        let title = format!("`{field}` has no effect: {} is no GPU", chip.device().name());
        return Err(source.error(span, title, "read by stacks that serve on GPUs"));
    }
    if key == TRAINING_STEP_US && !kind.trains() {
        let title = format!("`{field}` has no effect: the stack {:?} serves alone", kind.name());
        return Err(source.error(span, title, "read by stacks of training"));
    }
    if kind.serves() || key == TRAINING_STEP_US {
        return Ok(());
    }
    let title = format!("`{field}` has no effect: the stack {:?} trains alone", kind.name());
    Err(source.error(span, title, "read by stacks of prefill and decode"))
}

fn stack(source: &Source, spec: &StackSpec, protocols: &[Protocol], chip: &AnyChip) -> Result<Stack, Diagnostic> {
    let names = StackKind::NAMES;
    let kind = names[source.keyword("stack.name", &spec.name, &names.map(|(name, _)| name))?].1;
    let is_rdu = chip.rdu().is_some();
    if !kind.runs_on(chip) {
        let title = format!("the stack {:?} does not run on {}", kind.name(), chip.device().name());
        let kind = chip.device().kind();
        return Err(source.error(spec.name.span(), title, format!("the chip is of kind {kind:?}")));
    }
    let field = |key: &str| format!("stack.{}.{key}", kind.name());
    let library = source.name(&field("library"), &spec.library)?;
    let needs_protocol = !kind.reduces_on_the_way();
    if needs_protocol && !protocols.iter().any(|protocol| protocol.library == library) {
        let title = format!("`{}` is {library:?}, which no `[[protocol]]` has", field("library"));
        return Err(source.error(spec.library.span(), title, "expected the `library` of a protocol"));
    }
    let read = |key: &str, span| check_read(source, kind, chip, key, span);
    let time = |key: &str, value: &Option<Spanned<Real>>| {
        let Some(value) = value else { return Ok(0.0) };
        read(key, value.span())?;
        source.real(&field(key), value, US)
    };
    let pass_tokens = |value: &Spanned<Count>| {
        read("pass_tokens", value.span())?;
        source.count(&field("pass_tokens"), value, PASS_TOKENS)
    };
    let flag = |key: &str, value: &Option<Spanned<bool>>| {
        let Some(value) = value else { return Ok(false) };
        read(key, value.span()).map(|()| *value.get_ref())
    };
    let share = |key: &str, value: &Option<Spanned<Real>>, usual: f64, range: RangeInclusive<f64>| {
        let Some(value) = value else { return Ok(usual) };
        read(key, value.span())?;
        source.real(&field(key), value, range)
    };
    let launch = |value: &Spanned<String>| -> Result<Orchestration, Diagnostic> {
        if !is_rdu {
            let title = format!("`{}` has no effect: {} is no RDU", field("orchestration"), chip.device().name());
            return Err(source.error(value.span(), title, "only sections of an RDU are launched by either"));
        }
        let chosen = source.keyword(&field("orchestration"), value, &["software", "hardware"])?;
        Ok([Orchestration::Software, Orchestration::Hardware][chosen])
    };
    Ok(Stack {
        training_step_us: time(TRAINING_STEP_US, &spec.training_step_us)?,
        step_us: time("step_us", &spec.step_us)?,
        token_us: time("token_us", &spec.token_us)?,
        scheduler: Scheduler {
            pass_tokens: spec.pass_tokens.as_ref().map(pass_tokens).transpose()?,
            mixes_prompts: flag("mixes_prompts", &spec.mixes_prompts)?,
            prompts_first: flag("prompts_first", &spec.prompts_first)?,
            grows_caches: flag("grows_caches", &spec.grows_caches)?,
        },
        expert_skew: share("expert_skew", &spec.expert_skew, 0.0, 0.0..=4.0)?,
        expert_call_us: match &spec.expert_call_us {
            Some(_) => Some(time("expert_call_us", &spec.expert_call_us)?),
            None => None,
        },
        request_us: time("request_us", &spec.request_us)?,
        power_slowdown: share("power_slowdown", &spec.power_slowdown, 0.0, SLOWDOWN)?,
        layer_us: time("layer_us", &spec.layer_us)?,
        hidden_launches: share("hidden_launches", &spec.hidden_launches, 0.0, 0.0..=1.0)?,
        first_us: time("first_us", &spec.first_us)?,
        groups_heads: flag("groups_heads", &spec.groups_heads)?,
        memory_share: share("memory_share", &spec.memory_share, 1.0, SHARE)?,
        orchestration: spec.orchestration.as_ref().map(launch).transpose()?,
        kind,
        library,
        host_us: source.real(&field("host_us"), &spec.host_us, US)?,
        backward_host_us: source.real(&field("backward_host_us"), &spec.backward_host_us, US)?,
        kernel_factor: source.real(&field("kernel_factor"), &spec.kernel_factor, FACTOR)?,
        tensor_parts: tensor_parts(source, spec, &field)?,
        sharding: sharding(source, spec, &field)?,
        blocking: *spec.blocking.get_ref(),
        scatter_gather: *spec.scatter_gather.get_ref(),
    })
}
