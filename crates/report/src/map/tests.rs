//! Maps of compiled configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;
use rdusim_base::mode::Mode;
use rdusim_compile::compile::compile;
use rdusim_graph::arch::{self, Chip, UnitKind};
use rdusim_graph::workload;

/// The smallest workload on an SN10, both ways.
fn maps() -> (Chip, Vec<Map>) {
    let chip = arch::load(Path::new("sn10"), &[]).unwrap();
    let workload = workload::load(Path::new("tiny-mlp"), &[], 0).unwrap();
    let draw = |mode| summarize(&chip, &workload, &compile(&chip, &workload, mode).unwrap());
    let maps = [Mode::Kbk, Mode::Fused].map(draw).into();
    (chip, maps)
}

fn sections(maps: &[Map]) -> impl Iterator<Item = &Section> {
    maps.iter().flat_map(|map| &map.sections)
}

#[test]
fn units_are_of_their_kind_and_taken_once() {
    let (chip, maps) = maps();
    let kind = |[x, y]: Site| chip.grid.units[y as usize * chip.grid.columns as usize + x as usize];
    for section in sections(&maps) {
        let pcus: Vec<Site> = section.stages.iter().flat_map(|stage| stage.pcus.clone()).collect();
        assert!(pcus.iter().all(|&pcu| kind(pcu) == UnitKind::Pcu));
        assert_eq!(pcus.iter().collect::<BTreeSet<_>>().len(), pcus.len());
        let mut banks: BTreeMap<Site, u64> = BTreeMap::new();
        for buffer in &section.buffers {
            assert_eq!(buffer.pieces.len() as u64, buffer.copies * buffer.slices);
            assert_eq!(buffer.pieces.iter().flatten().map(|part| part.banks).sum::<u64>(), buffer.banks);
            for part in buffer.pieces.iter().flatten() {
                assert_eq!(kind(part.pmu), UnitKind::Pmu);
                *banks.entry(part.pmu).or_default() += part.banks;
            }
        }
        assert!(banks.values().all(|&banks| banks <= chip.pmu.banks));
        for generator in section.streams.iter().flat_map(|stream| &stream.generators) {
            let agcu = &chip.grid.agcus[generator.agcu as usize];
            assert_eq!((agcu.site.x, agcu.site.y), (generator.site[0], generator.site[1]));
            assert!(u64::from(generator.generator) < agcu.ags);
        }
    }
}

#[test]
fn link_loads_are_the_routes_flits() {
    for section in sections(&maps().1) {
        let network = &section.network;
        let hops: u64 = section.routes.iter().map(|route| route.flits * route.links.len() as u64).sum();
        assert!(hops > 0);
        assert_eq!(network.flit_hops, hops);
        assert_eq!(section.links.iter().map(|link| link.flits).sum::<u64>(), hops);
        assert_eq!(network.flows, section.routes.len() as u64);
        assert_eq!(network.histogram.iter().sum::<u64>(), network.links_used);
        assert!(network.histogram[9] > 0 && network.links_used <= network.links);
        assert!(network.fullest_flits <= section.bound, "a link is busy for longer than the bound");
        let mut loads: BTreeMap<_, u64> = BTreeMap::new();
        for (route, link) in section.routes.iter().flat_map(|route| route.links.iter().map(move |link| (route, link))) {
            *loads.entry(*link).or_default() += route.flits;
        }
        for link in &section.links {
            assert_eq!(loads[&(link.from[0], link.from[1], link.direction, link.lane)], link.flits);
        }
    }
}

#[test]
fn routes_are_trees() {
    for route in sections(&maps().1).flat_map(|section| &section.routes) {
        let starts: BTreeSet<Site> = route.links.iter().map(|&(x, y, ..)| [x, y]).collect();
        let ends: BTreeSet<Site> = route
            .links
            .iter()
            .map(|&(x, y, direction, _)| match direction {
                "east" => [x + 1, y],
                "west" => [x - 1, y],
                "south" => [x, y + 1],
                _ => [x, y - 1],
            })
            .collect();
        assert_eq!(ends.len(), route.links.len(), "no switch is reached twice");
        let roots = starts.difference(&ends).count();
        assert_eq!(roots, usize::from(!route.links.is_empty()), "one source");
    }
}

#[test]
fn the_json_is_the_object_and_the_same_every_time() {
    let (maps, again) = (maps().1, maps().1);
    for (map, again) in maps.iter().zip(&again) {
        let json = map.to_json();
        assert_eq!(json, again.to_json());
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read, serde_json::to_value(map).unwrap());
        assert_eq!((read["schema"].as_u64(), read["mode"].as_str()), (Some(1), Some(map.mode)));
        assert!(
            json.starts_with("{\n  \"schema\": 1,\n  \"arch\": {\n    \"name\": \"SN10\",\n")
                && json.ends_with("\n}\n")
        );
    }
}

#[test]
fn keys_stand_in_the_agreed_order() {
    let map = &maps().1[1];
    let json = map.to_json();
    // Keys of the first line that holds one object, or of an object broken into lines.
    let keys = |text: &str| -> Vec<String> {
        let words = text.split('"').enumerate().filter(|(at, _)| at % 2 == 1).map(|(_, word)| word);
        let marked: Vec<&str> = words.collect();
        marked.into_iter().filter(|word| text.contains(&format!("\"{word}\": "))).map(str::to_owned).collect()
    };
    let broken = |indent: usize, after: &str| -> Vec<String> {
        let prefix = format!("{}\"", " ".repeat(indent));
        let inside = json[json.find(after).unwrap()..].lines().skip(1);
        let inside = inside.take_while(|line| line.starts_with(&" ".repeat(indent)));
        inside.filter_map(|line| Some(line.strip_prefix(&prefix)?.split_once('"')?.0.to_owned())).collect()
    };
    assert_eq!(broken(2, "{"), ["schema", "arch", "workload", "mode", "sections", "notes"]);
    let section = ["name", "operators", "bound", "nest", "stages", "buffers", "streams", "network", "links", "routes"];
    assert_eq!(broken(6, "    {\n      \"name\""), section);
    let nest = ["rows", "tile_rows", "row_tiles", "block_tiles", "blocks", "tiled_axis", "order"];
    assert_eq!(broken(8, "\"nest\": {"), nest);
    let line = |list: &str| {
        let after = json.find(&format!("\"{list}\": [\n")).unwrap();
        json[after..].lines().nth(1).unwrap().trim().to_owned()
    };
    let stage = [
        "operators",
        "mapping",
        "kind",
        "pm",
        "pn",
        "pk",
        "multicast_width",
        "rows_on_lanes",
        "aligned",
        "style",
        "level",
    ];
    assert_eq!(keys(&line("stages"))[..11], stage);
    assert!(keys(&line("stages")).ends_with(&["k_cut".to_owned(), "n_cut".to_owned(), "pcus".to_owned()]));
    let buffer = ["role", "tensor", "stage", "level", "depth", "slices", "copies", "slot_bytes", "pmus", "banks"];
    assert_eq!(keys(&line("buffers"))[..10], buffer);
    let stream = ["tensor", "direction", "tier", "level", "passes", "bytes", "generators"];
    assert_eq!(keys(&line("streams"))[..7], stream);
    assert_eq!(keys(&line("links")), ["from", "direction", "lane", "flits"]);
    assert_eq!(keys(&line("routes"))[0], "kind");
}
