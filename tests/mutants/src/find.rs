//! The mutants of a source file, of the kinds of cargo-mutants, as edits of its text.
//!
//! Left out: code for tests, what is evaluated by the compiler (constants, `const fn`, lengths, patterns), the inside of macros,
//! unsafe functions, and functions that return `impl Trait`.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, UnOp};

use crate::values;

/// Where a mutant acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// An expression is replaced.
    Expression(Range<usize>),
    /// A function returns at once; the position is that after its opening brace.
    Body(usize),
    /// An arm of a match never applies; the range is that of its guard, empty after the pattern of an arm without one.
    Arm(Range<usize>),
}

/// A change of one place of a file.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) site: Site,
    /// What stands in the place of the expression, or what the function returns.
    pub(crate) text: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// Function that it is in, with its type.
    pub(crate) function: String,
    /// The change in words.
    pub(crate) change: String,
}

/// What a file holds.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub(crate) mutants: Vec<Mutant>,
    /// Modules in files of their own, without those for tests.
    pub(crate) modules: Vec<String>,
    /// Functions of an opaque type, whose bodies are not replaced.
    pub(crate) opaque: usize,
}

/// Mutants of a source text, in its order.
pub(crate) fn find(text: &str) -> syn::Result<Found> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder { text, names: Vec::new(), found: Found::default() };
    finder.visit_file(&file);
    finder.found.mutants.sort_by(|a, b| (a.line, a.column, &a.change).cmp(&(b.line, b.column, &b.change)));
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a str,
    names: Vec<String>,
    found: Found,
}

impl Finder<'_> {
    fn push(&mut self, span: Span, site: Site, text: String, change: String) {
        let start = span.start();
        self.found.mutants.push(Mutant {
            site,
            text,
            line: start.line,
            column: start.column + 1,
            function: self.names.join("::"),
            change,
        });
    }

    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    /// The text of an operand, which another operator might bind otherwise.
    fn operand(&self, operand: &Expr) -> String {
        let text = self.source(operand.span());
        match operand {
            Expr::Binary(_) | Expr::Cast(_) | Expr::Range(_) => format!("({text})"),
            _ => text.to_owned(),
        }
    }

    fn function(&mut self, attributes: &[Attribute], signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() || signature.unsafety.is_some() || is_for_tests(attributes) {
            return;
        }
        self.names.push(signature.ident.to_string());
        let attributes_inside = attributes.iter().any(|attribute| matches!(attribute.style, syn::AttrStyle::Inner(_)));
        if !block.stmts.is_empty() && !attributes_inside {
            self.found.opaque += usize::from(values::is_opaque(&signature.output));
            let brace = block.brace_token.span.open();
            let body = self.source(block.span());
            let body = body[1..body.len() - 1].trim().to_owned();
            for value in values::of_return(&signature.output) {
                if value != body {
                    let change = format!("replace the body with {value}");
                    self.push(signature.ident.span(), Site::Body(brace.byte_range().end), value, change);
                }
            }
        }
        visit::visit_block(self, block);
        self.names.pop();
    }

    fn replace_expression(&mut self, at: Span, whole: Span, text: String, change: String) {
        self.push(at, Site::Expression(whole.byte_range()), text, change);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        match &item.content {
            None => self.found.modules.push(item.ident.to_string()),
            Some(_) => visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.names.push(self.source(item.self_ty.span()).to_owned());
        for inner in &item.items {
            self.visit_impl_item(inner);
        }
        self.names.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.names.push(item.ident.to_string());
        for inner in &item.items {
            self.visit_trait_item(inner);
        }
        self.names.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        visit::visit_expr_binary(self, expression);
        if holds_let(&expression.left) || holds_let(&expression.right) {
            return;
        }
        let operator = self.source(expression.op.span()).to_owned();
        for &other in other_operators(&expression.op) {
            let text = format!("{} {other} {}", self.operand(&expression.left), self.operand(&expression.right));
            let change = format!("replace {operator} with {other}");
            self.replace_expression(expression.op.span(), expression.span(), text, change);
        }
    }

    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        visit::visit_expr_unary(self, expression);
        if matches!(expression.op, UnOp::Neg(_) | UnOp::Not(_)) {
            let operator = self.source(expression.op.span()).to_owned();
            let text = self.source(expression.expr.span()).to_owned();
            self.replace_expression(expression.op.span(), expression.span(), text, format!("delete {operator}"));
        }
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let has_wildcard =
            expression.arms.iter().any(|arm| matches!(arm.pat, syn::Pat::Wild(_)) && arm.guard.is_none());
        for arm in &expression.arms {
            let guard = arm.guard.as_ref().map(|(_, guard)| guard);
            if guard.is_some_and(|guard| holds_let(guard)) {
                continue;
            }
            if let Some(guard) = guard {
                for value in ["true", "false"] {
                    let change = format!("replace the guard with {value}");
                    self.replace_expression(guard.span(), guard.span(), value.to_owned(), change);
                }
            }
            if has_wildcard && !matches!(arm.pat, syn::Pat::Wild(_)) {
                let end = arm.pat.span().byte_range().end;
                let range = guard.map_or(end..end, |guard| guard.span().byte_range());
                let pattern = self.source(arm.pat.span()).split_whitespace().collect::<Vec<_>>().join(" ");
                self.push(arm.pat.span(), Site::Arm(range), String::new(), format!("delete the arm {pattern}"));
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_repeat(&mut self, expression: &'ast syn::ExprRepeat) {
        self.visit_expr(&expression.expr);
    }

    // What the compiler evaluates.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}
}

/// Whether an operand of `&&` is a pattern that binds: such a chain is no expression of its own.
fn holds_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => {
            matches!(binary.op, BinOp::And(_)) && (holds_let(&binary.left) || holds_let(&binary.right))
        }
        _ => false,
    }
}

fn other_operators(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">"],
        BinOp::Ge(_) => &["<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) | BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

#[cfg(test)]
mod tests {
    use super::find;

    const SOURCE: &str = "
        mod inner;
        #[cfg(test)]
        mod tests;
        const A: u64 = 1 + 2;
        const fn b() -> u64 { 1 + 2 }
        struct S;
        impl S {
            fn f(&self, a: u64, b: u64) -> u64 {
                if let Some(c) = Some(a) && c < b { return a - b; }
                match a { 0 if b == 1 => 7, 1..5 => !b, _ => assert_eq!(a + b, [0; 1 + 1].len() as u64) }
            }
        }
        #[cfg(test)]
        fn g() -> bool { 1 < 2 }
    ";

    #[test]
    fn every_kind_is_found_and_constants_and_tests_are_not() {
        let found = find(SOURCE).expect("a source");
        assert_eq!(found.modules, ["inner"]);
        let changes: Vec<_> = found.mutants.iter().map(|mutant| mutant.change.as_str()).collect();
        let expected = [
            "replace the body with 0",
            "replace the body with 1",
            "replace < with <=",
            "replace < with ==",
            "replace < with >",
            "replace - with +",
            "replace - with /",
            "delete the arm 0",
            "replace the guard with false",
            "replace the guard with true",
            "replace == with !=",
            "delete the arm 1..5",
            "delete !",
        ];
        assert_eq!(changes, expected);
        assert!(found.mutants.iter().all(|mutant| mutant.function == "S::f"));
        assert_eq!((found.mutants[5].line, found.mutants[5].text.as_str()), (10, "a + b"));
    }
}
