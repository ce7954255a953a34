//! The report page: what is in the file, and what a browser makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands for a tensor in the workload below. Its markup must never run.
const HOSTILE: &str = "<img src=x onerror='window.hostile=1'></script><script>window.hostile=1</script>";

pub(crate) fn rdusim(arguments: &[&str]) -> (Option<i32>, String) {
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

/// The page of a study of the tiny block; an axis has the hostile name as a value.
pub(crate) fn swept(directory: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).display();
    let bandwidth = "arch.memory.ddr.bandwidth_gb_per_s";
    let text = format!(
        "schema = 1\nname = \"s\"\narch = \"{here}/arch/plasticine.toml\"\nworkload = \"{here}/workloads/tiny-mlp.toml\"\n\
         metrics = [\"fused.time_s\", \"kbk.time_s\"]\nfidelity = \"bound\"\n\
         [[axes]]\npath = \"{bandwidth}\"\nrange = {{ from = 4.0, to = 32.0, count = 4 }}\n\
         [[axes]]\npath = \"arch.name\"\nvalues = [\"plain\", {HOSTILE:?}]\n\
         [pareto]\nminimize = [\"fused.time_s\", \"{bandwidth}\"]\n[[best]]\nminimize = \"fused.time_s\"\n\
         [[plots]]\nkind = \"lines\"\nx = \"{bandwidth}\"\ny = \"fused.time_s\"\nseries = \"arch.name\"\n\
         [[plots]]\nkind = \"heat\"\nx = \"{bandwidth}\"\ny = \"arch.name\"\nvalue = \"kbk.time_s\"\n"
    );
    let study = directory.join("study.toml");
    std::fs::write(&study, text).expect("the directory takes files");
    let out = directory.join("swept");
    let (code, message) = rdusim(&["sweep", &study.display().to_string(), "--out", &out.display().to_string()]);
    assert_eq!(code, Some(0), "{message}");
    out.join("report.html")
}

/// One page of the comparison and of another with twice the clock.
fn both(directory: &Path) -> PathBuf {
    let text = |path: &Path| path.display().to_string();
    let (workload, second) = (text(&directory.join("hostile.toml")), directory.join("second"));
    let set = "arch.memory.ddr.bandwidth_gb_per_s=80";
    let arch = "arch/plasticine.toml";
    let (code, message) =
        rdusim(&["compare", "--arch", arch, "--workload", &workload, "--set", set, "--out", &text(&second)]);
    assert_eq!(code, Some(0), "{message}");
    let page = directory.join("both.html");
    let results = [directory.join("out"), second].map(|place| text(&place.join("result.json")));
    let (code, message) = rdusim(&["report", &results[0], &results[1], "--out", &text(&page)]);
    assert_eq!(code, Some(0), "{message}");
    page
}

#[test]
fn a_saved_result_makes_the_same_drawing() {
    let place = tempfile::tempdir().expect("a directory");
    made(place.path());
    let html = std::fs::read_to_string(both(place.path())).expect("the page");
    // Both results, each with the layouts of its three runs, its command and its files.
    assert_eq!(html.matches("\"document\":{").count(), 2);
    assert_eq!(html.matches("\"banks_per_pmu\":").count(), 6);
    assert_eq!(html.matches("\"command\":\"rdusim compare").count(), 2);
    assert!(html.matches("name = \\\"Plasticine\\\"").count() == 2, "the chip file of each");
    let (code, message) = rdusim(&["report", "workloads/tiny-mlp.toml"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("workloads/tiny-mlp.toml") && message.contains("line 1"), "{message}");
}

#[test]
fn a_decoder_layer_fits_into_two_megabytes() {
    let place = tempfile::tempdir().expect("a directory");
    let text = |path: &Path| path.display().to_string();
    let (workload, out) = (place.path().join("layer.toml"), place.path().join("out"));
    let model = ["model", "llama2-7b", "--phase", "forward", "--layers", "1", "--sequence", "512"];
    let (code, message) = rdusim(&[&model[..], &["-o", &text(&workload)]].concat());
    assert_eq!(code, Some(0), "{message}");
    // Kernel by kernel has most sections; the largest grid has most units.
    let (code, message) = rdusim(&[
        "run",
        "--mode",
        "kbk",
        "--fidelity",
        "bound",
        "--arch",
        "arch/sn40l.toml",
        "--workload",
        &text(&workload),
        "--out",
        &text(&out),
    ]);
    assert_eq!(code, Some(0), "{message}");
    let html = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
    assert!(html.len() > 200_000, "it has a grid");
}

/// Does in a page what `reader` does, in a window of so many pixels, and returns the lines it leaves; `None` without a
/// browser.
pub(crate) fn read(place: &Path, page: &Path, reader: &str, window: &str) -> Option<String> {
    let body = browsed(place, &driven(page, reader), reader, window)?;
    assert!(!body.contains("FAILED"), "{} at {window}: {body}", page.display());
    Some(body)
}

/// The same in many pages, which one browser reads at once, each in a frame as large as `window`. No window of Chromium is as narrow as
/// a phone: a frame is.
pub(crate) fn read_all(place: &Path, pages: &[PathBuf], reader: &str, window: &str) -> Option<Vec<String>> {
    const BETWEEN: &str = "NEXT PAGE";
    let (width, height) = window.split_once(',').expect("width,height");
    let frame = |page: &PathBuf| {
        let inner = driven(page, reader).replace('&', "&amp;").replace('"', "&quot;");
        format!("<iframe width=\"{width}\" height=\"{height}\" srcdoc=\"{inner}\"></iframe>")
    };
    let frames: String = pages.iter().map(frame).collect();
    let driven = format!(
        "<html><body>{frames}<script>onload = () => {{ document.body.textContent = [...document.querySelectorAll('iframe')]\
         .map((frame) => frame.contentDocument.body.textContent).join('{BETWEEN}'); }}</script></body></html>"
    );
    let body = browsed(place, &driven, reader, "1400,1000")?;
    let bodies: Vec<String> = body.split(BETWEEN).map(str::to_owned).collect();
    for (page, body) in pages.iter().zip(&bodies) {
        assert!(!body.contains("FAILED"), "{} at {window}: {body}", page.display());
    }
    Some(bodies)
}

/// A page that does what a reader of `tests/page` does.
fn driven(page: &Path, reader: &str) -> String {
    let html = std::fs::read_to_string(page).expect("the page");
    let script = |name: &str| std::fs::read_to_string(format!("tests/page/{name}.js")).expect("the reader");
    let (head, tail) = html.rsplit_once("</body>").expect("a body");
    let script = [script("reader"), script(reader)].join("\n");
    format!("{head}<script>\n(() => {{\n{script}}})();\n</script></body>{tail}")
}

/// What Chromium shows of a page; `None` where there is none.
fn browsed(place: &Path, html: &str, reader: &str, window: &str) -> Option<String> {
    let file = place.join(format!("{reader}.html"));
    std::fs::write(&file, html).expect("written");
    // Debian and Ubuntu, others, and what `.ci/run` found.
    let browser = std::env::var("RDUSIM_BROWSER").unwrap_or_else(|_| "chromium".to_owned());
    let output = Command::new(&browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", place.join("profile").display()))
        .args([&format!("--window-size={window}"), "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .ok()?;
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{reader} at {window}: {complaints:?}");
    Some(dom.split("<body>").nth(1).unwrap_or_default().to_owned())
}

/// Needs Chromium; without one it says so and checks nothing, unless `RDUSIM_BROWSER` names one that must be there.
#[test]
fn a_reader_can_point_focus_zoom_and_choose() {
    let place = tempfile::tempdir().expect("a directory");
    made(place.path());
    let (result, both, swept) = (place.path().join("out/report.html"), both(place.path()), swept(place.path()));
    // A desk, and the narrowest window that a headless Chromium opens: a phone.
    let pages = [
        (&result, "result", "900,1200", 22),
        (&result, "result", "500,900", 22),
        (&both, "both", "900,1200", 10),
        (&swept, "sweep", "500,900", 15),
    ];
    for (page, reader, window, least) in pages {
        let Some(body) = read(place.path(), page, reader, window) else {
            assert!(std::env::var("RDUSIM_BROWSER").is_err(), "the browser of RDUSIM_BROWSER does not start");
            println!("skipped: no chromium here, so no page was read in a browser");
            return;
        };
        let lines = body.lines().filter(|line| line.contains("ok ")).count();
        assert!(lines >= least, "{reader}: {lines} of {least}: {body}");
    }
}
