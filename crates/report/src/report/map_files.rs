//! The files of `map --out DIR`: the map as JSON, and each section as a picture.

use super::chart::{ChartError, MapChart};
use super::write::{File, WriteError};
use crate::map::Map;
use rdusim_graph::arch::Chip;

/// Most characters of a section's name in a file's name.
const MOST_NAME: usize = 48;

/// `map.json`, and `map-N-NAME.svg` and `.png` for each section, counted from 1; of sections that ran also how they spent
/// the run, `map-N-NAME.run.svg` and `.png`.
pub fn map_files(chip: &Chip, map: &Map) -> Result<Vec<File>, WriteError> {
    let mut files = vec![File { name: "map.json".to_owned(), bytes: map.to_json().into_bytes() }];
    for (at, section) in map.sections.iter().enumerate() {
        let chart = MapChart::new(chip, map, at);
        let failed = |error: ChartError| WriteError::Chart("map", error);
        let name = format!("map-{}-{}", at + 1, file_name(&section.name));
        files.push(File { name: format!("{name}.svg"), bytes: chart.svg().map_err(failed)?.into_bytes() });
        files.push(File { name: format!("{name}.png"), bytes: chart.png().map_err(failed)? });
        if let Some(chart) = MapChart::of_run(chip, map, at) {
            files.push(File { name: format!("{name}.run.svg"), bytes: chart.svg().map_err(failed)?.into_bytes() });
            files.push(File { name: format!("{name}.run.png"), bytes: chart.png().map_err(failed)? });
        }
    }
    Ok(files)
}

/// `name` with everything that a file system or a shell might stumble over replaced by `-`.
pub(super) fn file_name(name: &str) -> String {
    let mut safe = String::new();
    for c in name.chars().take(MOST_NAME) {
        let keeps = c.is_ascii_alphanumeric() || c == '_';
        if keeps {
            safe.push(c);
        } else if !safe.ends_with('-') {
            safe.push('-');
        }
    }
    let safe = safe.trim_matches('-');
    if safe.is_empty() { "section".to_owned() } else { safe.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_for_files() {
        assert_eq!(file_name("up+gelu+down"), "up-gelu-down");
        assert_eq!(file_name("../..//etc"), "etc");
        assert_eq!(file_name("layer_1 (\u{e9}) <x>"), "layer_1-x");
        assert_eq!(file_name("\u{1b}/"), "section");
        assert_eq!(file_name(&"a".repeat(500)).len(), MOST_NAME);
    }
}
