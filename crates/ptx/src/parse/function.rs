//! Kernels and device functions: declarations, labels and instructions.

use std::collections::HashMap;

use super::lex::Token;
use super::opcode::{self, Target};
use super::operand::Arg;
use super::scope::{Body, Name, Scope};
use super::{Parser, flow};
use crate::error::{Error, Result};
use crate::isa::{Guard, Instruction, Op, Operand, Register, Type};
use crate::module::{Call, Function, Slot};

impl<'a> Parser<'a> {
    /// Parses a function. The keyword `.entry` or `.func` before it has already been consumed.
    pub(super) fn function(&mut self, kernel: bool) -> Result<()> {
        let mut function = Function { kernel, ..Function::default() };
        let results = if self.is('(') { self.slots()? } else { Vec::new() };
        function.name = self.word()?.to_string();
        let parameters = if self.is('(') { self.slots()? } else { Vec::new() };
        // Launch bounds, such as `.maxntid 256, 1, 1`, are hints for the compiler.
        while !self.is(';') && !self.is('{') {
            self.advance()?;
        }
        if self.eat(';') {
            return Ok(());
        }
        function.defined = true;
        function.start = self.module.instructions.len() as u32;
        let mut scope = Scope::default();
        let mut place = |list: Vec<(&'a str, u64, u64)>| -> Vec<Slot> {
            let slot = |(name, align, bytes): (&'a str, u64, u64)| {
                let offset = function.param_space.next_multiple_of(align.max(1));
                function.param_space = offset + bytes;
                scope.names.insert(name, Name::Param(offset, bytes));
                Slot { offset, bytes }
            };
            list.into_iter().map(slot).collect()
        };
        let parameters = place(parameters);
        let results = place(results);
        function.parameter_bytes = parameters.last().map_or(0, |it| it.offset + it.bytes);
        (function.parameters, function.results) = (parameters, results);
        let mut body = Body {
            parser: self,
            function,
            scopes: vec![scope],
            scope: 0,
            branches: Vec::new(),
            tables: HashMap::new(),
            source: (0, 0),
        };
        body.statements()?;
        body.resolve_branches()?;
        let function = body.function;
        flow::find_joins(&mut self.module, function.start as usize);
        self.module.functions.push(function);
        Ok(())
    }

    /// Parses `(.param .b32 a, .param .b64 b)` into names, alignments and sizes.
    fn slots(&mut self) -> Result<Vec<(&'a str, u64, u64)>> {
        let mut slots = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            let line = self.line();
            let word = self.word()?;
            if word != ".param" {
                return Err(Error::parse(
                    line,
                    format!("parameters in state space {word} are not supported"),
                ));
            }
            let variable = self.declaration()?;
            slots.push((variable.name, variable.align, variable.bytes));
            self.eat(',');
        }
        Ok(slots)
    }
}

impl<'a> Body<'_, 'a> {
    fn statements(&mut self) -> Result<()> {
        self.parser.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            if self.parser.eat('{') {
                depth += 1;
                self.scopes.push(Scope { outer: self.scope, ..Scope::default() });
                self.scope = self.scopes.len() - 1;
            } else if self.parser.eat('}') {
                depth -= 1;
                self.scope = self.scopes[self.scope].outer;
            } else if !self.parser.eat(';') {
                self.statement()?;
            }
        }
        // The text of a function may end without `ret`, so an instruction that leaves the function
        // is added.
        let line = self.parser.line();
        let op = if self.function.kernel { Op::Exit } else { Op::Ret };
        let name = self.opcode_name(if self.function.kernel { "exit" } else { "ret" });
        let end =
            Instruction { name, line, source: self.source, ..Instruction::new(op, Type::B32) };
        self.parser.module.instructions.push(end);
        Ok(())
    }

    fn statement(&mut self) -> Result<()> {
        let line = self.parser.line();
        let guard = self.guard()?;
        let word = self.parser.word()?;
        if self.parser.eat(':') {
            return self.label(word);
        }
        match word {
            ".reg" => self.registers(),
            ".local" => {
                let variable = self.parser.declaration()?;
                self.parser.expect(';')?;
                let offset = self.function.local_bytes.next_multiple_of(variable.align.max(1));
                self.function.local_bytes = offset + variable.bytes;
                self.define(variable.name, Name::Operand(Operand::Local(offset)));
                Ok(())
            }
            ".shared" => {
                let (name, operand) = self.parser.shared()?;
                self.define(name, Name::Operand(operand));
                Ok(())
            }
            ".param" => {
                let variable = self.parser.declaration()?;
                self.parser.expect(';')?;
                // The arguments of every call have their own memory.
                let offset = self.function.param_space.next_multiple_of(variable.align.max(8));
                self.function.param_space = offset + variable.bytes;
                self.define(variable.name, Name::Param(offset, variable.bytes));
                Ok(())
            }
            ".loc" => self.location(),
            ".pragma" => {
                self.parser.advance()?;
                self.parser.expect(';')
            }
            _ if word.starts_with('.') => {
                Err(Error::parse(line, format!("unknown directive {word}")))
            }
            _ => self.instruction(word, guard, line),
        }
    }

    fn guard(&mut self) -> Result<Option<Guard>> {
        if !self.parser.eat('@') {
            return Ok(None);
        }
        let negated = self.parser.eat('!');
        let line = self.parser.line();
        let word = self.parser.word()?;
        match self.symbol(word) {
            Some(Operand::Register(Register::Pred(register))) => {
                Ok(Some(Guard { register, negated }))
            }
            _ => Err(Error::parse(line, format!("{word} is not a predicate"))),
        }
    }

    /// Parses a label, or a branch table after a label.
    fn label(&mut self, name: &'a str) -> Result<()> {
        let next = self.parser.tokens.get(self.parser.at);
        if matches!(next, Some((Token::Word(".branchtargets"), _))) {
            self.parser.at += 1;
            let mut labels = Vec::new();
            while !self.parser.eat(';') {
                labels.push(self.parser.word()?);
                self.parser.eat(',');
            }
            self.tables.insert(name, labels);
            return Ok(());
        }
        let at = self.parser.module.instructions.len() as u32;
        self.scopes[self.scope].labels.insert(name, at);
        Ok(())
    }

    /// Parses `.reg .b32 %r<10>, a;`.
    fn registers(&mut self) -> Result<()> {
        let line = self.parser.line();
        let word = self.parser.word()?;
        let ty = word.strip_prefix('.').and_then(Type::parse);
        let function = &mut self.function;
        let (kind, count): (fn(u32) -> Register, &mut u32) = match ty.map(Type::bits) {
            Some(1) => (Register::Pred, &mut function.preds),
            Some(16) => (Register::Half, &mut function.words),
            Some(32) => (Register::Word, &mut function.words),
            Some(64) => (Register::Long, &mut function.longs),
            _ => return Err(Error::parse(line, format!("the register type {word} is unknown"))),
        };
        loop {
            let name = self.parser.word()?;
            let first = kind(*count);
            let names = &mut self.scopes[self.scope].names;
            if self.parser.eat('<') {
                let number = self.parser.integer()? as u32;
                self.parser.expect('>')?;
                *count += number;
                names.insert(name, Name::Family(first, number));
                function.registers.push((name.to_string(), first, Some(number)));
            } else {
                *count += 1;
                names.insert(name, Name::Operand(Operand::Register(first)));
                function.registers.push((name.to_string(), first, None));
            }
            if !self.parser.eat(',') {
                return self.parser.expect(';');
            }
        }
    }

    /// Parses `.loc 1 20 3`, optionally with the position at which the line is inlined.
    fn location(&mut self) -> Result<()> {
        let file = self.parser.integer()? as u32;
        let line = self.parser.integer()? as u32;
        self.parser.integer()?;
        self.source = (file, line);
        while self.parser.eat(',') {
            match self.parser.word()? {
                "function_name" => {
                    self.parser.word()?;
                    if self.parser.eat('+') {
                        self.parser.integer()?;
                    }
                }
                _ => {
                    for _ in 0..3 {
                        self.parser.integer()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn instruction(&mut self, word: &'a str, guard: Option<Guard>, line: u32) -> Result<()> {
        let at = self.parser.module.instructions.len() as u32;
        let mut instruction = if word == "call" || word == "call.uni" {
            self.call(line)?
        } else {
            // A label may have the same name as a variable, so the operand of a branch is not
            // looked up as a variable.
            let args = if word.starts_with("bra") {
                let label = self.parser.word()?;
                self.parser.expect(';')?;
                vec![Arg::Name(label)]
            } else {
                self.arguments()?
            };
            let (instruction, target) = opcode::decode(word, args, line)?;
            match target {
                Target::None => {}
                Target::Label(label) => self.branches.push((at, label, self.scope)),
                Target::Table(label) => {
                    let table = self.tables.get(label);
                    let table = table
                        .ok_or_else(|| Error::parse(line, format!("no branch targets {label}")))?;
                    self.branches.extend(table.iter().map(|it| (at, *it, self.scope)));
                }
            }
            instruction
        };
        if let Op::Brx { table } = &mut instruction.op {
            *table = self.parser.module.tables.len() as u32;
            self.parser.module.tables.push(Vec::new());
        }
        instruction.guard = guard;
        instruction.line = line;
        instruction.source = self.source;
        instruction.name = self.opcode_name(word);
        self.parser.module.instructions.push(instruction);
        Ok(())
    }

    /// Parses `call (result), function, (argument, argument);`.
    fn call(&mut self, line: u32) -> Result<Instruction> {
        let mut call = Call { line, ..Call::default() };
        if self.parser.is('(') {
            call.results = self.call_slots()?;
            self.parser.expect(',')?;
        }
        call.target = self.parser.word()?.to_string();
        if self.symbol(&call.target).is_some() {
            return Err(Error::parse(line, "indirect calls are not supported"));
        }
        if self.parser.eat(',') {
            call.arguments = self.call_slots()?;
        }
        self.parser.expect(';')?;
        let number = self.parser.module.calls.len() as u32;
        self.parser.module.calls.push(call);
        Ok(Instruction::new(Op::Call { call: number }, Type::B32))
    }

    fn call_slots(&mut self) -> Result<Vec<Slot>> {
        let mut slots = Vec::new();
        self.parser.expect('(')?;
        while !self.parser.eat(')') {
            let line = self.parser.line();
            let name = self.parser.word()?;
            let Some(Name::Param(offset, bytes)) = self.name(name) else {
                let message = format!("{name} is not a variable in parameter space");
                return Err(Error::parse(line, message));
            };
            slots.push(Slot { offset, bytes });
            self.parser.eat(',');
        }
        Ok(slots)
    }

    fn resolve_branches(&mut self) -> Result<()> {
        for (at, label, scope) in std::mem::take(&mut self.branches) {
            let mut scope = scope;
            let found = loop {
                if let Some(found) = self.scopes[scope].labels.get(label) {
                    break *found;
                }
                if scope == 0 {
                    let line = self.parser.module.instructions[at as usize].line;
                    return Err(Error::parse(line, format!("unknown label {label}")));
                }
                scope = self.scopes[scope].outer;
            };
            let module = &mut self.parser.module;
            match &mut module.instructions[at as usize].op {
                Op::Brx { table } => module.tables[*table as usize].push(found),
                Op::Bra { target } => *target = found,
                _ => unreachable!("only branches have labels"),
            }
        }
        Ok(())
    }

    fn opcode_name(&mut self, word: &str) -> u32 {
        let names = &mut self.parser.module.names;
        let found = names.iter().position(|it| it == word).unwrap_or_else(|| {
            names.push(word.to_string());
            names.len() - 1
        });
        found as u32
    }
}
