//! Sheets of what examines runs: an explanation, a certificate, a verification, a validation.

use serde::Deserialize;

use super::super::describe::counted;
use super::super::human::{count, percent, ratio, si};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

#[derive(Deserialize)]
struct Explained {
    arch: String,
    workload: String,
    fidelity: String,
    mapping: String,
    modes: Vec<ExplainedMode>,
    #[serde(default)]
    notes: Vec<String>,
    uncertainty: Option<Uncertainty>,
}

#[derive(Deserialize)]
struct ExplainedMode {
    mode: String,
    cycles: u64,
    time_s: f64,
    bound_cycles: u64,
    power_w: Power,
    sections: Vec<Section>,
    derivatives: Vec<Derivative>,
}

#[derive(Deserialize)]
struct Power {
    average: f64,
}

#[derive(Deserialize)]
struct Section {
    name: String,
    time_s: f64,
    bound_by: String,
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    resource: String,
    share: f64,
}

#[derive(Deserialize)]
struct Derivative {
    resource: String,
    step: String,
    time_s: Option<f64>,
    saved_s: Option<f64>,
    saved_share: Option<f64>,
    refused: Option<String>,
}

#[derive(Deserialize)]
struct Uncertainty {
    bands: Vec<Band>,
    assumptions: Vec<Assumption>,
    not_varied: Vec<String>,
}

#[derive(Deserialize)]
struct Band {
    of: String,
    value: f64,
    least: f64,
    most: f64,
    all_least: Option<f64>,
    all_most: Option<f64>,
}

#[derive(Deserialize)]
struct Assumption {
    fields: Vec<String>,
    largest_change: f64,
}

impl Band {
    /// The band in a sentence; a speedup has no unit.
    fn told(&self) -> String {
        let text = |value: f64| if self.of.starts_with("speedup") { ratio(value, 1.0) } else { si(value, "s") };
        let all = match (self.all_least, self.all_most) {
            (Some(least), Some(most)) => format!("; with all at once from {} to {}", text(least), text(most)),
            _ => String::new(),
        };
        let (value, least, most) = (text(self.value), text(self.least), text(self.most));
        format!("{}: {value}, from {least} to {most} with one assumption of the chip file varied{all}.", self.of)
    }
}

/// The sheet of `explain`.
pub(super) fn explanation(text: &str) -> Result<Sheet, String> {
    let of: Explained = parsed(text)?;
    let Some(last) = of.modes.last() else { return Err("no modes, expected at least one".to_owned()) };
    let best = last.derivatives.iter().filter_map(|step| Some((step, step.saved_share.filter(|share| *share > 0.0)?)));
    let best = best.max_by(|a, b| a.1.total_cmp(&b.1));
    let verdict = match best {
        Some((step, share)) => {
            format!("{}: most of all, {} would save {}", last.mode, step.step, percent(share))
        }
        None => format!("{}: one more of no resource makes it faster", last.mode),
    };
    let mut sheet = Sheet {
        kind: "explain",
        title: format!("{} on {}", of.workload, of.arch),
        headline: si(last.time_s, "s"),
        verdict,
        lines: vec![format!("Fidelity {}, {} mapping.", of.fidelity, of.mapping)],
        remarks: of.notes,
        ..Sheet::default()
    };
    sheet.lines.extend(of.uncertainty.iter().flat_map(|of| &of.bands).map(Band::told));
    let mut sections =
        SheetTable::new("What bounds each section", &["mode", "section", "time", "bound by", "busiest"], &[1, 3, 4]);
    let head = ["mode", "resource", "step", "time with it", "saves", "of the time"];
    let mut steps = SheetTable::new("What one more of each resource saves", &head, &[1, 2]);
    for mode in &of.modes {
        let of_mode = |name: &str| format!("{}, {name}", mode.mode);
        sheet.figures.extend([
            Figure::low(&of_mode("time"), "s", mode.time_s),
            Figure::low(&of_mode("cycles"), "", mode.cycles as f64),
            Figure::plain(&of_mode("lower bound, cycles"), "", mode.bound_cycles as f64),
            Figure::plain(&of_mode("average power"), "W", mode.power_w.average),
        ]);
        for section in &mode.sections {
            let busy = section.resources.iter().take(3).map(|of| format!("{} {}", of.resource, percent(of.share)));
            let (busy, time) = (busy.collect::<Vec<String>>().join(", "), si(section.time_s, "s"));
            sections.rows.push(vec![mode.mode.clone(), section.name.clone(), time, section.bound_by.clone(), busy]);
        }
        let saving: Vec<&Derivative> =
            mode.derivatives.iter().filter(|step| step.saved_s.is_some_and(|saved| saved > 0.0)).collect();
        if !saving.is_empty() {
            sheet.bars.push(Bars {
                title: format!("What one more of each resource saves, {}", mode.mode),
                unit: "s",
                pieces: vec!["saved".to_owned()],
                rows: saving
                    .iter()
                    .map(|step| BarRow { name: step.resource.clone(), values: vec![step.saved_s.unwrap_or(0.0)] })
                    .collect(),
            });
        }
        for step in &mode.derivatives {
            let seconds = |of: Option<f64>| of.map_or_else(|| "–".to_owned(), |seconds| si(seconds, "s"));
            let share = step.saved_share.map_or_else(|| "–".to_owned(), percent);
            let what = match &step.refused {
                Some(why) => format!("{}: {why}", step.step),
                None => step.step.clone(),
            };
            let cells =
                [mode.mode.clone(), step.resource.clone(), what, seconds(step.time_s), seconds(step.saved_s), share];
            steps.rows.push(cells.to_vec());
        }
    }
    sheet.tables.extend([sections, steps]);
    if let Some(of) = of.uncertainty {
        let mut table = SheetTable::new("Assumptions of the chip file", &["fields", "largest change of a time"], &[0]);
        for effect in of.assumptions {
            table.rows.push(vec![effect.fields.join(", "), percent(effect.largest_change)]);
        }
        sheet.tables.push(table);
        if !of.not_varied.is_empty() {
            sheet.remarks.push(format!("not varied: {}", of.not_varied.join(", ")));
        }
    }
    Ok(sheet)
}

#[derive(Deserialize)]
struct Proved {
    arch: String,
    workload: String,
    mapping: String,
    certificate: Certificate,
}

#[derive(Deserialize)]
struct Certificate {
    mode: String,
    cycles: u64,
    sections: Vec<ProvedSection>,
    groups: Vec<Group>,
    least_cycles: u64,
    gap: f64,
}

#[derive(Deserialize)]
struct ProvedSection {
    operators: Vec<String>,
    cycles: u64,
}

#[derive(Deserialize)]
struct Group {
    operators: Vec<String>,
    leaves: Vec<serde_json::Value>,
    least_cycles: u64,
}

/// What a path or a built-in name is called: the file's name without its ending.
fn stem(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    name.strip_suffix(".toml").filter(|stem| !stem.is_empty()).unwrap_or(name)
}

/// The sheet of a certificate.
pub(super) fn certificate(text: &str) -> Result<Sheet, String> {
    let Proved { arch, workload, mapping, certificate: of } = parsed(text)?;
    let leaves: usize = of.groups.iter().map(|group| group.leaves.len()).sum();
    let mut sections = SheetTable::new("Sections of the mapping", &["operators", "cycles"], &[0]);
    for section in &of.sections {
        sections.rows.push(vec![section.operators.join("+"), count(section.cycles)]);
    }
    let mut groups = SheetTable::new("Bounds", &["operators", "classes of mappings", "least cycles"], &[0]);
    for group in &of.groups {
        let (least, leaves) = (count(group.least_cycles), count(group.leaves.len() as u64));
        groups.rows.push(vec![group.operators.join("+"), leaves, least]);
    }
    Ok(Sheet {
        kind: "certificate",
        title: format!("{} on {}: certificate", stem(&workload), stem(&arch)),
        headline: format!("{:.2} %", of.gap * 100.0),
        verdict: format!(
            "gap of the {} mapping: {} cycles, and no mapping takes less than {}",
            of.mode,
            count(of.cycles),
            count(of.least_cycles)
        ),
        lines: vec![
            format!("{} of loop nests cover all mappings of the mode ({mapping} quality).", count(leaves as u64) + " classes"),
            "`rdusim check-proof` computes the bounds again; the cycles of the mapping are a claim that `rdusim run` reproduces."
                .to_owned(),
        ],
        figures: vec![
            Figure::low("cycles of the mapping", "", of.cycles as f64),
            Figure::plain("least cycles", "", of.least_cycles as f64),
            Figure::low("gap", "%", of.gap),
        ],
        bars: vec![Bars {
            title: "Cycles of the sections".to_owned(),
            unit: "",
            pieces: vec!["cycles".to_owned()],
            rows: of
                .sections
                .iter()
                .map(|section| BarRow { name: section.operators.join("+"), values: vec![section.cycles as f64] })
                .collect(),
        }],
        tables: vec![sections, groups],
        ..Sheet::default()
    })
}

#[derive(Deserialize)]
struct Verified {
    passed: bool,
    max_rel_error: f64,
    tolerance: f64,
    arch: String,
    workload: String,
    #[serde(default)]
    runs: Vec<VerifiedRun>,
}

#[derive(Deserialize)]
struct VerifiedRun {
    mode: String,
    passed: bool,
    sections: u64,
    compared: u64,
    firings: u64,
    fault: Option<serde_json::Value>,
}

/// The sheet of `verify`.
pub(super) fn verification(text: &str) -> Result<Sheet, String> {
    let of: Verified = parsed(text)?;
    let head = ["mode", "passed", "sections", "elements compared", "firings", "fault"];
    let mut table = SheetTable::new("Runs on numbers", &head, &[5]);
    for run in &of.runs {
        let fault = run
            .fault
            .as_ref()
            .map_or_else(String::new, |fault| fault.as_str().map_or_else(|| fault.to_string(), str::to_owned));
        let passed = if run.passed { "yes" } else { "no" }.to_owned();
        let [sections, compared, firings] = [run.sections, run.compared, run.firings].map(count);
        table.rows.push(vec![run.mode.clone(), passed, sections, compared, firings, fault]);
    }
    Ok(Sheet {
        kind: "verify",
        title: format!("{} on {}: numbers", of.workload, of.arch),
        headline: if of.passed { "passed" } else { "FAILED" }.to_owned(),
        verdict: format!(
            "{}: the largest relative error is {:.2e}, {:.2e} are allowed there",
            counted(of.runs.len(), "run"),
            of.max_rel_error,
            of.tolerance
        ),
        figures: vec![
            Figure::low("largest relative error", "", of.max_rel_error),
            Figure::plain("allowed there", "", of.tolerance),
        ],
        tables: vec![table],
        ..Sheet::default()
    })
}

#[derive(Deserialize)]
struct VerifiedTiles {
    arch: String,
    workload: String,
    passed: bool,
    #[serde(default)]
    notes: Vec<String>,
    products: Vec<Product>,
}

#[derive(Deserialize)]
struct Product {
    operator: String,
    tiles: u64,
    passed: bool,
    tiles_not_as_planned: u64,
    wrong_elements: u64,
}

/// The sheet of `verify` on a chip of tiles.
pub(super) fn verification_of_tiles(text: &str) -> Result<Sheet, String> {
    let of: VerifiedTiles = parsed(text)?;
    let head = ["operator", "passed", "tiles", "tiles not as planned", "wrong elements"];
    let mut table = SheetTable::new("Products on numbers", &head, &[0]);
    for product in &of.products {
        let passed = if product.passed { "yes" } else { "no" }.to_owned();
        let [tiles, others, wrong] = [product.tiles, product.tiles_not_as_planned, product.wrong_elements].map(count);
        table.rows.push(vec![product.operator.clone(), passed, tiles, others, wrong]);
    }
    Ok(Sheet {
        kind: "verify",
        title: format!("{} on {}: numbers", of.workload, of.arch),
        headline: if of.passed { "passed" } else { "FAILED" }.to_owned(),
        verdict: format!("{}, operands and sums as tiles receive them", counted(of.products.len(), "product")),
        tables: vec![table],
        remarks: of.notes,
        ..Sheet::default()
    })
}

#[derive(Deserialize)]
struct Validated {
    sets: Vec<Set>,
    #[serde(default)]
    leave_one_set_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
struct Set {
    name: String,
    chip: String,
    mapping: String,
    quantity: String,
    source: String,
    median_error: f64,
    worst_error: f64,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    point: serde_json::Value,
    published: f64,
    simulated: Option<f64>,
    error: Option<f64>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct LeftOut {
    set: String,
    mapping: String,
    band: [f64; 2],
    inside: u64,
    points: u64,
}

/// The sheet of `validate`.
pub(super) fn validation(text: &str) -> Result<Sheet, String> {
    let of: Validated = parsed(text)?;
    let head = ["set", "chip", "mapping", "quantity", "points", "median error", "worst error", "source"];
    let mut sets = SheetTable::new("Sets of measurements", &head, &[0, 3, 7]);
    let mut points = SheetTable::new("Points", &["set", "point", "published", "simulated", "error"], &[0, 1]);
    let mut bars = Bars {
        title: "Median error of each set".to_owned(),
        unit: "%",
        pieces: vec!["median of the absolute errors".to_owned()],
        rows: Vec::new(),
    };
    for set in &of.sets {
        let Set { name, chip, mapping, quantity, source, .. } = set;
        let [median, worst] = [set.median_error, set.worst_error].map(percent);
        let points_of = count(set.rows.len() as u64);
        let texts = [name, chip, mapping, quantity, &points_of, &median, &worst, source];
        sets.rows.push(texts.into_iter().cloned().collect());
        bars.rows.push(BarRow { name: name.clone(), values: vec![set.median_error] });
        for row in &set.rows {
            let point = row.point.as_str().map_or_else(|| row.point.to_string(), str::to_owned);
            let number = |value: f64| format!("{value:.4e}");
            let simulated = row.simulated.map_or_else(|| row.reason.clone().unwrap_or_default(), number);
            let error = row.error.map_or_else(|| "–".to_owned(), percent);
            points.rows.push(vec![name.clone(), point, number(row.published), simulated, error]);
        }
    }
    let mut medians: Vec<f64> = of.sets.iter().map(|set| set.median_error).collect();
    medians.sort_by(f64::total_cmp);
    let middle = medians.get(medians.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let lines = of.leave_one_set_out.iter().map(|of| {
        let (low, high) = (ratio(of.band[0], 1.0), ratio(of.band[1], 1.0));
        format!(
            "{} ({}): {} of {} points in the band of the other sets' errors, {low} to {high}.",
            of.set, of.mapping, of.inside, of.points
        )
    });
    Ok(Sheet {
        kind: "validation",
        title: "Simulated against published".to_owned(),
        headline: percent(middle),
        verdict: format!("error in the median set of {}", counted(of.sets.len(), "set")),
        lines: lines.collect(),
        bars: vec![bars],
        tables: vec![sets, points],
        ..Sheet::default()
    })
}
