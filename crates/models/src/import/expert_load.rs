//! How tokens fall on the experts of a model, as users say it.

use std::path::Path;

use crate::model::ExpertLoad;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input;

/// How tokens fall on experts, by a word. `None` for another.
///
/// # Errors
/// What is wrong with the word's number.
pub fn expert_load_word(text: &str) -> Result<Option<ExpertLoad>, &'static str> {
    if let Some(exponent) = text.strip_prefix("zipf:") {
        let exponent = exponent.parse::<f64>().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
        return exponent.map(|of| Some(ExpertLoad::Zipf(of))).ok_or("expected an exponent from 0 to 10");
    }
    Ok(match text {
        "even" => Some(ExpertLoad::Even),
        "uniform" => Some(ExpertLoad::Uniform),
        _ => None,
    })
}

/// How tokens fall on experts, by a word or by a file.
///
/// # Errors
/// A word that is none and no file, and a file with something else than a number at least zero a line.
pub fn expert_load(text: &str) -> Result<ExpertLoad, Diagnostic> {
    let refused = |why: &str| Diagnostic::new(format!("`--expert-load {text}`: {why}"));
    match expert_load_word(text) {
        Ok(Some(load)) => return Ok(load),
        Ok(None) => {}
        Err(why) => return Err(refused(why).with_help("for example `zipf:0.5`")),
    }
    let path = Path::new(text);
    if !path.exists() {
        return Err(refused("no such file, and none of `even`, `uniform` and `zipf:EXPONENT`")
            .with_help("a file has a number for each expert, one a line"));
    }
    let unreadable = |why: String| Diagnostic::new(format!("cannot read `{}`: {why}", path.display()));
    let all = input::read_text(path).map_err(unreadable)?;
    let mut counts = Vec::new();
    for (number, line) in (1..).zip(all.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let count = line.parse::<f64>().ok().filter(|count| count.is_finite() && *count >= 0.0);
        let refused = || {
            let title =
                format!("{}:{number}: expected how often an expert is chosen, a number at least 0", path.display());
            Diagnostic::new(title)
                .with_help("one number a line for each expert; lines that start with `#` are comments")
        };
        counts.push(count.ok_or_else(refused)?);
    }
    if counts.iter().sum::<f64>() <= 0.0 {
        let title = format!("{}: no expert is ever chosen", path.display());
        return Err(Diagnostic::new(title).with_help("one number a line for each expert, one of them above 0"));
    }
    Ok(ExpertLoad::Measured(counts.into()))
}
