use crate::report::fixture;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::Chip;
use rdusim_outcome::BoundBy;

use super::scene::{Area, Scene, Shape};
use super::*;

struct Case {
    name: &'static str,
    chip: Chip,
    workload: Workload,
    outcomes: Vec<Outcome>,
}

/// Inputs that have broken charts before: one run, many parts, long names, next to nothing, nothing.
fn cases() -> Vec<Case> {
    let long = |i: u64| format!("decoder.layers.{i}.self_attention.output_projection<&\"'>\u{1}");
    let two_tiers = || {
        let mut chip = fixture::sn10();
        chip.memory =
            [fixture::tier("hbm", 1_800_000_000_000), fixture::tier("ddr", 200_000_000_000)].into_iter().collect();
        chip
    };
    let named = |name: &str| {
        let mut workload = fixture::ffn(None);
        workload.name = name.repeat(30);
        workload
    };
    let mut tiny = vec![
        fixture::outcome(Mode::Kbk, 1, vec![fixture::section("a", &["a"], 1, BoundBy::Fill, &[("t", 0, 1)])]),
        fixture::outcome(Mode::Fused, 1, vec![fixture::section("b", &["b"], 0, BoundBy::Launch, &[])]),
    ];
    tiny[0].sections[0].traffic.off_chip_write_bytes = 1;
    tiny[0].sections[0].traffic.by_tensor[0].off_chip_write_bytes = 1;
    let case = |name, chip, workload, outcomes| Case { name, chip, workload, outcomes };
    vec![
        case("dense", fixture::sn10(), fixture::ffn(None), fixture::outcomes()),
        case("sparse", two_tiers(), fixture::ffn(Some(0.125)), fixture::outcomes()),
        case("one run", two_tiers(), fixture::ffn(None), fixture::outcomes().split_off(2)),
        case(
            "the same twice",
            two_tiers(),
            fixture::ffn(None),
            [fixture::outcomes().split_off(2), fixture::outcomes().split_off(2)].concat(),
        ),
        case("twelve", two_tiers(), fixture::ffn(None), fixture::many_sections(12, &long)),
        case("thirty", fixture::sn10(), named("A long name "), fixture::many_sections(30, &long)),
        case("eight", fixture::sn10(), fixture::ffn(None), fixture::many_sections(7, &|i| format!("t{i}"))),
        case("tiny", fixture::sn10(), fixture::ffn(None), tiny),
        case("empty", two_tiers(), fixture::empty_workload(), vec![fixture::empty_outcome()]),
    ]
}

fn texts(scene: &Scene) -> Vec<(Area, &str)> {
    let text = |shape| match shape {
        &Shape::Text { at, anchor, face, ref text } => Some((Scene::text_area(at, anchor, face, text), text.as_str())),
        _ => None,
    };
    scene.shapes.iter().filter_map(text).collect()
}

#[test]
fn no_text_leaves_the_picture_or_touches_another() {
    for case in cases() {
        for chart in Chart::ALL {
            let scene = chart.scene(&case.chip, &case.workload, &case.outcomes);
            let inside = Area { left: 8.0, top: 8.0, width: scene.width - 16.0, height: scene.height - 16.0 };
            let texts = texts(&scene);
            for (at, (area, text)) in texts.iter().enumerate() {
                assert!(inside.encloses(*area), "{} {}: {text:?} leaves the picture", case.name, chart.name());
                for (other, with) in &texts[..at] {
                    assert!(!area.overlaps(*other), "{} {}: {text:?} on {with:?}", case.name, chart.name());
                }
            }
        }
    }
}

#[test]
fn every_number_of_a_picture_is_finite() {
    for case in cases() {
        for chart in Chart::ALL {
            let debug = format!("{:?}", chart.scene(&case.chip, &case.workload, &case.outcomes));
            assert!(!debug.contains("NaN") && !debug.contains(": inf") && !debug.contains("-inf"), "{}", case.name);
        }
    }
}

fn svg(chart: Chart, case: &Case) -> String {
    chart.svg(&case.chip, &case.workload, &case.outcomes).unwrap()
}

#[test]
fn svgs_name_what_they_show() {
    let dense = &cases()[0];
    let labels = |chart: Chart, wanted: &[&str]| {
        let text = svg(chart, dense);
        for label in wanted {
            assert!(text.contains(&format!("\n{label}\n")), "{} lacks {label:?}", chart.name());
        }
    };
    labels(
        Chart::Traffic,
        &["kbk", "epilogue", "fused", "w_up", "h_act", "760.0 MiB", "600.0 MiB", "440.0 MiB", "MiB"],
    );
    labels(Chart::Time, &["up", "gelu", "memory:ddr", "8.089 ms", "4.698 ms", "GPT-13B FFN on SN10, fidelity event"]);
    labels(Chart::Roofline, &["compute peak 307.2 TFLOP/s, bf16", "ddr 100 GB/s", "98.2 % of the ddr roof", "10⁴"]);
}

#[test]
fn hostile_names_are_escaped() {
    for case in cases() {
        for chart in Chart::ALL {
            let text = svg(chart, &case);
            assert!(!text.contains('\u{1}') && !text.contains("<&"), "{} {}", case.name, chart.name());
            // Every `<` opens or closes a tag of ours.
            let tags = ["svg", "/svg", "rect", "polyline", "line", "circle", "text", "/text", "polygon"];
            for rest in text.split('<').skip(1) {
                assert!(tags.iter().any(|tag| rest.starts_with(tag)), "{}: <{rest}", case.name);
            }
        }
    }
    assert!(svg(Chart::Traffic, &cases()[4]).contains("&lt;&amp;&quot;&apos;&gt;"));
}

#[test]
fn pngs_decode_to_pictures() {
    let case = &cases()[0];
    for chart in Chart::ALL {
        let file = chart.png(&case.chip, &case.workload, &case.outcomes).unwrap();
        let mut reader = png::Decoder::new(file.as_slice()).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        let scene = chart.scene(&case.chip, &case.workload, &case.outcomes);
        assert_eq!((f64::from(frame.width), f64::from(frame.height)), (2.0 * scene.width, 2.0 * scene.height));
        let inked = pixels.chunks(3).filter(|pixel| *pixel != [255, 255, 255]).count();
        assert!(inked > 20_000, "{} has {inked} pixels", chart.name());
    }
}

#[test]
fn hatched_writes_follow_solid_reads() {
    let case = &cases()[0];
    let scene = Chart::Traffic.scene(&case.chip, &case.workload, &case.outcomes);
    // h and h_act are both read and written kernel by kernel, h_act with an epilogue, and y is written in every mode: seven
    // hatches with the legend's.
    let framed = scene.shapes.iter().filter(|shape| matches!(shape, Shape::Frame(..))).count();
    assert_eq!(framed, 7);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let case = &cases()[4];
    let png = || Chart::Roofline.png(&case.chip, &case.workload, &case.outcomes).unwrap();
    assert_eq!(png(), png());
    assert_eq!(svg(Chart::Time, case), svg(Chart::Time, case));
}
