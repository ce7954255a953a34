//! Studies from text to table.

use std::path::{Path, PathBuf};

use crate::study::StudyError;

use super::*;

/// A directory with a study of the smallest workload on a small chip.
struct Room {
    directory: tempfile::TempDir,
}

const HEAD: &str = "schema = 1\nname = \"s\"\narch = \"chip.toml\"\nworkload = \"work.toml\"\n";
const AXES: &str = "[[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nvalues = [50, 100.0, 100]\n\
                    [[axes]]\npath = \"workload.dims.tokens\"\nvalues = [64, 128]\n";

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let small = std::fs::read_to_string(root.join("arch/sn10.toml")).unwrap();
        let small = small.replace("columns = 40", "columns = 8").replace("rows = 32", "rows = 8");
        let small = small.replace("tile_columns = 20\n", "").replace("tile_rows = 16\n", "");
        std::fs::write(directory.path().join("chip.toml"), small).unwrap();
        std::fs::copy(root.join("workloads/tiny-mlp.toml"), directory.path().join("work.toml")).unwrap();
        Self { directory }
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("study.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn study(&self, text: &str) -> Study {
        Study::open(&self.write(text), &[], None).unwrap_or_else(|error| panic!("{}", error.render(false)))
    }

    fn refused(&self, text: &str) -> String {
        Study::open(&self.write(text), &[], None).expect_err("is refused").render(false)
    }

    fn out(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn csv(study: &Study, threads: usize, out: Option<&Path>) -> String {
    sweep(study, Shard::WHOLE, Some(threads), out, &|_, _| {}).unwrap().to_csv()
}

#[test]
fn a_product_has_a_row_for_every_pair() {
    let room = Room::new();
    let study = room.study(&format!("{HEAD}metrics = [\"fused.cycles\", \"speedup\", \"status\"]\n{AXES}"));
    let text = csv(&study, 1, None);
    let lines: Vec<&str> = text.lines().collect();
    let columns = "fused.cycles,speedup,speedup_least,speedup_most,status";
    assert_eq!(lines[0], format!("arch.memory.ddr.bandwidth_gb_per_s,workload.dims.tokens,{columns}"));
    assert_eq!(lines.len(), 7);
    assert!(lines[1].starts_with("50,64,") && lines[2].starts_with("50,128,") && lines[6].starts_with("100,128,"));
    // 100.0 and 100 are the same point.
    assert_eq!(lines[3].strip_prefix("100.0,"), lines[5].strip_prefix("100,"));
    assert!(lines[1..].iter().all(|line| line.ends_with(",ok")));
    for threads in [2, 4] {
        assert_eq!(csv(&study, threads, None), text);
    }
}

#[test]
fn a_journal_cut_anywhere_gives_the_same_table() {
    let room = Room::new();
    let study = room.study(&format!("{HEAD}metrics = [\"kbk.time_s\", \"fused.energy_j\"]\n{AXES}"));
    let whole = csv(&study, 2, None);
    let out = room.out("out");
    assert_eq!(csv(&study, 2, Some(&out)), whole);
    let journal = std::fs::read(out.join("journal.jsonl")).unwrap();
    for length in [0, 10, journal.len() / 3, journal.len() / 2, journal.len() - 1] {
        std::fs::write(out.join("journal.jsonl"), &journal[..length]).unwrap();
        assert_eq!(csv(&study, 2, Some(&out)), whole);
        let lines = std::fs::read_to_string(out.join("journal.jsonl")).unwrap().lines().count();
        assert_eq!(lines, 7, "a point is recorded once");
    }
}

#[test]
fn shards_join_to_the_whole() {
    let room = Room::new();
    let study = room.study(&format!("{HEAD}metrics = [\"fused.cycles\"]\n{AXES}"));
    let outs: Vec<PathBuf> = (1..=3).map(|index| room.out(&format!("shard-{index}"))).collect();
    for (at, out) in outs.iter().enumerate() {
        sweep(&study, Shard { index: at + 1, count: 3 }, Some(1), Some(out), &|_, _| {}).unwrap();
    }
    let paths: Vec<&Path> = outs.iter().map(PathBuf::as_path).collect();
    assert_eq!(merge(&study, &paths).unwrap().to_csv(), csv(&study, 1, None));
    let refused = |paths: &[&Path]| match merge(&study, paths) {
        Err(StudyError::Refused(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&paths[..2]), "point 2 and 1 more of 6 is in none of the shards");
    assert!(refused(&[paths[0], paths[1], paths[2], paths[0]]).starts_with("point 0 is in"));
    let changed = room.study(&format!("{HEAD}metrics = [\"fused.time_s\"]\n{AXES}"));
    assert!(merge(&changed, &paths).is_err());
}

#[test]
fn constraints_leave_points_out_and_refusals_stay() {
    let room = Room::new();
    let axes = "[[axes]]\npath = \"arch.pmu.capacity_bytes\"\nvalues = [16, 262144, 262145, 524288]\n";
    let text = format!(
        "{HEAD}constraints = [\"sram_bytes < 32 * 524288\"]\nmetrics = [\"pmus\", \"fused.cycles\", \"status\"]\n{axes}"
    );
    let study = room.study(&text);
    let results = sweep(&study, Shard::WHOLE, Some(2), None, &|_, _| {}).unwrap();
    assert_eq!(results.counts(), Counts { points: 4, ran: 1, excluded: 1, refused: 2, pruned: 0, timed_out: 0 });
    let rows = results.rows();
    assert!(rows[0][3].starts_with("refused: ") && rows[0][1] == "32" && rows[0][2].is_empty(), "{rows:?}");
    assert!(rows[1][3] == "ok" && rows[2][3].contains("`pmu.banks` must divide"), "{rows:?}");
}

#[test]
fn one_compile_serves_all_rates() {
    let room = Room::new();
    let text = format!(
        "{HEAD}modes = [\"fused\"]\ncompile = \"once\"\nmetrics = [\"fused.cycles\", \"fused.sram_peak_bytes\"]\n{AXES}"
    );
    let results = csv(&room.study(&text), 2, None);
    let each = csv(&room.study(&text.replace("once", "every_point")), 2, None);
    // At the rate that the file has, the kept configuration is the one found.
    let own = |text: &str| text.lines().filter(|line| line.starts_with("100,")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(own(&results), own(&each));
    assert_eq!(results.lines().count(), 7);
}

/// Rows of a study of `axes` resources (its first columns) whose times grow with none of them; how many pairs were compared.
fn assert_more_is_no_slower(whole: &str, axes: usize) -> usize {
    let number = |cell: &str| cell.parse::<f64>().unwrap();
    let rows: Vec<Vec<f64>> = whole.lines().skip(1).map(|line| line.split(',').map(number).collect()).collect();
    let mut compared = 0;
    for poor in &rows {
        for rich in rows.iter().filter(|rich| poor[..axes].iter().zip(*rich).all(|(poor, rich)| poor <= rich)) {
            compared += 1;
            let is_no_slower = poor[axes..].iter().zip(&rich[axes..]).all(|(poor, rich)| *rich <= 1.01 * poor);
            assert!(is_no_slower, "{poor:?} {rich:?}");
        }
    }
    compared
}

const CYCLES: &str = "metrics = [\"kbk.cycles\", \"epilogue.cycles\", \"fused.cycles\"]\n";

/// What a poorer chip runs competes on a richer one, in the whole study and in a part of it.
#[test]
fn more_of_a_resource_is_never_slower() {
    let room = Room::new();
    let text = format!(
        "{HEAD}effort = \"quick\"\n{CYCLES}\
         [[axes]]\npath = \"arch.pmu.capacity_bytes\"\nvalues = [524288, 262144, 65536]\n\
         [[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nvalues = [320, 20, 160, 40]\n\
         [[axes]]\npath = \"arch.pcu.vector_inputs\"\nvalues = [2, 3]\n"
    );
    let study = room.study(&text);
    let whole = csv(&study, 2, None);
    assert_eq!(csv(&study, 1, None), whole);
    assert_eq!(assert_more_is_no_slower(&whole, 3), 3 * 6 * 10);
    // A part alone rests on points that it does not have.
    let shard = Shard { index: 2, count: 3 };
    let part = sweep(&study, shard, Some(2), None, &|_, _| {}).unwrap().to_csv();
    assert!(part.lines().count() == 9 && part.lines().all(|line| whole.contains(line)), "{part}");
    // By itself every point has its own search.
    let alone = csv(&room.study(&text.replace("effort", "compile = \"alone\"\neffort")), 2, None);
    assert_eq!(alone.lines().count(), whole.lines().count());
}

/// Links and ports keep their names on the richer chip; on a larger grid mappings are placed anew.
#[test]
fn more_links_ports_and_units_are_never_slower() {
    let room = Room::new();
    let text = format!(
        "{HEAD}effort = \"quick\"\nset = [\"arch.memory.ddr.bandwidth_gb_per_s=400\"]\n{CYCLES}\
         [[axes]]\npath = \"arch.network.links_per_direction\"\nvalues = [3, 1, 2]\n\
         [[axes]]\npath = \"arch.pmu.read_ports\"\nvalues = [1, 2]\n\
         [[axes]]\npath = [\"arch.grid.rows\", \"arch.grid.tile_rows\"]\nvalues = [32, 16]\n"
    );
    assert_eq!(assert_more_is_no_slower(&csv(&room.study(&text), 2, None), 4), 6 * 3 * 3);
}

#[test]
fn bounds_prune_only_what_the_front_leaves_out() {
    let room = Room::new();
    let axes = "[[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nvalues = [400, 320, 240, 160, 120, 80, 40, 20]\n\
                [[axes]]\npath = \"arch.pcu.stages\"\nvalues = [2, 6, 12]\n";
    let text = |prune: bool| {
        format!(
            "{HEAD}modes = [\"fused\"]\nmetrics = [\"fused.time_s\", \"area_mm2\", \"status\"]\n{axes}[pareto]\nminimize = [\"fused.time_s\", \"area_mm2\"]\nprune = {prune}\n"
        )
    };
    let front = |text: &str, threads: usize, out: Option<&Path>| {
        let study = room.study(text);
        let results = sweep(&study, Shard::WHOLE, Some(threads), out, &|_, _| {}).unwrap();
        let json: serde_json::Value = serde_json::from_str(&results.to_json()).unwrap();
        (json["pareto"].clone(), results.counts().pruned, results.to_csv())
    };
    let (all, none, _) = front(&text(false), 2, None);
    let (kept, pruned, table) = front(&text(true), 2, None);
    assert_eq!((all, none), (kept, 0));
    assert!(pruned >= 5, "{pruned}");
    // The same decisions with another number of threads, and after a stop.
    assert_eq!(front(&text(true), 1, None).2, table);
    let out = room.out("pruned");
    front(&text(true), 2, Some(&out));
    let journal = std::fs::read(out.join("journal.jsonl")).unwrap();
    std::fs::write(out.join("journal.jsonl"), &journal[..journal.len() / 2]).unwrap();
    assert_eq!(front(&text(true), 2, Some(&out)).2, table);
}

#[test]
fn a_bound_point_is_the_bound_of_the_chip_it_names() {
    let room = Room::new();
    let study = room.study(&format!(
        "{HEAD}fidelity = \"bound\"\ndesign = \"random\"\npoints = 50\nmetrics = [\"fused.cycles\", \"kbk.bound_cycles\", \
         \"pcus\", \"epilogue.cycles\", \"speedup_over_epilogue\"]\n\
         [[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nlog_range = {{ from = 10.0, to = 1000.0 }}\n\
         [[axes]]\npath = \"arch.grid.columns\"\nrange = {{ from = 4, to = 20 }}\n\
         [[axes]]\npath = \"run.seed\"\nvalues = [1, 2]\n"
    ));
    let results = sweep(&study, Shard::WHOLE, Some(2), None, &|_, _| {}).unwrap();
    for row in results.rows() {
        let sets = [format!("arch.memory.ddr.bandwidth_gb_per_s={}", row[0]), format!("arch.grid.columns={}", row[1])];
        let sets: Vec<crate::input::Override> =
            sets.iter().map(|set| crate::input::Override::parse(set).unwrap()).collect();
        let chip = crate::arch::load(&room.out("chip.toml"), &sets).unwrap();
        let workload = crate::workload::load(&room.out("work.toml"), &sets, 0).unwrap();
        let bound = |mode| crate::cost::bound_cycles(&chip, &workload, mode).to_string();
        assert_eq!(row[3], bound(crate::mode::Mode::Fused));
        assert_eq!(row[4], bound(crate::mode::Mode::Kbk));
        assert_eq!(row[5], chip.pcus().to_string());
        assert_eq!(row[6], bound(crate::mode::Mode::Epilogue));
        let number = |column: usize| row[column].parse::<f64>().unwrap();
        assert_eq!(number(7).to_bits(), (number(6) / number(3)).to_bits());
    }
    assert_eq!(results.rows().len(), 50);
}

#[test]
fn a_latin_hypercube_meets_every_part_once() {
    let room = Room::new();
    let study = room.study(&format!(
        "{HEAD}fidelity = \"bound\"\ndesign = \"latin_hypercube\"\npoints = 16\nseed = 3\nmetrics = [\"pcus\"]\n\
         [[axes]]\npath = \"arch.clock_ghz\"\nrange = {{ from = 1.0, to = 2.0 }}\n\
         [[axes]]\npath = \"arch.pcu.stages\"\nvalues = [2, 4, 6, 8]\n"
    ));
    let results = sweep(&study, Shard::WHOLE, Some(1), None, &|_, _| {}).unwrap();
    let mut parts: Vec<usize> =
        results.rows().iter().map(|row| ((row[0].parse::<f64>().unwrap() - 1.0) * 16.0) as usize).collect();
    parts.sort_unstable();
    assert_eq!(parts, (0..16).collect::<Vec<_>>());
    for stages in ["2", "4", "6", "8"] {
        assert_eq!(results.rows().iter().filter(|row| row[1] == stages).count(), 4);
    }
}

/// Three axes and two workloads: pictures divide into facets, and what is best is told for each workload and over both.
#[test]
fn axes_that_a_picture_does_not_show_divide_it() {
    let room = Room::new();
    let study = room.study(&format!(
        "{HEAD}fidelity = \"bound\"\nmetrics = [\"fused.time_s\"]\n\
         [[axes]]\npath = \"workload\"\nvalues = [\"work.toml\", \"gpt2-small-mlp\"]\n\
         [[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nvalues = [50, 100]\n\
         [[axes]]\npath = \"arch.clock_ghz\"\nvalues = [1.0, 2.0]\n\
         [[best]]\nminimize = \"fused.time_s\"\nper = \"workload\"\n\
         [[best]]\nminimize = \"fused.time_s\"\nover = \"workload\"\nmean = \"arithmetic\"\n\
         weights = {{ \"work.toml\" = 3 }}\n\
         [pareto]\nminimize = [\"fused.time_s\", \"arch.clock_ghz\"]\nper = \"workload\"\n\
         [[plots]]\nkind = \"lines\"\nx = \"arch.clock_ghz\"\ny = \"fused.time_s\"\nseries = \"workload\"\n\
         [[plots]]\nkind = \"heat\"\nx = \"workload\"\ny = \"arch.clock_ghz\"\nvalue = \"fused.time_s\"\n"
    ));
    let results = sweep(&study, Shard::WHOLE, Some(1), Some(&room.out("o")), &|_, _| {}).unwrap();
    for plot in &study.plots {
        let (_, picture) = super::plots::picture(&study, plot, results.rows());
        let names: Vec<&str> = picture.facets.iter().map(|facet| facet.name.as_str()).collect();
        assert_eq!(names, ["DDR bandwidth = 50 GB/s", "DDR bandwidth = 100 GB/s"]);
    }
    let time = |row: &[String]| row[3].parse::<f64>().unwrap();
    let fastest = |workload: &str| {
        let rows = results.rows().iter().filter(|row| row[0] == workload && row[1] == "100" && row[2] == "2.0");
        rows.map(|row| time(row)).next().unwrap()
    };
    let (small, large) = (fastest("work.toml"), fastest("gpt2-small-mlp"));
    let text = results.to_text();
    let mean = super::plots::short(&format!("{:?}", (3.0 * small + large) / 4.0));
    let wanted =
        format!("arithmetic mean over workload: {mean} at arch.memory.ddr.bandwidth_gb_per_s=100, arch.clock_ghz=2.0.");
    assert!(text.contains(&wanted), "{wanted}\n{text}");
    assert!(text.contains(&format!("{} at workload=work.toml", super::plots::short(&format!("{small:?}")))), "{text}");
    assert_eq!(text.matches("on the front of fused.time_s, arch.clock_ghz for workload=").count(), 2, "{text}");
    // The part of the table has what the whole has, in another order at most.
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<String>>();
    let partial = std::fs::read_to_string(room.out("o").join(PARTIAL_TABLE)).unwrap();
    assert_eq!(sorted(&partial), sorted(&results.to_csv()));
}

#[test]
fn files_can_be_axes() {
    let room = Room::new();
    let study = room.study(&format!(
        "{HEAD}design = \"zip\"\nfidelity = \"bound\"\nmetrics = [\"fused.cycles\"]\n\
         [[axes]]\npath = \"arch\"\nvalues = [\"chip.toml\", \"chip.toml\"]\n\
         [[axes]]\npath = \"workload.dims.tokens\"\nvalues = [64, 128]\n"
    ));
    let text = csv(&study, 1, None);
    assert!(text.lines().nth(2).unwrap().starts_with("chip.toml,128,"), "{text}");
}

#[test]
fn every_mistake_in_a_study_has_a_place() {
    let room = Room::new();
    let metrics = "metrics = [\"fused.cycles\"]\n";
    for (text, wanted) in [
        (format!("{HEAD}{metrics}"), "axes"),
        (format!("{HEAD}{metrics}axes = []\n"), "`axes` is empty"),
        (format!("{HEAD}{metrics}colour = 1\n{AXES}"), "colour"),
        (format!("{HEAD}metrics = [\"fused.cycle\"]\n{AXES}"), "did you mean `fused.cycles`?"),
        (format!("{HEAD}metrics = []\n{AXES}"), "`metrics` is empty"),
        (format!("{HEAD}metrics = [\"pcus\", \"pcus\"]\n{AXES}"), "named twice"),
        (format!("{HEAD}modes = [\"kbk\"]\n{metrics}{AXES}"), "needs the mode fused"),
        (
            format!("{HEAD}fidelity = \"bound\"\nmetrics = [\"fused.energy_j\"]\n{AXES}"),
            "needs a compiled configuration",
        ),
        (format!("{HEAD}fidelity = \"cycle\"\n{metrics}{AXES}"), "`fidelity`"),
        (format!("{HEAD}design = \"random\"\n{metrics}{AXES}"), "`points` is missing"),
        (format!("{HEAD}points = 3\n{metrics}{AXES}"), "belongs to the designs"),
        (format!("{HEAD}design = \"zip\"\n{metrics}{AXES}"), "equally many values, found 3 and 2"),
        (format!("{HEAD}constraints = [\"pcus <\"]\n{metrics}{AXES}"), "a term is missing"),
        (format!("{HEAD}constraints = [\"pcu < 3\"]\n{metrics}{AXES}"), "not known before a point is run"),
        (format!("{HEAD}set = [\"arch\"]\n{metrics}{AXES}"), "needs `=`"),
        (format!("{HEAD}{metrics}{AXES}[[axes]]\npath = \"workload.dims.tokens\"\nvalues = [1]\n"), "on an axis twice"),
        (format!("{HEAD}{metrics}[[axes]]\npath = \"chip.x\"\nvalues = [1]\n"), "starts with `arch.` or `workload.`"),
        (format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\n"), "needs one of `values`"),
        (format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\nvalues = []\n"), "`axes.values` is empty"),
        (
            format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\nrange = {{ from = 2, to = 1, step = 1 }}\n"),
            "at most `to`",
        ),
        (
            format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\nrange = {{ from = 1, to = 2 }}\n"),
            "needs `step` or `count`",
        ),
        (format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\nrange = {{ from = 1, to = 2, step = 0 }}\n"), "above 0"),
        (
            format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\nrange = {{ from = 0, to = 1, step = 1e-9 }}\n"),
            "more than",
        ),
        (
            format!("{HEAD}{metrics}[[axes]]\npath = \"arch.x\"\nlog_range = {{ from = 0, to = 1, factor = 2 }}\n"),
            "above 0",
        ),
        (format!("{HEAD}{metrics}[[axes]]\npath = \"arch\"\nvalues = [3]\n"), "must be a string"),
        (format!("{HEAD}{metrics}{AXES}[pareto]\nminimize = [\"pcus\"]\n"), "no axis or metric `pcus`"),
        (format!("{HEAD}{metrics}{AXES}[pareto]\n"), "no objective"),
        (
            format!(
                "{HEAD}metrics = [\"fused.energy_j\"]\n{AXES}[pareto]\nminimize = [\"fused.energy_j\"]\nprune = true\n"
            ),
            "no lower bound is known",
        ),
        (format!("{HEAD}{metrics}{AXES}[[best]]\nsubject_to = \"fused.cycles < 1\"\n"), "`minimize` or `maximize`"),
        (format!("{HEAD}{metrics}{AXES}[[plots]]\nkind = \"pie\"\nx = \"a\"\ny = \"b\"\n"), "`plots.kind`"),
        (
            format!("{HEAD}{metrics}{AXES}[[plots]]\nkind = \"lines\"\nx = \"a\"\ny = \"fused.cycles\"\n"),
            "no axis or metric `a`",
        ),
    ] {
        let message = room.refused(&text);
        assert!(message.contains(wanted) && message.contains("study.toml:"), "{text}\n{message}");
    }
}

#[test]
fn a_field_that_does_not_exist_is_told_at_its_axis() {
    let room = Room::new();
    for fidelity in ["bound", "event"] {
        let study = room.study(&format!(
            "{HEAD}fidelity = \"{fidelity}\"\nmetrics = [\"fused.cycles\"]\n[[axes]]\npath = \"arch.pmu.bank\"\nvalues = [1, 2]\n"
        ));
        let out = room.out(fidelity);
        let Err(StudyError::Refused(error)) = sweep(&study, Shard::WHOLE, None, Some(&out), &|_, _| {}) else {
            panic!()
        };
        let text = error.render(false);
        assert!(text.contains("study.toml:") && text.contains("bank"), "{text}");
    }
}

#[test]
fn shared_mappings_follow_from_the_study_alone() {
    let room = Room::new();
    let axes = "[[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nvalues = [25, 50, 100, 150, 200, 400, 800]\n";
    let text = format!("{HEAD}compile = \"shared\"\nmetrics = [\"kbk.cycles\", \"fused.cycles\"]\n{axes}");
    let study = room.study(&text);
    let whole = csv(&study, 1, None);
    assert_eq!(whole, csv(&study, 2, None));
    // Shards, of which the second does not run the points that are compiled for all.
    let shards = [1, 2].map(|index| {
        let out = room.out(&format!("shard{index}"));
        sweep(&study, Shard { index, count: 2 }, Some(1), Some(&out), &|_, _| {}).unwrap();
        out
    });
    let merged = merge(&study, &[&shards[0], &shards[1]]).unwrap().to_csv();
    assert_eq!(whole, merged);
    // Faster memory makes no configuration slower, so it makes no point slower.
    let results = sweep(&study, Shard::WHOLE, Some(2), None, &|_, _| {}).unwrap();
    let cycles: Vec<[f64; 2]> =
        results.rows().iter().map(|row| [1, 2].map(|column| row[column].parse().unwrap())).collect();
    for pair in cycles.windows(2) {
        assert!(pair[1].iter().zip(pair[0]).all(|(now, before)| *now <= before * 1.001), "{cycles:?}");
    }
    // Compiled for itself, a point is hardly faster.
    let own = room.study(&text.replace("shared", "every_point"));
    let own = sweep(&own, Shard::WHOLE, Some(2), None, &|_, _| {}).unwrap();
    for (shared, own) in results.rows().iter().zip(own.rows()) {
        let [shared, own] = [shared, own].map(|row| row[2].parse::<f64>().unwrap());
        assert!(shared <= own * 1.1, "{shared} cycles shared, {own} alone");
    }
}

#[test]
fn a_study_within_the_vendors_limits_takes_longer() {
    let room = Room::new();
    let text = format!("{HEAD}metrics = [\"fused.cycles\"]\n{AXES}");
    let ideal = room.study(&text);
    let asked = Study::open(&room.write(&text), &[], Some(crate::arch::Quality::Vendor)).unwrap();
    let written = room.study(&text.replace("metrics", "mapping = \"vendor\"\nmetrics"));
    assert_eq!(csv(&asked, 2, None), csv(&written, 2, None));
    let cycles = |study: &Study| -> Vec<u64> {
        let results = sweep(study, Shard::WHOLE, Some(2), None, &|_, _| {}).unwrap();
        results.rows().iter().map(|row| row[2].parse().unwrap()).collect()
    };
    assert!(cycles(&ideal).iter().zip(cycles(&asked)).all(|(ideal, vendor)| *ideal < vendor));
    // What one of them left on disk is not the other's.
    let out = room.out("o");
    csv(&ideal, 1, Some(&out));
    let StudyError::Refused(error) = sweep(&asked, Shard::WHOLE, None, Some(&out), &|_, _| {}).unwrap_err() else {
        panic!()
    };
    assert!(error.title().contains("another study"), "{error}");
    assert!(room.refused(&text.replace("metrics", "mapping = \"best\"\nmetrics")).contains("expected"));
}

#[cfg(feature = "parquet")]
#[test]
fn csv_and_parquet_hold_the_same() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;

    let room = Room::new();
    let metrics = "[\"fused.cycles\", \"fused.time_s\", \"speedup\", \"fused.bound_by\", \"area_mm2\", \"status\"]";
    let axes = AXES.replace("[64, 128]", "[64, 0]");
    let study = room.study(&format!("{HEAD}metrics = {metrics}\n{axes}"));
    let results = sweep(&study, Shard::WHOLE, Some(2), None, &|_, _| {}).unwrap();
    let files = results.files().unwrap();
    let bytes = files.iter().find(|file| file.name == "results.parquet").unwrap().bytes.clone();
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let text = results.to_csv();
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let columns: Vec<String> = table.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    assert_eq!((read.len(), columns.len()), (rows.len(), 10));
    let mut kinds = [0; 4];
    for (row, cells) in read.iter().zip(&rows) {
        for (((name, field), column), cell) in row.get_column_iter().zip(&columns).zip(cells) {
            assert_eq!(name, column);
            let (kind, same) = match field {
                Field::Null => (0, cell.is_empty()),
                Field::Long(whole) => (1, cell.parse() == Ok(*whole)),
                Field::Double(real) => (2, cell.parse() == Ok(*real)),
                Field::Str(text) => (3, cell == text),
                other => panic!("{name}: {other:?}"),
            };
            assert!(same, "{name}: {field:?} is not {cell:?}");
            kinds[kind] += 1;
        }
    }
    assert!(kinds.iter().all(|&count| count > 0), "every kind of cell was met: {kinds:?}");
}
