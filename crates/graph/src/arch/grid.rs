//! From the grid's pattern and edges to units at coordinates.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;

use super::limits;
use super::spec::{EdgeSpec, GridSpec};
use super::{Agcu, Coordinate, Grid, Shapes, UnitKind, shape};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Source, Table};

/// Checks `[grid]` and resolves it.
pub(super) fn grid(source: &Source, spec: &GridSpec) -> Result<Grid, Diagnostic> {
    let columns = source.count("grid.columns", &spec.columns, limits::SIDE)?;
    let rows = source.count("grid.rows", &spec.rows, limits::SIDE)?;
    if columns * rows > limits::MAX_SITES {
        let title = format!(
            "the grid has {columns} x {rows} = {} sites, at most {} are possible",
            columns * rows,
            limits::MAX_SITES
        );
        return Err(source.error_among(&[spec.columns.span(), spec.rows.span()], title, "too many sites"));
    }
    let (columns, rows) = (columns as u32, rows as u32);
    let pattern = with_ratio(source, spec, pattern(source, &spec.pattern)?)?;
    let mut tile = (
        part(source, "tile_columns", spec.tile_columns.as_ref(), "columns", columns)?,
        part(source, "tile_rows", spec.tile_rows.as_ref(), "rows", rows)?,
    );
    let mut die = (
        part(source, "die_columns", spec.die_columns.as_ref(), "columns", columns)?,
        part(source, "die_rows", spec.die_rows.as_ref(), "rows", rows)?,
    );
    let (mut shapes, (mut columns, mut rows)) = (None, (columns, rows));
    if let Some(pcus) = &spec.pcus {
        let (tiles, dies) = ((columns / tile.0, rows / tile.1), (columns / die.0, rows / die.1));
        let step = (common(tiles.0, dies.0), common(tiles.1, dies.1));
        let is_pcu = |line: &Vec<UnitKind>| line.iter().map(|&unit| unit == UnitKind::Pcu).collect();
        let is_pcu: Vec<Vec<bool>> = pattern.iter().map(is_pcu).collect();
        let of_file = Shapes::new(&is_pcu, (u64::from(columns), u64::from(rows)), step);
        (columns, rows) = by_count(source, pcus, &of_file)?;
        (tile, die) = ((columns / tiles.0, rows / tiles.1), (columns / dies.0, rows / dies.1));
        shapes = Some(Arc::new(of_file));
    }
    let mut grid = Grid {
        columns,
        rows,
        tile,
        die,
        shapes,
        units: Vec::with_capacity(columns as usize * rows as usize),
        pcus: Vec::new(),
        pmus: Vec::new(),
        agcus: agcus(source, spec, columns, rows)?,
    };
    for y in 0..rows {
        let line = &pattern[y as usize % pattern.len()];
        for x in 0..columns {
            let unit = line[x as usize % line.len()];
            match unit {
                UnitKind::Pcu => grid.pcus.push(Coordinate { x, y }),
                UnitKind::Pmu => grid.pmus.push(Coordinate { x, y }),
                UnitKind::None => {}
            }
            grid.units.push(unit);
        }
    }
    for (sites, what, letter) in [(&grid.pcus, "PCU", 'C'), (&grid.pmus, "PMU", 'M')] {
        if sites.is_empty() {
            let title = format!("the grid has no {what}");
            let label = format!("no `{letter}` of it falls on the {columns} x {rows} sites");
            return Err(source.error(spec.pattern.span(), title, label));
        }
    }
    Ok(grid)
}

/// The least common multiple.
fn common(a: u32, b: u32) -> u64 {
    let (a, b) = (u64::from(a), u64::from(b));
    (1..=b).map(|times| times * a).find(|multiple| multiple.is_multiple_of(b)).unwrap_or(a * b)
}

/// The shape of a grid with so many PCUs.
fn by_count(source: &Source, pcus: &Spanned<Count>, shapes: &Shapes) -> Result<(u32, u32), Diagnostic> {
    let wanted = source.count("grid.pcus", pcus, 1..=limits::MAX_SITES)?;
    let (columns, rows) = shapes.with(wanted).map_err(|near| {
        let told: Vec<String> =
            near.iter().flatten().map(|(pcus, (columns, rows))| format!("{pcus} ({columns} x {rows} sites)")).collect();
        let title = format!("no grid of this pattern, with as many tiles and dies, has exactly {wanted} PCUs");
        let label = format!("possible near it: {}", told.join(", "));
        let help = "shapes are at most twice as wide or as tall as `columns` x `rows`; fewer tiles or dies, or another \
                    `pcus_per_pmu`, make other numbers possible (docs/arch-format.md)";
        source.error(pcus.span(), title, label).with_help(help)
    })?;
    Ok((columns as u32, rows as u32))
}

/// The pattern of the file, or that of the ratio that is asked for, if the file's has another.
fn with_ratio(source: &Source, spec: &GridSpec, pattern: Vec<Vec<UnitKind>>) -> Result<Vec<Vec<UnitKind>>, Diagnostic> {
    let Some(asked) = &spec.pcus_per_pmu else { return Ok(pattern) };
    let ratio = source.real("grid.pcus_per_pmu", asked, limits::PCUS_PER_PMU)?;
    let Some((pcus, pmus)) = shape::parts(ratio) else {
        let title = format!("`grid.pcus_per_pmu` is {ratio}, which is no ratio of few units");
        let label = "expected p / q with p + q up to 16, such as 0.25, 0.5, 1.5 or 3";
        return Err(source.error(asked.span(), title, label));
    };
    let count = |kind: UnitKind| pattern.iter().flatten().filter(|&&unit| unit == kind).count() as u64;
    if count(UnitKind::None) > 0 {
        let title = "`grid.pcus_per_pmu` needs a pattern that has a unit at every site";
        let label = "`grid.pattern` has sites with a switch alone";
        return Err(source.error(asked.span(), title, label).with_help("say the ratio by `grid.pattern` itself"));
    }
    let is_of_file = count(UnitKind::Pcu) * pmus == count(UnitKind::Pmu) * pcus;
    let of_ratio = || {
        let unit = |is_pcu: bool| if is_pcu { UnitKind::Pcu } else { UnitKind::Pmu };
        shape::pattern(pcus, pmus).into_iter().map(|line| line.into_iter().map(unit).collect()).collect()
    };
    Ok(if is_of_file { pattern } else { of_ratio() })
}

fn pattern(source: &Source, spec: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Vec<UnitKind>>, Diagnostic> {
    let mut lines: Vec<Vec<UnitKind>> = Vec::new();
    for line in spec.get_ref() {
        let mut units = Vec::new();
        for letter in line.get_ref().chars() {
            units.push(match letter {
                'C' => UnitKind::Pcu,
                'M' => UnitKind::Pmu,
                '.' => UnitKind::None,
                other => {
                    let title = format!("`grid.pattern` has the letter {other:?}");
                    let label = "expected C (PCU), M (PMU) and . (switch only)";
                    return Err(source.error(line.span(), title, label));
                }
            });
        }
        let wanted = lines.first().map_or(units.len(), Vec::len);
        if units.is_empty() || units.len() != wanted {
            let title = format!("`grid.pattern` has rows of {wanted} and of {} letters", units.len());
            let title = if units.is_empty() { "`grid.pattern` has an empty row".to_owned() } else { title };
            return Err(source.error(line.span(), title, "expected rows of one length"));
        }
        lines.push(units);
    }
    if lines.is_empty() {
        return Err(source.error(spec.span(), "`grid.pattern` is empty", "expected rows of C, M and ."));
    }
    Ok(lines)
}

/// The side of a tile or die, which must divide the grid's; the whole grid by default.
fn part(
    source: &Source,
    key: &str,
    value: Option<&Spanned<Count>>,
    whole_key: &str,
    whole: u32,
) -> Result<u32, Diagnostic> {
    let Some(value) = value else { return Ok(whole) };
    let side = source.count(&format!("grid.{key}"), value, limits::SIDE)?;
    if !u64::from(whole).is_multiple_of(side) {
        let title = format!("`grid.{key}` must divide `grid.{whole_key}`: {whole} is not a multiple of {side}");
        return Err(source.error(value.span(), title, format!("expected a divisor of {whole}")));
    }
    Ok(side as u32)
}

fn agcus(source: &Source, spec: &GridSpec, columns: u32, rows: u32) -> Result<Vec<Agcu>, Diagnostic> {
    let edges = spec.agcus.get_ref();
    let mut sites: Vec<Agcu> = Vec::new();
    let mut at: BTreeMap<Coordinate, usize> = BTreeMap::new();
    let (right, bottom) = (columns - 1, rows - 1);
    let mut add = |name: &str, edge: &Option<Table<EdgeSpec>>, length: u32, site: &dyn Fn(u32) -> Coordinate| {
        let Some(edge) = edge else { return Ok(()) };
        let ags = source.count(&format!("grid.agcus.{name}.ags"), &edge.ags, limits::AGS)?;
        for along in along_edge(source, name, edge, length)? {
            let site = site(along);
            // A corner belongs to two edges: its AGCUs are one with the generators of both.
            if let Some(&index) = at.get(&site) {
                sites[index].ags += ags;
            } else {
                at.insert(site, sites.len());
                sites.push(Agcu { site, ags });
            }
        }
        Ok(())
    };
    add("left", &edges.left, rows, &|y| Coordinate { x: 0, y })?;
    add("right", &edges.right, rows, &|y| Coordinate { x: right, y })?;
    add("top", &edges.top, columns, &|x| Coordinate { x, y: 0 })?;
    add("bottom", &edges.bottom, columns, &|x| Coordinate { x, y: bottom })?;
    if sites.is_empty() {
        let title = "`grid.agcus` has no edge: the chip could not reach its memory";
        return Err(source.error(spec.agcus.span(), title, "expected `left`, `right`, `top` or `bottom`"));
    }
    Ok(sites)
}

/// The positions of an edge's AGCUs along it.
fn along_edge(source: &Source, name: &str, edge: &EdgeSpec, length: u32) -> Result<Vec<u32>, Diagnostic> {
    let field = |key: &str| format!("grid.agcus.{name}.{key}");
    let first = match &edge.first {
        Some(value) => source.count(&field("first"), value, 0..=u64::from(length - 1))? as u32,
        None => 0,
    };
    let every = match &edge.every {
        Some(value) => source.count(&field("every"), value, limits::SIDE)?,
        None => 1,
    };
    let fitting: Vec<u32> = (first..length).step_by(every as usize).collect();
    match &edge.count {
        Some(value) => {
            let count = source.count(&field("count"), value, 1..=fitting.len() as u64)?;
            Ok(fitting[..count as usize].to_vec())
        }
        None => Ok(fitting),
    }
}
