//! The invariants of `ARCHITECTURE.md` that the compiler does not see: read from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::import_graph::ImportGraph;
use super::sources::{Source, crates, sources};

/// Longest file.
const MOST_LINES: usize = 600;

/// Modules lowest first, each with the modules it may import. No module imports one below it in this list.
const MODULES: [(&str, &[&str]); 35] = [
    ("units", &[]),
    ("index", &[]),
    ("mode", &[]),
    ("diagnostics", &[]),
    ("interrupt", &[]),
    ("sparsity", &[]),
    ("input", &["diagnostics"]),
    ("arch", &["units", "index", "diagnostics", "input"]),
    ("workload", &["units", "index", "mode", "diagnostics", "sparsity", "input"]),
    ("model", &["units", "diagnostics", "workload"]),
    ("import", &["diagnostics", "model", "sparsity", "input", "workload"]),
    ("program", &["units", "index", "mode", "diagnostics", "sparsity", "arch", "workload"]),
    ("cost", &["interrupt", "units", "index", "mode", "sparsity", "arch", "workload", "program"]),
    ("bound", &["interrupt", "units", "index", "sparsity", "arch", "workload", "program", "cost"]),
    ("proof", &["index", "mode", "arch", "workload", "program", "cost", "bound"]),
    ("outcome", &["mode", "workload", "proof"]),
    ("fluid", &["index"]),
    ("cycle", &["interrupt", "units", "index", "sparsity", "arch", "workload", "program"]),
    ("sim", &["units", "index", "mode", "diagnostics", "arch", "workload", "program", "cost", "outcome", "cycle"]),
    (
        "compile",
        &[
            "units",
            "index",
            "mode",
            "diagnostics",
            "sparsity",
            "arch",
            "workload",
            "program",
            "cost",
            "bound",
            "outcome",
            "sim",
        ],
    ),
    ("saved", &["index", "mode", "diagnostics", "input", "arch", "workload", "program", "compile"]),
    ("gpu", &["units", "index", "diagnostics", "mode", "sparsity", "arch", "workload", "outcome"]),
    ("bsp", &["units", "index", "diagnostics", "mode", "sparsity", "arch", "workload", "outcome"]),
    ("kernels", &["units", "mode", "arch", "workload", "outcome"]),
    ("systolic", &["units", "index", "diagnostics", "mode", "sparsity", "arch", "workload", "outcome", "kernels"]),
    ("wafer", &["units", "index", "diagnostics", "mode", "sparsity", "arch", "workload", "outcome", "kernels"]),
    ("machine", &["diagnostics", "mode", "arch", "workload", "outcome", "gpu", "bsp", "systolic", "wafer"]),
    (
        "pod",
        &[
            "interrupt",
            "units",
            "index",
            "mode",
            "diagnostics",
            "model",
            "input",
            "arch",
            "workload",
            "program",
            "outcome",
            "fluid",
            "compile",
            "gpu",
            "bsp",
            "systolic",
            "wafer",
        ],
    ),
    ("map", &["diagnostics", "index", "mode", "arch", "workload", "program", "cost", "outcome", "bsp"]),
    (
        "validate",
        &[
            "units",
            "diagnostics",
            "mode",
            "model",
            "input",
            "arch",
            "workload",
            "cost",
            "outcome",
            "compile",
            "gpu",
            "bsp",
            "systolic",
            "pod",
        ],
    ),
    (
        "verify",
        &[
            "interrupt",
            "units",
            "index",
            "mode",
            "diagnostics",
            "input",
            "arch",
            "sparsity",
            "workload",
            "program",
            "cost",
            "sim",
            "compile",
        ],
    ),
    (
        "report",
        &[
            "units",
            "diagnostics",
            "mode",
            "sparsity",
            "arch",
            "workload",
            "outcome",
            "sim",
            "pod",
            "map",
            "validate",
            "verify",
        ],
    ),
    (
        "study",
        &[
            "interrupt",
            "diagnostics",
            "mode",
            "input",
            "arch",
            "workload",
            "import",
            "program",
            "cost",
            "proof",
            "outcome",
            "sim",
            "compile",
            "machine",
            "report",
        ],
    ),
    (
        "analysis",
        &[
            "units",
            "diagnostics",
            "model",
            "sparsity",
            "input",
            "arch",
            "workload",
            "import",
            "mode",
            "program",
            "outcome",
            "proof",
            "compile",
            "sim",
            "saved",
            "gpu",
            "pod",
            "map",
            "validate",
            "verify",
            "report",
            "study",
        ],
    ),
    (
        "cli",
        &[
            "units",
            "analysis",
            "diagnostics",
            "mode",
            "model",
            "input",
            "arch",
            "workload",
            "import",
            "outcome",
            "compile",
            "sim",
            "bsp",
            "pod",
            "map",
            "validate",
            "verify",
            "report",
            "study",
            "saved",
        ],
    ),
];

/// A file of the library, without its tests and comments, as if all modules stood in one crate.
struct File {
    /// From the root of the repository.
    place: String,
    /// Below one `src/`, with `/`.
    path: String,
    module: String,
    text: String,
    lines: usize,
}

fn files() -> Vec<File> {
    sources().into_iter().map(read).collect()
}

fn read(source: Source) -> File {
    let lines = source.text.lines().count();
    let tests_only = source.path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "fixture.rs"));
    let code = source.in_one_crate.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = if tests_only { "" } else { code };
    let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let module = source.module().to_owned();
    File { text: code.join("\n"), place: source.place, path: source.path, module, lines }
}

/// First names behind each `crate::` of a text; of a list in braces, all of them.
fn imported(text: &str) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        for part in list.split_inclusive(['{', '}', ',']) {
            if depth == 0 && !part.trim().starts_with('}') {
                names.insert(name(part.trim_start()));
            }
            if part.ends_with('{') {
                depth += 1;
            } else if part.ends_with('}') {
                depth -= 1;
            }
            if depth < 0 {
                break;
            }
        }
    }
    names.remove("");
    names
}

#[test]
fn imports_are_found() {
    let names = |text| imported(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names("use crate::arch::Chip;\nuse crate::{input::{A, B}, sim, units::Rate};"), "arch input sim units");
    assert_eq!(names("use crate::{\n    arch, workload,\n};\nlet x = crate::bound::f();"), "arch bound workload");
}

#[test]
fn modules_import_only_lower_modules() {
    let allowed: BTreeMap<&str, &[&str]> = MODULES.into_iter().collect();
    for (at, (module, imports)) in MODULES.iter().enumerate() {
        let before: Vec<&str> = MODULES[..at].iter().map(|(name, _)| *name).collect();
        assert!(imports.iter().all(|import| before.contains(import)), "{module} imports a module behind it");
    }
    for file in files() {
        // `tests` is what a crate of several modules tests of them together.
        if matches!(file.module.as_str(), "main" | "tests") {
            continue;
        }
        let Some(allowed) = allowed.get(file.module.as_str()) else {
            panic!("{}: module `{}` is not in MODULES", file.place, file.module);
        };
        for import in imported(&file.text) {
            // The macro of `index` stands at the root.
            let import = if import == "id_type" { "index".to_owned() } else { import };
            assert!(
                import == file.module || allowed.contains(&import.as_str()),
                "{}: module `{}` must not import `{import}`",
                file.place,
                file.module
            );
        }
        // `super` must not lead out of a module.
        let depth = file.path.split('/').count() - usize::from(file.path.ends_with("/mod.rs"));
        assert!(!file.text.contains(&"super::".repeat(depth)), "{}: `super` leaves the module", file.place);
    }
}

#[test]
fn no_file_is_long() {
    for file in files() {
        assert!(file.lines <= MOST_LINES, "{} has {} lines: split it", file.place, file.lines);
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let files = files();
    let sources = files.iter().filter(|file| file.module != "main" && !is_for_tests(file));
    let sources = sources.map(|file| (file.path.as_str(), file.text.as_str()));
    let graph = ImportGraph::new(sources.chain([("lib.rs", "")]));
    let circles = graph.circles().into_iter();
    let found: Vec<String> = circles.map(|circle| circle.imports).collect();
    assert!(found.is_empty(), "files import each other:\n{}", found.join("\n\n"));
}

#[test]
fn the_module_graph_is_the_one_that_is_drawn() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files().into_iter().filter(|file| !is_for_tests(file)) {
        // The macro of `index` stands at the root.
        let names = imported(&file.text).into_iter().map(|name| if name == "id_type" { "index".into() } else { name });
        let own = file.module.clone();
        found.entry(file.module).or_default().extend(names.filter(|name| *name != own));
    }
    let mut differences = Vec::new();
    for (module, allowed) in MODULES {
        let allowed: BTreeSet<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        let not_allowed = found[module].difference(&allowed).map(|name| format!("`{module}` imports `{name}`"));
        let not_used = allowed.difference(&found[module]).map(|name| format!("`{module}` does not import `{name}`"));
        differences.extend(not_allowed.chain(not_used));
    }
    assert!(differences.is_empty(), "MODULES is not what the sources have:\n{}", differences.join("\n"));
}

#[test]
fn crates_depend_on_what_their_modules_import() {
    let crates = crates();
    let held: BTreeSet<&str> = crates.iter().flat_map(|of| &of.modules).map(String::as_str).collect();
    assert_eq!(held, MODULES.iter().map(|(module, _)| *module).collect(), "modules of all crates, and MODULES");
    let home = |module: &str| crates.iter().find(|of| of.modules.iter().any(|own| own == module)).expect("has a crate");
    for of in crates.iter().filter(|of| !of.name.is_empty()) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{}/Cargo.toml", of.name));
        let manifest: toml::Table = std::fs::read_to_string(&path).expect("a manifest").parse().expect("is TOML");
        let named = manifest["dependencies"].as_table().expect("a table").keys();
        let named: BTreeSet<&str> = named.filter_map(|name| name.strip_prefix("rdusim-")).collect();
        let own = MODULES.iter().filter(|(module, _)| of.modules.iter().any(|own| own == module));
        let imported: BTreeSet<&str> =
            own.flat_map(|(_, imports)| imports.iter().map(|i| home(i).name.as_str())).collect();
        let imported: BTreeSet<&str> = imported.into_iter().filter(|name| *name != of.name).collect();
        assert_eq!(named, imported, "crates/{}/Cargo.toml, and what its modules import", of.name);
    }
}

/// Manifests switch off what cargo would look for in vain: examples in the documentation of crates that have none (each crate is parsed
/// once more for them), and tests.
#[test]
fn what_manifests_switch_off_is_not_there() {
    let sources = sources();
    for of in crates().iter().filter(|of| !of.name.is_empty()) {
        let manifest = std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{}/Cargo.toml", of.name)),
        )
        .expect("a manifest");
        let has = |what: &str| {
            let folder = format!("crates/{}/src/", of.name);
            sources.iter().filter(|source| source.place.starts_with(&folder)).any(|source| source.text.contains(what))
        };
        assert_eq!(manifest.contains("doctest = false"), !has("/// ```"), "{}: doctest", of.name);
        assert!(!manifest.contains("\ntest = false") || !has("#[test]"), "{}: test", of.name);
    }
}

/// Whether a file belongs to a module of tests.
fn is_for_tests(file: &File) -> bool {
    file.path.contains("/tests/")
}

/// Fails for each file outside `places` that holds one of `words`.
#[track_caller]
fn only_in(places: &[&str], words: &[&str]) {
    for file in files() {
        if is_for_tests(&file) || places.iter().any(|place| file.path.starts_with(place)) {
            continue;
        }
        for word in words {
            assert!(!file.text.contains(word), "{} has `{word}`, which belongs in {places:?}", file.place);
        }
    }
}

#[test]
fn files_are_touched_only_where_they_are_read_and_written() {
    only_in(
        &["input/", "report/write.rs", "study/sweep/journal.rs", "validate/points/journal.rs", "cli/"],
        &["std::fs", "fs::", "tempfile", "File::"],
    );
}

#[test]
fn the_clock_and_the_environment_belong_to_the_command_line() {
    only_in(&["cli/"], &["std::time", "Instant", "SystemTime", "std::thread"]);
    only_in(&["cli/", "main.rs"], &["std::env", "std::process"]);
}

#[test]
fn only_the_command_line_prints() {
    only_in(&["cli/"], &["print!", "println!", "dbg!", "io::stdout", "io::stderr"]);
}

#[test]
fn an_engine_counts_in_whole_numbers_and_on_one_thread() {
    let is_engine = |file: &&File| matches!(file.module.as_str(), "cycle" | "fluid") && !is_for_tests(file);
    for file in files().iter().filter(is_engine) {
        let word = ["rayon", "thread::", "use rand", "f64", "f32"].into_iter().find(|word| file.text.contains(word));
        assert_eq!(word, None, "{}", file.place);
    }
    let engine = [
        "sim/event.rs",
        "sim/network/mod.rs",
        "sim/network/processor_sharing.rs",
        "sim/memory/mod.rs",
        "sim/memory/in_order.rs",
        "sim/memory/part.rs",
        "sim/buffer.rs",
        "cost/transfer.rs",
        "cost/time.rs",
    ];
    for file in files().iter().filter(|file| file.module == "sim" || engine.contains(&file.path.as_str())) {
        let word = ["rayon", "thread::", "rand::"].into_iter().find(|word| file.text.contains(word));
        assert_eq!(word, None, "{}", file.place);
        let counts = engine.contains(&file.path.as_str());
        assert!(!counts || !["f64", "f32"].iter().any(|float| file.text.contains(float)), "{}", file.place);
    }
}

#[test]
fn the_map_names_every_module_and_no_test_that_is_gone() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).expect("the map");
    for (module, _) in MODULES {
        assert!(text.contains(&format!("`{module}")), "ARCHITECTURE.md does not name `{module}`");
    }
    // Names of tests and files that the map promises.
    let own = include_str!("architecture.rs");
    for promised in text.split('`').filter(|word| word.starts_with("architecture::")) {
        let test = promised.trim_start_matches("architecture::");
        assert!(own.contains(&format!("fn {test}(")), "ARCHITECTURE.md names `{promised}`, which is no test");
    }
}
