//! An instrumented copy of the repository: sampled mutants are put into its sources, those that do not compile are taken out
//! again, and its tests are built.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::RngExt;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use crate::find::{Mutant, find};
use crate::weave::{mutant_of_line, switch, weave};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Lints that a mutant may break and that are errors unless they are allowed.
const ALLOWED: &str = "#![allow(warnings, arithmetic_overflow, unconditional_panic, unconditional_recursion)]\n";

/// Where the repository is, and the files of a run.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) repository: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) build: PathBuf,
    pub(crate) mutants: PathBuf,
    pub(crate) tests: PathBuf,
    pub(crate) reached: PathBuf,
    pub(crate) results: PathBuf,
    pub(crate) scratch: PathBuf,
}

impl Places {
    pub(crate) fn new(repository: &Path) -> Outcome<Self> {
        let repository = repository.canonicalize()?;
        let folder = repository.join("target/mutants");
        fs::create_dir_all(folder.join("scratch"))?;
        Ok(Self {
            tree: folder.join("tree"),
            build: folder.join("build"),
            mutants: folder.join("mutants.jsonl"),
            tests: folder.join("tests.json"),
            reached: folder.join("reached.jsonl"),
            results: folder.join("results.jsonl"),
            scratch: folder.join("scratch"),
            repository,
        })
    }
}

/// A mutant of the sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sampled {
    /// Number that switches it on.
    pub(crate) id: u32,
    pub(crate) module: String,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) function: String,
    pub(crate) change: String,
    /// Whether the program compiles with it.
    pub(crate) viable: bool,
}

impl Sampled {
    /// What it is called in results, which outlive its number.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}:{} {} in {}", self.file, self.line, self.column, self.change, self.function)
    }
}

/// A mutant with the text that it changes.
struct Candidate {
    file: String,
    mutant: Mutant,
}

/// Test binaries of the tree, by name: `main`, and those of the crates' libraries by the names of the libraries.
#[derive(Serialize, Deserialize)]
pub(crate) struct Tests(pub(crate) BTreeMap<String, PathBuf>);

/// Where a module of the library stands.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// Folder of its crate, from the root of the repository.
    pub(crate) folder: PathBuf,
    /// Name of the crate's library, and of its tests' binary.
    pub(crate) library: String,
    /// The crate is this module: paths in the crate do not name it.
    is_crate: bool,
}

impl Home {
    /// The crate whose `lib.rs` declares the module, or else the crate of its name.
    pub(crate) fn of(repository: &Path, module: &str) -> Outcome<Self> {
        let declaration = format!("pub mod {module};");
        for folder in crates(repository)? {
            let text = fs::read_to_string(repository.join(&folder).join("src/lib.rs"))?;
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            let library = name.clone().map_or("rdusim".to_owned(), |name| format!("rdusim_{name}"));
            let declares = text.lines().any(|line| line == declaration);
            if declares || name.is_some_and(|name| name == module) {
                return Ok(Self { folder, library, is_crate: !declares });
            }
        }
        Err(format!("no crate has a module {module}").into())
    }

    /// How the names of the module's unit tests begin.
    pub(crate) fn prefix(&self, module: &str) -> String {
        if self.is_crate { String::new() } else { format!("{module}::") }
    }
}

/// Folders of the crates that are woven, the root's first.
pub(crate) fn crates(repository: &Path) -> Outcome<Vec<PathBuf>> {
    let mut folders = vec![PathBuf::new()];
    for entry in fs::read_dir(repository.join("crates"))? {
        folders.push(Path::new("crates").join(entry?.file_name()));
    }
    folders.sort();
    Ok(folders)
}

/// What `build` is asked for.
pub(crate) struct Request<'a> {
    pub(crate) modules: &'a [String],
    pub(crate) sample: usize,
    pub(crate) seed: u64,
}

/// Mutants of a module, by file, and its functions of an opaque type.
fn candidates(repository: &Path, module: &str) -> Outcome<(Vec<Candidate>, usize)> {
    let mut found = Vec::new();
    let mut opaque = 0;
    let home = Home::of(repository, module)?;
    let sources = home.folder.join("src");
    let mut waiting = vec![(sources.clone(), (!home.is_crate).then(|| module.to_owned()))];
    while let Some((folder, name)) = waiting.pop() {
        // A module without a name is the crate.
        let (own_folder, path) = match name {
            None => (sources.clone(), sources.join("lib.rs")),
            Some(name) => {
                let (own_folder, beside) = (folder.join(&name), folder.join(format!("{name}.rs")));
                let path = if repository.join(&beside).exists() { beside } else { own_folder.join("mod.rs") };
                (own_folder, path)
            }
        };
        let text =
            fs::read_to_string(repository.join(&path)).map_err(|error| format!("{}: {error}", path.display()))?;
        let of_file = find(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        opaque += of_file.opaque;
        let file = path.to_string_lossy().into_owned();
        found.extend(of_file.mutants.into_iter().map(|mutant| Candidate { file: file.clone(), mutant }));
        waiting.extend(of_file.modules.into_iter().map(|inner| (own_folder.clone(), Some(inner))));
    }
    found.sort_by(|a, b| (&a.file, a.mutant.line, a.mutant.column).cmp(&(&b.file, b.mutant.line, b.mutant.column)));
    Ok((found, opaque))
}

/// Prints how many mutants each module has.
pub(crate) fn count(repository: &Path, modules: &[String]) -> Outcome<Vec<String>> {
    let lines = modules.iter().map(|module| {
        let (found, opaque) = candidates(repository, module)?;
        Ok(format!("{module}: {} mutants; {opaque} functions of an opaque type are left out", found.len()))
    });
    lines.collect()
}

/// The first `sample` of a random order of a module's mutants: a function of seed and module.
fn draw(mut found: Vec<Candidate>, module: &str, request: &Request) -> Vec<Candidate> {
    let of_module = module.bytes().fold(request.seed, |seed, byte| seed.wrapping_mul(0x100_0193) ^ u64::from(byte));
    let mut random = Pcg64::seed_from_u64(of_module);
    let sample = request.sample.min(found.len());
    for index in 0..sample {
        let other = random.random_range(index..found.len());
        found.swap(index, other);
    }
    found.truncate(sample);
    found
}

/// Draws the sample, writes the instrumented tree and builds its tests.
pub(crate) fn build(places: &Places, request: &Request) -> Outcome<()> {
    let mut sampled = Vec::new();
    let mut drawn = Vec::new();
    for module in request.modules {
        let (found, _) = candidates(&places.repository, module)?;
        let of_module = draw(found, module, request);
        for candidate in of_module {
            sampled.push(Sampled {
                id: u32::try_from(sampled.len() + 1)?,
                module: module.clone(),
                file: candidate.file.clone(),
                line: candidate.mutant.line,
                column: candidate.mutant.column,
                function: candidate.mutant.function.clone(),
                change: candidate.mutant.change.clone(),
                viable: true,
            });
            drawn.push(candidate);
        }
    }
    recall_unviable(places, &mut sampled);
    copy_tree(places)?;
    // As the tests are built: a build of the library alone has other features of its dependencies, and would be another one.
    let executables = loop {
        weave_tree(places, &sampled, &drawn)?;
        let (executables, errors) = compile(places, &["test", "--no-run", "--lib", "--test", "main"])?;
        if errors.is_empty() {
            break executables;
        }
        let unviable = blame(places, &errors)?;
        eprintln!("{} errors: {} mutants do not compile", errors.len(), unviable.len());
        for id in unviable {
            sampled[id as usize - 1].viable = false;
        }
        write_lines(&places.mutants, &sampled)?;
    };
    write_lines(&places.mutants, &sampled)?;
    // Copies, as another build may run while tests do.
    let kept = |name: &str, path: PathBuf| -> Outcome<PathBuf> {
        let (copy, kept) = (places.scratch.join(name), places.tests.with_file_name(format!("tests-{name}")));
        fs::copy(path, &copy)?;
        fs::rename(copy, &kept)?;
        Ok(kept)
    };
    let mut tests = BTreeMap::new();
    for (kind, name, path) in executables {
        if kind == "lib" || (kind == "test" && name == "main") {
            tests.insert(name.clone(), kept(&name, path)?);
        }
    }
    fs::write(&places.tests, serde_json::to_string(&Tests(tests))?)?;
    Ok(())
}

/// Mutants of an earlier build that did not compile are not tried again.
fn recall_unviable(places: &Places, sampled: &mut [Sampled]) {
    let before: Vec<Sampled> = read_lines(&places.mutants).unwrap_or_default();
    let unviable: BTreeSet<_> = before.iter().filter(|mutant| !mutant.viable).map(Sampled::name).collect();
    for mutant in sampled {
        mutant.viable = !unviable.contains(&mutant.name());
    }
}

/// Writes a file unless it holds the same already: what is not changed is not built again.
fn write_changed(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().ok_or("a path without a folder")?)?;
    Ok(fs::write(path, bytes)?)
}

/// Copies what git knows and what is new, except sources, which are woven.
fn copy_tree(places: &Places) -> Outcome<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&places.repository);
    let listed = String::from_utf8(git.output()?.stdout)?;
    for file in listed.split('\0').filter(|file| !file.is_empty()) {
        let from = places.repository.join(file);
        if from.is_file() && !is_woven(file) {
            write_changed(&places.tree.join(file), &fs::read(from)?)?;
        }
    }
    Ok(())
}

fn is_woven(file: &str) -> bool {
    let is_source = file.starts_with("src/") || (file.starts_with("crates/") && file.contains("/src/"));
    is_source && Path::new(file).extension().is_some_and(|extension| extension == "rs")
}

fn weave_tree(places: &Places, sampled: &[Sampled], drawn: &[Candidate]) -> Outcome<()> {
    let mut of_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
    for (mutant, candidate) in sampled.iter().zip(drawn).filter(|(mutant, _)| mutant.viable) {
        of_file.entry(&candidate.file).or_default().push((mutant.id, &candidate.mutant));
    }
    // One crate holds the switch, and the others know it by the same name.
    let switch_folder = Path::new("crates/base/src");
    let mut folders: Vec<_> = crates(&places.repository)?.into_iter().map(|folder| folder.join("src")).collect();
    let roots: BTreeSet<PathBuf> = folders.iter().map(|folder| folder.join("lib.rs")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(places.repository.join(&folder))? {
            let path = folder.join(entry?.file_name());
            let file = path.to_string_lossy().into_owned();
            if places.repository.join(&path).is_dir() {
                folders.push(path);
            } else if is_woven(&file) {
                let text = fs::read_to_string(places.repository.join(&path))?;
                let mut text = of_file.get(file.as_str()).map_or(text.clone(), |mutants| weave(&text, mutants));
                if roots.contains(&path) {
                    let is_base = path.starts_with(switch_folder);
                    let known = if is_base { "pub mod mutation;" } else { "pub(crate) use rdusim_base::mutation;" };
                    text = format!("{ALLOWED}{text}\n{known}\n");
                }
                write_changed(&places.tree.join(&path), text.as_bytes())?;
            }
        }
    }
    let place = places.tree.join(switch_folder).join("mutation.rs");
    write_changed(&place, switch(u32::try_from(sampled.len())?).as_bytes())
}

type Executables = Vec<(String, String, PathBuf)>;

/// Runs cargo in the tree: kind, name and path of each test binary, and the compiler's errors.
fn compile(places: &Places, arguments: &[&str]) -> Outcome<(Executables, Vec<serde_json::Value>)> {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).args(["--locked", "--message-format=json"]).current_dir(&places.tree);
    cargo.env("CARGO_TARGET_DIR", &places.build).stderr(Stdio::piped());
    let output = cargo.output()?;
    let mut executables = Vec::new();
    let mut errors = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if let Some(path) = message["executable"].as_str() {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            executables.push((text(&message["target"]["kind"][0]), text(&message["target"]["name"]), path.into()));
        }
        if message["message"]["level"] == "error" && !message["message"]["spans"].as_array().is_none_or(Vec::is_empty) {
            errors.push(message);
        }
    }
    if errors.is_empty() && !output.status.success() {
        return Err(format!("cargo failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok((executables, errors))
}

/// The mutants that errors are about: by the line of the error, or else by a line that it mentions.
fn blame(places: &Places, errors: &[serde_json::Value]) -> Outcome<BTreeSet<u32>> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut blamed = BTreeSet::new();
    let mut other = Vec::new();
    for error in errors {
        let mut spans = Vec::new();
        gather_spans(&error["message"], &mut spans);
        spans.sort_by_key(|(primary, ..)| !primary);
        let mut id = None;
        for (_, file, from, to) in spans {
            let Ok(read) = fs::read_to_string(places.tree.join(&file)) else { continue };
            let text = texts.entry(file).or_insert(read);
            id = id.or_else(|| (from..=to.min(from + 20)).find_map(|line| mutant_of_line(text, line)));
        }
        match id {
            Some(id) => {
                blamed.insert(id);
            }
            None => other.push(error["message"]["rendered"].as_str().unwrap_or_default()),
        }
    }
    if blamed.is_empty() {
        return Err(format!("errors of no mutant:\n{}", other.join("\n")).into());
    }
    Ok(blamed)
}

fn gather_spans(message: &serde_json::Value, spans: &mut Vec<(bool, String, usize, usize)>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        let line = |field: &str| usize::try_from(span[field].as_u64().unwrap_or(0)).unwrap_or(0);
        let file = span["file_name"].as_str().unwrap_or_default().to_owned();
        spans.push((span["is_primary"] == true, file, line("line_start"), line("line_end")));
    }
    for child in message["children"].as_array().into_iter().flatten() {
        let before = spans.len();
        gather_spans(child, spans);
        spans[before..].iter_mut().for_each(|span| span.0 = false);
    }
}

pub(crate) fn write_lines<T: Serialize>(path: &Path, items: &[T]) -> Outcome<()> {
    let mut text = String::new();
    for item in items {
        text += &serde_json::to_string(item)?;
        text.push('\n');
    }
    Ok(fs::write(path, text)?)
}

/// The lines of a file that are whole: a run that was killed may have left a part of its last one.
pub(crate) fn read_lines<T: for<'a> Deserialize<'a>>(path: &Path) -> Outcome<Vec<T>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
