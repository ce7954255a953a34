//! A default answer: one screen of what decides, whatever the model; `--full` prints the tables behind it.

use super::human::shorten;
use super::text_table::{WIDTH, wrapped};

/// Lines of a default answer at most.
const LINES: usize = 24;

/// Remarks that are shown; of more, their number.
const MOST_REMARKS: usize = 2;

/// A default answer as it grows: parts in the order in which they are read, what may be left out among them.
#[derive(Debug, Default)]
pub struct Screen {
    parts: Vec<Part>,
    remarks: Vec<String>,
}

#[derive(Debug)]
struct Part {
    lines: Vec<String>,
    /// Left out where there is no room.
    is_spare: bool,
}

impl Screen {
    /// A line; what is wider than a terminal loses its middle.
    pub fn line(&mut self, text: &str) {
        self.part(vec![clipped(text)], false);
    }

    /// A sentence, broken at spaces.
    pub fn sentence(&mut self, text: &str) {
        self.indented("", text);
    }

    /// A sentence behind a label, its later lines indented.
    pub fn indented(&mut self, label: &str, text: &str) {
        self.part(wrapped(label, text).lines().map(str::to_owned).collect(), false);
    }

    /// A sentence that is left out where there is no room.
    pub fn spare(&mut self, label: &str, text: &str) {
        self.part(wrapped(label, text).lines().map(str::to_owned).collect(), true);
    }

    /// An empty line between two parts.
    pub(crate) fn gap(&mut self) {
        self.part(vec![String::new()], false);
    }

    /// The lines of a table.
    pub(crate) fn table(&mut self, text: &str) {
        self.part(text.lines().map(clipped).collect(), false);
    }

    fn part(&mut self, lines: Vec<String>, is_spare: bool) {
        self.parts.push(Part { lines, is_spare });
    }

    /// Remarks of a result; the first ones are shown, and one that stands there already counts once.
    pub fn remarks<'a>(&mut self, remarks: impl IntoIterator<Item = &'a str>) {
        for remark in remarks {
            if !self.remarks.iter().any(|other| other == remark) {
                self.remarks.push(remark.to_owned());
            }
        }
    }

    /// The text: all parts as far as there is room, the first remarks, and what else `--full` prints: `tables`, if there are any, and
    /// the other remarks.
    pub fn finish(self, tables: &str) -> String {
        let Self { parts, remarks } = self;
        let shown = remarks.len().min(MOST_REMARKS);
        let more = match remarks.len() - shown {
            0 => String::new(),
            1 => "1 more remark".to_owned(),
            more => format!("{more} more remarks"),
        };
        let rest: Vec<&str> = [tables, &more].into_iter().filter(|part| !part.is_empty()).collect();
        let needed: usize = parts.iter().filter(|part| !part.is_spare).map(|part| part.lines.len()).sum();
        // Each remark has a line at least, and the last line says what else there is.
        let mut room = LINES.saturating_sub(needed + shown + 1);
        let mut lines: Vec<String> = Vec::with_capacity(LINES);
        for part in parts {
            if !part.is_spare {
                lines.extend(part.lines);
            } else if part.lines.len() <= room {
                room -= part.lines.len();
                lines.extend(part.lines);
            }
        }
        // What cannot be left out is short by construction; of a table that is not, the last lines.
        lines.truncate(LINES - shown - 1);
        for remark in remarks.iter().take(shown) {
            let whole = wrapped("note  ", remark);
            let mut own: Vec<&str> = whole.lines().collect();
            if own.len() > 1 + room {
                own.truncate(1 + room);
                let last = own.pop().unwrap_or_default();
                lines.extend(own.into_iter().map(str::to_owned));
                lines.push(cut(last));
                room = 0;
            } else {
                room -= own.len() - 1;
                lines.extend(own.into_iter().map(str::to_owned));
            }
        }
        if !rest.is_empty() {
            lines.push(format!("--full prints {}", rest.join(" and ")));
        }
        let mut text = lines.iter().map(|line| line.trim_end()).collect::<Vec<&str>>().join("\n");
        text.push('\n');
        text
    }
}

/// A line that another one should have followed.
fn cut(line: &str) -> String {
    let most = usize::from(WIDTH) - 2;
    let kept: String = line.chars().take(most).collect();
    format!("{} …", kept.trim_end())
}

fn clipped(line: &str) -> String {
    shorten(line, usize::from(WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_remarks_are_shown_and_the_others_counted() {
        let mut screen = Screen::default();
        screen.line("verdict");
        screen.remarks(["one", "two", "one", "three", "four"]);
        assert_eq!(
            screen.finish("all tables"),
            "verdict\nnote  one\nnote  two\n--full prints all tables and 2 more remarks\n"
        );
    }

    #[test]
    fn what_may_be_left_out_goes_first() {
        let mut screen = Screen::default();
        for line in 0..20 {
            screen.line(&format!("needed {line}"));
            screen.spare("", &format!("spare {line}"));
        }
        let text = screen.finish("all");
        assert_eq!(text.lines().count(), LINES);
        assert_eq!(text.lines().filter(|line| line.starts_with("needed")).count(), 20);
        assert!(text.contains("spare 2\n") && !text.contains("spare 3\n"), "{text}");
    }

    proptest! {
        #[test]
        fn an_answer_is_a_screen(
            parts in prop::collection::vec((0usize..40, 0usize..300, any::<bool>()), 0..12),
            remarks in prop::collection::vec("[a-z ]{0,400}", 0..6),
        ) {
            let mut screen = Screen::default();
            for (lines, width, is_spare) in parts {
                if is_spare {
                    screen.spare("", &"x".repeat(width));
                } else {
                    screen.table(&vec!["y".repeat(width); lines].join("\n"));
                }
            }
            screen.remarks(remarks.iter().map(String::as_str));
            let text = screen.finish("all tables");
            prop_assert!(text.lines().count() <= LINES);
            prop_assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{}", text);
        }
    }
}
