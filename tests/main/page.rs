//! The report page: what is in the file, and what a browser makes of it.

use std::path::Path;
use std::process::Command;

/// Stands for a tensor in the workload below. Its markup must never run.
const HOSTILE: &str = "<img src=x onerror='window.hostile=1'></script><script>window.hostile=1</script>";

fn rdusim(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("the command starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The files of a comparison of the tiny block, its input under a hostile name.
fn made(directory: &Path) {
    let text = std::fs::read_to_string("workloads/tiny-mlp.toml").expect("the workload");
    let hostile = HOSTILE.replace('\'', "");
    let text = text.replace("\"x\"", &format!("{hostile:?}"));
    let workload = directory.join("hostile.toml");
    std::fs::write(&workload, text).expect("the directory takes files");
    let out = directory.join("out");
    let (workload, out) = (workload.display().to_string(), out.display().to_string());
    let (code, message) =
        rdusim(&["compare", "--arch", "arch/plasticine.toml", "--workload", &workload, "--out", &out]);
    assert_eq!(code, Some(0), "{message}");
}

#[test]
fn a_page_is_one_file_that_needs_no_network() {
    let place = tempfile::tempdir().expect("a directory");
    made(place.path());
    let html = std::fs::read_to_string(place.path().join("out/report.html")).expect("the page");
    assert_eq!(html.matches("</script>").count(), 2, "a name closed a script");
    for outside in ["src=\"http", "href=\"http", "url(http", "@import", "fetch("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.len() < 2 << 20);
}

#[test]
fn a_saved_result_makes_the_same_drawing() {
    let place = tempfile::tempdir().expect("a directory");
    made(place.path());
    let result = place.path().join("out/result.json").display().to_string();
    let page = place.path().join("again.html").display().to_string();
    let (code, message) = rdusim(&["report", &result, &result, "--out", &page]);
    assert_eq!(code, Some(0), "{message}");
    let html = std::fs::read_to_string(&page).expect("the page");
    // Both results, each with the layouts of both its runs.
    assert_eq!(html.matches("\"document\":{").count(), 2);
    assert_eq!(html.matches("\"banks_per_pmu\":").count(), 4);
    let (code, message) = rdusim(&["report", "workloads/tiny-mlp.toml"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("workloads/tiny-mlp.toml") && message.contains("line 1"), "{message}");
}

/// Needs Chromium; without one it says so and checks nothing.
#[test]
fn a_reader_can_point_focus_zoom_and_choose() {
    let place = tempfile::tempdir().expect("a directory");
    made(place.path());
    let html = std::fs::read_to_string(place.path().join("out/report.html")).expect("the page");
    let driver = std::fs::read_to_string("tests/page/driver.js").expect("the driver");
    let driven = place.path().join("driven.html");
    let (head, tail) = html.rsplit_once("</body>").expect("a body");
    std::fs::write(&driven, format!("{head}<script>\n{driver}</script></body>{tail}")).expect("written");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", place.path().join("profile").display()))
        .args(["--window-size=900,1200", "--dump-dom"])
        .arg(format!("file://{}", driven.display()))
        .output();
    let Ok(output) = output else {
        println!("skipped: no chromium here");
        return;
    };
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let body = dom.split("<body>").nth(1).unwrap_or_default();
    assert!(body.lines().filter(|line| line.contains("ok ")).count() >= 13, "{body}");
    assert!(!body.contains("FAILED"), "{body}");
}
