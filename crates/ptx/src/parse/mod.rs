//! Parser that converts PTX source to a [`Module`] (PTX ISA, "Syntax" and "Directives").

mod flow;
mod function;
mod lex;
mod opcode;
mod operand;
mod scope;
mod special;

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::isa::{Operand, Type};
use crate::memory::HostBuffer;
use crate::module::{Module, Variable};
use lex::{Literal, Token, lex};

impl Module {
    /// Parses a PTX source.
    ///
    /// # Errors
    /// [`Error::Parse`] with the line and the unknown opcode, modifier, type or symbol.
    pub fn parse(text: &str) -> Result<Self> {
        let (tokens, module) = (lex(text)?, Self::default());
        let mut parser = Parser { tokens, at: 0, module, symbols: HashMap::new() };
        parser.directives()?;
        parser.resolve_calls()?;
        Ok(parser.module)
    }
}

/// Position in the source, and the declarations before it.
struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    module: Module,
    /// Variables of the module.
    symbols: HashMap<&'a str, Operand>,
}

/// Declared variable.
struct Declaration<'a> {
    name: &'a str,
    ty: Type,
    align: u64,
    /// Size in bytes, or 0 for an array of unknown length.
    bytes: u64,
}

impl<'a> Parser<'a> {
    fn directives(&mut self) -> Result<()> {
        while let Some((token, line)) = self.tokens.get(self.at).copied() {
            let Token::Word(word) = token else {
                return Err(Error::parse(line, format!("expected a directive, found {token:?}")));
            };
            self.at += 1;
            match word {
                ".version" | ".address_size" => self.at += 1,
                ".target" => {
                    self.at += 1;
                    while self.eat(',') {
                        self.at += 1;
                    }
                }
                ".file" => self.file()?,
                ".section" => self.skip_braces()?,
                ".visible" | ".weak" | ".extern" | ".common" => {}
                ".global" | ".const" => self.global(word == ".const")?,
                ".shared" => {
                    let (name, operand) = self.shared()?;
                    self.symbols.insert(name, operand);
                }
                ".entry" => self.function(true)?,
                ".func" => self.function(false)?,
                ".pragma" => {
                    self.at += 1;
                    self.expect(';')?;
                }
                _ => return Err(Error::parse(line, format!("unknown directive {word}"))),
            }
        }
        Ok(())
    }

    /// Parses `.file 1 "tile.cu"`, optionally with a time and a size.
    fn file(&mut self) -> Result<()> {
        let number = self.integer()? as u32;
        let line = self.line();
        let Some((Token::Quoted(name), _)) = self.tokens.get(self.at).copied() else {
            return Err(Error::parse(line, "expected a file name"));
        };
        self.at += 1;
        self.module.files.insert(number, name.to_string());
        while self.eat(',') {
            self.at += 1;
        }
        Ok(())
    }

    /// Skips debug sections.
    fn skip_braces(&mut self) -> Result<()> {
        while !self.is('{') {
            self.advance()?;
        }
        while !self.is('}') {
            self.advance()?;
        }
        self.expect('}')
    }

    /// Parses a variable in global or constant memory, with its initial value.
    fn global(&mut self, constant: bool) -> Result<()> {
        let line = self.line();
        let variable = self.declaration()?;
        let bytes = variable.bytes;
        if bytes == 0 {
            return Err(Error::parse(line, format!("{} has no size", variable.name)));
        }
        let buffer = HostBuffer::new(bytes as usize, variable.align.max(16) as usize);
        if self.eat('=') {
            let mut values = Vec::new();
            self.initial_values(variable.ty, &mut values)?;
            if values.len() as u64 > bytes {
                return Err(Error::parse(line, format!("{} has too many values", variable.name)));
            }
            buffer.range().write(0, &values);
        }
        self.expect(';')?;
        self.symbols.insert(variable.name, Operand::Immediate(buffer.address()));
        let name = variable.name.to_string();
        self.module.variables.push(Variable { name, buffer, bytes, constant });
        Ok(())
    }

    fn initial_values(&mut self, ty: Type, values: &mut Vec<u8>) -> Result<()> {
        if self.eat('{') {
            while !self.eat('}') {
                self.initial_values(ty, values)?;
                self.eat(',');
            }
            return Ok(());
        }
        let line = self.line();
        let value = match self.advance()? {
            Token::Symbol('-') => self.literal()?.negated(),
            Token::Number(number) => number,
            Token::Word(name) => {
                let generic = name == "generic" && self.eat('(');
                let name = if generic { self.word()? } else { name };
                if generic {
                    self.expect(')')?;
                }
                let Some(Operand::Immediate(address)) = self.symbols.get(name) else {
                    return Err(Error::parse(line, format!("unknown symbol {name}")));
                };
                let address = *address;
                let offset = if self.eat('+') { self.integer()? } else { 0 };
                Literal::Integer(address + offset)
            }
            other => return Err(Error::parse(line, format!("bad initial value {other:?}"))),
        };
        let value = operand::immediate(value, ty);
        values.extend(&value.to_le_bytes()[..ty.bytes()]);
        Ok(())
    }

    /// Parses a variable in shared memory. All kernels of a module share one layout.
    fn shared(&mut self) -> Result<(&'a str, Operand)> {
        let variable = self.declaration()?;
        self.expect(';')?;
        let align = variable.align.max(1);
        let operand = if variable.bytes == 0 {
            self.module.shared_align = self.module.shared_align.max(align);
            Operand::DynamicShared(0)
        } else {
            let offset = self.module.static_shared.next_multiple_of(align);
            self.module.static_shared = offset + variable.bytes;
            Operand::Immediate(offset)
        };
        Ok((variable.name, operand))
    }

    /// Parses `.align 4 .b8 name[12]` or `.b32 name`, after the name of the state space.
    fn declaration(&mut self) -> Result<Declaration<'a>> {
        let (mut align, mut ty, mut count) = (0, Type::B8, 1);
        loop {
            let line = self.line();
            let word = self.word()?;
            match word {
                ".align" => align = self.integer()?,
                // Attributes of a pointer parameter of a kernel. They have no effect here.
                ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
                ".v2" => count = 2,
                ".v4" => count = 4,
                _ if word.starts_with('.') => {
                    let found = Type::parse(&word[1..]);
                    ty = found.ok_or_else(|| Error::parse(line, format!("unknown type {word}")))?;
                }
                name => {
                    let mut bytes = ty.bytes() as u64 * count;
                    while self.eat('[') {
                        bytes *= if self.is(']') { 0 } else { self.integer()? };
                        self.expect(']')?;
                    }
                    let align = align.max(ty.bytes() as u64 * count);
                    return Ok(Declaration { name, ty, align, bytes });
                }
            }
        }
    }

    /// Resolves the names of called functions, which may be declared later in the source.
    fn resolve_calls(&mut self) -> Result<()> {
        let functions = &self.module.functions;
        for call in &mut self.module.calls {
            let found = functions.iter().position(|it| it.defined && it.name == call.target);
            let found = found.ok_or_else(|| {
                Error::parse(call.line, format!("call of unknown function {}", call.target))
            })?;
            let function = &functions[found];
            let counts = (function.parameters.len(), function.results.len());
            if counts != (call.arguments.len(), call.results.len()) {
                let message =
                    format!("the call of {} has the wrong number of parameters", call.target);
                return Err(Error::parse(call.line, message));
            }
            call.function = found as u32;
        }
        Ok(())
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |it| it.1)
    }

    fn is(&self, symbol: char) -> bool {
        matches!(self.tokens.get(self.at), Some((Token::Symbol(it), _)) if *it == symbol)
    }

    fn eat(&mut self, symbol: char) -> bool {
        let found = self.is(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: char) -> Result<()> {
        if self.eat(symbol) {
            return Ok(());
        }
        let found = self.tokens.get(self.at).map_or("the end".into(), |it| format!("{:?}", it.0));
        Err(Error::parse(self.line(), format!("expected {symbol}, found {found}")))
    }

    fn advance(&mut self) -> Result<Token<'a>> {
        let token = self.tokens.get(self.at).copied();
        let (token, _) =
            token.ok_or_else(|| Error::parse(self.line(), "the source ends too early"))?;
        self.at += 1;
        Ok(token)
    }

    fn word(&mut self) -> Result<&'a str> {
        let line = self.line();
        match self.advance()? {
            Token::Word(word) => Ok(word),
            other => Err(Error::parse(line, format!("expected a word, found {other:?}"))),
        }
    }

    fn literal(&mut self) -> Result<Literal> {
        let line = self.line();
        match self.advance()? {
            Token::Number(number) => Ok(number),
            Token::Word("WARP_SZ") => Ok(Literal::Integer(32)),
            other => Err(Error::parse(line, format!("expected a number, found {other:?}"))),
        }
    }

    fn integer(&mut self) -> Result<u64> {
        let line = self.line();
        match self.literal()? {
            Literal::Integer(value) => Ok(value),
            other => Err(Error::parse(line, format!("expected an integer, found {other:?}"))),
        }
    }
}
