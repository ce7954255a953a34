//! What is fuzzed: each kind of input, valid examples of it, and what reads it.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use rdusim::analysis::{self, ProofFile, ProofInputs};
use rdusim::arch::{self, AnyChip, Chip, Quality};
use rdusim::compile::{Compiled, compile_measured, simulate_measured};
use rdusim::diagnostics::Diagnostic;
use rdusim::import::{self, Request};
use rdusim::input::{Given, Override, SetRange};
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::pod::{self, Grid, Parallel};
use rdusim::report::{Document, Made, Page, SavedResult, result_csv};
use rdusim::saved;
use rdusim::sparsity::read::{FileKind, MatrixRequest, read_mask};
use rdusim::study::diff;
use rdusim::study::sweep::{self, Shard, Study};
use rdusim::validate::{Target, validate_data};
use rdusim::workload::{self, Workload};
use tempfile::TempDir;

use super::exported;
use super::matrices::{npy, safetensors};
use super::sheets::SHEETS;
use super::tree::Format;
use super::wire;
use crate::random::{pair, small_pair};

/// How an input is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a tree, and as bytes.
    Tree(Format),
    /// As a message of Protocol Buffers, and as bytes.
    Wire,
    /// As bytes alone.
    Bytes,
    /// As lines of JSON that end with a checksum, and as bytes.
    Journal,
    /// As two texts of TOML behind each other: a chip and a workload.
    Pair,
}

/// A kind of input.
pub(crate) struct Kind {
    /// Its name in corpus files.
    pub name: &'static str,
    pub form: Form,
    /// Valid inputs.
    pub seeds: Vec<Vec<u8>>,
    /// Reads one; an error is what a user would be told.
    pub read: fn(&Bench, &[u8]) -> Result<(), String>,
}

/// Between chip and workload of a pair.
pub(crate) const BETWEEN: &str = "\n# --- workload\n";

/// What readers need besides their input.
pub(crate) struct Bench {
    directory: TempDir,
    chip_text: String,
    workload_text: String,
    chip: Chip,
    workload: Workload,
    compiled: Vec<Compiled>,
    study: Study,
    gpu: Target,
    system: Target,
    result: String,
}

const STUDY: &str = "schema = 1\nname = \"four\"\narch = \"chip.toml\"\nworkload = \"work.toml\"\nmodes = [\"kbk\"]\n\
    metrics = [\"kbk.cycles\", \"kbk.bound_by\"]\n[[axes]]\npath = \"arch.clock_ghz\"\nvalues = [1, 2, 3]\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect("a file that comes with rdusim")
}

/// Where files are made and removed by the million.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary directory")
}

/// The chip and the workload that mappings, certificates and results are of: the first small pair that compiles.
fn small() -> (String, String) {
    for number in 0.. {
        let (chip, graph) = small_pair(1, number);
        if compile_measured(&chip.chip(), &graph.workload(), &Mode::ALL).is_ok() {
            return (chip.text(), graph.text());
        }
    }
    unreachable!("some pair compiles")
}

impl Bench {
    pub(crate) fn new() -> Self {
        let (chip_text, workload_text) = small();
        let chip = arch::parse("chip.toml", &chip_text, &[]).expect("a chip");
        let workload = workload::parse("work.toml", &workload_text, &[], 0).expect("a workload");
        let compiled = compile_measured(&chip, &workload, &Mode::ALL).expect("a pair that compiles");
        let texts: IndexMap<PathBuf, String> =
            [("chip.toml", &chip_text), ("work.toml", &workload_text)].map(|(n, t)| (n.into(), t.clone())).into();
        let given = Given::Text { name: "study.toml".into(), text: STUDY.into() };
        let study = Study::take(&given, texts, &[], None).expect("a study");
        let directory = directory();
        fs::create_dir_all(directory.path().join("arch/systems")).expect("a directory");
        for name in ["sn10.toml", "sn30.toml", "sn40l.toml", "a100.toml"] {
            fs::write(directory.path().join("arch").join(name), file(&format!("arch/{name}"))).expect("a chip");
        }
        let gpu = arch::parse_any("a100.toml", &file("arch/a100.toml"), &[]).expect("a chip");
        let system = pod::dgx_a100(&[]).expect("a system");
        let outcomes: Vec<_> =
            compiled.iter().map(|c| simulate_measured(&chip, &workload, c, Fidelity::Event)).collect();
        let result = Document::new(&chip, &workload, &outcomes).to_json();
        let (gpu, system) = (Target::Chip(gpu), Target::System(Box::new(system)));
        Self { directory, chip_text, workload_text, chip, workload, compiled, study, gpu, system, result }
    }

    /// Writes an input where its reader wants a file.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).expect("a temporary file");
        path
    }

    fn layouts(&self) -> String {
        let outcomes =
            self.compiled.iter().map(|c| simulate_measured(&self.chip, &self.workload, c, Fidelity::Event)).collect();
        let chip = AnyChip::from(self.chip.clone());
        let ran = analysis::Ran { chip, divided: None, configurations: self.compiled.clone(), outcomes };
        let document = Document::new(&self.chip, &self.workload, &ran.outcomes);
        let files = analysis::page(&self.workload, &[ran], &document, Made::new(String::new(), Vec::new()));
        let layout = files.into_iter().find(|file| file.name == "layout.json").expect("layouts");
        String::from_utf8(layout.bytes).expect("JSON is UTF-8")
    }

    fn given(&self) -> (Given, Given) {
        let text = |name: &str, text: &String| Given::Text { name: name.into(), text: text.clone() };
        (text("chip.toml", &self.chip_text), text("work.toml", &self.workload_text))
    }

    fn certificate(&self) -> String {
        let (arch, workload) = self.given();
        let model = Request::default();
        let inputs = ProofInputs {
            arch: &arch,
            workload: &workload,
            model: &model,
            sets: &[],
            quality: Quality::Ideal,
            seed: 0,
        };
        let file = analysis::prove(&inputs, Mode::Fused, &mut |_| ()).expect("a certificate");
        file.to_json().expect("numbers that JSON has")
    }

    fn journal(&self) -> Vec<u8> {
        let out = self.directory.path().join("out");
        sweep::sweep(&self.study, Shard::WHOLE, Some(1), Some(&out), &|_, _| ()).expect("a sweep");
        fs::read(out.join("journal.jsonl")).expect("a journal")
    }
}

/// The text of an input; one that is none is refused before any parser of texts.
fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| error.to_string())
}

/// A result as it is saved.
fn saved_result<'a>(json: &'a str, layout: Option<&'a str>) -> SavedResult<'a> {
    SavedResult { title: "title", json, layout, table: None }
}

/// What a user would be told, rendered as for a terminal.
fn told<T>(result: Result<T, Diagnostic>) -> Result<T, String> {
    result.map_err(|error| error.render(true))
}

/// Reads a file of matrices as a mask, and prunes it where it has values.
fn mask(kind: FileKind, key: Option<&str>, bytes: &[u8]) -> Result<(), String> {
    let densities = if kind == FileKind::Smtx { &[None][..] } else { &[None, Some(0.5)] };
    for &density in densities {
        let wanted = MatrixRequest { key, shape: None, block: (4, 4), density, transpose: false };
        read_mask(kind, Cursor::new(bytes), &wanted).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Compiles and simulates a pair in every mode, and holds the runs against what is true of every run.
pub(crate) fn end_to_end(bytes: &[u8]) -> Result<(), String> {
    let (chip, graph) = text(bytes)?.split_once(BETWEEN).ok_or("no pair")?;
    let chip = told(arch::parse("chip.toml", chip, &[]))?;
    let workload = told(workload::parse("work.toml", graph, &[], 0))?;
    let compiled = told(compile_measured(&chip, &workload, &Mode::ALL))?;
    for compiled in &compiled {
        let outcome = simulate_measured(&chip, &workload, compiled, Fidelity::Event);
        assert!(!matches!(outcome.stop, StopReason::Deadlock(_)), "{:?}", outcome.stop);
        if outcome.stop == StopReason::Drained {
            assert!(outcome.bound_cycles <= outcome.cycles, "bound {} > {}", outcome.bound_cycles, outcome.cycles);
        }
        let _ = Document::new(&chip, &workload, std::slice::from_ref(&outcome)).to_json();
    }
    Ok(())
}

/// Every kind whose reader is a parser.
pub(crate) fn parsers(bench: &Bench) -> Vec<Kind> {
    let mut kinds = texts(bench);
    kinds.extend(mappings(bench));
    kinds.extend(models());
    kinds.extend(results(bench));
    kinds.extend(tables());
    kinds.extend(masks());
    kinds
}

/// Chips and graphs, compiled and simulated.
pub(crate) fn runs() -> Kind {
    let seeds = (0..24).map(|number| {
        let (chip, graph) = if number % 3 == 0 {
            let (_, chip, graph) = pair(1, number);
            (chip, graph)
        } else {
            small_pair(1, number)
        };
        format!("{}{BETWEEN}{}", chip.text(), graph.text()).into_bytes()
    });
    let packed = format!("{}{BETWEEN}{PACKED}", small_pair(1, 1).0.text()).into_bytes();
    Kind { name: "run", form: Form::Pair, seeds: seeds.chain([packed]).collect(), read: |_, bytes| end_to_end(bytes) }
}

fn bytes(texts: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    texts.into_iter().map(String::into_bytes).collect()
}

/// A weight in int4 and a cache in MXFP8, read by heads of two sequences.
const PACKED: &str = r#"schema = 1
name = "packed"
[[tensors]]
name = "x"
shape = [2, 48]
role = "input"
[[tensors]]
name = "w"
shape = [48, 64]
role = "weight"
storage = { format = "int4", group = 16 }
[[tensors]]
name = "k"
shape = [20, 32]
role = "input"
storage = { format = "mxfp8" }
[[operators]]
name = "query"
kind = "gemm"
inputs = ["x", "w"]
output = "q"
[[operators]]
name = "scores"
kind = "gemm"
inputs = ["q", "k"]
output = "s"
transpose_b = true
batch = 2
heads = 4
kv_heads = 2
"#;

const CONFIGS: [&str; 4] = [
    r#"{"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":4,"n_positions":128,"vocab_size":512}"#,
    r#"{"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
       "intermediate_size":128,"max_position_embeddings":256,"vocab_size":512,"rope_theta":1e4,"torch_dtype":"bfloat16"}"#,
    r#"{"model_type":"mixtral","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
       "intermediate_size":128,"num_local_experts":4,"num_experts_per_tok":2,"max_position_embeddings":256,
       "sliding_window":null,"vocab_size":512,"tie_word_embeddings":true,
       "quantization_config":{"quant_method":"awq","bits":4,"group_size":32}}"#,
    r#"{"model_type":"bert","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":128,
       "max_position_embeddings":128,"type_vocab_size":2,"vocab_size":512,
       "quantization_config":{"quant_method":"compressed-tensors","config_groups":{"group_0":{
       "weights":{"num_bits":8,"type":"int","strategy":"channel"},
       "input_activations":{"num_bits":8,"type":"int","strategy":"token","dynamic":true}}}}}"#,
];

/// Files that describe what is to be run.
fn texts(bench: &Bench) -> Vec<Kind> {
    let toml = Form::Tree(Format::Toml);
    let chips =
        ["sn10", "sn40l", "a100", "bow", "gc200", "tpu-v4", "cs2"].map(|name| file(&format!("arch/{name}.toml")));
    let graphs = ["tiny-mlp", "relu", "gemm-square"].map(|name| file(&format!("workloads/{name}.toml")));
    let systems = ["dgx-a100", "sn10-8", "sn40l-16"].map(|name| file(&format!("arch/systems/{name}.toml")));
    let studies = ["launch", "quick-look", "sparsity-block", "pcu-pmu-ratio", "bound-space"];
    let studies = studies.map(|name| file(&format!("workloads/studies/{name}.toml")));
    vec![
        Kind {
            name: "chip",
            form: toml,
            seeds: bytes(chips.into_iter().chain([bench.chip_text.clone()])),
            read: |_, bytes| told(arch::parse_any("chip.toml", text(bytes)?, &[])).map(drop),
        },
        Kind {
            name: "workload",
            form: toml,
            seeds: bytes(
                graphs.into_iter().chain([PACKED.to_owned()]).chain((0..12).map(|number| pair(2, number).2.text())),
            ),
            read: |_, bytes| told(workload::parse("work.toml", text(bytes)?, &[], 0)).map(drop),
        },
        Kind {
            name: "system",
            form: toml,
            seeds: bytes(systems),
            read: |bench, bytes| told(pod::open(&bench.file("arch/systems/s.toml", bytes), &[])).map(drop),
        },
        Kind {
            name: "study",
            form: toml,
            seeds: bytes(studies.into_iter().chain([STUDY.to_owned()])),
            read: |_, bytes| {
                let given = Given::Text { name: "study.toml".into(), text: text(bytes)?.into() };
                told(Study::take(&given, IndexMap::new(), &[], None)).map(drop)
            },
        },
    ]
}

/// Sections, mappings, and arguments.
fn mappings(bench: &Bench) -> Vec<Kind> {
    let toml = Form::Tree(Format::Toml);
    let operators = bench.workload.operators.iter().map(|op| format!("{:?}", op.name)).collect::<Vec<_>>().join(", ");
    let sections = format!("schema = 1\n[[sections]]\noperators = [{operators}]\n");
    let configurations = bench.compiled.iter().map(|compiled| &compiled.configuration);
    let mapping = saved::to_toml(&bench.chip, &bench.workload, configurations);
    let sets =
        ["arch.clock_ghz=2", "arch.grid.columns = 8", "arch.\"pcu\".lanes.bf16=16", "arch.memory.tier0.channels=2"];
    let parallel = [
        "tp=8,pp=4,dp=2",
        "tp=2,sp=1,schedule=interleaved:2,recompute=full,zero=3",
        "pp=4,schedule=zb-h1,recompute=selective",
    ];
    vec![
        Kind {
            name: "sections",
            form: toml,
            seeds: bytes([sections]),
            read: |bench, bytes| {
                let path = bench.file("sections.toml", bytes);
                told(workload::pin(bench.workload.clone(), &path)).map(drop)
            },
        },
        Kind {
            name: "mapping",
            form: toml,
            seeds: bytes([mapping]),
            read: |bench, bytes| {
                let modes = [Mode::Fused];
                told(saved::parse("map.toml", text(bytes)?, &bench.chip, &bench.workload, &modes)).map(drop)
            },
        },
        Kind {
            name: "set",
            form: Form::Bytes,
            seeds: bytes(sets.map(str::to_owned)),
            read: |bench, bytes| {
                let set = told(Override::parse(text(bytes)?))?;
                told(arch::parse("chip.toml", &bench.chip_text, &[set])).map(drop)
            },
        },
        Kind {
            name: "set-range",
            form: Form::Bytes,
            seeds: bytes(
                ["arch.pmu.banks=4..64*2", "arch.x=1.5..8+0.5", "arch.x=64Ki, 'a,b', [1, 2]"].map(str::to_owned),
            ),
            read: |_, bytes| {
                let text = text(bytes)?;
                told(SetRange::parse(text))?.map_or_else(|| told(Override::parse(text)).map(drop), |_| Ok(()))
            },
        },
        Kind {
            name: "parallel",
            form: Form::Bytes,
            seeds: bytes(parallel.map(str::to_owned)),
            read: |_, bytes| told(Parallel::parse(text(bytes)?)).map(drop),
        },
    ]
}

/// Models of other formats.
fn models() -> Vec<Kind> {
    vec![
        Kind {
            name: "config",
            form: Form::Tree(Format::Json),
            seeds: bytes(CONFIGS.map(str::to_owned)),
            read: |bench, bytes| imported(bench, "config.json", bytes),
        },
        Kind {
            name: "onnx",
            form: Form::Wire,
            seeds: wire::networks(),
            read: |bench, bytes| imported(bench, "net.onnx", bytes),
        },
        Kind {
            name: "exported",
            form: Form::Tree(Format::Json),
            seeds: bytes(exported::programs()),
            read: |bench, bytes| imported(bench, "net.pt2", &exported::archive(text(bytes)?)),
        },
        Kind {
            name: "pt2",
            form: Form::Bytes,
            seeds: exported::programs()
                .iter()
                .flat_map(|text| {
                    let zip64 = exported::archive_with_zip64_end(text);
                    [exported::archive(text), exported::legacy(text), zip64]
                })
                .collect(),
            read: |bench, bytes| imported(bench, "net.pt2", bytes),
        },
    ]
}

/// Imports a model that lies in a file of this name.
fn imported(bench: &Bench, name: &str, bytes: &[u8]) -> Result<(), String> {
    let options = import::Options { dtype: "bf16".into(), ..import::Options::default() };
    let imported = told(import::import(&bench.file(name, bytes), &options))?;
    told(workload::parse("imported.toml", imported.graph.text(), &[], 0)).map(drop)
}

/// What the program wrote itself.
fn results(bench: &Bench) -> Vec<Kind> {
    let json = Form::Tree(Format::Json);
    let grid = r#"{"grid":{"inputs":"x","users":[1,2],"contexts":[128,256],
        "decode":[[{"seconds":0.1,"joules":1.0},{"seconds":0.2,"joules":1.5}],
                  [{"seconds":0.3,"joules":2.0},{"seconds":0.4,"joules":2.5}]],
        "prompts":[128],"prefill":[{"seconds":0.5,"joules":3.0}]}}"#;
    vec![
        Kind {
            name: "result",
            form: json,
            seeds: bytes([bench.result.clone()]),
            read: |bench, bytes| {
                let text = text(bytes)?;
                let mut page = Page::new(Made::new(String::new(), Vec::new()));
                let shown = page.add_saved(saved_result(text, None)).map_err(|error| error.to_string());
                if shown.is_ok() {
                    let _ = page.html();
                }
                let difference = told(diff::diff(("a.json", &bench.result), ("b.json", text)))?;
                let _ = (difference.to_text(), difference.to_json());
                shown
            },
        },
        Kind {
            name: "sheet",
            form: json,
            seeds: bytes(SHEETS.map(str::to_owned)),
            read: |_, bytes| {
                let text = text(bytes)?;
                let _ = result_csv(text);
                let mut page = Page::new(Made::new(String::new(), Vec::new()));
                page.add_saved(saved_result(text, None)).map_err(|error| error.to_string())?;
                let _ = page.html();
                Ok(())
            },
        },
        Kind {
            name: "layout",
            form: json,
            seeds: bytes([bench.layouts()]),
            read: |bench, bytes| {
                let mut page = Page::new(Made::new(String::new(), Vec::new()));
                page.add_saved(saved_result(&bench.result, Some(text(bytes)?))).map_err(|error| error.to_string())?;
                let _ = page.html();
                Ok(())
            },
        },
        Kind {
            name: "certificate",
            form: json,
            seeds: bytes([bench.certificate()]),
            read: |bench, bytes| {
                let file = told(ProofFile::parse("proof.json", text(bytes)?))?;
                let (arch, workload) = bench.given();
                analysis::check(&file, Some((&arch, &workload))).map_err(|error| format!("{error:?}"))
            },
        },
        Kind {
            name: "grid",
            form: json,
            seeds: bytes([grid.to_owned()]),
            read: |_, bytes| told(Grid::read("grid.json", text(bytes)?)).map(drop),
        },
        Kind {
            name: "journal",
            form: Form::Journal,
            seeds: vec![bench.journal()],
            read: |bench, bytes| {
                bench.file("out/journal.jsonl", bytes);
                let out = bench.directory.path().join("out");
                let merged = sweep::merge(&bench.study, &[&out]).map_err(|error| error.to_string())?;
                let _ = (merged.to_csv(), merged.to_text(), merged.to_json());
                Ok(())
            },
        },
    ]
}

/// Tables of comma-separated values.
fn tables() -> Vec<Kind> {
    let csv = Form::Tree(Format::Csv);
    let trace = "# requests\narrival_s,prompt_tokens,output_tokens\n0,128,16\n0.5,256,32\n1.25,64,8\n";
    let measured = [
        "# source: made up\nm,n,k,dtype,time_us\n128,128,128,bf16,10\n64,256,512,fp32,12.5\n",
        "batch,isl,heads,kv_heads,head_dim,latency_ms\n1,128,8,2,64,1\n2,256,8,8,128,2\n",
        "batch,cached,heads,kv_heads,head_dim,latency_ms\n1,128,8,2,64,1\n2,256,8,8,128,2\n",
        "num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency_ms\n\
         16,256,512,2,8,1,1,uniform,1\n64,256,512,2,8,1,2,uniform,2\n",
    ];
    let collectives = "collective,gpus,message_size,latency_ms\nall_reduce,8,1048576,1\nall_gather,4,65536,0.5\n";
    vec![
        Kind {
            name: "requests",
            form: csv,
            seeds: bytes([
                trace.to_owned(),
                "{\"timestamp\": 27, \"input_length\": 200, \"output_length\": 8, \"hash_ids\": [1, 2]}\n".to_owned(),
            ]),
            read: |_, bytes| told(pod::read_trace("trace.csv", text(bytes)?)).map(drop),
        },
        Kind {
            name: "measured",
            form: csv,
            seeds: bytes(measured.map(str::to_owned)),
            read: |bench, bytes| told(validate_data("data.csv", text(bytes)?, &bench.gpu)).map(drop),
        },
        Kind {
            name: "collectives",
            form: csv,
            seeds: bytes([collectives.to_owned()]),
            read: |bench, bytes| told(validate_data("data.csv", text(bytes)?, &bench.system)).map(drop),
        },
    ]
}

/// Files of matrices.
fn masks() -> Vec<Kind> {
    let seed = |name: &str| fs::read(root().join("examples/masks").join(name)).expect("a matrix");
    let mtx = b"%%MatrixMarket matrix coordinate real general\n% made up\n8 8 3\n1 1 0.5\n2 3 -1\n8 8 2e3\n".to_vec();
    vec![
        Kind { name: "npy", form: Form::Bytes, seeds: vec![npy()], read: |_, bytes| mask(FileKind::Npy, None, bytes) },
        Kind {
            name: "npz",
            form: Form::Bytes,
            seeds: vec![seed("layers.npz")],
            read: |_, bytes| mask(FileKind::Npz, Some("weight"), bytes),
        },
        Kind { name: "mtx", form: Form::Bytes, seeds: vec![mtx], read: |_, bytes| mask(FileKind::Mtx, None, bytes) },
        Kind {
            name: "smtx",
            form: Form::Bytes,
            seeds: vec![b"4, 4, 3\n0 1 2 2 3\n0 1 3\n".to_vec()],
            read: |_, bytes| mask(FileKind::Smtx, None, bytes),
        },
        Kind {
            name: "safetensors",
            form: Form::Bytes,
            seeds: vec![safetensors()],
            read: |_, bytes| mask(FileKind::Safetensors, Some("w"), bytes),
        },
    ]
}
