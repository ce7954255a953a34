//! Annealing of places: units that talk much are brought together, from the constructive placement on.
//!
//! PCUs change places with PCUs, and PMUs, with all that they hold, with PMUs: banks, ports and multicasts stay as they
//! are, so every state is legal. The cost is flits a cycle times the links of a tree with a straight trunk, as the router
//! begins. The walk is a cold one: the constructive placement is a good start, which a warm walk first takes apart (from 100
//! times the temperature on, with twelve times the moves, wires of the sparse GPT-13B block on SN40L ended 8 % longer).

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::compile::params::PARAMS;
use rdusim_base::index::Id;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{Fabric, PcuId, PmuId, Port};

use super::placed::Placed;
use super::unrouted::Unrouted;

/// A flow as annealing sees it.
#[derive(Debug, Clone, Copy)]
struct Net {
    /// Flits a cycle.
    rate: f64,
    /// Its ends: source first.
    start: u32,
    end: u32,
}

/// Scratch for the branches of a tree: the farthest site on either side of the trunk, for each place along it.
struct Branches {
    stamp: u32,
    seen: Vec<u32>,
    reach: Vec<(u32, u32)>,
}

impl Branches {
    /// Links of a tree with a straight trunk through the source.
    fn links(&mut self, source: (u32, u32), sinks: impl Iterator<Item = (u32, u32)>) -> u32 {
        self.stamp += 1;
        let (mut low, mut high) = (source.0, source.0);
        let mut links = 0;
        for (along, across) in sinks {
            (low, high) = (low.min(along), high.max(along));
            let (least, most) = (across.min(source.1), across.max(source.1));
            let at = along as usize;
            if std::mem::replace(&mut self.seen[at], self.stamp) == self.stamp {
                let (from, to) = self.reach[at];
                self.reach[at] = (from.min(least), to.max(most));
                links += from - from.min(least) + to.max(most) - to;
            } else {
                self.reach[at] = (least, most);
                links += most - least;
            }
        }
        links + high - low
    }
}

/// A walk over places.
struct Walk<'a> {
    chip: &'a Chip,
    nets: Vec<Net>,
    ends: Vec<u32>,
    /// Nets of each unit: `of_unit[first[u]..first[u + 1]]`.
    first: Vec<u32>,
    of_unit: Vec<u32>,
    /// Places of PCUs, then of PMUs, then of AGCUs.
    places: Vec<Coordinate>,
    /// The unit on each site that may move.
    at: Vec<u32>,
    /// Links of each net.
    links: Vec<u32>,
    branches: Branches,
    /// Stamps of nets that were counted for the move at hand.
    seen: Vec<u32>,
    stamp: u32,
    /// Nets of the units of the move at hand.
    touched: Vec<u32>,
    /// Links of the touched nets after the move at hand.
    after: Vec<u32>,
    pcus: u32,
    movable: u32,
}

/// Brings the units of a placed section together. Whether any has moved.
pub(crate) fn anneal(chip: &Chip, fabric: &Fabric, placed: &mut Placed, unrouted: &Unrouted) -> bool {
    let mut walk = Walk::new(chip, fabric, unrouted);
    let before = walk.cost();
    walk.go();
    if walk.cost() >= before {
        return false;
    }
    walk.apply(placed);
    true
}

impl<'a> Walk<'a> {
    /// A walk over the flows of a placed section.
    fn new(chip: &'a Chip, fabric: &Fabric, unrouted: &Unrouted) -> Self {
        let (pcus, pmus) = (chip.grid.pcus.len() as u32, chip.grid.pmus.len() as u32);
        let unit = |port: Port| match port {
            Port::PmuRead(pmu, _) | Port::PmuWrite(pmu, _) => pcus + pmu.index() as u32,
            Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _) => pcu.index() as u32,
            Port::Ag(agcu, _) => pcus + pmus + agcu,
        };
        let flows = unrouted.flows.iter().zip(unrouted.mean_rates());
        Self::over(
            chip,
            flows.map(|(flow, &rate)| (rate, flow.route.iter().filter_map(|&p| fabric.port_at(p)).map(unit).collect())),
        )
    }

    /// A walk over nets: flits a cycle, and ends, the source first.
    fn over(chip: &'a Chip, flows: impl Iterator<Item = (f64, Vec<u32>)>) -> Self {
        let (pcus, pmus) = (chip.grid.pcus.len() as u32, chip.grid.pmus.len() as u32);
        let agcus = chip.grid.agcus.iter().map(|agcu| agcu.site);
        let places: Vec<Coordinate> = chip.grid.pcus.iter().chain(&chip.grid.pmus).copied().chain(agcus).collect();
        let (mut nets, mut ends) = (Vec::new(), Vec::new());
        for (rate, units) in flows {
            let start = ends.len() as u32;
            ends.extend(units);
            nets.push(Net { rate, start, end: ends.len() as u32 });
        }
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); places.len()];
        for (index, net) in nets.iter().enumerate() {
            for &end in &ends[net.start as usize..net.end as usize] {
                if lists[end as usize].last() != Some(&(index as u32)) {
                    lists[end as usize].push(index as u32);
                }
            }
        }
        let mut first = vec![0];
        let mut of_unit = Vec::new();
        for list in lists {
            of_unit.extend(list);
            first.push(of_unit.len() as u32);
        }
        let mut at = vec![u32::MAX; chip.grid.units.len()];
        let movable = pcus + pmus;
        for (unit, place) in places.iter().take(movable as usize).enumerate() {
            at[(place.y * chip.grid.columns + place.x) as usize] = unit as u32;
        }
        let (seen, after) = (vec![0; nets.len()], vec![0; nets.len()]);
        let longest = chip.grid.columns.max(chip.grid.rows) as usize;
        let branches = Branches { stamp: 0, seen: vec![0; longest], reach: vec![(0, 0); longest] };
        let mut walk = Self {
            chip,
            nets,
            ends,
            first,
            of_unit,
            places,
            at,
            links: Vec::new(),
            after,
            branches,
            seen,
            stamp: 0,
            touched: Vec::new(),
            pcus,
            movable,
        };
        walk.links = (0..walk.nets.len()).map(|net| walk.links_of(net)).collect();
        walk
    }

    /// Links of a net's tree: the better of a trunk along a row and along a column.
    fn links_of(&mut self, net: usize) -> u32 {
        let Net { start, end, .. } = self.nets[net];
        let ends = &self.ends[start as usize..end as usize];
        let Coordinate { x, y } = self.places[ends[0] as usize];
        let sinks = ends[1..].iter().map(|&end| self.places[end as usize]);
        if let [_, sink] = ends {
            let sink = self.places[*sink as usize];
            return x.abs_diff(sink.x) + y.abs_diff(sink.y);
        }
        let along_x = self.branches.links((x, y), sinks.clone().map(|c| (c.x, c.y)));
        let along_y = self.branches.links((y, x), sinks.map(|c| (c.y, c.x)));
        along_x.min(along_y)
    }

    fn cost(&self) -> f64 {
        self.nets.iter().zip(&self.links).map(|(net, &links)| net.rate * f64::from(links)).sum()
    }

    /// Nets of either unit into `touched`, each once.
    fn touch(&mut self, a: u32, b: u32) {
        self.stamp += 1;
        self.touched.clear();
        for unit in [a, b] {
            let (start, end) = (self.first[unit as usize] as usize, self.first[unit as usize + 1] as usize);
            for &net in &self.of_unit[start..end] {
                if std::mem::replace(&mut self.seen[net as usize], self.stamp) != self.stamp {
                    self.touched.push(net);
                }
            }
        }
    }

    /// What the cost changes by if two units change places, which they then have.
    fn swap(&mut self, a: u32, b: u32) -> f64 {
        self.places.swap(a as usize, b as usize);
        let mut change = 0.0;
        for index in 0..self.touched.len() {
            let net = self.touched[index] as usize;
            let links = self.links_of(net);
            self.after[index] = links;
            change += self.nets[net].rate * (f64::from(links) - f64::from(self.links[net]));
        }
        change
    }

    fn keep(&mut self, a: u32, b: u32) {
        for unit in [a, b] {
            let Coordinate { x, y } = self.places[unit as usize];
            self.at[(y * self.chip.grid.columns + x) as usize] = unit;
        }
        for index in 0..self.touched.len() {
            self.links[self.touched[index] as usize] = self.after[index];
        }
    }

    /// Two units of a kind, the second at most `reach` sites from the first along either axis.
    fn pick(&self, random: &mut Pcg64Mcg, reach: i64) -> Option<(u32, u32)> {
        let a = random.random_range(0..self.movable);
        let Coordinate { x, y } = self.places[a as usize];
        let x = i64::from(x) + random.random_range(-reach..=reach);
        let y = i64::from(y) + random.random_range(-reach..=reach);
        if !(0..i64::from(self.chip.grid.columns)).contains(&x) || !(0..i64::from(self.chip.grid.rows)).contains(&y) {
            return None;
        }
        let b = self.at[(y * i64::from(self.chip.grid.columns) + x) as usize];
        let of_a_kind = b != u32::MAX && a != b && (a < self.pcus) == (b < self.pcus);
        of_a_kind.then_some((a, b))
    }

    fn go(&mut self) {
        let mut random = Pcg64Mcg::seed_from_u64(PARAMS.placement.anneal_seed);
        let widest = i64::from(self.chip.grid.columns.max(self.chip.grid.rows));
        let mut reach = (widest / 3).max(2);
        let mut changes = Vec::new();
        for _ in 0..self.movable {
            if let Some((a, b)) = self.pick(&mut random, reach) {
                self.touch(a, b);
                let change = self.swap(a, b);
                self.places.swap(a as usize, b as usize);
                if change != 0.0 {
                    changes.push(change.abs());
                }
            }
        }
        if changes.is_empty() {
            return;
        }
        let mean = changes.iter().sum::<f64>() / changes.len() as f64;
        let mut temperature = mean * PARAMS.placement.warmest;
        let cooling = PARAMS.placement.cooling.powf(1.0 / f64::from(PARAMS.placement.temperatures - 1));
        let moves = self.movable as usize * PARAMS.placement.moves_per_unit;
        for _ in 0..PARAMS.placement.temperatures {
            let (mut tried, mut taken) = (0u32, 0u32);
            for _ in 0..moves {
                let Some((a, b)) = self.pick(&mut random, reach) else { continue };
                self.touch(a, b);
                if self.touched.is_empty() {
                    continue;
                }
                tried += 1;
                let change = self.swap(a, b);
                if change <= 0.0 || random.random::<f64>() < (-change / temperature).exp() {
                    taken += 1;
                    self.keep(a, b);
                } else {
                    self.places.swap(a as usize, b as usize);
                }
            }
            let share = f64::from(taken) / f64::from(tried.max(1));
            reach = ((reach as f64 * (1.0 - PARAMS.placement.accepted_moves + share)).round() as i64).clamp(2, widest);
            temperature *= cooling;
        }
    }

    /// Moves what each unit does to where it has come to.
    fn apply(&self, placed: &mut Placed) {
        let site = |Coordinate { x, y }: Coordinate| (y * self.chip.grid.columns + x) as usize;
        let mut here = vec![u32::MAX; self.chip.grid.units.len()];
        for (unit, &place) in self.chip.grid.pcus.iter().enumerate() {
            here[site(place)] = unit as u32;
        }
        for (unit, &place) in self.chip.grid.pmus.iter().enumerate() {
            here[site(place)] = unit as u32;
        }
        let moved = |unit: u32| here[site(self.places[unit as usize])] as usize;
        for pcu in placed.stages.iter_mut().flat_map(|stage| &mut stage.pcus) {
            *pcu = PcuId::from_index(moved(pcu.index() as u32));
        }
        for part in placed.buffers.iter_mut().flat_map(|b| &mut b.pieces).flat_map(|piece| &mut piece.parts) {
            part.pmu = PmuId::from_index(moved(self.pcus + part.pmu.index() as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip() -> Chip {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("arch/sn10.toml");
        let text = std::fs::read_to_string(path).unwrap();
        rdusim_graph::arch::parse("sn10", &text, &[]).unwrap()
    }

    /// A walk over pairs of a PCU and a PMU at opposite ends of the chip, and multicasts from each tenth PMU.
    fn scattered(chip: &Chip) -> Walk<'_> {
        let (pcus, pmus) = (chip.grid.pcus.len() as u32, chip.grid.pmus.len() as u32);
        let pairs = (0..pcus.min(pmus)).map(|n| (0.5, vec![pcus + pmus - 1 - n, n]));
        let casts = (0..pmus / 10)
            .map(|n| (0.1, (0..9).map(|k| if k == 0 { pcus + 10 * n } else { (61 * n + 97 * k) % pcus }).collect()));
        Walk::over(chip, pairs.chain(casts))
    }

    #[test]
    fn a_walk_shortens_wires_and_leaves_every_unit_a_site_of_its_kind() {
        let chip = chip();
        let mut walk = scattered(&chip);
        let before = walk.cost();
        walk.go();
        assert!(walk.cost() < 0.9 * before, "{} of {before}", walk.cost());
        // What was kept up to date on the way is what it is.
        let (kept, afresh): (Vec<u32>, Vec<u32>) =
            (walk.links.clone(), (0..walk.nets.len()).map(|net| walk.links_of(net)).collect());
        assert_eq!(kept, afresh);
        let sorted = |places: &[Coordinate]| {
            let mut places = places.to_vec();
            places.sort_unstable();
            places
        };
        let (pcus, pmus) = walk.places[..walk.movable as usize].split_at(walk.pcus as usize);
        assert_eq!(sorted(pcus), sorted(&chip.grid.pcus));
        assert_eq!(sorted(pmus), sorted(&chip.grid.pmus));
    }

    #[test]
    fn a_walk_is_the_same_every_time() {
        let chip = chip();
        let (mut first, mut second) = (scattered(&chip), scattered(&chip));
        first.go();
        second.go();
        assert_eq!(first.places, second.places);
    }

    #[test]
    fn a_tree_has_a_trunk_and_branches() {
        let mut branches = Branches { stamp: 0, seen: vec![0; 10], reach: vec![(0, 0); 10] };
        // Trunk from 2 to 7 along row 3; at 7 one branch up by 2 and down by 4, at 5 one down by 1.
        assert_eq!(branches.links((2, 3), [(7, 1), (5, 4), (7, 7), (7, 5)].into_iter()), 5 + 6 + 1);
        assert_eq!(branches.links((2, 3), [(2, 3)].into_iter()), 0);
    }
}
