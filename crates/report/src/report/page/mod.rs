//! The report page: one HTML file with its data, style and script inside, which needs no network.
//!
//! The page is drawn by plain scripts (`*.js` beside this file) as SVG, from the JSON of results and layouts. Data reach
//! the page as text only: nothing from an input file becomes markup.

mod checks;
mod crossings;
mod fleets;
mod kinds;
mod layout;
mod maps;
mod masks;
mod pods;
mod points;
mod saved;
mod sheet;
mod summary;
mod traffic_curve;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::layout::{BufferLayout, Layout, LinkLoads, SectionLayout, StageLayout, UnitShares};
pub use self::points::{BestRow, Points, View};
use self::sheet::{Picture, Sheet};
use super::describe::counted;
use super::document::Document;
use super::waterfall::Waterfall;
use super::write::File;
use rdusim_base::diagnostics::{printable, steers};

/// How far results of all kinds are from measurements: it changes, so that the page names where it stands.
const ACCURACY: &str = "How far results are from measurements: docs/accuracy.md; `rdusim validate` measures it again.";
const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// `main.js` draws, so what it calls stands before it.
const SCRIPTS: [&str; 11] = [
    include_str!("base.js"),
    include_str!("figures.js"),
    include_str!("timeline.js"),
    include_str!("overtime.js"),
    include_str!("roofline.js"),
    include_str!("waterfall.js"),
    include_str!("grid.js"),
    include_str!("sheet.js"),
    include_str!("points.js"),
    include_str!("inputs.js"),
    include_str!("main.js"),
];

/// Most bytes of units and links in a page: with its results it stays below 2 MB.
const MOST_LAYOUT_BYTES: usize = 1_300_000;

/// Everything a page shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Page {
    /// How the page was made.
    made: Made,
    accuracy: &'static str,
    results: Vec<PageResult>,
    layouts: Vec<Layout>,
    /// Sections whose units and links are left out, so that the page does not become too large.
    sections_left_out: usize,
    waterfalls: Vec<Waterfall>,
    /// Results that are no runs of a workload.
    sheets: Vec<PageSheet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<Points>,
}

#[derive(Debug, Clone, Serialize)]
struct PageResult {
    title: String,
    document: Value,
    /// Where the result was made by another command than the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<Made>,
}

#[derive(Debug, Clone, Serialize)]
struct PageSheet {
    /// What tells it from others on the page.
    name: String,
    sheet: Sheet,
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<Made>,
}

/// A saved result and what lies beside it.
#[derive(Debug, Clone, Copy)]
pub struct SavedResult<'a> {
    /// What it is called on the page.
    pub title: &'a str,
    /// The result as JSON.
    pub json: &'a str,
    /// `layout.json` ([`Page::beside`]).
    pub layout: Option<&'a str>,
    /// `results.csv` of a study.
    pub table: Option<&'a str>,
}

/// What a reader needs to make a result or a page again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Name and version of the program.
    pub generator: String,
    /// The command line.
    pub command: String,
    /// The files that went in.
    pub inputs: Vec<PageInput>,
}

/// A file that went into a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageInput {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub text: String,
}

/// What lies beside a saved result so that its page can be made again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    made: Made,
    layouts: Vec<Layout>,
    /// Pictures of a result without a grid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pictures: Vec<Picture>,
}

impl Made {
    /// By this version of the program.
    pub fn new(command: String, inputs: Vec<PageInput>) -> Self {
        Self { generator: format!("rdusim {}", env!("CARGO_PKG_VERSION")), command, inputs }
    }
}

impl Page {
    /// A page without results.
    pub fn new(made: Made) -> Self {
        Self { made, accuracy: ACCURACY, ..Self::default() }
    }

    /// Adds a result and the layouts of its runs; of several chips all, in the order of the document.
    pub fn add(&mut self, title: &str, document: &Document, layouts: impl IntoIterator<Item = Vec<Layout>>) {
        let document = serde_json::to_value(document).expect("strings, numbers and string-keyed maps always serialise");
        self.push_sides(title, saved::sides(document), None, layouts.into_iter().collect());
    }

    /// Adds the results of one chip or several, which are called by their chips, with the layouts of each.
    fn push_sides(&mut self, title: &str, sides: Vec<Value>, mut made: Option<Made>, layouts: Vec<Vec<Layout>>) {
        let several = sides.len() > 1;
        let mut layouts = layouts.into_iter();
        for document in sides {
            let title = if several { saved::chip(&document) } else { title.to_owned() };
            self.push(&title, document, made.take(), layouts.next().unwrap_or_default());
        }
    }

    /// Adds a result of any kind, and what lies beside it.
    ///
    /// # Errors
    /// What of it is missing, unknown or of another type, and where.
    pub fn add_saved(&mut self, saved: SavedResult<'_>) -> Result<(), SavedError> {
        let beside: Option<Beside> = match saved.layout {
            Some(text) => Some(serde_json::from_str(text).map_err(|error| SavedError::Layouts(error.to_string()))?),
            None => None,
        };
        let (made, layouts, pictures) =
            beside.map_or_else(Default::default, |beside| (Some(beside.made), beside.layouts, beside.pictures));
        layouts.iter().try_for_each(Layout::check).map_err(SavedError::Layouts)?;
        if summary::is_one(saved.json) {
            if self.points.is_some() {
                return Err(SavedError::Result("a second study, and a page shows one".to_owned()));
            }
            self.points = Some(summary::points(saved.json, saved.table).map_err(SavedError::Result)?);
            return Ok(());
        }
        if let Some(sheet) = kinds::read(saved.json) {
            let sheet = Sheet { pictures, ..sheet.map_err(SavedError::Result)? };
            self.sheets.push(PageSheet { name: saved.title.to_owned(), sheet, made });
            return Ok(());
        }
        let sides = saved::read(saved.json).map_err(SavedError::Result)?;
        let mut of_sides = vec![Vec::new(); sides.len()];
        for layout in layouts {
            let at = layout.result.min(sides.len() - 1);
            of_sides[at].push(layout);
        }
        self.push_sides(saved.title, sides, made, of_sides);
        Ok(())
    }

    /// Adds a time taken apart, beside those that results have.
    ///
    /// # Errors
    /// What [`Waterfall::check`] refuses.
    pub fn add_waterfall(&mut self, waterfall: Waterfall) -> Result<(), String> {
        waterfall.check()?;
        self.waterfalls.push(waterfall);
        Ok(())
    }

    /// Adds the points of a sweep.
    pub fn set_points(&mut self, points: Points) {
        self.points = Some(points);
    }

    fn push(&mut self, title: &str, document: Value, made: Option<Made>, layouts: Vec<Layout>) {
        let result = self.results.len();
        self.results.push(PageResult { title: title.to_owned(), document, made });
        self.layouts.extend(layouts.into_iter().map(|layout| Layout { result, ..layout }));
    }

    /// How the page was made, and the layouts of its results, as JSON text, which [`Page::add_saved`] reads.
    pub fn beside(&self) -> String {
        let pictures = self.sheets.iter().flat_map(|of| of.sheet.pictures.iter().cloned()).collect();
        let beside = Beside { made: self.made.clone(), layouts: self.layouts.clone(), pictures };
        let mut text = serde_json::to_string(&beside).expect("strings and numbers always serialise");
        text.push('\n');
        text
    }

    /// Leaves out pictures, and the units and links of the shortest sections, until the rest is small enough.
    fn fit(&mut self) {
        self.sheets.iter_mut().for_each(|of| fit_pictures(&mut of.sheet));
        let mut sections: Vec<(u64, usize, usize, usize)> = Vec::new();
        for (at, layout) in self.layouts.iter().enumerate() {
            for (place, section) in layout.sections.iter().enumerate() {
                let bytes = serde_json::to_string(section).map_or(0, |text| text.len());
                sections.push((section.cycles, bytes, at, place));
            }
        }
        // Longest first; of equals the first.
        sections.sort_by(|a, b| b.0.cmp(&a.0).then((a.2, a.3).cmp(&(b.2, b.3))));
        let mut left = MOST_LAYOUT_BYTES;
        let mut out: Vec<(usize, usize)> = Vec::new();
        for (_, bytes, at, place) in sections {
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => out.push((at, place)),
            }
        }
        self.sections_left_out = out.len();
        out.sort_unstable();
        for (at, place) in out.into_iter().rev() {
            self.layouts[at].sections.remove(place);
        }
    }

    /// The page as HTML.
    pub fn html(mut self) -> String {
        self.fit();
        let data = serde_json::to_string(&self).expect("strings, numbers and string-keyed maps always serialise");
        let name = |result: &PageResult| {
            let part = |key: &str| result.document[key]["name"].as_str().unwrap_or_default().to_owned();
            format!("{} on {}", part("workload"), part("arch"))
        };
        let names = self.results.iter().map(name).chain(self.sheets.iter().map(|of| of.sheet.title.clone()));
        let title = match (names.collect::<Vec<String>>(), &self.points) {
            (names, Some(points)) if names.is_empty() => points.name.clone(),
            (names, None) if names.is_empty() => "rdusim".to_owned(),
            (names, _) => names.join("; "),
        };
        // In this order: data may hold any of the other marks as text.
        let frame = FRAME.replace("{{STYLE}}", STYLE).replace("{{SCRIPT}}", &SCRIPTS.join("\n"));
        let (head, rest) = frame.split_once("{{TITLE}}").unwrap_or((&frame, ""));
        let (middle, tail) = rest.split_once("{{DATA}}").unwrap_or((rest, ""));
        [head, &escaped(&title), middle, &inert(&data), tail].concat()
    }
}

/// Most bytes of the pictures of a result in a page.
const MOST_PICTURE_BYTES: usize = 900_000;

/// Leaves out pictures that a page has no room for, and says so.
fn fit_pictures(sheet: &mut Sheet) {
    let (mut room, all) = (MOST_PICTURE_BYTES, sheet.pictures.len());
    sheet.pictures.retain(|picture| {
        let rest = room.checked_sub(picture.svg.len());
        room = rest.unwrap_or(room);
        rest.is_some()
    });
    let left_out = all - sheet.pictures.len();
    if left_out > 0 {
        let pictures = counted(left_out, "picture");
        sheet.remarks.push(format!("{pictures} too large for this page: the SVG files of `--out` are whole"));
    }
}

/// `layout.json` and `report.html` of a result that is no run of a workload, from its other files: the first JSON among them and the
/// pictures.
///
/// # Errors
/// A result that is none.
pub fn page_of(files: &[File], made: Made) -> Result<[File; 2], SavedError> {
    let text = |file: &File| String::from_utf8_lossy(&file.bytes).into_owned();
    let json = files.iter().find(|file| file.name.strip_suffix(".json").is_some()).map(text).unwrap_or_default();
    let sheet = kinds::read(&json).unwrap_or_else(|| Err("of no kind that has a page".to_owned()));
    let pictures = files.iter().filter_map(|file| {
        let name = file.name.strip_suffix(".svg")?.to_owned();
        // The bars of the sheet show the same.
        let is_drawn = name == "time" || name.starts_with("sensitivity-");
        (!is_drawn).then(|| Picture { name, svg: text(file) })
    });
    let sheet = Sheet { pictures: pictures.collect(), ..sheet.map_err(SavedError::Result)? };
    let mut page = Page::new(made);
    page.sheets.push(PageSheet { name: sheet.title.clone(), sheet, made: None });
    Ok([
        File { name: "layout.json".to_owned(), bytes: page.beside().into_bytes() },
        File { name: "report.html".to_owned(), bytes: page.html().into_bytes() },
    ])
}

/// JSON that no reader of HTML takes for markup: `<` only ever stands in its strings.
fn inert(json: &str) -> String {
    let json = json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    // What steers how a text is shown stands in strings alone, where a backslash is two; JSON has escaped the rest.
    if json.contains(steers) { printable(&json).replace("\\u{", "\\\\u{") } else { json }
}

fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A saved result that a page cannot be made of.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The result.
    #[error("not a result of `--format json`: {0}")]
    Result(String),
    /// What lies beside it.
    #[error("not what lies beside a result: {0}")]
    Layouts(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(command: &str, input: (&str, &str)) -> Page {
        let inputs = vec![PageInput { name: input.0.to_owned(), text: input.1.to_owned() }];
        Page::new(Made::new(command.to_owned(), inputs))
    }

    #[test]
    fn names_are_never_markup() {
        let hostile = "</script><script>alert(1)</script><!--";
        let html = page("rdusim compare --arch '</title><b>'", (hostile, hostile)).html();
        assert_eq!(html.matches("</script>").count(), 2, "the page's own");
        assert_eq!(html.matches("<script").count(), 2);
        assert!(!html.contains("<!--"));
        assert!(html.contains("\\u003c/script>"));
    }

    #[test]
    fn what_turns_a_text_around_is_shown_as_an_escape() {
        let hostile = "a\u{202e}b\u{2066}c";
        let mut page = page("rdusim", (hostile, "text of \u{202e}"));
        page.set_points(Points { name: hostile.to_owned(), ..Points::default() });
        let html = page.html();
        assert!(!html.contains(steers_more_than_lines), "{html}");
        assert!(html.contains("<title>a\\u{202e}b\\u{2066}c</title>"));
        // In JSON, so that the page shows it with one backslash.
        assert!(html.contains("\"a\\\\u{202e}b\\\\u{2066}c\""));
    }

    fn steers_more_than_lines(c: char) -> bool {
        steers(c) && !matches!(c, '\n' | '\t' | '\r')
    }

    #[test]
    fn a_mark_in_the_data_is_data() {
        let html = page("{{SCRIPT}} {{DATA}} {{TITLE}}", ("{{STYLE}}", "")).html();
        assert_eq!(html.matches("{{SCRIPT}} {{DATA}} {{TITLE}}").count(), 1);
        assert_eq!(html.matches("{{STYLE}}").count(), 1);
    }

    #[test]
    fn a_result_that_is_none_is_refused() {
        let mut page = Page::default();
        let refused = |page: &mut Page, text: &str| match page.add_saved(SavedResult {
            title: "a",
            json: text,
            layout: None,
            table: None,
        }) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(refused(&mut page, "{").contains("line 1 column 1"));
        assert!(refused(&mut page, "{\"schema\": 1}").contains("missing field `arch`"));
    }

    #[test]
    fn large_pictures_are_left_out_and_named() {
        let picture = |name: &str, bytes: usize| Picture { name: name.to_owned(), svg: "x".repeat(bytes) };
        let pictures = vec![picture("a", 10), picture("b", MOST_PICTURE_BYTES), picture("c", 20)];
        let mut sheet = Sheet { pictures, ..Sheet::default() };
        fit_pictures(&mut sheet);
        assert_eq!(sheet.pictures.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        assert!(sheet.remarks[0].starts_with("1 picture too large"), "{:?}", sheet.remarks);
    }

    #[test]
    fn the_shortest_sections_make_room() {
        let section = |name: &str, cycles: u64| SectionLayout {
            name: name.to_owned(),
            cycles,
            repeat: 1,
            stages: Vec::new(),
            buffers: Vec::new(),
            loads: vec![LinkLoads::default()],
            links: "0".repeat(400_000),
        };
        let layout = Layout {
            result: 0,
            mode: "kbk".to_owned(),
            columns: 400,
            rows: 250,
            banks_per_pmu: 1,
            links_per_direction: 1,
            kinds: String::new(),
            sections: ["a", "b", "c", "d", "e"].iter().zip([5, 1, 9, 2, 7]).map(|(n, c)| section(n, c)).collect(),
        };
        let mut page = Page { layouts: vec![layout], ..Page::default() };
        page.fit();
        let names: Vec<&str> = page.layouts[0].sections.iter().map(|s| s.name.as_str()).collect();
        assert_eq!((names, page.sections_left_out), (vec!["a", "c", "e"], 2));
        assert!(page.html().len() < 2 << 20);
    }
}
