//! Values that a function's body is replaced by, of its return type: those of cargo-mutants.

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypeParamBound};

/// Expressions that fit a return type. None for `!` and `impl Trait`: a second value of an opaque type needs a body that is
/// replaced as a whole.
pub(crate) fn of_return(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, ty) => of_type(ty),
    }
}

fn of_type(ty: &Type) -> Vec<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(of_segment).unwrap_or_default(),
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".to_owned()],
        Type::Tuple(tuple) => {
            let mut rows = vec![String::new()];
            for element in &tuple.elems {
                let values = of_type(element);
                rows = rows.iter().flat_map(|row| values.iter().map(move |value| format!("{row}{value}, "))).collect();
            }
            rows.into_iter().map(|row| format!("({row})")).collect()
        }
        Type::Reference(reference) => of_reference(&reference.elem, reference.mutability.is_some()),
        Type::Array(array) => of_type(&array.elem).into_iter().map(|value| format!("[{value}; _]")).collect(),
        Type::Paren(inner) => of_type(&inner.elem),
        _ => Vec::new(),
    }
}

fn of_reference(target: &Type, mutable: bool) -> Vec<String> {
    match target {
        Type::Path(path) if path.path.is_ident("str") && !mutable => {
            vec!["\"\"".to_owned(), "\"xyzzy\"".to_owned()]
        }
        Type::Slice(slice) => {
            let mut values = vec!["Vec::leak(Vec::new())".to_owned()];
            values.extend(of_type(&slice.elem).into_iter().map(|value| format!("Vec::leak(vec![{value}])")));
            values
        }
        _ => of_type(target).into_iter().map(|value| format!("Box::leak(Box::new({value}))")).collect(),
    }
}

fn of_segment(segment: &syn::PathSegment) -> Vec<String> {
    let arguments = arguments(&segment.arguments);
    let first = || arguments.first().map(|ty| of_type(ty)).unwrap_or_default();
    let wrapped =
        |constructor: &str| first().into_iter().map(|value| format!("{constructor}({value})")).collect::<Vec<_>>();
    let name = segment.ident.to_string();
    match name.as_str() {
        "bool" => strings(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => strings(&["0", "1"]),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => strings(&["0", "1", "-1"]),
        "f32" | "f64" => strings(&["0.0", "1.0", "-1.0"]),
        "String" => strings(&["String::new()", "\"xyzzy\".into()"]),
        "Option" => {
            let mut values = strings(&["None"]);
            values.extend(wrapped("Some"));
            values
        }
        "Result" => wrapped("Ok"),
        "Box" | "Rc" | "Arc" | "Cell" | "RefCell" | "Mutex" => wrapped(&format!("{name}::new")),
        "Cow" => {
            let owned = arguments.last().map(|ty| of_type(ty)).unwrap_or_default();
            owned.into_iter().map(|value| format!("std::borrow::Cow::Owned({value}.to_owned())")).collect()
        }
        "Vec" => {
            let mut values = strings(&["vec![]"]);
            values.extend(first().into_iter().map(|value| format!("vec![{value}]")));
            values
        }
        "VecDeque" | "BTreeSet" | "IndexSet" | "BinaryHeap" => {
            let mut values = strings(&["Default::default()"]);
            values.extend(first().into_iter().map(|value| format!("FromIterator::from_iter([{value}])")));
            values
        }
        _ => strings(&["Default::default()"]),
    }
}

fn arguments(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else { return Vec::new() };
    let types = list.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

/// Whether a return type is opaque, for the count of what is left out.
pub(crate) fn is_opaque(output: &ReturnType) -> bool {
    let ReturnType::Type(_, ty) = output else { return false };
    let Type::ImplTrait(opaque) = ty.as_ref() else { return false };
    opaque.bounds.iter().any(|bound| matches!(bound, TypeParamBound::Trait(_)))
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::of_return;

    fn values(output: &str) -> Vec<String> {
        of_return(&syn::parse_str(output).expect("a return type"))
    }

    #[test]
    fn values_fit_the_type() {
        assert_eq!(values(""), ["()"]);
        assert_eq!(values("-> bool"), ["true", "false"]);
        assert_eq!(values("-> Option<u64>"), ["None", "Some(0)", "Some(1)"]);
        assert_eq!(values("-> Result<Vec<Cycles>, Diagnostic>"), ["Ok(vec![])", "Ok(vec![Default::default()])"]);
        assert_eq!(values("-> (bool, u8)").len(), 4);
        assert_eq!(values("-> &str"), ["\"\"", "\"xyzzy\""]);
        assert_eq!(values("-> impl Iterator<Item = u8>"), [""; 0]);
        assert_eq!(values("-> !"), [""; 0]);
    }
}
