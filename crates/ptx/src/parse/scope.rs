//! Names of a function's registers, variables and labels.

use std::collections::HashMap;

use super::Parser;
use super::special::special;
use crate::isa::{Operand, Register};
use crate::module::Function;

/// Body of a function while it is parsed.
pub(crate) struct Body<'p, 'a> {
    pub parser: &'p mut Parser<'a>,
    pub function: Function,
    /// Open and closed scopes. Names are searched from the current scope outwards.
    pub scopes: Vec<Scope<'a>>,
    pub scope: usize,
    /// Branches whose labels are not resolved yet: index of the instruction, label, index of the
    /// scope.
    pub branches: Vec<(u32, &'a str, usize)>,
    pub tables: HashMap<&'a str, Vec<&'a str>>,
    pub source: (u32, u32),
}

/// Names that are declared between two braces.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    pub outer: usize,
    pub names: HashMap<&'a str, Name>,
    pub labels: HashMap<&'a str, u32>,
}

/// Meaning of a name.
#[derive(Clone, Copy)]
pub(crate) enum Name {
    Operand(Operand),
    /// `%r<10>`: first register and count.
    Family(Register, u32),
    /// Variable in parameter space: offset and size.
    Param(u64, u64),
}

impl<'a> Body<'_, 'a> {
    /// Returns the operand that a name stands for.
    pub fn symbol(&self, word: &str) -> Option<Operand> {
        match self.name(word) {
            Some(Name::Operand(operand)) => Some(operand),
            Some(Name::Param(offset, _)) => Some(Operand::Immediate(offset)),
            Some(Name::Family(..)) => None,
            None => special(word)
                .map(Operand::Special)
                .or_else(|| self.parser.symbols.get(word).copied()),
        }
    }

    pub fn name(&self, word: &str) -> Option<Name> {
        let mut scope = self.scope;
        loop {
            let names = &self.scopes[scope].names;
            match names.get(word) {
                Some(Name::Family(..)) | None => {}
                Some(found) => return Some(*found),
            }
            let prefix = word.trim_end_matches(|digit: char| digit.is_ascii_digit());
            if let Some(Name::Family(first, count)) = names.get(prefix)
                && let Ok(number) = word[prefix.len()..].parse::<u32>()
                && number < *count
            {
                let register = match *first {
                    Register::Pred(at) => Register::Pred(at + number),
                    Register::Half(at) => Register::Half(at + number),
                    Register::Word(at) => Register::Word(at + number),
                    Register::Long(at) => Register::Long(at + number),
                };
                return Some(Name::Operand(Operand::Register(register)));
            }
            if scope == 0 {
                return None;
            }
            scope = self.scopes[scope].outer;
        }
    }

    pub fn define(&mut self, word: &'a str, name: Name) {
        self.scopes[self.scope].names.insert(word, name);
    }
}
