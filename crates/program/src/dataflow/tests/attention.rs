//! Section 2 of `docs/program.md`: causal attention that streams over keys with an online softmax.

use super::super::{Access, Affine, Axis, Bound, Dim, Loop, LoopId, Stream};
use super::{Case, ELEMENT, assert_close, execute, moved, stage, values};

const HEADS: u64 = 2;
const LENGTH: u64 = 11;
const WIDTH: u64 = 3;
const QUERY_TILE: u64 = 4;
const KEY_TILE: u64 = 3;
const SIZE: u64 = HEADS * LENGTH * WIDTH;
const BASES: [u64; 4] = [0, 0x1000, 0x2000, 0x3000];

/// How keys and values reach the stage.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    /// Each query tile walks the key tiles, which stay in a buffer.
    Resident,
    /// Each query tile walks the key tiles, read from memory again for each.
    Streamed,
    /// A query tile takes all key tiles up to its rows in one firing.
    Prefix,
}

/// The running maximum, sum and weighted values of an online softmax (Milakov and Gimelshein 2018), for each query.
struct Online {
    scale: Vec<(f64, f64)>,
    sums: Vec<f64>,
}

impl Online {
    fn new(queries: usize) -> Self {
        let sums = vec![0.0; queries * WIDTH as usize];
        Self { scale: vec![(f64::NEG_INFINITY, 0.0); queries], sums }
    }

    fn add(&mut self, q: &[f64], first_query: u64, k: &[f64], first_key: u64, v: &[f64]) {
        let width = WIDTH as usize;
        for (query, row) in q.chunks(width).enumerate() {
            for (key, (k, v)) in k.chunks(width).zip(v.chunks(width)).enumerate() {
                if first_key + key as u64 > first_query + query as u64 {
                    continue;
                }
                let score: f64 = row.iter().zip(k).map(|(a, b)| a * b).sum();
                let (most, sum) = self.scale[query];
                let new = most.max(score);
                let (keep, add) = ((most - new).exp(), (score - new).exp());
                self.scale[query] = (new, sum * keep + add);
                for (total, v) in self.sums[query * width..][..width].iter_mut().zip(v) {
                    *total = *total * keep + add * v;
                }
            }
        }
    }

    fn result(&self) -> Vec<f64> {
        self.sums.iter().enumerate().map(|(n, total)| total / self.scale[n / WIDTH as usize].1).collect()
    }
}

fn attention(keys: Keys) -> Case {
    let mut case = Case::default();
    for (seed, base) in BASES[..3].iter().enumerate() {
        case.memories.own().write(*base, ELEMENT, &values(SIZE, seed as u64 + 10));
    }
    let loops = &mut case.flow.loops;
    let head = loops.push(Loop::full(Axis::Head, HEADS, 1));
    let query = loops.push(Loop::full(Axis::Row, LENGTH, QUERY_TILE));
    let all_keys = loops.push(Loop::full(Axis::Key, LENGTH, KEY_TILE));
    let tile = QUERY_TILE.cast_signed();
    let reach = Affine { offset: tile, step: tile };
    let bound = Bound::Affine { outer: query, start: Affine::constant(0), end: reach };
    let key = loops.push(Loop { axis: Axis::Key, extent: LENGTH, tile: KEY_TILE, bound });
    let stream = |axis, base| {
        let shape = vec![Dim::along(Axis::Head, HEADS), Dim::along(axis, LENGTH), Dim::whole(WIDTH)];
        Stream::memory(shape, ELEMENT, base)
    };

    let key_tiles = LENGTH.div_ceil(KEY_TILE);
    let q = case.load("q", &[head, query], stream(Axis::Row, BASES[0]), 2);
    let mut load = |name: &str, base: u64| match keys {
        Keys::Streamed => case.load(name, &[head, query, key], stream(Axis::Key, base).in_parts(), 2),
        Keys::Resident | Keys::Prefix => case.load(name, &[head, all_keys], stream(Axis::Key, base), key_tiles),
    };
    let (k, v) = (load("k", BASES[1]), load("v", BASES[2]));
    let o = case.buffer("o", &[head, query], 2);
    let nest: &[LoopId] = if keys == Keys::Prefix { &[head, query] } else { &[head, query, key] };
    let access = match keys {
        Keys::Streamed => Access::same(),
        Keys::Resident => Access::cover(all_keys, key),
        Keys::Prefix => Access::prefix(all_keys, query),
    };
    let attend = stage("attend", nest).reading(q, Access::same());
    let attend = attend.reading(k, access.clone()).reading(v, access).writing(o, Access::same());
    let mut online = Online::new(0);
    let streams_keys = keys != Keys::Prefix;
    case.stage(attend, move |firing, out| {
        let rows = &firing.ranges[1];
        if !streams_keys || firing.at.get(2) == 0 {
            online = Online::new((rows.end - rows.start) as usize);
        }
        for (k, v) in firing.inputs[1].iter().zip(&firing.inputs[2]) {
            let first_key = if streams_keys { firing.ranges[2].start } else { k.at.get(1) * KEY_TILE };
            let (first, length) = (first_key as usize, k.data().len());
            // A key tile that ends before the slot does has fewer keys than the slot.
            let used = if streams_keys { firing.ranges[2].end as usize - first } else { length / WIDTH as usize };
            let used = used * WIDTH as usize;
            online.add(firing.inputs[0][0].data(), rows.start, &k.data()[..used], first_key, &v.data()[..used]);
        }
        if !streams_keys || firing.last[2] {
            out.push(0, online.result());
        }
    });
    case.store(&[head, query], stream(Axis::Row, BASES[3]), o, Access::same());
    case
}

fn reference(case: &mut Case) -> Vec<f64> {
    let mut read = |base| case.memories.own().read(base, ELEMENT, SIZE);
    let (q, k, v) = (read(BASES[0]), read(BASES[1]), read(BASES[2]));
    let width = WIDTH as usize;
    let row = |of: &[f64], head: u64, n: u64| of[(head * LENGTH + n) as usize * width..][..width].to_vec();
    let mut result = Vec::new();
    for head in 0..HEADS {
        for query in 0..LENGTH {
            let score = |key| -> f64 { row(&q, head, query).iter().zip(row(&k, head, key)).map(|(a, b)| a * b).sum() };
            let weights: Vec<f64> = (0..=query).map(|key| score(key).exp()).collect();
            let total: f64 = weights.iter().sum();
            for column in 0..width {
                let weighted = weights.iter().zip(0u64..).map(|(weight, key)| weight * row(&v, head, key)[column]);
                result.push(weighted.sum::<f64>() / total);
            }
        }
    }
    result
}

#[test]
fn causal_attention_gives_the_numbers_and_bytes_however_keys_come() {
    for keys in [Keys::Resident, Keys::Streamed, Keys::Prefix] {
        let (mut memories, run) = execute(|| attention(keys));
        let mut case = attention(keys);
        assert_close(&memories.own().read(BASES[3], ELEMENT, SIZE), &reference(&mut case));
        // Streamed keys: the query tiles reach 4, 8 and 11 keys.
        let keys_read = if keys == Keys::Streamed { HEADS * (4 + 8 + 11) * WIDTH } else { SIZE };
        assert_eq!(moved(&case.flow, &run), ((SIZE + 2 * keys_read) * ELEMENT, SIZE * ELEMENT));
    }
}

#[test]
fn the_first_key_tiles_are_held_until_the_last_query_tile() {
    let case = attention(Keys::Prefix);
    let graph = super::ProcessGraph::new(&case.flow).expect("a legal dataflow");
    let k = case.flow.buffers.ids().nth(1).expect("k");
    let reader = graph.consumers(k)[0];
    let needed: Vec<u64> = (0..3).map(|n| graph.needed(reader, n, &graph.point(reader.process, n))).collect();
    let released: Vec<u64> = (0..=3).map(|done| graph.released(reader, done)).collect();
    assert_eq!(needed, [2, 3, 4], "keys up to 4, 8 and 11 in tiles of 3");
    assert_eq!(released, [0, 0, 0, 4]);
    assert_eq!(graph.period(reader.process), None);
}
