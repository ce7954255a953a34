//! The fleet that serves a model best under targets.

use super::serving::{Opened, ServingRequest, opened};
use crate::diagnostics::Diagnostic;
use crate::pod::{self, Arrivals, FleetObjective, FleetSearch, Policy, Price, Targets};
use crate::report::FleetReport;

/// What is searched.
#[derive(Debug, Clone)]
pub struct FleetRequest<'a> {
    /// Model and system; tp and pp that its `parallel` gives, which may be empty, are fixed.
    pub serving: ServingRequest<'a>,
    /// Fewest and most chips; all that the system can have if not given.
    pub chips: Option<(u64, u64)>,
    /// Users of all replicas that must be served at one time.
    pub users: Option<u64>,
    /// Lengths of prompts and answers.
    pub lengths: Arrivals,
    /// What loops run under; its users are the most of a replica, 0 for as many as are tried by default.
    pub policy: Policy,
    /// What is looked for.
    pub objective: FleetObjective,
    /// What users are promised.
    pub targets: Targets,
    /// What chips and energy cost.
    pub price: Price,
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
    let longest = request.lengths.prompt * 3 / 2 + request.lengths.output * 3 / 2;
    let parallel = if given.is_empty() { "tp=1" } else { request.serving.parallel };
    let serving = ServingRequest { parallel, sequence: Some(longest), ..request.serving.clone() };
    let Opened { system, stack, service, speculation, .. } = opened(&serving, noted)?;
    let most = system.most_chips();
    let chips = request.chips.unwrap_or_else(|| {
        noted(&format!("no `--chips`: {most}, the most that {} can have", system.name));
        (1, most)
    });
    let users = if request.policy.users == 0 { pod::most_users(&system) } else { request.policy.users };
    let fixed = |key: &str, of: u64| given.contains(&key).then_some(of);
    let search = FleetSearch {
        system: &system,
        stack: &stack,
        service: &service,
        speculation: speculation.as_ref(),
        tp: fixed("tp", service.parallel.tp),
        pp: fixed("pp", service.parallel.pp),
        chips,
        users: request.users,
        lengths: request.lengths,
        policy: Policy { users, ..request.policy }.under(&stack, 1),
        objective: request.objective,
        targets: request.targets,
        price: request.price,
    };
    let found = pod::fleet(&search)?;
    Ok(then(&FleetReport { search: &search, fleet: &found }))
}
