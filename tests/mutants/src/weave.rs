//! A source text with mutants in it, each behind its switch (mutant schemata, Untch, Offutt and Harrold 1993).
//!
//! Only one mutant is on at a time: what stands in the place of an expression holds no other mutants, so that the text grows with
//! their number only.

use std::collections::BTreeMap;

use crate::find::{Mutant, Site};

/// Comment that stands before the text of a mutant, in a line of its own.
pub(crate) fn mark(id: u32) -> String {
    format!("/*MUTANT {id}*/")
}

/// Line that ends the text of mutants.
pub(crate) const END: &str = "/*MUTANTS END*/";

/// What is put in at a position.
struct Insertion {
    position: usize,
    /// Ends of expressions come before beginnings; of ends the innermost is first, of beginnings the outermost.
    order: (bool, i64),
    text: String,
}

/// The text with mutants, each with its number.
pub(crate) fn weave(text: &str, mutants: &[(u32, &Mutant)]) -> String {
    let mut expressions: BTreeMap<(usize, usize), Vec<(u32, &str)>> = BTreeMap::new();
    let mut insertions = Vec::new();
    for &(id, mutant) in mutants {
        match &mutant.site {
            Site::Expression(range) => {
                expressions.entry((range.start, range.end)).or_default().push((id, &mutant.text));
            }
            Site::Body(position) => {
                let text =
                    format!("\nif crate::mutation::is({id}) {{\n{}\nreturn {};\n{END}\n}}\n", mark(id), mutant.text);
                insertions.push(Insertion { position: *position, order: (true, i64::MIN), text });
            }
            Site::Arm(range) if range.is_empty() => {
                let text = format!(" \nif \n{}\n!crate::mutation::is({id})\n{END}\n", mark(id));
                insertions.push(Insertion { position: range.start, order: (true, i64::MIN), text });
            }
            Site::Arm(range) => {
                let text = format!("\n{}\n!crate::mutation::is({id}) &&\n{END}\n (", mark(id));
                insertions.push(Insertion { position: range.start, order: (true, i64::MIN), text });
                insertions.push(Insertion { position: range.end, order: (false, i64::MAX), text: ")".to_owned() });
            }
        }
    }
    for ((start, end), alternatives) in expressions {
        let length = i64::try_from(end - start).unwrap_or(i64::MAX);
        let none: Vec<_> = alternatives.iter().map(|(id, _)| format!("!crate::mutation::is({id})")).collect();
        let opening = format!("(if {} {{ ", none.join(" & "));
        insertions.push(Insertion { position: start, order: (true, -length), text: opening });
        let mut closing = " }".to_owned();
        let last = alternatives.len() - 1;
        for (index, (id, text)) in alternatives.iter().enumerate() {
            let condition = if index == last { String::new() } else { format!("if crate::mutation::is({id}) ") };
            closing.extend([" else ", &condition, "{\n", &mark(*id), "\n", text, "\n", END, "\n}"]);
        }
        insertions.push(Insertion { position: end, order: (false, length), text: closing + ")" });
    }
    insertions.sort_by_key(|insertion| (insertion.position, insertion.order));
    let mut woven = String::with_capacity(text.len() * 2);
    let mut done = 0;
    for insertion in insertions {
        woven += &text[done..insertion.position];
        woven += &insertion.text;
        done = insertion.position;
    }
    woven + &text[done..]
}

/// The mutants whose text a line of a woven text is in: for a line of text, the one whose mark stands before it.
pub(crate) fn mutant_of_line(woven: &str, line: usize) -> Option<u32> {
    let before: Vec<&str> = woven.lines().take(line).collect();
    for text in before.iter().rev() {
        if *text == END {
            return None;
        }
        if let Some(id) = text.strip_prefix("/*MUTANT ").and_then(|rest| rest.strip_suffix("*/")) {
            return id.parse().ok();
        }
    }
    None
}

/// The module that the woven sources ask which mutant is on. It is told by `RDUSIM_MUTANT`; where `RDUSIM_MUTANTS_REACHED` names a
/// file, the number of each mutant that is asked for is appended to it once.
pub(crate) fn switch(count: u32) -> String {
    SWITCH.replace("COUNT", &(count + 1).to_string())
}

const SWITCH: &str = r#"//! Which mutant is on.
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const UNREAD: u32 = u32::MAX;
const REACHED: u32 = u32::MAX - 1;
static ON: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
static FILE: Mutex<Option<File>> = Mutex::new(None);

#[inline]
pub fn is(id: u32) -> bool {
    let on = ON.load(Relaxed);
    on == id || (on >= REACHED && slow(id))
}

#[cold]
#[inline(never)]
fn slow(id: u32) -> bool {
    if ON.load(Relaxed) == UNREAD {
        let on = match std::env::var("RDUSIM_MUTANTS_REACHED") {
            Ok(path) => {
                *FILE.lock().unwrap() = Some(OpenOptions::new().create(true).append(true).open(path).unwrap());
                REACHED
            }
            Err(_) => std::env::var("RDUSIM_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0),
        };
        ON.store(on, Relaxed);
    }
    let on = ON.load(Relaxed);
    if on == REACHED && !SEEN[id as usize].swap(true, Relaxed) {
        if let Some(file) = FILE.lock().unwrap().as_mut() {
            file.write_all(format!("{id}\n").as_bytes()).unwrap();
        }
    }
    on == id
}
"#;

#[cfg(test)]
mod tests {
    use super::{mark, mutant_of_line, switch, weave};
    use crate::find::find;

    const SOURCE: &str = "
mod mutation;
fn sign(a: i64) -> i64 {
    match a { 0 => 0, 1 | 2 if a + 1 > 1 => 1, _ if !(a < 0) => 1, _ => -1 }
}
fn main() { print!(\"{}{}{}{}\", sign(-5), sign(0), sign(2), sign(7)); }
";

    /// What the program prints under each mutant, `None` first for no mutant at all.
    fn outputs(source: &str, name: &str) -> Vec<(String, String)> {
        let found = find(source).expect("a source");
        let numbered: Vec<_> = (1..).zip(&found.mutants).collect();
        let folder = std::env::temp_dir().join(format!("rdusim-mutants-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("main.rs"), weave(source, &numbered)).expect("written");
        std::fs::write(folder.join("mutation.rs"), switch(u32::try_from(numbered.len()).expect("few")))
            .expect("written");
        let mut compiler = std::process::Command::new("rustc");
        let status =
            compiler.args(["--edition", "2024", "--cap-lints", "allow", "main.rs"]).current_dir(&folder).status();
        assert!(status.expect("rustc runs").success());
        let run = |id: u32| {
            let output = std::process::Command::new(folder.join("main")).env("RDUSIM_MUTANT", id.to_string()).output();
            String::from_utf8(output.expect("it runs").stdout).expect("text")
        };
        let mut outputs = vec![(String::new(), run(0))];
        outputs.extend(numbered.iter().map(|(id, mutant)| (mutant.change.clone(), run(*id))));
        std::fs::remove_dir_all(&folder).expect("removed");
        outputs
    }

    #[test]
    fn each_mutant_acts_alone_and_none_without_a_number() {
        let outputs = outputs(SOURCE, "weave");
        let output = |change: &str| &outputs.iter().find(|(of, _)| of == change).expect("the mutant").1;
        assert_eq!(outputs[0].1, "-1011");
        assert_eq!(output("replace the body with 1"), "1111");
        assert_eq!(output("delete the arm 0"), "-1111");
        assert_eq!(output("replace < with =="), "1011");
        assert_eq!(output("delete -"), "1011");
        assert_eq!(output("replace > with <"), "-1011");
    }

    #[test]
    fn a_line_belongs_to_the_mutant_before_it() {
        let source = "fn f(a: u64, b: u64) -> u64 { a\n + b }\n";
        let found = find(source).expect("a source");
        let numbered: Vec<_> = (1..).zip(&found.mutants).collect();
        let woven = weave(source, &numbered);
        for (line, text) in woven.lines().enumerate() {
            for (id, _) in &numbered {
                if text == mark(*id) {
                    assert_eq!(mutant_of_line(&woven, line + 2), Some(*id));
                }
            }
        }
        assert_eq!(mutant_of_line(&woven, 1), None);
    }
}
