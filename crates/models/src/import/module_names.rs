//! Modules of a checkpoint by their names, and the patterns that quantisation configs choose them with.
//!
//! A pattern is a regular expression as Python's `re.match` reads it, anchored at the start: characters, `.`, escapes, classes `[...]`,
//! groups `(...)` and `(?:...)` with alternatives, and `*`, `+`, `?`. Others are not known, and nothing is chosen by them.

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    alternatives: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    one: One,
    least: usize,
    most: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum One {
    Any,
    /// A character of a set, or of none of it.
    Among {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
    Group(Pattern),
    End,
    Start,
}

/// Longest pattern that is read: what is matched against it are names of a hundred characters.
const MOST_CHARACTERS: usize = 1000;

/// Steps of one match, beyond which a pattern counts as not matching: nested repetitions take exponential time.
const MOST_STEPS: usize = 100_000;

impl Pattern {
    /// A pattern; `None` if it has parts that are not known here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let characters: Vec<char> = text.chars().collect();
        if characters.len() > MOST_CHARACTERS {
            return None;
        }
        let mut at = 0;
        let found = Self::alternatives(&characters, &mut at)?;
        (at == characters.len()).then_some(found)
    }

    fn alternatives(text: &[char], at: &mut usize) -> Option<Self> {
        let mut alternatives = vec![Vec::new()];
        while *at < text.len() && text[*at] != ')' {
            if text[*at] == '|' {
                *at += 1;
                alternatives.push(Vec::new());
                continue;
            }
            let one = One::parse(text, at)?;
            let (least, most) = match text.get(*at) {
                Some('*') => (0, usize::MAX),
                Some('+') => (1, usize::MAX),
                Some('?') => (0, 1),
                Some('{') => return None,
                _ => (1, 1),
            };
            if (least, most) != (1, 1) {
                *at += 1;
                // A lazy repetition matches the same names.
                if text.get(*at) == Some(&'?') {
                    *at += 1;
                }
            }
            alternatives.last_mut()?.push(Piece { one, least, most });
        }
        Some(Self { alternatives })
    }

    /// Whether a name begins with what the pattern describes.
    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let mut steps = 0;
        self.ends(&name, 0, &mut steps).is_some_and(|ends| !ends.is_empty())
    }

    /// Where a match from `start` can end; `None` once there were too many steps.
    fn ends(&self, name: &[char], start: usize, steps: &mut usize) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        for pieces in &self.alternatives {
            let mut reached = vec![start];
            for piece in pieces {
                reached = piece.ends(name, &reached, steps)?;
            }
            all.extend(reached);
        }
        all.sort_unstable();
        all.dedup();
        Some(all)
    }
}

impl Piece {
    fn ends(&self, name: &[char], starts: &[usize], steps: &mut usize) -> Option<Vec<usize>> {
        let mut reached = starts.to_vec();
        let mut all = if self.least == 0 { starts.to_vec() } else { Vec::new() };
        let mut times = 0;
        while times < self.most && !reached.is_empty() {
            times += 1;
            let mut next = Vec::new();
            for &start in &reached {
                *steps += 1;
                if *steps > MOST_STEPS {
                    return None;
                }
                next.extend(self.one.ends(name, start, steps)?);
            }
            next.sort_unstable();
            next.dedup();
            next.retain(|end| !all.contains(end));
            if times >= self.least {
                all.extend(&next);
            }
            reached = next;
        }
        all.sort_unstable();
        Some(all)
    }
}

impl One {
    fn parse(text: &[char], at: &mut usize) -> Option<Self> {
        let first = *text.get(*at)?;
        *at += 1;
        let only = |c: char| Self::Among { ranges: vec![(c, c)], is_negated: false };
        match first {
            '.' => Some(Self::Any),
            '^' => Some(Self::Start),
            '$' => Some(Self::End),
            '\\' => {
                let escaped = *text.get(*at)?;
                *at += 1;
                match escaped {
                    'd' => Some(Self::Among { ranges: vec![('0', '9')], is_negated: false }),
                    'w' => {
                        let ranges = vec![('0', '9'), ('a', 'z'), ('A', 'Z'), ('_', '_')];
                        Some(Self::Among { ranges, is_negated: false })
                    }
                    'Z' => Some(Self::End),
                    c if c.is_ascii_alphanumeric() => None,
                    c => Some(only(c)),
                }
            }
            '[' => Self::class(text, at),
            '(' => {
                if text.get(*at) == Some(&'?') {
                    if text.get(*at + 1) != Some(&':') {
                        return None;
                    }
                    *at += 2;
                }
                let inner = Pattern::alternatives(text, at)?;
                if text.get(*at) != Some(&')') {
                    return None;
                }
                *at += 1;
                Some(Self::Group(inner))
            }
            '*' | '+' | '?' | '{' | '}' | ']' => None,
            c => Some(only(c)),
        }
    }

    fn class(text: &[char], at: &mut usize) -> Option<Self> {
        let is_negated = text.get(*at) == Some(&'^');
        *at += usize::from(is_negated);
        let mut ranges = Vec::new();
        loop {
            let mut low = *text.get(*at)?;
            *at += 1;
            if low == ']' && !ranges.is_empty() {
                return Some(Self::Among { ranges, is_negated });
            }
            if low == '\\' {
                low = *text.get(*at)?;
                *at += 1;
                if low == 'd' {
                    ranges.push(('0', '9'));
                    continue;
                }
            }
            let is_range = text.get(*at) == Some(&'-') && text.get(*at + 1).is_some_and(|&c| c != ']');
            let high = if is_range { text[*at + 1] } else { low };
            *at += if is_range { 2 } else { 0 };
            ranges.push((low, high));
        }
    }

    fn ends(&self, name: &[char], start: usize, steps: &mut usize) -> Option<Vec<usize>> {
        let next = name.get(start).copied();
        let is_met = match self {
            Self::Any => next.is_some(),
            Self::Among { ranges, is_negated } => {
                next.is_some_and(|c| ranges.iter().any(|&(low, high)| (low..=high).contains(&c)) != *is_negated)
            }
            Self::Group(inner) => return inner.ends(name, start, steps),
            Self::End => return Some(if start == name.len() { vec![start] } else { Vec::new() }),
            Self::Start => return Some(if start == 0 { vec![start] } else { Vec::new() }),
        };
        Some(if is_met { vec![start + 1] } else { Vec::new() })
    }
}

/// The modules that the matrices of a layer are stored in, by the matrix's name in a workload; `None` of families whose modules have
/// other names.
pub(super) fn modules(family: &str, has_query_latent: bool) -> Option<Vec<(&'static str, &'static str)>> {
    let mut list = match family {
        "llama" | "mistral" | "mixtral" | "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe" | "gemma2" => vec![
            ("w_query", "self_attn.q_proj"),
            ("w_key", "self_attn.k_proj"),
            ("w_value", "self_attn.v_proj"),
            ("w_project", "self_attn.o_proj"),
        ],
        "phi3" => vec![
            ("w_query", "self_attn.qkv_proj"),
            ("w_key", "self_attn.qkv_proj"),
            ("w_value", "self_attn.qkv_proj"),
            ("w_project", "self_attn.o_proj"),
            ("w_gate", "mlp.gate_up_proj"),
            ("w_up", "mlp.gate_up_proj"),
            ("w_down", "mlp.down_proj"),
        ],
        "deepseek_v2" | "deepseek_v3" => {
            let query = if has_query_latent { "self_attn.q_b_proj" } else { "self_attn.q_proj" };
            vec![
                ("w_query_latent", "self_attn.q_a_proj"),
                ("w_query", query),
                ("w_query_rotated", query),
                ("w_key_latent", "self_attn.kv_a_proj_with_mqa"),
                ("w_key_rotated", "self_attn.kv_a_proj_with_mqa"),
                ("w_key_up", "self_attn.kv_b_proj"),
                ("w_value_up", "self_attn.kv_b_proj"),
                ("w_project", "self_attn.o_proj"),
            ]
        }
        _ => return None,
    };
    if family != "phi3" && family != "mixtral" {
        list.extend([("w_gate", "mlp.gate_proj"), ("w_up", "mlp.up_proj"), ("w_down", "mlp.down_proj")]);
    }
    match family {
        "mixtral" => list.extend([
            ("w_router", "block_sparse_moe.gate"),
            ("w_expert_gate", "block_sparse_moe.experts.0.w1"),
            ("w_expert_up", "block_sparse_moe.experts.0.w3"),
            ("w_expert_down", "block_sparse_moe.experts.0.w2"),
        ]),
        "qwen2_moe" | "qwen3_moe" | "deepseek_v2" | "deepseek_v3" => {
            list.extend([
                ("w_router", "mlp.gate"),
                ("w_expert_gate", "mlp.experts.0.gate_proj"),
                ("w_expert_up", "mlp.experts.0.up_proj"),
                ("w_expert_down", "mlp.experts.0.down_proj"),
            ]);
            list.extend(if family.starts_with("qwen") {
                [
                    ("w_shared_gate", "mlp.shared_expert.gate_proj"),
                    ("w_shared_up", "mlp.shared_expert.up_proj"),
                    ("w_shared_down", "mlp.shared_expert.down_proj"),
                ]
            } else {
                [
                    ("w_shared_gate", "mlp.shared_experts.gate_proj"),
                    ("w_shared_up", "mlp.shared_experts.up_proj"),
                    ("w_shared_down", "mlp.shared_experts.down_proj"),
                ]
            });
            if family == "qwen2_moe" {
                list.push(("w_shared_open", "mlp.shared_expert_gate"));
            }
        }
        _ => {}
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_match_from_the_start() {
        let matches = |pattern: &str, name: &str| Pattern::parse(pattern).expect(pattern).matches(name);
        let name = "model.layers.17.mlp.down_proj";
        for pattern in [
            ".*down.*",
            r"model\.layers\.\d+\.mlp",
            r".*\.17\..*(?:gate|up|down).*",
            "^model.*proj$",
            r".*layers\.(1[5-9]|2[0-3])\..*",
            "[^x]+",
            "model",
            "",
        ] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in ["down", ".*self_attn.*", r".*\.1\..*", "model$", r".*layers\.[23]", "x?layers"] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        for unknown in ["(?!model).*", "a{2}", "(a", "a)", "*", r"\b", "[a"] {
            assert_eq!(Pattern::parse(unknown), None, "{unknown}");
        }
        // Nested repetitions end.
        assert!(!matches("((a*)*)*b", &"a".repeat(200)));
    }
}
