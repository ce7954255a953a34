//! Constraints: comparisons of sums and products of numbers and named figures, such as `pcus + pmus = 1280`.

use std::ops::Range;

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constraint {
    left: Node,
    comparison: Comparison,
    right: Node,
}

/// What is wrong with a text, and which bytes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) title: String,
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Equal,
    NotEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Number(f64),
    Name(String, Range<usize>),
    Negative(Box<Node>),
    Operation(char, Box<Node>, Box<Node>),
}

/// Relative difference below which numbers count as equal: decimal fractions are not exact in binary.
const EQUAL: f64 = 1e-9;
/// Parentheses and signs inside each other.
const MOST_DEPTH: usize = 64;

impl Constraint {
    /// Reads `A <= B`, with `<`, `<=`, `>`, `>=`, `=`, `==` or `!=` between two terms of `+`, `-`, `*`, `/`, numbers,
    /// names, and parentheses. Names are paths such as `arch.pmu.banks`; between backquotes any characters.
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, end: text.len() };
        let left = parser.sum(0)?;
        let comparison = match parser.take() {
            Some((Token::Compare(comparison), _)) => comparison,
            Some((_, span)) => return Err(wrong("expected a comparison, such as `<=`", span)),
            None => return Err(wrong("a constraint compares two terms, such as `area_mm2 <= 400`", 0..text.len())),
        };
        let right = parser.sum(0)?;
        match parser.take() {
            None => Ok(Self { left, comparison, right }),
            Some((_, span)) => Err(wrong("expected the end of the constraint", span)),
        }
    }

    /// Names in it, with their places.
    pub(super) fn names(&self) -> Vec<(&str, Range<usize>)> {
        let mut names = Vec::new();
        self.left.collect(&mut names);
        self.right.collect(&mut names);
        names
    }

    /// Whether it holds; `None` if a name has no value. It does not where a side divides by zero.
    pub(super) fn holds(&self, value: &dyn Fn(&str) -> Option<f64>) -> Option<bool> {
        let (left, right) = (self.left.value(value)?, self.right.value(value)?);
        // A quotient by zero is no number that could be compared.
        if !left.is_finite() || !right.is_finite() {
            return Some(false);
        }
        let equal = (left - right).abs() <= EQUAL * left.abs().max(right.abs());
        Some(match self.comparison {
            Comparison::Less => left < right && !equal,
            Comparison::LessOrEqual => left < right || equal,
            Comparison::More => left > right && !equal,
            Comparison::MoreOrEqual => left > right || equal,
            Comparison::Equal => equal,
            Comparison::NotEqual => !equal,
        })
    }
}

impl Node {
    fn value(&self, name: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        Some(match self {
            Self::Number(number) => *number,
            Self::Name(text, _) => name(text)?,
            Self::Negative(inner) => -inner.value(name)?,
            Self::Operation(operation, a, b) => {
                let (a, b) = (a.value(name)?, b.value(name)?);
                match operation {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    _ => a / b,
                }
            }
        })
    }

    fn collect<'a>(&'a self, names: &mut Vec<(&'a str, Range<usize>)>) {
        match self {
            Self::Number(_) => {}
            Self::Name(name, span) => names.push((name, span.clone())),
            Self::Negative(inner) => inner.collect(names),
            Self::Operation(_, a, b) => {
                a.collect(names);
                b.collect(names);
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(char),
    Compare(Comparison),
}

fn wrong(title: impl Into<String>, span: Range<usize>) -> Wrong {
    Wrong { title: title.into(), span }
}

fn tokens(text: &str) -> Result<Vec<(Token, Range<usize>)>, Wrong> {
    let mut list = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let run = |more: &dyn Fn(char) -> bool| rest.find(|c| !more(c)).unwrap_or(rest.len());
        let (token, length) = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if first.is_ascii_digit() {
            // An exponent may carry a sign.
            let mut length = run(&|c| c.is_ascii_digit() || matches!(c, '.' | '_' | 'e' | 'E'));
            if rest[..length].ends_with(['e', 'E']) && rest[length..].starts_with(['+', '-']) {
                length += 1 + rest[length + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - length - 1);
            }
            let number = rest[..length].replace('_', "").parse::<f64>();
            (Token::Number(number.map_err(|_| wrong("this is no number", at..at + length))?), length)
        } else if first.is_alphabetic() || first == '_' {
            let length = run(&|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
            (Token::Name(rest[..length].to_owned()), length)
        } else if first == '`' {
            let close = rest[1..].find('`').ok_or_else(|| wrong("a backquote is missing", at..text.len()))?;
            (Token::Name(rest[1..=close].to_owned()), close + 2)
        } else if let Some(found) = comparison(rest) {
            (Token::Compare(found.0), found.1)
        } else if "+-*/()".contains(first) {
            (Token::Sign(first), 1)
        } else {
            let span = at..at + first.len_utf8();
            return Err(wrong(format!("{first:?} has no meaning in a constraint"), span));
        };
        list.push((token, at..at + length));
        at += length;
    }
    Ok(list)
}

fn comparison(text: &str) -> Option<(Comparison, usize)> {
    let known = [
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::MoreOrEqual),
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<", Comparison::Less),
        (">", Comparison::More),
        ("=", Comparison::Equal),
    ];
    known.into_iter().find(|(sign, _)| text.starts_with(sign)).map(|(sign, meaning)| (meaning, sign.len()))
}

struct Parser {
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
    end: usize,
}

impl Parser {
    fn take(&mut self) -> Option<(Token, Range<usize>)> {
        let token = self.tokens.get(self.next).cloned();
        self.next += usize::from(token.is_some());
        token
    }

    /// The sign that comes next, if it is one of these.
    fn sign(&mut self, signs: &str) -> Option<char> {
        match self.tokens.get(self.next) {
            Some((Token::Sign(sign), _)) if signs.contains(*sign) => {
                self.next += 1;
                Some(*sign)
            }
            _ => None,
        }
    }

    fn sum(&mut self, depth: usize) -> Result<Node, Wrong> {
        let mut node = self.product(depth)?;
        while let Some(sign) = self.sign("+-") {
            node = Node::Operation(sign, Box::new(node), Box::new(self.product(depth)?));
        }
        Ok(node)
    }

    fn product(&mut self, depth: usize) -> Result<Node, Wrong> {
        let mut node = self.atom(depth)?;
        while let Some(sign) = self.sign("*/") {
            node = Node::Operation(sign, Box::new(node), Box::new(self.atom(depth)?));
        }
        Ok(node)
    }

    fn atom(&mut self, depth: usize) -> Result<Node, Wrong> {
        match self.take() {
            Some((_, span)) if depth > MOST_DEPTH => Err(wrong("too deeply nested", span)),
            Some((Token::Number(number), _)) => Ok(Node::Number(number)),
            Some((Token::Name(name), span)) => Ok(Node::Name(name, span)),
            Some((Token::Sign('-'), _)) => Ok(Node::Negative(Box::new(self.atom(depth + 1)?))),
            Some((Token::Sign('('), span)) => {
                let inner = self.sum(depth + 1)?;
                if self.sign(")").is_some() { Ok(inner) } else { Err(wrong("this parenthesis is not closed", span)) }
            }
            Some((_, span)) => Err(wrong("expected a number, a name or a parenthesis", span)),
            None => Err(wrong("a term is missing at the end", self.end.saturating_sub(1)..self.end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> Option<bool> {
        let value = |name: &str| match name {
            "pcus" => Some(640.0),
            "arch.pmu.banks" => Some(16.0),
            "a-b" => Some(0.1),
            _ => None,
        };
        Constraint::parse(text).unwrap().holds(&value)
    }

    #[test]
    fn terms_are_read_as_mathematics_does() {
        for (text, wanted) in [
            ("pcus = 640", true),
            ("pcus == 640 + 0", true),
            ("pcus != 640", false),
            ("pcus + 2 * arch.pmu.banks <= 672", true),
            ("(pcus + 2) * 2 < 1284", false),
            ("-pcus < 0", true),
            ("pcus / arch.pmu.banks >= 40", true),
            ("10 - 4 - 3 = 3", true),
            ("`a-b` * 3 = 0.3", true),
            ("pcus > 6.4e+2", false),
            ("1_000 > pcus", true),
        ] {
            assert_eq!(holds(text), Some(wanted), "{text}");
        }
        assert_eq!(holds("other > 1"), None);
    }

    #[test]
    fn every_mistake_has_a_place() {
        for (text, span) in [
            ("pcus", 0..4),
            ("pcus <", 5..6),
            ("pcus < 3 4", 9..10),
            ("pcus < (3", 7..8),
            ("pcus < 3)", 8..9),
            ("pcus # 3", 5..6),
            ("pcus 3 < 4", 5..6),
            ("1.2.3 < 4", 0..5),
            ("`a < 4", 0..6),
            ("", 0..0),
            ("a < b < c", 6..7),
        ] {
            assert_eq!(Constraint::parse(text).unwrap_err().span, span, "{text}");
        }
        let deep = format!("{}1{} < 2", "(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(Constraint::parse(&deep).unwrap_err().title, "too deeply nested");
    }

    #[test]
    fn a_quotient_by_zero_satisfies_nothing() {
        let zero = |name: &str| (name == "x").then_some(0.0);
        for text in ["100 / x <= 0.5", "100 / x >= 0.5", "-1 / x < 0", "x / x = x / x", "1 / x != 2"] {
            assert_eq!(Constraint::parse(text).map(|constraint| constraint.holds(&zero)), Ok(Some(false)), "{text}");
        }
        assert_eq!(Constraint::parse("x / 2 <= 0.5").map(|constraint| constraint.holds(&zero)), Ok(Some(true)));
    }

    #[test]
    fn names_are_told_with_their_places() {
        let constraint = Constraint::parse("a.b + c < 2 * a.b").unwrap();
        assert_eq!(constraint.names(), [("a.b", 0..3), ("c", 6..7), ("a.b", 14..17)]);
    }
}
