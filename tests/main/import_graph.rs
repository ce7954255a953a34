//! Which source file imports which, read from `use` trees and from paths in the code.
//!
//! A name counts for the file that defines it: re-exports, and names that a module has imported itself, are followed to
//! that file. Importing a module is no edge until something of it is named. Declaring a module and re-exporting its names
//! is no edge either, unless the file uses those names itself. Test code is left out, and so are calls of methods: an
//! `impl` block may stand in a file above its type. Circles are the strongly connected components (Tarjan 1972).

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// Names from the root of the crate, or as they are written in a file.
type Path = Vec<String>;

/// Re-exports of re-exports that are followed at most.
const MOST_REEXPORTS: usize = 16;

/// Files as nodes, imports as edges.
pub(crate) struct ImportGraph {
    /// Module of each file; the root of the crate has no name.
    modules: BTreeSet<Path>,
    /// What a module's `use` items call a name, from the root of the crate.
    bindings: BTreeMap<(Path, String), Path>,
    /// What a file (first) names of another (second), as it is written.
    edges: BTreeMap<(Path, Path), BTreeSet<String>>,
}

/// Files that all reach each other over imports.
pub(crate) struct Circle {
    /// Their modules.
    pub modules: Vec<String>,
    /// The imports between them, a line for each file and file it imports.
    pub imports: String,
}

/// What a path stands for.
struct Target {
    module: Path,
    /// The path names the module itself, not something in it.
    is_module: bool,
}

impl ImportGraph {
    /// The graph of a crate's files: paths below `src`, with `/`, and texts.
    pub(crate) fn new<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let files: Vec<(Path, Code)> =
            files.into_iter().map(|(path, text)| (module_of(path), Code::new(&tokens(text)))).collect();
        let modules = files.iter().map(|(module, _)| module.clone()).collect();
        let mut graph = Self { modules, bindings: BTreeMap::new(), edges: BTreeMap::new() };
        for (module, code) in &files {
            for import in &code.imports {
                if let Some(path) = graph.absolute(module, &import.path) {
                    graph.bindings.insert((module.clone(), import.name.clone()), path);
                }
            }
        }
        for (module, code) in &files {
            for import in code.imports.iter().filter(|i| !i.is_reexport || code.words.contains(&i.name)) {
                graph.add(module, &import.path, import.name == "*");
            }
            for path in &code.paths {
                if !graph.begins_with_an_imported_item(module, &path[0]) {
                    graph.add(module, path, false);
                }
            }
        }
        graph
    }

    /// The circles, in the order of their modules.
    pub(crate) fn circles(&self) -> Vec<Circle> {
        let mut graph: DiGraph<&Path, ()> = DiGraph::new();
        let nodes: BTreeMap<&Path, NodeIndex> =
            self.modules.iter().map(|module| (module, graph.add_node(module))).collect();
        for (from, to) in self.edges.keys() {
            graph.add_edge(nodes[from], nodes[to], ());
        }
        let mut circles = Vec::new();
        for component in tarjan_scc(&graph).into_iter().filter(|component| component.len() > 1) {
            let members: BTreeSet<&Path> = component.into_iter().map(|node| graph[node]).collect();
            let mut lines = Vec::new();
            for ((from, to), names) in &self.edges {
                if members.contains(from) && members.contains(to) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    lines.push(format!("{} -> {} ({})", from.join("::"), to.join("::"), names.join(", ")));
                }
            }
            let modules = members.into_iter().map(|module| module.join("::")).collect();
            circles.push(Circle { modules, imports: lines.join("\n") });
        }
        circles.sort_by(|a, b| a.modules.cmp(&b.modules));
        circles
    }

    fn add(&mut self, from: &Path, written: &Path, is_glob: bool) {
        let Some(path) = self.absolute(from, written) else { return };
        let target = self.resolve(&path, MOST_REEXPORTS);
        if (is_glob || !target.is_module) && target.module != *from {
            self.edges.entry((from.clone(), target.module)).or_default().insert(written.join("::"));
        }
    }

    /// Whether a name is a type or function that a `use` item brings in: that item is the edge.
    fn begins_with_an_imported_item(&self, module: &Path, name: &str) -> bool {
        let is_child = self.modules.contains(&[module.as_slice(), &[name.to_owned()]].concat());
        let binding = self.bindings.get(&(module.clone(), name.to_owned())).filter(|_| !is_child);
        binding.is_some_and(|bound| !self.resolve(bound, MOST_REEXPORTS).is_module)
    }

    /// A path that is written in a module, from the root; none if it leads out of the crate or to a local name.
    fn absolute(&self, module: &Path, written: &Path) -> Option<Path> {
        let supers = written.iter().take_while(|name| *name == "super").count();
        let (base, rest) = match written.first()?.as_str() {
            "crate" => (Path::new(), &written[1..]),
            "self" => (module.clone(), &written[1..]),
            "super" => (module[..module.len().checked_sub(supers)?].to_vec(), &written[supers..]),
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                if self.modules.contains(&child) {
                    (module.clone(), &written[..])
                } else if written.len() > 1 {
                    (self.bindings.get(&(module.clone(), first.to_owned()))?.clone(), &written[1..])
                } else {
                    return None;
                }
            }
        };
        Some([base.as_slice(), rest].concat())
    }

    /// The file that defines what a path from the root names.
    fn resolve(&self, path: &[String], reexports: usize) -> Target {
        let mut module = Path::new();
        for (at, name) in path.iter().enumerate() {
            let child = [module.as_slice(), std::slice::from_ref(name)].concat();
            let is_child = self.modules.contains(&child);
            let binding = self.bindings.get(&(module.clone(), name.clone())).filter(|_| reexports > 0);
            match binding {
                // A module and a function of it may have one name: in the middle of a path it is the module.
                Some(bound) if at + 1 == path.len() || !is_child => {
                    return self.resolve(&[bound.as_slice(), &path[at + 1..]].concat(), reexports - 1);
                }
                _ if is_child => module = child,
                _ => return Target { module, is_module: false },
            }
        }
        Target { module, is_module: true }
    }
}

/// The module that a file is.
fn module_of(path: &str) -> Path {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Path::new() } else { path.split('/').map(str::to_owned).collect() }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Separator,
    Symbol(char),
}

/// Words, separators and symbols of a text, without comments and literals.
fn tokens(text: &str) -> Vec<Token> {
    let text: Vec<char> = text.chars().collect();
    let is_word = |at: usize| text.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let starts = |at: usize, what: &str| what.chars().enumerate().all(|(n, c)| text.get(at + n) == Some(&c));
    let find = |from: usize, what: &str| (from..text.len()).find(|&at| starts(at, what)).unwrap_or(text.len());
    let mut list = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if starts(at, "//") {
            at = find(at, "\n");
        } else if starts(at, "/*") {
            at = find(at + 2, "*/") + 2;
        } else if text[at] == '"' {
            at += 1;
            while at < text.len() && text[at] != '"' {
                at += 1 + usize::from(text[at] == '\\');
            }
            at += 1;
        } else if text[at] == '\'' {
            // A lifetime has no quote behind it.
            at = match (text.get(at + 1), text.get(at + 2)) {
                (Some('\\'), _) => find(at + 3, "'") + 1,
                (_, Some('\'')) => at + 3,
                _ => at + 1,
            };
        } else if is_word(at) {
            let end = (at..text.len()).find(|&at| !is_word(at)).unwrap_or(text.len());
            let word: String = text[at..end].iter().collect();
            let hashes = text[end..].iter().take_while(|c| **c == '#').count();
            at = end;
            if matches!(word.as_str(), "r" | "br") && text.get(end + hashes) == Some(&'"') {
                let close = format!("\"{}", "#".repeat(hashes));
                at = find(end + hashes + 1, &close) + close.len();
            } else {
                list.push(Token::Word(word));
            }
        } else if starts(at, "::") {
            list.push(Token::Separator);
            at += 2;
        } else {
            if !text[at].is_whitespace() {
                list.push(Token::Symbol(text[at]));
            }
            at += 1;
        }
    }
    list
}

/// A name that a `use` item brings in.
struct Import {
    path: Path,
    /// What the file calls it; `*` for all names of a module.
    name: String,
    is_reexport: bool,
}

/// What a file names.
#[derive(Default)]
struct Code {
    imports: Vec<Import>,
    /// Paths of two names and more outside `use` items.
    paths: Vec<Path>,
    /// Names outside `use` items, without fields and methods.
    words: BTreeSet<String>,
}

impl Code {
    fn new(tokens: &[Token]) -> Self {
        let mut code = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            if let Some(end) = test_item(tokens, at) {
                at = end;
                continue;
            }
            match &tokens[at] {
                Token::Word(word) if word == "use" => {
                    // `pub use` or `pub(crate) use`.
                    let before = at.checked_sub(1).map(|before| &tokens[before]);
                    let is_reexport = before.is_some_and(|token| {
                        matches!(token, Token::Word(word) if word == "pub") || *token == Token::Symbol(')')
                    });
                    at += 1;
                    for (mut path, mut name) in use_tree(tokens, &mut at, &[]) {
                        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                            path.pop();
                            if name == "self" {
                                name.clone_from(&path[path.len() - 1]);
                            }
                        }
                        code.imports.push(Import { path, name, is_reexport });
                    }
                }
                // A module that is declared is not used.
                Token::Word(word) if word == "mod" => at += 2,
                Token::Word(_) => {
                    let is_member = at > 0 && tokens[at - 1] == Token::Symbol('.');
                    let mut path = Path::new();
                    while let Some(Token::Word(word)) = tokens.get(at) {
                        path.push(word.clone());
                        at += 1;
                        if tokens.get(at) != Some(&Token::Separator) {
                            break;
                        }
                        at += 1;
                    }
                    if !is_member {
                        code.words.insert(path[0].clone());
                    }
                    if path.len() > 1 {
                        code.paths.push(path);
                    }
                }
                // The rest of a path that begins with a type in angle brackets.
                Token::Separator => at += 1 + usize::from(matches!(tokens.get(at + 1), Some(Token::Word(_)))),
                Token::Symbol(_) => at += 1,
            }
        }
        code
    }
}

/// Paths of a `use` tree and the names they are given; `at` moves behind the tree.
fn use_tree(tokens: &[Token], at: &mut usize, prefix: &[String]) -> Vec<(Path, String)> {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(*at) {
            Some(Token::Word(word)) => path.push(word.clone()),
            Some(Token::Symbol('*')) => {
                *at += 1;
                return vec![(path, "*".to_owned())];
            }
            Some(Token::Symbol('{')) => {
                *at += 1;
                let mut list = Vec::new();
                while let Some(token) = tokens.get(*at).filter(|token| **token != Token::Symbol('}')) {
                    if *token == Token::Symbol(',') {
                        *at += 1;
                    } else {
                        list.extend(use_tree(tokens, at, &path));
                    }
                }
                *at += 1;
                return list;
            }
            // The first separator of `::name`.
            Some(Token::Separator) if path.is_empty() => {}
            _ => {
                *at += 1;
                return Vec::new();
            }
        }
        *at += 1;
        match tokens.get(*at) {
            Some(Token::Separator) => *at += 1,
            Some(Token::Word(word)) if word == "as" => {
                let name = tokens.get(*at + 1);
                *at += 2;
                let Some(Token::Word(name)) = name else { return Vec::new() };
                return vec![(path, name.clone())];
            }
            _ => {
                let name = path.last().cloned().unwrap_or_default();
                return vec![(path, name)];
            }
        }
    }
}

/// The end of an item for tests that begins here.
fn test_item(tokens: &[Token], at: usize) -> Option<usize> {
    let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
    let is = |token: &Token, text: &str| match token {
        Token::Word(word) => word == text,
        Token::Symbol(symbol) => text.chars().eq([*symbol]),
        Token::Separator => false,
    };
    let mut here = tokens.get(at..at + attribute.len())?.iter().zip(attribute);
    if !here.all(|(token, text)| is(token, text)) {
        return None;
    }
    let mut depth = 0usize;
    let mut is_use = false;
    for (end, token) in tokens.iter().enumerate().skip(at + attribute.len()) {
        match token {
            Token::Word(word) => is_use |= depth == 0 && word == "use",
            Token::Symbol('{' | '(' | '[') => depth += 1,
            Token::Symbol(symbol @ ('}' | ')' | ']')) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *symbol == '}' && !is_use {
                    return Some(end + 1);
                }
            }
            Token::Symbol(';') if depth == 0 => return Some(end + 1),
            _ => {}
        }
    }
    Some(tokens.len())
}

mod tests {
    use super::*;

    /// Edges of a crate, as `from > to` by module.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let graph = ImportGraph::new(files.iter().copied());
        let edges: Vec<String> =
            graph.edges.keys().map(|(from, to)| format!("{} > {}", from.join("::"), to.join("::"))).collect();
        assert_eq!(edges, expected);
    }

    #[test]
    fn use_trees_lead_to_files() {
        let text = "use std::fmt::{self, Write as _};\nuse crate::{b::B, c::{self, d::{D, E as F}}};\nuse super::b::f;";
        let files = [("a.rs", text), ("b.rs", ""), ("c/mod.rs", "pub mod d;"), ("c/d.rs", "use super::super::b::B;")];
        check(&files, &["a > b", "a > c::d", "c::d > b"]);
    }

    #[test]
    fn a_module_is_imported_when_something_of_it_is_named() {
        let text = "use crate::c::{self, e as other};\nfn f() { c::make(); other::g::<u8>(); }";
        check(
            &[("a.rs", text), ("c/mod.rs", "mod d; pub use d::make; pub mod e;"), ("c/d.rs", ""), ("c/e.rs", "")],
            &["a > c::d", "a > c::e"],
        );
        check(&[("a.rs", "use crate::c;"), ("c.rs", "")], &[]);
    }

    #[test]
    fn re_exports_are_followed_and_are_no_imports() {
        let of_module = "mod d;\nmod e;\npub use d::{D, storage as kept};\npub(crate) use self::e::e;";
        let files = [
            ("lib.rs", "pub mod a;"),
            ("a.rs", "use crate::c::{D, e, kept};"),
            ("c/mod.rs", of_module),
            ("c/d.rs", "pub use super::e::Deep as D;"),
            ("c/e.rs", ""),
        ];
        check(&files, &["a > c::d", "a > c::e"]);
        // Used by the file that re-exports it, and through the import of another module.
        check(
            &[("c/mod.rs", "mod d;\npub use d::D;\nfn f(d: D) {}"), ("c/d.rs", ""), ("c/e.rs", "use super::D;")],
            &["c > c::d", "c::e > c::d"],
        );
    }

    #[test]
    fn paths_in_the_code_count() {
        let text = "fn f() -> super::b::B { crate::c::d::g(self::h(), d::T::new(), <T as U>::b::x) }";
        check(
            &[("a.rs", text), ("b.rs", "fn f() { c::d::g() }"), ("c/mod.rs", "fn f() { d::g() }"), ("c/d.rs", "")],
            &["a > b", "a > c::d", "c > c::d"],
        );
    }

    #[test]
    fn tests_comments_and_literals_do_not_count() {
        let text = "// use crate::b::B;\n/* use crate::b::B; */\nconst A: &str = \"use crate::b::B; \\\" crate::b::B\";\n\
                    const B: &str = r#\"\" crate::b::B\"#;\nconst C: char = '\"'; const D: char = '\\'';\nfn f<'a>() {}\n\
                    #[cfg(test)]\npub(crate) use crate::b::{self, B};\n#[cfg(test)]\nfn g(a: [u8; 2]) { crate::b::f(); }\n\
                    #[cfg(test)]\nmod tests { use crate::b::*; }\nuse crate::c::C;";
        check(&[("a.rs", text), ("b.rs", ""), ("c.rs", "")], &["a > c"]);
    }

    #[test]
    fn circles_are_told_with_their_edges() {
        let files = [
            ("a.rs", "use crate::b::{B, C};\nuse crate::d::D;"),
            ("b.rs", "fn f() { crate::c::f() }"),
            ("c.rs", "use super::a::A;"),
            ("d.rs", ""),
        ];
        let circles = ImportGraph::new(files).circles();
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].modules, ["a", "b", "c"]);
        let imports = "a -> b (crate::b::B, crate::b::C)\nb -> c (crate::c::f)\nc -> a (super::a::A)";
        assert_eq!(circles[0].imports, imports);
    }
}
