//! Which matrices of a layer a quantisation config stores how: modules that are left out, and modules with rules of their own.

use serde_json::Value;

use super::module_names::Pattern;
use crate::model::StorageFormat;

/// What chooses modules.
#[derive(Debug, Clone)]
enum Choice {
    /// Modules whose names hold the text as the end of a part, as Hugging Face Transformers takes it: `gate` takes `mlp.gate` and not
    /// `experts.0.gate_proj`.
    Holds(String),
    /// The module of this name, and those inside it.
    Named(String),
    /// Modules whose names begin with the first piece and hold the others in order; the last ends a part of the name.
    Pieces(Vec<String>),
    /// Modules whose names match from the start.
    Matches(Pattern),
    /// All linear modules.
    All,
}

/// Whether a text stands in the name of a module and a part of the name ends behind it.
fn holds(module: &str, text: &str) -> bool {
    let (module, text) = (module.as_bytes(), text.as_bytes());
    let Some(&last) = text.last() else { return true };
    // Lists of a checkpoint name hundreds of modules, each of which is asked for all of them.
    (text.len()..=module.len()).any(|end| {
        let ends_a_part = last == b'.' || module.get(end).is_none_or(|&behind| behind == b'.');
        ends_a_part && module[end - 1] == last && module[..end].ends_with(text)
    })
}

impl Choice {
    fn takes(&self, module: &str) -> bool {
        match self {
            Self::Holds(text) => holds(module, text),
            Self::Named(name) => {
                module == name || module.strip_prefix(name.as_str()).is_some_and(|s| s.starts_with('.'))
            }
            Self::Pieces(pieces) => {
                let Some((first, others)) = pieces.split_first() else { return false };
                let Some(mut rest) = module.strip_prefix(first.as_str()) else { return false };
                for piece in others {
                    let Some(at) = rest.find(piece.as_str()) else { return false };
                    rest = &rest[at + piece.len()..];
                }
                pieces.last().is_some_and(String::is_empty) || rest.is_empty() || rest.starts_with('.')
            }
            Self::Matches(pattern) => pattern.matches(module),
            Self::All => true,
        }
    }
}

/// A rule: the first that takes a module says its format; `None` is the data type of products.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    choice: Choice,
    format: Option<StorageFormat>,
}

/// The rules of a config, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) list: Vec<Rule>,
}

/// A word of a config that is not known here.
#[derive(Debug)]
pub(super) struct UnknownRule;

impl Rules {
    /// Modules of lists such as `modules_to_not_convert`, by parts of their names.
    pub(super) fn leave_out(&mut self, list: Option<&Value>) -> Result<(), UnknownRule> {
        for name in names(list)? {
            self.list.push(Rule { choice: Choice::Holds(name), format: None });
        }
        Ok(())
    }

    /// Modules of `ignore` of `compressed-tensors`: names, or patterns behind `re:`.
    pub(super) fn ignore(&mut self, list: Option<&Value>) -> Result<(), UnknownRule> {
        self.targets(list, None)
    }

    /// Modules of `targets` or `ignore` of `compressed-tensors`, which are stored so.
    pub(super) fn targets(&mut self, list: Option<&Value>, format: Option<&StorageFormat>) -> Result<(), UnknownRule> {
        for name in names(list)? {
            let choice = match name.strip_prefix("re:") {
                Some(pattern) => Choice::Matches(Pattern::parse(pattern).ok_or(UnknownRule)?),
                None if name == "Linear" => Choice::All,
                None => Choice::Named(name),
            };
            self.list.push(Rule { choice, format: format.cloned() });
        }
        Ok(())
    }

    /// All modules that no earlier rule takes.
    pub(super) fn others(&mut self, format: StorageFormat) {
        self.list.push(Rule { choice: Choice::All, format: Some(format) });
    }

    /// Rules of `dynamic` of GPTQ: `-:PATTERN` leaves modules out, `+:PATTERN` or `PATTERN` changes bits and groups of `usual`.
    pub(super) fn dynamic(
        &mut self,
        rules: Option<&Value>,
        usual: &StorageFormat,
        format: impl Fn(&Value, &StorageFormat) -> Option<StorageFormat>,
    ) -> Result<(), UnknownRule> {
        let Some(rules) = rules.filter(|rules| !rules.is_null()) else { return Ok(()) };
        for (key, changed) in rules.as_object().ok_or(UnknownRule)? {
            let is_left_out = key.starts_with("-:");
            let pattern = key.strip_prefix("-:").or(key.strip_prefix("+:")).unwrap_or(key);
            let pattern = Pattern::parse(pattern).ok_or(UnknownRule)?;
            let format = if is_left_out { None } else { Some(format(changed, usual).ok_or(UnknownRule)?) };
            self.list.push(Rule { choice: Choice::Matches(pattern), format });
        }
        Ok(())
    }

    /// Modules of names with `*` for any text, which are stored so.
    pub(super) fn globs(&mut self, list: Option<&Value>, format: Option<&StorageFormat>) -> Result<(), UnknownRule> {
        for name in names(list)? {
            self.glob(&name, format);
        }
        Ok(())
    }

    /// The module of a name with `*` for any text, which is stored so.
    pub(super) fn glob(&mut self, name: &str, format: Option<&StorageFormat>) {
        let choice = if name.contains('*') {
            Choice::Pieces(name.split('*').map(str::to_owned).collect())
        } else {
            Choice::Named(name.to_owned())
        };
        self.list.push(Rule { choice, format: format.cloned() });
    }

    /// The format of a module that has several names; `None` where it stays as it is.
    pub(super) fn format_of_any(&self, modules: &[String]) -> Option<&StorageFormat> {
        let takes = |rule: &&Rule| modules.iter().any(|module| rule.choice.takes(module));
        self.list.iter().find(takes).and_then(|rule| rule.format.as_ref())
    }

    /// The format of a module; `None` where it stays as it is.
    pub(super) fn format_of(&self, module: &str) -> Option<&StorageFormat> {
        self.list.iter().find(|rule| rule.choice.takes(module)).and_then(|rule| rule.format.as_ref())
    }

    /// The format that the last rule gives, which takes most.
    pub(super) fn usual(&self) -> Option<&StorageFormat> {
        self.list.iter().rev().find_map(|rule| rule.format.as_ref())
    }

    /// Whether all modules have one format, but for those that stand behind the layers.
    pub(super) fn is_uniform(&self) -> bool {
        let is_of_layers =
            |rule: &&Rule| !matches!(&rule.choice, Choice::Named(name) | Choice::Holds(name) if name == "lm_head");
        self.list.iter().filter(is_of_layers).count() <= 1
    }
}

fn names(list: Option<&Value>) -> Result<Vec<String>, UnknownRule> {
    let Some(list) = list.filter(|list| !list.is_null()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for name in list.as_array().ok_or(UnknownRule)? {
        found.push(name.as_str().ok_or(UnknownRule)?.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_left_out_is_whole_parts_of_names() {
        let mut rules = Rules::default();
        rules.leave_out(Some(&serde_json::json!(["gate", "layers.1.self_attn"]))).expect("names");
        rules.others(StorageFormat::new("fp8_block"));
        let is_stored = |module: &str| rules.format_of(module).is_some();
        assert!(!is_stored("model.layers.0.block_sparse_moe.gate") && !is_stored("model.layers.1.self_attn.q_proj"));
        assert!(is_stored("model.layers.0.mlp.experts.0.gate_proj") && is_stored("model.layers.11.self_attn.q_proj"));
        assert!(is_stored("model.layers.1.self_attn_norm"));
    }
}
