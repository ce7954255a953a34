//! The text of an input with its overrides applied, and where each of its bytes came from.

use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;

use super::builtin::{builtin, with_names};
use super::file::read_piped_text;
use super::given::Given;
use super::kind::{FileKind, MOST_VALUES, check_place, too_many_values};
use super::patch::{self, Edit};
use super::suggest::{quoted_list, suggest};
use super::{Count, Override, Real, Root};
use crate::diagnostics::{self, Diagnostic, Origin, steers};

/// The text of an input: the file's, with the values of overrides spliced in.
///
/// Spans that come out of parsing refer to the spliced text; [`Source::origin`] leads them back to the file as it
/// is, or to the `--set` argument as it was typed.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    original: Arc<str>,
    text: String,
    pieces: Vec<Piece>,
    sets: Vec<Override>,
}

/// A run of bytes of the spliced text; pieces are in order and without gaps.
#[derive(Debug, Clone, Copy)]
struct Piece {
    length: usize,
    from: From,
}

#[derive(Debug, Clone, Copy)]
enum From {
    /// The file, from this byte on.
    File(usize),
    /// The path of the override of this index.
    SetPath(usize),
    /// The value of the override of this index.
    SetValue(usize),
}

/// What a file of a root holds.
fn wanted_of(root: Root) -> FileKind {
    match root {
        Root::Arch => FileKind::Chip,
        Root::Workload => FileKind::Workload,
    }
}

impl Source {
    /// Reads a chip or a workload and applies the overrides of one root.
    pub fn open(path: &Path, root: Root, sets: &[Override]) -> Result<Self, Diagnostic> {
        Self::open_as(path, wanted_of(root), root, sets)
    }

    /// Reads a file that must hold what is `wanted`, and applies the overrides of one root.
    ///
    /// # Errors
    /// A file that cannot be read, or that holds something else.
    pub fn open_as(path: &Path, wanted: FileKind, root: Root, sets: &[Override]) -> Result<Self, Diagnostic> {
        if let Some(file) = builtin(path) {
            check_place(file.name, file.kind, wanted)?;
            return Self::new(&format!("{} (built in)", file.name), file.text, root, sets);
        }
        let name = path.display().to_string();
        let refused = |why: String| Diagnostic::new(format!("cannot read `{name}`: {why}"));
        if FileKind::of(path, "") == FileKind::Model {
            check_place(&name, FileKind::Model, wanted)?;
        }
        let text = read_piped_text(path).map_err(|why| {
            let error = refused(format!("it {why}"));
            if path.exists() { error } else { with_names(error, path, wanted) }
        })?;
        check_place(&name, FileKind::of(path, &text), wanted)?;
        Self::new(&name, &text, root, sets)
    }

    /// Takes a file or a text and applies the overrides of one root.
    pub fn take(given: &Given, root: Root, sets: &[Override]) -> Result<Self, Diagnostic> {
        match given {
            Given::File(path) => Self::open(path, root, sets),
            Given::Text { name, text } => {
                check_place(name, FileKind::of_toml(text), wanted_of(root))?;
                Self::new(name, text, root, sets)
            }
        }
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.name
    }

    /// Takes a text under a name and applies the overrides of one root.
    pub fn new(name: &str, text: &str, root: Root, sets: &[Override]) -> Result<Self, Diagnostic> {
        // A byte order mark would make every offset after it disagree between parsers.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(found) = too_many_values(text) {
            let title =
                format!("`{name}` has about {found} keys and elements of lists, at most {MOST_VALUES} are read");
            return Err(Diagnostic::new(title));
        }
        let mut source = Self {
            name: name.to_owned(),
            original: text.into(),
            text: text.to_owned(),
            pieces: vec![Piece { length: text.len(), from: From::File(0) }],
            sets: Vec::new(),
        };
        for set in sets.iter().filter(|set| set.root() == root) {
            let document = toml_edit::Document::parse(source.text.as_str())
                .map_err(|error| source.not_toml(error.span(), error.message()))?;
            let edit = patch::edit_for(&document, set)?;
            source.splice(&edit, set);
        }
        Ok(source)
    }

    /// The spliced text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same file with other overrides.
    pub(super) fn again(&self, root: Root, sets: &[Override]) -> Result<Self, Diagnostic> {
        Self::new(&self.name, &self.original, root, sets)
    }

    /// An error for a text that breaks TOML's own rules.
    pub(super) fn not_toml(&self, span: Option<Range<usize>>, message: &str) -> Diagnostic {
        let title = format!("the file cannot be read as TOML: {}", message.replace('\n', ", "));
        self.error(span.unwrap_or(0..0), title, "")
    }

    /// An error about bytes of the spliced text.
    pub fn error(&self, span: Range<usize>, title: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        Diagnostic::new(title).with_origin(self.origin(span, label.into()))
    }

    /// An error that was found elsewhere, told at bytes of this text.
    pub fn restated(&self, span: Range<usize>, error: &Diagnostic) -> Diagnostic {
        let restated = self.error(span, error.title(), "");
        match error.help() {
            Some(help) => restated.with_help(help),
            None => restated,
        }
    }

    /// A place that later errors may point at.
    pub fn place(&self, span: Range<usize>) -> Origin {
        self.origin(span, String::new())
    }

    /// An error about several values that do not fit together: it points at one that was overridden, else the first.
    pub fn error_among(
        &self,
        spans: &[Range<usize>],
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        let overridden = spans.iter().find(|span| self.is_overridden(span));
        let span = overridden.or(spans.first()).cloned().unwrap_or(0..0);
        self.error(span, title, label)
    }

    /// A whole number, checked against the range it may have.
    pub fn count(&self, field: &str, value: &Spanned<Count>, range: RangeInclusive<u64>) -> Result<u64, Diagnostic> {
        let Count(number) = *value.get_ref();
        u64::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let expected = match (range.start(), range.end()) {
                (low, high) if low == high => low.to_string(),
                (low, high) => format!("from {low} to {high}"),
            };
            self.out_of_range(field, value.span(), &number.to_string(), &expected)
        })
    }

    /// A number, checked to be finite and against the range it may have.
    pub fn real(&self, field: &str, value: &Spanned<Real>, range: RangeInclusive<f64>) -> Result<f64, Diagnostic> {
        let Real(number) = *value.get_ref();
        if range.contains(&number) {
            // No negative zeros past this point.
            return Ok(number + 0.0);
        }
        let expected = format!("from {} to {}", range.start(), range.end());
        Err(self.out_of_range(field, value.span(), &diagnostics::number(number), &expected))
    }

    /// A word that must be one of `known`; returns its index there.
    pub fn keyword(&self, field: &str, value: &Spanned<String>, known: &[&str]) -> Result<usize, Diagnostic> {
        let title = || format!("`{field}`: found {:?}, expected one of {}", value.get_ref(), quoted_list(known));
        self.one_of(value, known, title)
    }

    /// The key of a table that must be one of `known`; returns its index there.
    pub fn key(&self, field: &str, key: &Spanned<String>, known: &[&str]) -> Result<usize, Diagnostic> {
        let title = || format!("unknown field `{field}`, expected one of {}", quoted_list(known));
        self.one_of(key, known, title)
    }

    fn one_of(&self, word: &Spanned<String>, known: &[&str], title: impl Fn() -> String) -> Result<usize, Diagnostic> {
        known
            .iter()
            .position(|name| name == word.get_ref())
            .ok_or_else(|| suggest(self.error(word.span(), title(), "not one of them"), word.get_ref(), known))
    }

    /// A name: not empty, without control characters.
    pub fn name(&self, field: &str, value: &Spanned<String>) -> Result<String, Diagnostic> {
        let name = value.get_ref();
        if name.trim().is_empty() || name.contains(steers) {
            let title = format!("`{field}` is {name:?}, which is no name");
            return Err(self.error(value.span(), title, "expected printable characters"));
        }
        Ok(name.clone())
    }

    fn out_of_range(&self, field: &str, span: Range<usize>, found: &str, expected: &str) -> Diagnostic {
        self.error(span, format!("`{field}` must be {expected}, found {found}"), format!("must be {expected}"))
    }

    /// What wrote the first byte of a span.
    fn writer(&self, span: &Range<usize>) -> From {
        let mut start = 0;
        for piece in &self.pieces {
            let end = start + piece.length;
            if (start..end).contains(&span.start) {
                return piece.from;
            }
            start = end;
        }
        From::File(self.original.len())
    }

    fn is_overridden(&self, span: &Range<usize>) -> bool {
        !matches!(self.writer(span), From::File(_))
    }

    /// Where bytes of the spliced text came from.
    fn origin(&self, span: Range<usize>, label: String) -> Origin {
        match self.writer(&span) {
            From::SetPath(set) => self.sets[set].path_origin(&label),
            From::SetValue(set) => self.sets[set].value_origin(&label),
            From::File(_) => {
                let start = self.file_offset(span.start);
                let end = self.file_offset(span.end).max(start);
                Origin { path: self.name.clone(), text: Arc::clone(&self.original), span: start..end, label }
            }
        }
    }

    /// The byte of the file that a byte of the spliced text is, or that the splice it is in comes after.
    fn file_offset(&self, at: usize) -> usize {
        let (mut start, mut in_file) = (0, 0);
        for piece in &self.pieces {
            if let From::File(offset) = piece.from {
                in_file = offset + piece.length.min(at - start);
            }
            start += piece.length;
            if at < start {
                break;
            }
        }
        in_file
    }

    /// Makes an edit of the spliced text for an override.
    fn splice(&mut self, edit: &Edit, set: &Override) {
        let index = self.sets.len();
        let new = [
            Piece { length: edit.before.len(), from: From::SetPath(index) },
            Piece { length: set.value().len(), from: From::SetValue(index) },
            Piece { length: edit.after.len(), from: From::SetPath(index) },
        ];
        let mut pieces = Vec::with_capacity(self.pieces.len() + new.len() + 1);
        let mut start = 0;
        for piece in &self.pieces {
            pieces.extend(piece.part(start, 0..edit.at.start));
            start += piece.length;
        }
        pieces.extend(new);
        start = 0;
        for piece in &self.pieces {
            pieces.extend(piece.part(start, edit.at.end..usize::MAX));
            start += piece.length;
        }
        self.text.replace_range(edit.at.clone(), &[&edit.before, set.value(), edit.after].concat());
        self.pieces = pieces;
        self.sets.push(set.clone());
    }
}

impl Piece {
    /// The part of this piece, which begins at byte `start` of the text, that lies in a range of the text.
    fn part(self, start: usize, range: Range<usize>) -> Option<Self> {
        let skipped = range.start.saturating_sub(start).min(self.length);
        let length = range.end.saturating_sub(start).min(self.length).checked_sub(skipped).filter(|&left| left > 0)?;
        let from = match self.from {
            From::File(offset) => From::File(offset + skipped),
            set => set,
        };
        Some(Self { length, from })
    }
}
