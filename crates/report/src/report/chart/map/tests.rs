//! Pictures of maps: what they show, and that it can be read.

use std::path::Path;

use crate::map::{summarize, tell_times};
use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_compile::compile::compile;
use rdusim_engines::sim::simulate;
use rdusim_graph::{arch, workload};
use rdusim_outcome::Fidelity;

use super::super::scene::Shape;
use super::*;

fn tiny(chip: &str, mode: Mode, sets: &[&str]) -> (Chip, Map) {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    let chip = arch::load(Path::new(chip), &sets).unwrap();
    let workload = workload::load(Path::new("tiny-mlp"), &[], 0).unwrap();
    let map = summarize(&chip, &workload, &compile(&chip, &workload, mode).unwrap());
    (chip, map)
}

fn fills(scene: &Scene, wanted: Color) -> usize {
    scene.shapes.iter().filter(|shape| matches!(shape, Shape::Fill(_, color) if *color == wanted)).count()
}

#[test]
fn every_unit_is_shown_in_its_stages_colour() {
    for mode in [Mode::Kbk, Mode::Fused] {
        let (chip, map) = tiny("sn10", mode, &[]);
        for (at, section) in map.sections.iter().enumerate() {
            let scene = MapChart::new(&chip, &map, at).scene();
            let mut working = 0;
            for (index, stage) in section.stages.iter().enumerate() {
                // One more in the legend.
                assert_eq!(fills(&scene, color(index)), stage.pcus.len() + 1, "{mode:?} {}", section.name);
                working += stage.pcus.len();
            }
            assert_eq!(fills(&scene, GRID), chip.grid.pcus.len() - working + 1);
        }
    }
}

#[test]
fn no_text_leaves_the_picture_or_touches_another() {
    for (path, sets) in [
        ("sn10", &[][..]),
        ("sn30", &[]),
        ("plasticine", &[]),
        ("plasticine", &["arch.name='a chip of a very long name, and then some more of it'"]),
    ] {
        let (chip, mut map) = tiny(path, Mode::Fused, sets);
        for stage in map.sections.iter_mut().flat_map(|section| &mut section.stages) {
            stage.operators = vec!["decoder.layers.17.self_attention.output_projection<&\"'>\u{1}".repeat(3)];
        }
        map.sections[0].operators = vec!["output_projection".repeat(20); 30];
        let stages = &mut map.sections[0].stages;
        while stages.len() < 40 {
            stages.push(crate::map::StageEntry { pcus: Vec::new(), ..stages[0].clone() });
        }
        let scene = MapChart::new(&chip, &map, 0).scene();
        let inside = Area { left: 4.0, top: 4.0, width: scene.width - 8.0, height: scene.height - 8.0 };
        let text = |shape| match shape {
            &Shape::Text { at, anchor, face, ref text } => Some((Scene::text_area(at, anchor, face, text), text)),
            _ => None,
        };
        let texts: Vec<_> = scene.shapes.iter().filter_map(text).collect();
        for (at, (area, text)) in texts.iter().enumerate() {
            assert!(inside.encloses(*area), "{path}: {text:?} leaves the picture");
            for (other, with) in &texts[..at] {
                assert!(!area.overlaps(*other), "{path}: {text:?} on {with:?}");
            }
        }
        for shape in &scene.shapes {
            if let Shape::Fill(area, _) | Shape::Frame(area, _) = shape {
                assert!(inside.encloses(*area), "{path}: {area:?} leaves the picture");
            }
        }
    }
}

#[test]
fn both_files_are_whole_and_always_the_same() {
    let (chip, map) = tiny("plasticine", Mode::Fused, &[]);
    let chart = MapChart::new(&chip, &map, 0);
    let svg = chart.svg().unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(svg, chart.svg().unwrap());
    let png = chart.png().unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n"));
    assert_eq!(png, chart.png().unwrap());
}

#[test]
fn a_run_shows_how_every_unit_spent_it() {
    let (chip, mut map) = tiny("sn10", Mode::Fused, &[]);
    assert!(MapChart::of_run(&chip, &map, 0).is_none());
    let workload = workload::load(Path::new("tiny-mlp"), &[], 0).unwrap();
    let configuration = compile(&chip, &workload, Mode::Fused).unwrap();
    let outcome = simulate(&chip, &workload, &configuration, Fidelity::Event);
    tell_times(&mut map, &chip, &configuration, &outcome);
    let section = &mut map.sections[0];
    let run = section.run.as_mut().unwrap();
    assert_eq!(run.cycles, outcome.sections[0].cycles);
    assert_eq!(run.units.len(), section.stages.iter().map(|stage| stage.pcus.len()).sum::<usize>());
    for time in run.units.values() {
        let sum = time.busy + time.starved.unwrap() + time.stalled.unwrap();
        assert!(time.busy > 0.0 && sum <= 1.0, "{time:?}");
    }
    assert!(run.ports.values().all(|&share| (0.0..=1.0).contains(&share)));
    // This run is nearly all launch: longer work, to see it.
    let working = run.units.len();
    run.units.values_mut().for_each(|time| time.busy = 0.5);
    let chart = MapChart::of_run(&chip, &map, 0).unwrap();
    let scene = chart.scene();
    // A green part for every PCU that works, and in the legend.
    assert!(fills(&scene, super::super::palette::GREEN) > working);
    let texts = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    assert!(texts.iter().any(|text| text.contains("bound by") && text.contains("Busy: ")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("starved") && text.contains("stalled")), "{texts:?}");
    assert!(chart.png().unwrap().starts_with(b"\x89PNG\r\n"));
}

#[test]
fn a_grid_too_large_to_draw_is_refused() {
    let (mut chip, map) = tiny("plasticine", Mode::Fused, &[]);
    chip.grid.columns = MOST_SITES + 1;
    let error = MapChart::new(&chip, &map, 0).svg().unwrap_err().to_string();
    assert_eq!(error, "a grid of 1001 x 8 sites is too large for a picture");
}
