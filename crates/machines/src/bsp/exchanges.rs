//! Bare exchanges as micro-benchmarks time them: words and long messages between tiles, on the chip and to other chips.
//!
//! On the chip a pattern takes a barrier, the setup of an exchange, the way of its farthest word, and the words that its busiest tile
//! receives or sends at the rate of a tile. Between chips the link's latency and its time of a message decide. Chips beyond a board
//! stand on a ladder of pairs (poplibs `lib/poplibs_test/Util.cpp`), where every message crosses the middle.

use super::amp;
use rdusim_graph::arch::Bsp;

/// Who sends to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// A tile to itself, through its memory.
    Local,
    /// Pairs of tiles at the same time.
    Pairs,
    /// One tile to all, the same word.
    Broadcast,
    /// One tile to all, a word of its own to each.
    Scatter,
    /// All tiles to one.
    Gather,
    /// Every tile to every other, a word of its own to each.
    AllToAll,
    /// All tiles' words added up on one, in one step or in two.
    Reduction,
}

/// Where the tiles are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// All on one chip.
    Chip,
    /// On two chips with this path between them, as the chip file names it.
    Link(&'a str),
    /// On so many chips of a ladder.
    Ladder(u64),
}

/// An exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeCase<'a> {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// Where they are.
    pub place: Place<'a>,
    /// Pairs, or tiles beside the one that sends or receives all.
    pub tiles: u64,
}

impl<'a> ExchangeCase<'a> {
    /// So many pairs.
    pub fn pairs(place: Place<'a>, tiles: u64) -> Self {
        Self { pattern: Pattern::Pairs, place, tiles }
    }

    /// A word to so many tiles of the chip.
    pub fn broadcast(tiles: u64) -> Self {
        Self { pattern: Pattern::Broadcast, place: Place::Chip, tiles }
    }
}

/// Bytes of a word.
const WORD: f64 = 4.0;
/// Tiles at the same short way from each other: up to so many, a broadcast takes the same time (arXiv:1912.03413 table 4.8).
const GROUP: u64 = 16;
/// Instructions of a worker that loads a word, stores it and ends; each has its turn among all workers.
const LOCAL_INSTRUCTIONS: u64 = 3;
/// Messages of a direction cross the middle of a ladder on the links of both of its sides.
const RAILS: u64 = 2;

/// Microseconds of a word from each that sends to each that receives; `None` if the file lacks the path.
pub fn exchange_us(chip: &Bsp, case: ExchangeCase<'_>) -> Option<f64> {
    let cycles = |cycles: f64| cycles / chip.clock_hz as f64 * 1e6;
    let tiles = case.tiles;
    if case.place == Place::Chip {
        return Some(cycles(on_chip(chip, case.pattern, tiles)));
    }
    let [first_us, word_us, messages] = between(chip, case)?;
    Some(match case.pattern {
        // On its way over the other chip the word passes all tiles.
        Pattern::Broadcast => {
            let inside =
                on_chip(chip, Pattern::Broadcast, tiles.min(chip.tile.count)) - on_chip(chip, Pattern::Broadcast, 1);
            first_us + cycles(inside)
        }
        Pattern::Reduction => {
            // A sum of each chip crosses.
            first_us + cycles(on_chip(chip, Pattern::Reduction, tiles.min(chip.tile.count)))
        }
        Pattern::Local => cycles(on_chip(chip, Pattern::Local, 1)),
        Pattern::Pairs | Pattern::Scatter | Pattern::Gather | Pattern::AllToAll => {
            first_us + word_us * (messages - 1.0).max(0.0)
        }
    })
}

/// Bytes a second of long messages between so many pairs, all together; `None` if the file lacks the path.
pub fn exchange_bandwidth(chip: &Bsp, case: ExchangeCase<'_>) -> Option<f64> {
    let rate = chip.exchange.bytes_per_cycle * chip.clock_hz as f64;
    let streams = match case.pattern {
        Pattern::Pairs | Pattern::AllToAll | Pattern::Broadcast => case.tiles as f64,
        // The tile that sends or receives all decides.
        Pattern::Scatter | Pattern::Gather | Pattern::Reduction | Pattern::Local => 1.0,
    };
    match case.place {
        Place::Chip => Some(rate * streams),
        Place::Link(name) => {
            let link = chip.links.get(name)?;
            Some((link.bytes_per_s * directions(chip, case) as f64).min(link.pair_bytes_per_s * streams))
        }
        Place::Ladder(_) => {
            // Both directions of the rails of its middle.
            let link = chip.links.get("indirect")?;
            Some((2 * RAILS) as f64 * link.bytes_per_s)
        }
    }
}

/// Directions in which pairs between two chips send: more pairs than a chip has tiles start on both.
fn directions(chip: &Bsp, case: ExchangeCase<'_>) -> u64 {
    if case.pattern == Pattern::Pairs && case.tiles > chip.tile.count { 2 } else { 1 }
}

/// Microseconds of the first word over a path between chips, of each further one, and the messages on its busiest link; `None` on one chip
/// and without the path.
fn between(chip: &Bsp, case: ExchangeCase<'_>) -> Option<[f64; 3]> {
    let all = match case.pattern {
        Pattern::AllToAll => case.tiles as f64 * case.tiles as f64,
        _ => case.tiles as f64,
    };
    match case.place {
        Place::Chip => None,
        Place::Link(name) => {
            let link = chip.links.get(name)?;
            // Of all-to-alls only the words between the two chips cross, half of them each way.
            let ways = directions(chip, case).min(link.message_directions) as f64;
            let crossing = if case.pattern == Pattern::AllToAll { all / 4.0 } else { all / ways };
            Some([link.latency_ns / 1e3, link.message_ns / 1e3, crossing])
        }
        Place::Ladder(chips) => {
            let (near, far) = (chip.links.get("board")?, chip.links.get("indirect")?);
            // A further rung adds what a second link adds to a pair's; half of the rungs lie on each side of the middle.
            let rungs = (chips / 2).saturating_sub(2) as f64;
            let first = far.latency_ns + rungs * (far.latency_ns - near.latency_ns).max(0.0);
            let one_way = all / 2.0 / RAILS as f64;
            Some([first / 1e3, far.message_ns / 1e3, one_way])
        }
    }
}

/// Cycles of a pattern on one chip.
fn on_chip(chip: &Bsp, pattern: Pattern, tiles: u64) -> f64 {
    let exchange = &chip.exchange;
    let around = (exchange.sync_cycles + exchange.setup_cycles) as f64;
    // The way between pairs that lie anywhere: the more pairs, the surer is one that lies far.
    let (near, far) = (exchange.near_cycles as f64, exchange.far_cycles as f64);
    let way = near + (far - near).max(0.0) * (1.0 - 1.0 / tiles.max(1) as f64);
    let words = |count: u64| count.saturating_sub(1) as f64 * WORD / exchange.bytes_per_cycle;
    match pattern {
        Pattern::Local => (LOCAL_INSTRUCTIONS * chip.tile.threads) as f64,
        Pattern::Pairs => around + way,
        Pattern::Broadcast => {
            // One message that passes all tiles on its way; beyond the sender's own group it crosses the chip first.
            let share = tiles as f64 / chip.tile.count.max(1) as f64;
            let way = if tiles > GROUP { far * (1.0 + share) } else { 0.0 };
            exchange.broadcast_cycles as f64 + way
        }
        Pattern::Scatter | Pattern::Gather => around + way + words(tiles),
        Pattern::AllToAll => around + way + words(tiles.saturating_sub(1)),
        Pattern::Reduction => {
            let stage = |terms: u64| {
                if terms < 2 {
                    0.0
                } else {
                    around + way + words(terms) + amp::reduce_cycles(chip, 1.0, terms as f64, true)
                }
            };
            let two = |first: u64| stage(first) + stage(tiles.div_ceil(first));
            let sizes = std::iter::successors(Some(2u64), |&size| size.checked_mul(2)).take_while(|&size| size < tiles);
            sizes.map(two).fold(stage(tiles), f64::min)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::chip;
    use super::*;

    #[test]
    fn by_hand() {
        let gc2 = chip("gc2", &[]);
        let us = |pattern, tiles| exchange_us(&gc2, ExchangeCase { pattern, place: Place::Chip, tiles }).unwrap();
        // 1,215 words beyond the first at a word a cycle of 1.6 GHz.
        let more = us(Pattern::Gather, 1216) - us(Pattern::Pairs, 1216);
        assert!((more - 1215.0 / 1600.0).abs() < 1e-9, "{more}");
        assert!((us(Pattern::AllToAll, 1216) - us(Pattern::Pairs, 1216) - 1214.0 / 1600.0).abs() < 1e-9);
        // Two steps of a few dozen words each are faster than one of 1,216.
        assert!(us(Pattern::Reduction, 1216) < us(Pattern::Gather, 1216));
        assert!(us(Pattern::Reduction, 4) > us(Pattern::Gather, 4));
        // A gather over a link takes a message's time for each word.
        let over = |tiles| {
            exchange_us(&gc2, ExchangeCase { pattern: Pattern::Gather, place: Place::Link("direct"), tiles }).unwrap()
        };
        assert!((over(101) - over(1) - 100.0 * 1.645e-3).abs() < 1e-9);
        assert_eq!(exchange_us(&gc2, ExchangeCase::pairs(Place::Link("no such"), 1)), None);
    }

    #[test]
    fn more_tiles_are_no_faster() {
        let gc2 = chip("gc2", &[]);
        for pattern in [
            Pattern::Pairs,
            Pattern::Broadcast,
            Pattern::Scatter,
            Pattern::Gather,
            Pattern::AllToAll,
            Pattern::Reduction,
        ] {
            for place in [Place::Chip, Place::Link("board"), Place::Ladder(8)] {
                let mut before = 0.0;
                for tiles in [1, 2, 5, 16, 17, 100, 608, 1216] {
                    let us = exchange_us(&gc2, ExchangeCase { pattern, place, tiles }).unwrap();
                    assert!(us >= before * 0.999, "{pattern:?} {place:?} {tiles}: {us} {before}");
                    before = us;
                }
            }
        }
    }
}
