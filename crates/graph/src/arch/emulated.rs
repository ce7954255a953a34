//! Products of data types that a chip's units lack and multiply as another type.
//!
//! An emulated type has all its numbers in the other, so that products of it are exact, at the rate and the energy of the other
//! type. Operands lie in memory and move in the narrow type.

use std::collections::BTreeMap;

use super::chip::Emulated;
use super::device::Device;
use super::spec::Named;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Source;
use rdusim_base::units::Dtype;

/// A sentence on products of types that the chip's units lack, if any of `operands` is such a type: as what they are multiplied.
pub fn emulated_products(chip: &dyn Device, operands: &[Dtype]) -> Option<String> {
    let emulated = chip.emulated().iter().filter(|(dtype, _)| operands.contains(dtype));
    let list: Vec<String> = emulated.map(|(dtype, wide)| format!("{dtype} as {wide}")).collect();
    let name = chip.name();
    (!list.is_empty()).then(|| {
        format!(
            "products take the rate of a wider type, as the units of {name} have none for theirs: {}",
            list.join(", ")
        )
    })
}

/// Checks the table, and gives every emulated type the rate and the energy of the type it is multiplied as. `field` names the
/// counts of the types that the units have.
pub(super) fn emulated(
    source: &Source,
    spec: Option<&Named<String>>,
    field: &str,
    counts: &mut BTreeMap<Dtype, u64>,
    mac_pj: &mut BTreeMap<Dtype, f64>,
) -> Result<Emulated, Diagnostic> {
    let native = counts.clone();
    let mut all = Emulated::new();
    for (key, word) in spec.into_iter().flatten() {
        let of = source.key(&format!("emulated.{}", key.get_ref()), key, &Dtype::ALL.map(Dtype::name))?;
        let of = Dtype::ALL[of];
        let name = format!("emulated.{of}");
        let known: Vec<Dtype> = native.keys().copied().filter(|wide| wide.holds(of)).collect();
        let names: Vec<&str> = known.iter().map(|dtype| dtype.name()).collect();
        if known.is_empty() {
            let title = format!("`{name}` cannot be given: no type of `{field}` has all numbers of {of}");
            return Err(source.error(key.span(), title, "cannot be emulated").with_help("remove it"));
        }
        // A wider type that an override took from the units gives way to the narrowest that they have.
        let holds = |wide: &Dtype| *wide != of && wide.holds(of);
        let is_lacking = Dtype::ALL.into_iter().any(|wide| wide.name() == word.get_ref() && holds(&wide));
        let narrowest = known.iter().copied().min_by_key(|wide| wide.bytes());
        let wide = match narrowest.filter(|_| is_lacking && !names.contains(&word.get_ref().as_str())) {
            Some(narrowest) => narrowest,
            None => known[source.keyword(&name, word, &names)?],
        };
        // Units that an override has given the type multiply it as it is.
        if native.contains_key(&of) {
            continue;
        }
        counts.insert(of, native[&wide]);
        if let Some(&pj) = mac_pj.get(&wide) {
            mac_pj.insert(of, pj);
        }
        all.insert(of, wide);
    }
    Ok(all)
}
