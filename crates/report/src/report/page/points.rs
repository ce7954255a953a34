//! Points of a sweep, as the page shows them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Most bytes of rows in a page; of more points an even choice is shown.
const MOST_ROW_BYTES: usize = 1_300_000;

/// Points of a sweep.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Points {
    /// The study's name.
    pub name: String,
    /// What is best, the most important first.
    pub best: Vec<BestRow>,
    /// More that stands out, a sentence each.
    pub lead: Vec<String>,
    /// Names of the columns: axes, then metrics.
    pub columns: Vec<String>,
    /// Columns that are axes.
    pub axes: usize,
    /// Columns to make small, and columns to make large.
    pub minimize: Vec<String>,
    /// See `minimize`.
    pub maximize: Vec<String>,
    /// Pictures that the study asks for.
    pub views: Vec<View>,
    /// A value a column; numbers where they are numbers, nothing where there is none.
    pub rows: Vec<Vec<Value>>,
    /// The columns of the study's front.
    pub front_of: Vec<String>,
    /// Rows that no other beats in every one of them, by index.
    pub front: Vec<usize>,
    /// Rows there are; more than are shown where they would make the page too large.
    pub all: usize,
}

/// The best point under a constraint.
#[derive(Debug, Clone, Serialize)]
pub struct BestRow {
    /// The column that is least or most.
    pub column: String,
    /// Whether it is most.
    pub maximize: bool,
    /// The constraint.
    pub subject_to: Option<String>,
    /// The row, by index; `None` if no point meets the constraint.
    pub row: Option<usize>,
}

/// A picture of the points; columns by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct View {
    /// `lines`, `heat` or `pareto`.
    pub kind: String,
    /// Its heading.
    pub title: String,
    /// Across.
    pub x: String,
    /// Up.
    pub y: String,
    /// Of `heat`, what is shown as colour; of others, what tells the series apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colour: Option<String>,
}

impl Points {
    /// Takes the rows of a table. `front` and the rows of [`Points::best`], which count all rows, are kept in any case.
    pub fn set_rows(&mut self, rows: &[Vec<String>], front: &[usize]) {
        let values = |row: &Vec<String>| -> Vec<Value> { row.iter().map(|cell| value(cell)).collect() };
        let bytes: usize =
            rows.iter().map(|row| row.iter().map(|cell| cell.len().min(10) + 1).sum::<usize>() + 3).sum();
        let every = bytes.div_ceil(MOST_ROW_BYTES).max(1);
        self.all = rows.len();
        let best_of: Vec<Option<usize>> = self.best.iter_mut().map(|best| best.row.take()).collect();
        let front: BTreeSet<usize> = front.iter().copied().collect();
        for (at, row) in rows.iter().enumerate() {
            let shown = self.rows.len();
            let in_front = front.contains(&at);
            let best: Vec<usize> = (0..best_of.len()).filter(|&place| best_of[place] == Some(at)).collect();
            if at % every == 0 || in_front || !best.is_empty() {
                if in_front {
                    self.front.push(shown);
                }
                for place in best {
                    self.best[place].row = Some(shown);
                }
                self.rows.push(values(row));
            }
        }
    }
}

/// A cell as a number of six digits if it is one, as nothing if it is empty.
fn value(cell: &str) -> Value {
    if cell.is_empty() {
        return Value::Null;
    }
    if let Ok(whole) = cell.parse::<u64>() {
        return whole.into();
    }
    let real = cell.parse::<f64>().ok().and_then(|real| format!("{real:.5e}").parse().ok());
    real.and_then(Number::from_f64).map_or_else(|| cell.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_become_what_they_are() {
        let found = ["", "12", "-3", "0.004638123456", "1e-7", "ok", "[8, 8]", "inf"].map(value);
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(json, r#"[null,12,-3.0,0.00463812,1e-7,"ok","[8, 8]","inf"]"#);
    }

    #[test]
    fn a_large_table_is_thinned_and_keeps_its_front() {
        let rows: Vec<Vec<String>> = (0..500_000).map(|i| vec![i.to_string(), "0.123456789".to_owned()]).collect();
        let best = BestRow { column: "a".into(), maximize: false, subject_to: None, row: Some(77_777) };
        let mut points = Points { best: vec![best], ..Points::default() };
        points.set_rows(&rows, &[3, 499_999]);
        assert_eq!(points.rows[points.best[0].row.unwrap()][0], 77_777);
        assert_eq!((points.all, points.front.len()), (500_000, 2));
        assert_eq!(points.rows[points.front[0]][0], 3);
        assert!(serde_json::to_string(&points).unwrap().len() < 2 * MOST_ROW_BYTES);
        assert!(points.rows.len() > 10_000);
        let mut few = Points::default();
        few.set_rows(&rows[..100], &[]);
        assert_eq!((few.rows.len(), few.all), (100, 100));
    }
}
