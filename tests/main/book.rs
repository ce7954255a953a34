//! The documentation as a book: `docs/SUMMARY.md` lists its pages, and links between them lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Pages of `docs/`, without the list of them.
fn pages() -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join("docs")).expect("a folder");
    let pages = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|of| of == "md"));
    let names = pages.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    names.filter(|name| name != "SUMMARY.md").collect()
}

/// Where the links of a page lead: targets in parentheses behind brackets, outside of fenced blocks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut is_fenced = false;
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        if is_fenced {
            continue;
        }
        for part in line.split("](").skip(1) {
            links.extend(part.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    links
}

#[test]
fn the_book_lists_every_page_once_in_eight_chapters() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let chapters = summary.lines().filter(|line| line.starts_with("# ") && *line != "# Summary").count();
    assert_eq!(chapters, 8);
    let listed = links(&summary);
    let distinct: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(distinct.len(), listed.len(), "a page is listed twice");
    assert_eq!(distinct, pages());
}

#[test]
fn links_of_the_documentation_lead_to_files_and_headings() {
    let mut files: Vec<PathBuf> = pages().iter().map(|page| root().join("docs").join(page)).collect();
    files.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/SUMMARY.md"]
            .map(|name| root().join(name)),
    );
    let mut broken = Vec::new();
    for file in files {
        let folder = file.parent().expect("a folder");
        for link in links(&read(&file)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { file.clone() } else { folder.join(path) };
            let has_heading = || heading.is_empty() || headings(&read(&target)).contains(heading);
            if !target.exists() || !has_heading() {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The names by which headings are linked: in lower case, without punctuation, words joined by hyphens; of equal ones the later are
/// numbered.
fn headings(text: &str) -> BTreeSet<String> {
    let mut is_fenced = false;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut headings = BTreeSet::new();
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        if is_fenced || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = seen.entry(name.clone()).or_default();
        headings.insert(if *before == 0 { name } else { format!("{name}-{before}") });
        *before += 1;
    }
    headings
}

#[test]
fn lines_of_prose_are_at_most_140_characters() {
    let files = pages().into_iter().map(|page| root().join("docs").join(page));
    let files = files.chain(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
            .map(|name| root().join(name)),
    );
    let mut long = Vec::new();
    for file in files {
        let mut is_fenced = false;
        for (number, line) in read(&file).lines().enumerate() {
            is_fenced ^= line.starts_with("```");
            // A row of a table is a line, and a link cannot be broken.
            let is_prose = !is_fenced && !line.starts_with('|') && line.trim().contains(' ');
            if is_prose && line.chars().count() > 140 {
                long.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 140 characters:\n{}", long.join("\n"));
}
