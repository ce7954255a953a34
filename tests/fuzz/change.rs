//! Random changes of inputs: of their structure, and of their bytes.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::tree::Tree;

/// Numbers and words at the edges of types, of ranges and of formats.
const EXTREMES: [&str; 48] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "63",
    "64",
    "65",
    "255",
    "4096",
    "65535",
    "65536",
    "1000000",
    "1000001",
    "2147483647",
    "2147483648",
    "4294967296",
    "1099511627776",
    "1099511627777",
    "4503599627370496",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0.0",
    "-0.0",
    "0.5",
    "1e-9",
    "5e-324",
    "1e9",
    "1e308",
    "1e309",
    "-1e308",
    "nan",
    "-inf",
    "inf",
    "true",
    "null",
    "\"\"",
    "[]",
    "{}",
    "1979-05-27",
    "\"\\u001b]0;x\\u0007=1+1\"",
];

/// One of a list; the list is not empty.
pub(crate) fn one_of<'a, T>(list: &'a [T], rng: &mut Pcg64Mcg) -> &'a T {
    &list[rng.random_range(0..list.len())]
}

/// Changes a part of a tree: a value becomes an extreme or another value of the tree or of `other`, a key is dropped, doubled,
/// renamed or moved.
pub(crate) fn change(tree: &mut Tree, other: &Tree, rng: &mut Pcg64Mcg) {
    let number = rng.random_range(0..tree.parts());
    let donor = match rng.random_range(0..4u32) {
        0 => other.clone().part(rng.random_range(0..other.parts())).clone(),
        _ => tree.clone().part(rng.random_range(0..tree.parts())).clone(),
    };
    match tree.part(number) {
        Tree::Table(entries) if !entries.is_empty() => {
            let at = rng.random_range(0..entries.len());
            match rng.random_range(0..5u32) {
                0 => _ = entries.remove(at),
                1 => entries.push(entries[at].clone()),
                2 => entries[at].1 = donor,
                3 => entries[at].0.push('x'),
                _ => {
                    let to = rng.random_range(0..entries.len());
                    let key = entries[to].0.clone();
                    entries[at].0 = key;
                }
            }
        }
        Tree::List(items) if !items.is_empty() => {
            let at = rng.random_range(0..items.len());
            match rng.random_range(0..5u32) {
                0 => _ = items.remove(at),
                1 => items.push(items[at].clone()),
                2 => items[at] = donor,
                3 => items.clear(),
                _ => {
                    let to = rng.random_range(0..items.len());
                    items.swap(at, to);
                }
            }
        }
        leaf => match rng.random_range(0..8u32) {
            0 => *leaf = donor,
            1 => *leaf = Tree::List(vec![leaf.clone()]),
            2 => *leaf = Tree::Text((*one_of(&EXTREMES, rng)).to_owned()),
            3 => *leaf = near(leaf, rng),
            _ => *leaf = Tree::Leaf((*one_of(&EXTREMES, rng)).to_owned()),
        },
    }
}

/// Changes a number of a tree into one that may well be valid too.
pub(crate) fn nudge(tree: &mut Tree, rng: &mut Pcg64Mcg) {
    const USUAL: [&str; 16] =
        ["1", "2", "3", "4", "5", "6", "7", "8", "12", "16", "17", "32", "64", "100", "128", "1024"];
    for _ in 0..16 {
        let number = rng.random_range(0..tree.parts());
        let part = tree.part(number);
        if matches!(part, Tree::Leaf(text) if text.parse::<f64>().is_ok()) {
            *part = if rng.random_range(0..2u32) == 0 {
                near(part, rng)
            } else {
                Tree::Leaf((*one_of(&USUAL, rng)).into())
            };
            return;
        }
    }
}

/// A number near that of a leaf, or the leaf.
fn near(leaf: &Tree, rng: &mut Pcg64Mcg) -> Tree {
    let Tree::Leaf(text) = leaf else { return leaf.clone() };
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) => {
            let scaled = match rng.random_range(0..6u32) {
                0 => number.wrapping_add(1),
                1 => number.wrapping_sub(1),
                2 => number.wrapping_mul(2),
                3 => number / 2,
                4 => number.wrapping_mul(rng.random_range(2..100)),
                _ => number.wrapping_neg(),
            };
            Tree::Leaf(scaled.to_string())
        }
        (_, Ok(number)) => Tree::Leaf(format!("{:?}", number * one_of(&[0.5, 2.0, -1.0, 1e-6, 1e6, 0.999], rng))),
        _ => leaf.clone(),
    }
}

/// Changes bytes: some flipped, dropped, doubled or inserted, cut off, or exchanged for a run of `other`.
pub(crate) fn change_bytes(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Pcg64Mcg) {
    if bytes.is_empty() {
        bytes.push(rng.random_range(0..=255u8));
        return;
    }
    let at = rng.random_range(0..bytes.len());
    let end = (at + rng.random_range(1..=16usize)).min(bytes.len());
    match rng.random_range(0..9u32) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8u32),
        1 => bytes[at] = rng.random_range(0..=255u8),
        2 => _ = bytes.drain(at..end),
        3 => {
            let run = bytes[at..end].to_vec();
            bytes.splice(at..at, run);
        }
        4 => bytes.truncate(at),
        5 => {
            let word = one_of(&EXTREMES, rng).bytes();
            bytes.splice(at..end, word);
        }
        6 => {
            let signs = b"[]{}()\"'=,.:#-+\n\t \\\0\xff_/`";
            bytes.insert(at, *one_of(signs, rng));
        }
        7 if !other.is_empty() => {
            let from = rng.random_range(0..other.len());
            let to = (from + rng.random_range(1..=64usize)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        _ => change_line(bytes, at, rng),
    }
}

/// Drops or doubles the line with a byte.
fn change_line(bytes: &mut Vec<u8>, at: usize, rng: &mut Pcg64Mcg) {
    let start = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let end = bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |newline| at + newline + 1);
    if rng.random_range(0..2u32) == 0 {
        bytes.drain(start..end);
    } else {
        let line = bytes[start..end].to_vec();
        bytes.splice(start..start, line);
    }
}
