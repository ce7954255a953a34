//! The Rust files of the library, in whichever crate of the workspace they stand.
//!
//! The root's `src/lib.rs` gives every module under the name that users know: a crate that it re-exports as
//! `rdusim_NAME as NAME` is that module, any other holds the modules that its own `lib.rs` declares.

use std::fs;
use std::path::{Path, PathBuf};

/// A crate of the workspace with modules of the library.
pub(crate) struct Crate {
    /// Its folder in `crates/`; empty for the root.
    pub name: String,
    /// The crate is the module of its name.
    pub is_module: bool,
    pub modules: Vec<String>,
}

/// A file of a crate.
pub(crate) struct Source {
    /// From the root of the repository, with `/`.
    pub place: String,
    /// As if all modules stood in one `src/`: `arch/mod.rs`.
    pub path: String,
    pub text: String,
    /// The text as if all modules stood in one crate: `crate::arch::Chip`.
    pub in_one_crate: String,
}

impl Source {
    /// The module of the library that the file belongs to.
    pub(crate) fn module(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Folders and files of a folder, in the order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut list: Vec<PathBuf> = entries.map(|entry| entry.expect("is readable").path()).collect();
    list.sort();
    list
}

/// All crates, the root last.
pub(crate) fn crates() -> Vec<Crate> {
    let declared = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        names.map(str::to_owned).collect()
    };
    let facade = read(&root().join("src/lib.rs"));
    let mut list = Vec::new();
    for folder in entries(&root().join("crates")) {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("an ASCII name").to_owned();
        let is_module = facade.contains(&format!("\npub use rdusim_{name} as {name};\n"));
        let modules = if is_module { vec![name.clone()] } else { declared(&read(&folder.join("src/lib.rs"))) };
        list.push(Crate { name, is_module, modules });
    }
    list.push(Crate { name: String::new(), is_module: false, modules: declared(&facade) });
    list
}

/// All files, without the `lib.rs` of crates that hold several modules.
pub(crate) fn sources() -> Vec<Source> {
    let crates = crates();
    let mut list = Vec::new();
    for of in &crates {
        let folder = if of.name.is_empty() { "src".to_owned() } else { format!("crates/{}/src", of.name) };
        let mut open = vec![root().join(&folder)];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(entries(&path));
                continue;
            }
            if path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let below = path.strip_prefix(root().join(&folder)).expect("is below it");
            let below = below.iter().map(|part| part.to_str().expect("an ASCII name")).collect::<Vec<_>>().join("/");
            let path_in_one = match (of.is_module, below.as_str()) {
                (true, "lib.rs") => format!("{}/mod.rs", of.name),
                (true, _) => format!("{}/{below}", of.name),
                (false, "lib.rs") => continue,
                (false, _) => below.clone(),
            };
            let text = read(&path);
            let in_one_crate = in_one_crate(&text, of, &crates);
            list.push(Source { place: format!("{folder}/{below}"), path: path_in_one, text, in_one_crate });
        }
    }
    assert!(list.len() > 500, "the sources were not found");
    list
}

fn in_one_crate(text: &str, of: &Crate, crates: &[Crate]) -> String {
    let own = format!("crate::{}::", of.name);
    let mut text = if of.is_module { text.replace("crate::", &own) } else { text.to_owned() };
    for other in crates.iter().filter(|other| !other.name.is_empty()) {
        let name = &other.name;
        if other.is_module {
            text = text.replace(&format!("rdusim_{name}::"), &format!("crate::{name}::"));
            text = text.replace(&format!("use rdusim_{name} as "), &format!("use crate::{name} as "));
        } else {
            text = text.replace(&format!("rdusim_{name}::"), "crate::");
        }
    }
    text
}

#[test]
fn names_of_other_crates_are_read_as_modules() {
    let of = |name: &str, is_module| Crate { name: name.to_owned(), is_module, modules: Vec::new() };
    let crates = [of("graph", false), of("program", true), of("", false)];
    let text =
        "use rdusim_program::{self as program, Unit};\nuse rdusim_program as p;\nuse rdusim_graph::{arch, workload};";
    let expected =
        "use crate::program::{self as program, Unit};\nuse crate::program as p;\nuse crate::{arch, workload};";
    assert_eq!(in_one_crate(text, &crates[2], &crates), expected);
    assert_eq!(in_one_crate("crate::Unit", &crates[1], &crates), "crate::program::Unit");
    assert_eq!(in_one_crate("crate::arch::Chip", &crates[0], &crates), "crate::arch::Chip");
}
