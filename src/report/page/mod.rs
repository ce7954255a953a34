//! The report page: one HTML file with its data, style and script inside, which needs no network.
//!
//! The page is drawn by plain scripts (`*.js` beside this file) as SVG, from the JSON of results and layouts. Data reach
//! the page as text only: nothing from an input file becomes markup.

mod layout;
mod saved;

use serde::Serialize;
use serde_json::Value;

pub use self::layout::{BufferLayout, Layout, LinkFlits, SectionLayout, StageLayout, UnitShares};
use super::document::Document;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// `page.js` starts drawing at its end, so what it calls stands before it.
const SCRIPTS: [&str; 4] =
    [include_str!("grid.js"), include_str!("points.js"), include_str!("inputs.js"), include_str!("page.js")];

/// Everything a page shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Page {
    /// Name and version of the program.
    generator: String,
    /// The command line.
    command: String,
    results: Vec<PageResult>,
    layouts: Vec<Layout>,
    inputs: Vec<PageInput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<Points>,
}

#[derive(Debug, Clone, Serialize)]
struct PageResult {
    title: String,
    document: Value,
}

/// A file that went into a result.
#[derive(Debug, Clone, Serialize)]
pub struct PageInput {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub text: String,
}

/// Points of a sweep.
#[derive(Debug, Clone, Serialize)]
pub struct Points {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Those of them that were measured.
    pub metrics: Vec<String>,
    /// A value a column; numbers where they are numbers.
    pub rows: Vec<Vec<Value>>,
}

impl Page {
    /// A page without results, for the command line it is made by.
    pub fn new(command: String) -> Self {
        Self { generator: format!("rdusim {}", env!("CARGO_PKG_VERSION")), command, ..Self::default() }
    }

    /// Adds a result and the layouts of its runs.
    pub fn add(&mut self, title: &str, document: &Document, layouts: Vec<Layout>) {
        let document = serde_json::to_value(document).expect("strings, numbers and string-keyed maps always serialise");
        self.push(title, document, layouts);
    }

    /// Adds a result from its JSON text, and its layouts from theirs if there is one.
    ///
    /// # Errors
    /// What of the result, or of the layouts, is missing, unknown or of another type, and where.
    pub fn add_saved(&mut self, title: &str, result: &str, layouts: Option<&str>) -> Result<(), SavedError> {
        let document = saved::read(result).map_err(SavedError::Result)?;
        let layouts = match layouts {
            Some(text) => read_layouts(text).map_err(SavedError::Layouts)?,
            None => Vec::new(),
        };
        self.push(title, document, layouts);
        Ok(())
    }

    /// Adds the points of a sweep.
    pub fn set_points(&mut self, points: Points) {
        self.points = Some(points);
    }

    /// Adds a file that went into the result.
    pub fn add_input(&mut self, input: PageInput) {
        self.inputs.push(input);
    }

    fn push(&mut self, title: &str, document: Value, layouts: Vec<Layout>) {
        let result = self.results.len();
        self.results.push(PageResult { title: title.to_owned(), document });
        self.layouts.extend(layouts.into_iter().map(|layout| Layout { result, ..layout }));
    }

    /// The page as HTML.
    pub fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("strings, numbers and string-keyed maps always serialise");
        let name = |result: &PageResult| {
            let part = |key: &str| result.document[key]["name"].as_str().unwrap_or_default().to_owned();
            format!("{} on {}", part("workload"), part("arch"))
        };
        let title = match &self.results[..] {
            [] => "rdusim".to_owned(),
            results => results.iter().map(name).collect::<Vec<_>>().join("; "),
        };
        // In this order: data may hold any of the other marks as text.
        let frame = FRAME.replace("{{STYLE}}", STYLE).replace("{{SCRIPT}}", &SCRIPTS.join("\n"));
        let (head, rest) = frame.split_once("{{TITLE}}").unwrap_or((&frame, ""));
        let (middle, tail) = rest.split_once("{{DATA}}").unwrap_or((rest, ""));
        [head, &escaped(&title), middle, &inert(&data), tail].concat()
    }
}

/// JSON that no reader of HTML takes for markup: `<` only ever stands in its strings.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The layouts of a result's runs as JSON text, which [`Page::add_saved`] reads.
pub fn layouts_json(layouts: &[Layout]) -> String {
    let mut text = serde_json::to_string(layouts).expect("strings and numbers always serialise");
    text.push('\n');
    text
}

/// Reads layouts, and checks that every site lies on its grid.
fn read_layouts(text: &str) -> Result<Vec<Layout>, String> {
    let layouts: Vec<Layout> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for layout in &layouts {
        let (columns, rows) = (u64::from(layout.columns), u64::from(layout.rows));
        if columns * rows != layout.kinds.chars().count() as u64 {
            return Err(format!("`kinds` has another length than {columns} x {rows}"));
        }
        let is_off = |x: u64, y: u64| x >= columns || y >= rows;
        for section in &layout.sections {
            let pcus = section.stages.iter().flat_map(|s| &s.pcus).map(|&[x, y]| (u64::from(x), u64::from(y)));
            let pmus = section.buffers.iter().flat_map(|b| &b.parts).map(|&[x, y, _]| (x, y));
            if let Some((x, y)) = pcus.chain(pmus).find(|&(x, y)| is_off(x, y)) {
                return Err(format!("section `{}` names the site ({x}, {y}) of {columns} x {rows}", section.name));
            }
        }
    }
    Ok(layouts)
}

/// A saved result that a page cannot be made of.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The result.
    #[error("not a result of `--format json`: {0}")]
    Result(String),
    /// The layouts.
    #[error("not the layouts of a result: {0}")]
    Layouts(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_markup() {
        let hostile = "</script><script>alert(1)</script><!--";
        let mut page = Page::new("rdusim compare --arch '</title><b>'".to_owned());
        page.add_input(PageInput { name: hostile.to_owned(), text: hostile.to_owned() });
        let html = page.html();
        assert_eq!(html.matches("</script>").count(), 2, "the page's own");
        assert_eq!(html.matches("<script").count(), 2);
        assert!(!html.contains("<!--"));
        assert!(html.contains("\\u003c/script>"));
    }

    #[test]
    fn a_mark_in_the_data_is_data() {
        let mut page = Page::new("{{SCRIPT}} {{DATA}} {{TITLE}}".to_owned());
        page.add_input(PageInput { name: "{{STYLE}}".to_owned(), text: String::new() });
        assert_eq!(page.html().matches("{{SCRIPT}} {{DATA}} {{TITLE}}").count(), 1);
        assert_eq!(page.html().matches("{{STYLE}}").count(), 1);
    }

    #[test]
    fn a_result_that_is_none_is_refused() {
        let mut page = Page::default();
        let refused = |page: &mut Page, text: &str| match page.add_saved("a", text, None) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(refused(&mut page, "{").contains("line 1 column 1"));
        assert!(refused(&mut page, "{\"schema\": 1}").contains("missing field `arch`"));
    }
}
