//! The fleet that serves a model best under targets.

use super::serving::{Opened, ServingRequest, opened};
use crate::diagnostics::Diagnostic;
use crate::pod::{self, FleetAsked, FleetSearch, Policy};
use crate::report::FleetReport;

/// A search for a fleet, as a user asks for it.
#[derive(Debug, Clone)]
pub struct FleetRequest<'a> {
    /// Model and system; tp and pp that its `parallel` gives, which may be empty, are fixed.
    pub serving: ServingRequest<'a>,
    /// Fewest and most chips; all that the system can have if not given.
    pub chips: Option<(u64, u64)>,
    /// What the fleet has to do; users of its policy 0 for as many as are tried by default.
    pub asked: FleetAsked,
}

/// Searches, and hands the result to `then`; `noted` hears what was chosen for the caller.
///
/// # Errors
/// Inputs that cannot be read, and a model that no division fits.
pub fn fleet<T>(
    request: &FleetRequest<'_>,
    noted: &mut dyn FnMut(&str),
    then: impl FnOnce(&FleetReport<'_>) -> T,
) -> Result<T, Diagnostic> {
    let given: Vec<&str> = request
        .serving
        .parallel
        .split(',')
        .filter_map(|item| item.split_once('='))
        .map(|(key, _)| key.trim())
        .collect();
    if let Some(key) = given.iter().find(|key| !["tp", "pp"].contains(key)) {
        let title = format!("`--parallel`: `{key}` cannot be fixed in a search for serving");
        return Err(Diagnostic::new(title).with_help("tp and pp can; replicas follow from `--chips`"));
    }
    // The longest request decides what positions a model needs.
    let longest = |mean: u64| mean.saturating_add(mean / 2);
    let longest = longest(request.asked.lengths.prompt).saturating_add(longest(request.asked.lengths.output));
    let parallel = if given.is_empty() { "tp=1" } else { request.serving.parallel };
    let serving = ServingRequest { parallel, sequence: Some(longest), ..request.serving.clone() };
    let Opened { system, stack, service, speculation, .. } = opened(&serving, noted)?;
    let most = system.most_chips();
    let chips = request.chips.unwrap_or_else(|| {
        noted(&format!("no `--chips`: {most}, the most that {} can have", system.name));
        (1, most)
    });
    let policy = request.asked.policy;
    let users = if policy.users == 0 { pod::most_users(&system) } else { policy.users };
    let policy = Policy { users, ..policy }.under(&stack, 1);
    let fixed = |key: &str, of: u64| given.contains(&key).then_some(of);
    let search = FleetSearch {
        system: &system,
        stack: &stack,
        service: &service,
        speculation: speculation.as_ref(),
        tp: fixed("tp", service.parallel.tp),
        pp: fixed("pp", service.parallel.pp),
        chips,
        asked: FleetAsked { policy, ..request.asked },
    };
    let found = pod::fleet(&search)?;
    Ok(then(&FleetReport { search: &search, fleet: &found }))
}
