//! Every kind of result has a page: its structure without a browser, and what a browser makes of it at the width of a desk and of a
//! phone.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use crate::page::{rdusim, read_all};

/// A kind of result: its name, the command, the file that `report` takes, and the headline's unit or word.
struct Kind {
    name: &'static str,
    command: &'static str,
    result: &'static str,
    headline: &'static str,
}

/// The first kinds are of pods, of axes and of GPUs, the others of chips that are mapped.
const OF_PODS: usize = 8;
const KINDS: [Kind; 15] = [
    Kind {
        name: "training",
        command: "pod dgx-a100 --model gpt-13b --phase training --parallel tp=8,pp=2 --batch 16 --seq 2048 --mtbf-h 1000 \
                  --checkpoint-s 60",
        result: "result.json",
        headline: " s",
    },
    Kind {
        name: "search",
        command: "pod dgx-a100 --model gpt-13b --phase training --chips 16 --batch 16 --search --parallel recompute=full",
        result: "result.json",
        headline: " s",
    },
    Kind {
        name: "prefill",
        command: "pod dgx-h100 --model llama2-7b --phase prefill --parallel tp=2 --batch 4 --seq 512",
        result: "result.json",
        headline: "ms",
    },
    Kind {
        name: "decode",
        command: "pod dgx-h100 --model llama3-70b --phase decode --parallel tp=8 --batch 4 --seq 1024 --draft llama3-8b --speculate 4 \
                  --accept 0.75",
        result: "result.json",
        headline: "ms",
    },
    Kind {
        name: "requests",
        command: "pod dgx-a100 --model llama3-8b --phase requests --parallel tp=1 --batch 8 --arrivals 2 --requests 20",
        result: "result.json",
        headline: "tokens/s",
    },
    Kind {
        name: "fleet",
        command: "pod dgx-a100 --model llama3-8b --phase requests --search --chips 8 --batch 32 --ttft-ms 500",
        result: "result.json",
        headline: "tokens/s",
    },
    Kind {
        name: "break-even",
        command: "break-even --arch h100 --against a100 --workload gpt13b-mlp --axis arch.memory.hbm.bandwidth_gb_per_s --from 100 \
                  --to 4000",
        result: "result.json",
        headline: "230",
    },
    Kind {
        name: "model",
        command: "compare --arch a100 --workload llama2-7b-decode --against h100 --uncertainty --samples 2",
        result: "result.json",
        headline: "",
    },
    Kind {
        name: "explain",
        command: "explain --mode fused --effort quick --arch sn10 --workload relu --uncertainty",
        result: "explain.json",
        headline: "ms",
    },
    Kind {
        name: "traffic-curve",
        command: "explain --traffic-curve --arch plasticine --workload tiny-mlp",
        result: "traffic-curve.json",
        headline: "B",
    },
    Kind {
        name: "verify",
        command: "verify --effort quick --arch plasticine --workload tiny-mlp",
        result: "verify.json",
        headline: "passed",
    },
    Kind {
        name: "map",
        command: "map --effort quick --arch plasticine --workload tiny-mlp",
        result: "map.json",
        headline: "section",
    },
    Kind { name: "tiles", command: "map --arch bow --workload tiny-mlp", result: "map.json", headline: "%" },
    Kind {
        name: "mask",
        command: "sparsity block --block 16x16 --shape 512x512 --density 0.125",
        result: "mask.json",
        headline: "12.5 %",
    },
    Kind {
        name: "two",
        command: "compare --effort quick --arch sn10 --workload tiny-mlp --against plasticine --uncertainty --samples 2",
        result: "result.json",
        headline: "",
    },
];

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn ran(words: &[&str]) {
    let (code, message) = rdusim(words);
    assert_eq!(code, Some(0), "{words:?}: {message}");
}

/// The page of a kind as `--out` writes it, and as `report` makes it of the saved result.
fn pages(place: &Path, kind: &Kind) -> [PathBuf; 2] {
    let out = place.join(kind.name);
    let words: Vec<&str> = kind.command.split_whitespace().collect();
    let directory = text(&out);
    ran(&[&words[..], &["--out", &directory]].concat());
    let again = place.join(format!("{}-again.html", kind.name));
    ran(&["report", &text(&out.join(kind.result)), "--out", &text(&again)]);
    [out.join("report.html"), again]
}

/// What a page draws.
fn data(page: &Path) -> Value {
    let html = std::fs::read_to_string(page).expect("the page");
    let (_, rest) = html.split_once("id=\"data\">").expect("data");
    let (json, _) = rest.split_once("</script>").expect("an end");
    serde_json::from_str(json).expect("JSON")
}

/// Pages of kinds, each as `--out` writes it and as `report` makes it, hold the same and what a page has; where they lie.
fn have_pages(kinds: &[Kind]) -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let made: Vec<[PathBuf; 2]> = kinds.par_iter().map(|kind| pages(place.path(), kind)).collect();
    for (kind, made) in kinds.iter().zip(&made) {
        let [written, again] = made.each_ref().map(|page| data(page));
        for key in ["results", "waterfalls", "layouts", "points"] {
            let without_titles = |data: &Value| match data[key].as_array() {
                Some(list) => list.iter().map(|of| of.get("document").unwrap_or(of).clone()).collect(),
                None => vec![data[key].clone()],
            };
            assert_eq!(without_titles(&written), without_titles(&again), "{}: {key}", kind.name);
        }
        let (sheet, same) = (&written["sheets"][0]["sheet"], &again["sheets"][0]["sheet"]);
        assert_eq!(sheet, same, "{}", kind.name);
        assert!(written["accuracy"].as_str().is_some_and(|line| line.contains("docs/accuracy.md")));
        if kind.headline.is_empty() {
            assert_eq!(written["results"].as_array().map(Vec::len), Some(2), "{}: both systems", kind.name);
            let range = &written["results"][0]["document"]["uncertainty"]["against"]["speedups"];
            assert!(range["fused"].is_array() || range["kbk"].is_array(), "{}: {range}", kind.name);
            continue;
        }
        let headline = sheet["headline"].as_str().unwrap_or_default();
        assert!(headline.ends_with(kind.headline), "{}: {headline}", kind.name);
        let full = |key: &str| sheet[key].as_array().is_some_and(|list| !list.is_empty());
        assert!(full("figures") && full("tables"), "{}: {sheet}", kind.name);
        assert!(kind.name == "verify" || full("bars"), "{}", kind.name);
        assert!(sheet["verdict"].as_str().is_some_and(|verdict| verdict.len() > 20), "{}", kind.name);
        let has_inputs = written["made"]["inputs"].as_array().is_some_and(|inputs| !inputs.is_empty());
        assert!(has_inputs || kind.name == "mask", "{}: its inputs", kind.name);
    }
    let mut all: Vec<PathBuf> = made.into_iter().map(|[written, _]| written).collect();
    all.push(crate::page::swept(place.path()));
    fit_a_desk_and_a_phone(place.path(), &all);
    place
}

/// What the page of a kind shows above its tables, and the names of its pictures.
fn sheet_of(place: &Path, name: &str) -> (Value, Vec<String>) {
    let sheet = data(&place.join(name).join("report.html"))["sheets"][0]["sheet"].clone();
    let pictures = sheet["pictures"].as_array().into_iter().flatten();
    let pictures = pictures.filter_map(|of| of["name"].as_str().map(str::to_owned)).collect();
    (sheet, pictures)
}

#[test]
fn results_of_pods_axes_and_gpus_have_pages_that_fit_a_desk_and_a_phone() {
    let place = have_pages(&KINDS[..OF_PODS]);
    let place = place.path();
    let (training, pictures) = sheet_of(place, "training");
    assert_eq!(pictures, ["timeline"]);
    // A range beside the headline, and what failures leave.
    let lines = training["lines"].to_string();
    assert!(lines.contains("no less than") && lines.contains("Goodput"), "{lines}");
    assert_eq!(sheet_of(place, "requests").1, ["throughput", "token", "memory", "requests", "latency"]);
    // Two results of one kind are compared, and any others stand beside them.
    let results = ["training", "search", "decode"].map(|name| text(&place.join(name).join("result.json")));
    let page = text(&place.join("three.html"));
    ran(&["report", &results[0], &results[1], &results[2], "--out", &page]);
    assert_eq!(data(Path::new(&page))["sheets"].as_array().map(Vec::len), Some(3));
}

#[test]
fn results_of_mapped_chips_have_pages_that_fit_a_desk_and_a_phone() {
    let place = have_pages(&KINDS[OF_PODS..]);
    let place = place.path();
    assert_eq!(sheet_of(place, "mask").1, ["mask"]);
    let map = sheet_of(place, "map").1;
    assert!(map.iter().all(|name| name.starts_with("map-1-")) && map.len() == 2, "{map:?}");
    let explained = sheet_of(place, "explain").0["lines"].to_string();
    assert!(explained.contains("with one assumption of the chip file varied"), "{explained}");
}

/// Needs Chromium, as the other tests of pages in a browser.
fn fit_a_desk_and_a_phone(place: &Path, all: &[PathBuf]) {
    for window in ["1280,1000", "390,900"] {
        let Some(bodies) = read_all(place, all, "widths", window) else {
            assert!(std::env::var("RDUSIM_BROWSER").is_err(), "the browser of RDUSIM_BROWSER does not start");
            return;
        };
        assert_eq!(bodies.len(), all.len(), "pages at {window}");
        for (page, body) in all.iter().zip(&bodies) {
            let lines = body.lines().filter(|line| line.contains("ok ")).count();
            assert!(lines >= 6, "{} at {window}: {body}", page.display());
        }
    }
}

#[test]
fn certificates_studies_and_validations_have_a_page() {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| text(&place.path().join(name));
    ran(&["prove", "--arch", "plasticine", "--workload", "tiny-mlp", "--out", &at("proof.json")]);
    ran(&["report", &at("proof.json"), "--out", &at("proof.html")]);
    let sheet = &data(&place.path().join("proof.html"))["sheets"][0]["sheet"];
    assert!(sheet["verdict"].as_str().is_some_and(|verdict| verdict.contains("no mapping takes less than")), "{sheet}");

    ran(&["report", "reports/validation/validation.json", "--out", &at("validation.html")]);
    assert!(data(&place.path().join("validation.html"))["sheets"][0]["sheet"]["tables"][0]["rows"].is_array());

    crate::page::swept(place.path());
    let made = data(&place.path().join("swept/report.html"));
    ran(&["report", &at("swept/summary.json"), "--out", &at("again.html")]);
    assert_eq!(data(&place.path().join("again.html"))["points"], made["points"]);
    // Without the table the points that stand out are there, and the page says so.
    std::fs::copy(place.path().join("swept/summary.json"), place.path().join("alone.json")).expect("copied");
    ran(&["report", &at("alone.json"), "--out", &at("alone.html")]);
    let points = &data(&place.path().join("alone.html"))["points"];
    assert!(points["lead"].to_string().contains("results.csv"), "{points}");
}

#[test]
fn what_is_no_result_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let refused = |name: &str, json: &str| {
        let file = place.path().join(name);
        std::fs::write(&file, json).expect("written");
        let (code, message) = rdusim(&["report", &text(&file)]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(name) && message.contains("of compare, run, pod"), "{message}");
        message
    };
    assert!(refused("a.json", "{\"phase\": \"training\"}").contains("missing field"));
    assert!(refused("b.json", "{\"phase\": \"requests\", \"schema\": 1}").contains("missing field `system`"));
    assert!(refused("c.json", "[1, 2]").contains("expected"));
    assert!(refused("d.json", "{\"study\": 1, \"columns\": []}").contains("invalid type"));
    assert!(refused("e.json", "{\"modes\": [], \"fidelity\": \"event\"}").contains("missing field"));
}
