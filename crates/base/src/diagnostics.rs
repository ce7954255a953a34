//! What is told to a user whose input cannot be used: what is wrong, where, and what to change.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// The path of an [`Origin`] that is a command-line argument.
pub const COMMAND_LINE: &str = "command line";

/// The place in a text that a diagnostic is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// File name as the user gave it, or [`COMMAND_LINE`].
    pub path: String,
    /// The whole text.
    pub text: Arc<str>,
    /// The bytes of the text that are wrong.
    pub span: Range<usize>,
    /// A few words beside them.
    pub label: String,
}

impl Origin {
    /// Line and column, both from 1; columns count characters.
    pub fn line_column(&self) -> (usize, usize) {
        let start = char_floor(&self.text, self.span.start);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The same place with a path and a label that are safe to print; the text is printed by a renderer that escapes it.
    fn printable(&self) -> Self {
        let (path, label) = (printable(&self.path).into_owned(), shortened(&printable(&self.label)).into_owned());
        Self { path, label, ..self.clone() }
    }
}

/// Characters of a quoted value that a message shows.
const QUOTED_CHARACTERS: usize = 200;

/// Whether a character steers what shows a text: control characters, and those that turn the direction of what follows (UAX #9).
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text whose control characters, but for line breaks and tabs, are shown as escapes: a terminal obeys none of them.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| steers(c) && c != '\n' && c != '\t';
    if !text.contains(is_shown) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| if is_shown(c) { c.escape_default().to_string() } else { c.to_string() });
    Cow::Owned(escaped.collect())
}

/// A number as a message shows it: very large and very small ones in scientific form.
pub fn number(value: f64) -> String {
    let is_plain = value == 0.0 || !value.is_finite() || (1e-9..1e15).contains(&value.abs());
    if is_plain { value.to_string() } else { format!("{value:e}") }
}

/// A text in which what stands between a pair of backticks or of double quotes is cut to [`QUOTED_CHARACTERS`].
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= QUOTED_CHARACTERS {
        return Cow::Borrowed(text);
    }
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['`', '"']) {
        let quote = &rest[start..=start];
        let (before, quoted) = rest.split_at(start + 1);
        let Some(length) = quoted.find(quote) else { break };
        short.push_str(before);
        match quoted[..length].char_indices().nth(QUOTED_CHARACTERS) {
            Some((cut, _)) => short.extend([&quoted[..cut], "..."]),
            None => short.push_str(&quoted[..length]),
        }
        short.push_str(quote);
        rest = &quoted[length + 1..];
    }
    short.push_str(rest);
    Cow::Owned(short)
}

/// One error about what a user gave: what was found and expected, where, and what to change.
///
/// `Display` is one line; [`Diagnostic::render`] shows the source line too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    // Boxed: results carry it, and errors are rare.
    parts: Box<Parts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    title: String,
    origin: Option<Origin>,
    help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic that says what is wrong.
    pub fn new(title: impl Into<String>) -> Self {
        Self { parts: Box::new(Parts { title: title.into(), origin: None, help: None }) }
    }

    /// Adds where it is wrong.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.parts.origin = Some(origin);
        self
    }

    /// Adds what to change.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.parts.help = Some(help.into());
        self
    }

    /// What is wrong.
    pub fn title(&self) -> &str {
        &self.parts.title
    }

    /// Where it is wrong, if it is in a text.
    pub fn origin(&self) -> Option<&Origin> {
        self.parts.origin.as_ref()
    }

    /// What to change, if that is known.
    pub fn help(&self) -> Option<&str> {
        self.parts.help.as_deref()
    }

    /// The diagnostic with its source line, for people. `styled` adds terminal colours. Control characters of what it
    /// quotes are shown, not sent, and quotes are cut to 200 characters.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let shown = |text: &str| shortened(&printable(text)).into_owned();
        let (title, help, origin) = (shown(self.title()), self.help().map(shown), self.origin().map(Origin::printable));
        let title = Level::ERROR.primary_title(title);
        let help = help.map(|help| Group::with_title(Level::HELP.secondary_title(help)));
        match (&origin, help) {
            (Some(origin), help) => {
                let groups: Vec<Group<'_>> = std::iter::once(title.element(snippet(origin))).chain(help).collect();
                renderer.render(&groups)
            }
            (None, None) => renderer.render(&[Group::with_title(title)]),
            // Together the two would be joined by an empty gutter, as if source stood between them.
            (None, Some(help)) => {
                format!("{}\n{}", renderer.render(&[Group::with_title(title)]), renderer.render(&[help]))
            }
        }
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.origin() {
            Some(argument) if argument.path == COMMAND_LINE => write!(f, "`{}`: ", argument.text)?,
            Some(origin) => {
                let (line, column) = origin.line_column();
                write!(f, "{}:{line}:{column}: ", origin.path)?;
            }
            None => {}
        }
        f.write_str(self.title())
    }
}

impl std::error::Error for Diagnostic {}

fn snippet(origin: &Origin) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
    let start = char_floor(&origin.text, origin.span.start);
    let end = char_floor(&origin.text, origin.span.end).max(start);
    let annotation = AnnotationKind::Primary.span(start..end);
    let annotation = if origin.label.is_empty() { annotation } else { annotation.label(&origin.label) };
    Snippet::source(&*origin.text).path(&origin.path).annotation(annotation)
}

/// The last character boundary at or before `at`.
fn char_floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Diagnostic {
        Diagnostic::new("`pmu.banks` must be from 1 to 65536, found 0")
            .with_origin(Origin {
                path: "arch/a.toml".into(),
                text: "[pmu]\nbanks = 0\n".into(),
                span: 14..15,
                label: "expected 1 to 65536".into(),
            })
            .with_help("give the memory unit at least one bank")
    }

    #[test]
    fn renders_with_source_line() {
        insta::assert_snapshot!(example().render(false), @r#"
error: `pmu.banks` must be from 1 to 65536, found 0
 --> arch/a.toml:2:9
  |
2 | banks = 0
  |         ^ expected 1 to 65536
  |
help: give the memory unit at least one bank
"#);
    }

    #[test]
    fn displays_on_one_line() {
        assert_eq!(example().to_string(), "arch/a.toml:2:9: `pmu.banks` must be from 1 to 65536, found 0");
        assert_eq!(Diagnostic::new("no fit").to_string(), "no fit");
    }

    #[test]
    fn renders_without_source() {
        insta::assert_snapshot!(Diagnostic::new("no fit").with_help("use less").render(false), @r#"
error: no fit
help: use less
"#);
    }

    #[test]
    fn what_steers_a_terminal_is_shown() {
        assert_eq!(printable("a\tb\nc"), "a\tb\nc");
        assert_eq!(printable("\u{1b}]0;x\u{7}\u{9b}1m"), "\\u{1b}]0;x\\u{7}\\u{9b}1m");
        let origin = Origin { path: "a\u{1b}]0;b".into(), text: "x\u{1b}y".into(), span: 0..1, label: "\u{7}".into() };
        let diagnostic = Diagnostic::new("\u{9b}").with_origin(origin).with_help("\u{1b}");
        let rendered = diagnostic.render(false);
        assert!(!rendered.contains(|c: char| c.is_control() && c != '\n'), "{rendered:?}");
    }

    #[test]
    fn long_quotes_are_cut() {
        let long = "é".repeat(5_000);
        let rendered = Diagnostic::new(format!("`x`: found {long:?}, expected `y`")).render(false);
        assert!(rendered.contains("...\", expected `y`"), "{rendered}");
        assert_eq!(rendered.matches('é').count(), QUOTED_CHARACTERS);
        let unclosed = format!("it's \" {long}");
        assert_eq!(shortened(&unclosed), unclosed);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (1e308, "1e308"),
            (-1.5e20, "-1.5e20"),
            (5e-324, "5e-324"),
            (0.0, "0"),
            (0.001, "0.001"),
            (1e9, "1000000000"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn any_span_renders() {
        for text in ["", "é", "a\r\nb", "\u{feff}x"] {
            for start in 0..6 {
                for end in 0..6 {
                    let origin = Origin { path: "x".into(), text: text.into(), span: start..end, label: String::new() };
                    let diagnostic = Diagnostic::new("t").with_origin(origin);
                    assert!(diagnostic.render(true).contains('t'));
                    assert!(diagnostic.to_string().ends_with('t'));
                }
            }
        }
    }
}
