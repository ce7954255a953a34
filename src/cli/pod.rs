//! `rdusim pod`: a model on many chips.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::analysis::{self, PodRequest};
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::pod::{ExecutionTraces, TrainingStep};
use crate::report::{File, PodReport, write_traces};

use super::failure::Failure;
use super::fleet_args::FleetArgs;
use super::pod_goodput::GoodputArgs;
use super::pod_search::{self, SearchArgs, Shown};
use super::values::FormArgs;
use super::{output, progress};

pub(super) const POD_EXAMPLES: &str = "\
Examples:
  # a training step of GPT-13B on 16 RDUs, four stages of four
  rdusim pod arch/systems/sn40l-16.toml --model gpt-13b --phase training \\
      --parallel tp=4,pp=4,dp=1 --batch 16 --micro-batch 1 --seq 2048 --stack rdu

  # 175 B on 1,024 GPUs, as JSON, with a picture of the schedule in results/
  rdusim pod arch/systems/dgx-a100.toml --model gpt3-175b --phase training \\
      --parallel tp=8,pp=16,dp=8,schedule=interleaved:3,recompute=full,zero=1 \\
      --batch 1024 --micro-batch 1 --seq 2048 --stack megatron-2021 --format json --out results

  # the fastest way to train 175 B on 1,024 GPUs, with whole layers computed again
  rdusim pod arch/systems/dgx-a100.toml --model gpt3-175b --phase training --chips 1024 \\
      --batch 1536 --stack megatron-2021 --search --parallel recompute=full

  # 16 users of Llama-3-8B on 8 RDUs, each with 1,024 tokens of context
  rdusim pod arch/systems/sn40l-16.toml --model llama3-8b --phase decode \\
      --parallel tp=8 --batch 16 --seq 1024

  # 1,000 requests, 4 a second, of which up to 32 run at one time
  rdusim pod arch/systems/dgx-a100.toml --model llama3-8b --phase requests \\
      --parallel tp=1 --batch 32 --arrivals 4

  # the cheapest fleet for Llama-3-70B on up to 64 GPUs: first token in 500 ms, others in 30
  rdusim pod dgx-h100 --model llama3-70b --phase requests --search --objective cost --chips 1..64 \\
      --ttft-ms p99:500 --tpot-ms p99:30 --usd-per-chip-hour 2.5

  # Llama-3-8B drafts four tokens at a time for Llama-3-70B, three in four of which it accepts
  rdusim pod arch/systems/dgx-a100.toml --model llama3-70b --phase decode --parallel tp=8 \\
      --batch 4 --seq 1024 --draft llama3-8b --speculate 4 --accept 0.75";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PodPhase {
    /// A step: forward, backward and the optimiser's step
    Training,
    /// The prompts of a batch of users, until each has its first token
    Prefill,
    /// A token for each of a batch of users
    Decode,
    /// Requests that come and go: --trace or --arrivals
    Requests,
}

/// What requests come and go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct RequestArgs {
    /// Requests of a file: times of arrival, tokens of prompts and of answers, as CSV or Mooncake's lines of JSON (docs/serving.md)
    #[arg(long, value_name = "FILE", conflicts_with = "arrivals")]
    pub(super) trace: Option<PathBuf>,
    /// Requests that arrive at random, so many a second on average
    #[arg(long, value_name = "RATE")]
    pub(super) arrivals: Option<f64>,
    /// A closed loop: so many users of all replicas, each of whom sends a request when the last one is answered
    #[arg(long, value_name = "USERS", conflicts_with = "arrivals", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(super) concurrency: Option<u64>,
    /// With --arrivals or --concurrency: requests [default: 1000]
    #[arg(long, value_name = "N")]
    pub(super) requests: Option<u64>,
    /// With them: mean tokens of a prompt, each from half to one and a half times as many [default: 1024]
    #[arg(long, value_name = "N")]
    pub(super) prompt_tokens: Option<u64>,
    /// With them: mean tokens of an answer, spread in the same way [default: 256]
    #[arg(long, value_name = "N")]
    pub(super) output_tokens: Option<u64>,
    /// With them: seed of the generator [default: 1]
    #[arg(long, value_name = "SEED")]
    pub(super) seed: Option<u64>,
    /// Tokens whose keys and values a replica holds at most [default: what fits the fastest memory beside the weights]
    #[arg(long, value_name = "N")]
    pub(super) kv_tokens: Option<u64>,
    /// Simulated points of an earlier result.json of the same system, software, model and decomposition: nothing is
    /// simulated again
    #[arg(long, value_name = "FILE")]
    pub(super) grid: Option<PathBuf>,
    /// Share of each prompt, from its start, whose keys and values are at hand from requests before [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub(super) prefix_share: Option<f64>,
    /// Tokens of prompts that start in one iteration at most; a longer prompt starts alone [default: 8192]
    #[arg(long, value_name = "N", conflicts_with = "prefill_chunk")]
    pub(super) prefill_tokens: Option<u64>,
    /// Mix prompts, in parts, with the tokens of running requests: a pass takes at most so many tokens
    #[arg(long, value_name = "N")]
    pub(super) prefill_chunk: Option<u64>,
}

impl RequestArgs {
    /// The first option that is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--trace", self.trace.is_some()),
            ("--arrivals", self.arrivals.is_some()),
            ("--concurrency", self.concurrency.is_some()),
            ("--requests", self.requests.is_some()),
            ("--prompt-tokens", self.prompt_tokens.is_some()),
            ("--output-tokens", self.output_tokens.is_some()),
            ("--seed", self.seed.is_some()),
            ("--kv-tokens", self.kv_tokens.is_some()),
            ("--grid", self.grid.is_some()),
            ("--prefix-share", self.prefix_share.is_some()),
            ("--prefill-tokens", self.prefill_tokens.is_some()),
            ("--prefill-chunk", self.prefill_chunk.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// A model that drafts tokens, which the other one verifies.
#[derive(Debug, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub(super) struct DraftArgs {
    /// Decode and requests: a smaller model, on the same chips, that drafts tokens, and the other one verifies them; name, or a
    /// config.json
    #[arg(long, value_name = "NAME|FILE", requires_all = ["speculate", "accept"])]
    pub(super) draft: Option<String>,
    /// Tokens that it drafts in a round
    #[arg(long, value_name = "N", requires = "draft")]
    pub(super) speculate: Option<u64>,
    /// Probability that a drafted token is accepted, each for itself
    #[arg(long, value_name = "RATE", requires = "draft")]
    pub(super) accept: Option<f64>,
}

#[derive(Debug, Args)]
pub(super) struct PodArgs {
    /// System file (TOML), or a built-in name (`rdusim list`)
    #[arg(value_name = "SYSTEM")]
    pub(super) system: PathBuf,
    /// Name of a model (`rdusim model --help`), or a config.json
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) model: String,
    /// What is done with it
    #[arg(long, value_enum)]
    pub(super) phase: PodPhase,
    /// Decomposition: tp, pp, dp, cp and context (ring, ulysses), ep with capacity (dropless, or a factor), exchange (exposed,
    /// overlapped:PARTS) and experts (near, far), sp, `seq_chunks`, schedule (naive, gpipe, 1f1b, interleaved:PARTS,
    /// zb-h1, zb-v, pipedream, pipedream-2bw, phased:LAYERS), recompute (none, selective, full), zero (0 to 3), prefetch (units gathered ahead with
    /// zero=3), offload (none, or optimizer, activations, weights with + between them), stash (bf16, gist), optimizer (adam, adam-8bit, lion, adafactor, sgd), gradients (bf16, fp32, int8, powersgd:RANK),
    /// order (tp-dp-pp, tp-pp-dp); of chips of tiles tp2, `io_tiles`, `memory_share` and `score_dropout`; such as
    /// tp=8,pp=4,dp=2
    #[arg(long, value_name = "KEY=VALUE,...", required_unless_present = "search")]
    pub(super) parallel: Option<String>,
    /// Find the best decomposition; what `--parallel` and `--micro-batch` give stays fixed
    #[arg(long, conflicts_with_all = ["flat"])]
    pub(super) search: bool,
    #[command(flatten)]
    pub(super) search_args: SearchArgs,
    /// Software, one of the system file's stacks [default: the first, and a note says so]
    #[arg(long, value_name = "NAME")]
    pub(super) stack: Option<String>,
    /// Sequences of a step; users; requests that run at one time on a replica [default: 1; of a closed loop all users]
    #[arg(long, value_name = "N")]
    pub(super) batch: Option<u64>,
    /// Serving: format of products with the layers' matrices: bf16, fp8, `fp8_block`, int8, nvfp4 or `w4a16_mxfp4` [default: the
    /// checkpoint's]
    #[arg(long, value_name = "FORMAT")]
    pub(super) dtype: Option<String>,
    /// Serving: format of keys and values: bf16, fp8, `fp8_e4m3`, `fp8_e5m2`, int8 or int4 [default: the checkpoint's]
    #[arg(long, value_name = "FORMAT")]
    pub(super) kv_dtype: Option<String>,
    /// Sequences of a micro-batch; users of a replica that go through a stage together [default: 1; of prefill and decode,
    /// so many that every stage has some; with `--search` what it finds]
    #[arg(long, value_name = "N")]
    pub(super) micro_batch: Option<u64>,
    /// Tokens of a sequence, a prompt or a context [default: the model's; of a config.json, 2048 at most]
    #[arg(long, value_name = "N")]
    pub(super) seq: Option<u64>,
    /// Share of the blocks of 16 x 16 of the layers' matrices that is pruned; not on GPUs
    #[arg(long, value_name = "SHARE")]
    pub(super) sparsity: Option<f64>,
    /// Training: tokens of a sequence that have logits, as a masked language model predicts [default: all]
    #[arg(long, value_name = "N")]
    pub(super) predicted_tokens: Option<u64>,
    /// Layers of each stage, the first first: such as 7,8,7; in training halves too: 3,3.5,1.5 [default: equal shares]
    #[arg(long, value_name = "N,...")]
    pub(super) stage_layers: Option<String>,
    /// Of a model with experts: how tokens fall on them: `even`, `uniform`, `zipf:A` or a file with a number for each expert
    /// [default: uniform]
    #[arg(long, value_name = "LOAD")]
    pub(super) expert_load: Option<String>,
    /// Training: simulate every chip on its own, not a stage as one: the same result, in more time
    #[arg(long)]
    pub(super) flat: bool,
    #[command(flatten)]
    pub(super) goodput: GoodputArgs,
    #[command(flatten)]
    pub(super) draft: DraftArgs,
    #[command(flatten)]
    pub(super) requests: RequestArgs,
    #[command(flatten)]
    pub(super) fleet: FleetArgs,
    /// Change a field of the system file: arch.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Also write JSON, pictures and a page into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Training: also write a Chakra execution trace of every chip into this directory, with the groups of its collectives
    #[arg(long, value_name = "DIR", conflicts_with = "search")]
    pub(super) chakra: Option<PathBuf>,
    #[command(flatten)]
    pub(super) form: FormArgs,
}

/// Simulates a training step and shows it.
pub(super) fn training(args: &PodArgs) -> Result<(), Failure> {
    if args.dtype.is_some() || args.kv_dtype.is_some() {
        let title = "`--dtype` and `--kv-dtype` are for `--phase prefill`, `decode` and `requests`";
        return Err(Diagnostic::new(title).with_help("leave them out").into());
    }
    if args.draft.draft.is_some() {
        let title = "`--draft` is for `--phase decode` and `requests`";
        return Err(Diagnostic::new(title).with_help("leave `--draft` out").into());
    }
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let request = PodRequest {
        system: &args.system,
        sets: &sets,
        model: &args.model,
        parallel: args.parallel.as_deref().unwrap_or_default(),
        stack: args.stack.as_deref(),
        batch: args.batch.unwrap_or(1),
        micro_batch: args.micro_batch.unwrap_or(1),
        sequence: args.seq,
        sparsity: args.sparsity,
        predicted: args.predicted_tokens,
        stage_layers: args.stage_layers.as_deref(),
        flat: args.flat,
        expert_load: args.expert_load.as_deref(),
    };
    let (failures, stragglers) = (args.goodput.failures()?, args.goodput.stragglers()?);
    if args.search {
        let shown = Shown { failures, out: args.out.as_deref(), form: &args.form, system: &args.system };
        return pod_search::search(&args.search_args, request, args.micro_batch.is_some(), shown);
    }
    let (files, text) = progress::watched("simulating a step", || {
        analysis::pod(&request, &mut progress::note, |system, stack, job, step| -> Result<_, Failure> {
            let goodput = failures.map(|failures| failures.goodput(job.parallel.chips()));
            let seconds = (step.step_s, step.computing_s());
            let slowest = stragglers.as_ref().map(|of| of.of_step(job.parallel.chips(), seconds.0, seconds.1));
            let step = &TrainingStep { slowest, goodput, ..step.clone() };
            let report = PodReport { system, stack, job, step };
            if let Some(directory) = &args.chakra {
                write_traces(directory, &ExecutionTraces::new(system, stack, job)?)?;
            }
            let files: Vec<File> = if args.out.is_some() { report.files()? } else { Vec::new() };
            Ok((files, args.form.shown(|| report.json(), || report.table(), || report.screen())))
        })
    })??;
    output::show_with_page(args.out.as_deref(), files, &[&args.system], args.form.format, &text)
}
