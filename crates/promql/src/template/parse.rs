//! Reading a template.

use super::functions;
use crate::notation::quoted;

/// Nodes one after another.
pub(super) type Block = Vec<Node>;

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    /// Prints a pipeline, or sets a variable to it.
    Action(Option<(String, bool)>, Pipe),
    /// Condition and block of each branch; the last may have no condition.
    If(Vec<(Option<Pipe>, Block)>),
    With(Option<String>, Pipe, Block, Block),
    Range {
        variables: Vec<String>,
        over: Pipe,
        body: Block,
        otherwise: Block,
    },
    Define(String, Block),
    Use(String, Option<Pipe>),
}

/// Commands, each with the result of the one before as its last argument.
pub(super) type Pipe = Vec<Vec<Operand>>;

#[derive(Debug)]
pub(super) enum Operand {
    Text(String),
    Number(f64),
    Integer(i64),
    Bool(bool),
    Nil,
    /// The dot, or a variable, then names of fields.
    Dot(Vec<String>),
    Variable(String, Vec<String>),
    Function(String),
    Paren(Pipe, Vec<String>),
}

/// Blocks inside blocks, parentheses inside parentheses.
const DEPTH_MAX: usize = 100;

enum Piece<'t> {
    Text(&'t str),
    Action(&'t str),
}

/// Parses the whole text.
pub(super) fn parse(text: &str) -> Result<Block, String> {
    let pieces = pieces(text)?;
    let known = ["$labels", "$externalLabels", "$externalURL", "$value", "$"];
    let mut parser = Parser { pieces, at: 0, variables: known.map(str::to_owned).to_vec(), depth: 0 };
    let (block, end) = parser.block()?;
    match end {
        None => Ok(block),
        Some(word) => Err(format!("unexpected `{{{{{word}}}}}`")),
    }
}

/// Splits text from actions, and trims where `{{-` and `-}}` say so.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trim = false;
    while let Some(start) = rest.find("{{") {
        let (mut before, after) = (&rest[..start], &rest[start + 2..]);
        let inside_start = after.strip_prefix("- ").map_or(after, |inside| {
            before = before.trim_end();
            inside
        });
        pieces.push(Piece::Text(if trim { before.trim_start() } else { before }));
        let comments = inside_start.starts_with("/*");
        let end = if comments {
            let comment = inside_start.find("*/").ok_or("a comment is not closed")?;
            comment + inside_start[comment..].find("}}").ok_or("an action is not closed: add `}}`")?
        } else {
            action_end(inside_start).ok_or("an action is not closed: add `}}`")?
        };
        let mut inside = &inside_start[..end];
        trim = inside.ends_with(" -");
        if trim {
            inside = &inside[..inside.len() - 2];
        }
        if !comments {
            pieces.push(Piece::Action(inside.trim()));
        }
        rest = &inside_start[end + 2..];
    }
    pieces.push(Piece::Text(if trim { rest.trim_start() } else { rest }));
    Ok(pieces)
}

/// Where the action ends; `}}` inside a text does not count.
fn action_end(text: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("}}") {
            return Some(at);
        }
        let c = rest.chars().next()?;
        at += if "\"`".contains(c) { rest.len() - quoted(rest)?.1.len() } else { c.len_utf8() };
    }
    None
}

struct Parser<'t> {
    pieces: Vec<Piece<'t>>,
    at: usize,
    variables: Vec<String>,
    depth: usize,
}

impl Parser<'_> {
    /// Nodes up to the next `end` or `else`, which is returned.
    fn block(&mut self) -> Result<(Block, Option<String>), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("blocks are nested deeper than {DEPTH_MAX}"));
        }
        let declared = self.variables.len();
        let mut block = Vec::new();
        let mut end = None;
        while let Some(piece) = self.pieces.get(self.at) {
            self.at += 1;
            match piece {
                Piece::Text(text) => block.push(Node::Text((*text).to_owned())),
                Piece::Action(action) => {
                    let action = (*action).to_owned();
                    if action == "end" || action == "else" || action.starts_with("else ") {
                        end = Some(action);
                        break;
                    }
                    block.push(self.action(&action)?);
                }
            }
        }
        self.variables.truncate(declared.max(if self.depth == 1 { self.variables.len() } else { 0 }));
        self.depth -= 1;
        Ok((block, end))
    }

    fn action(&mut self, action: &str) -> Result<Node, String> {
        let (word, rest) = match action.find(|c: char| !c.is_ascii_alphabetic()) {
            Some(end) => action.split_at(end),
            None => (action, ""),
        };
        let rest = rest.trim_start();
        match word {
            "if" => self.branches(rest),
            "with" => {
                let declared = self.variables.len();
                let (variable, pipe) = self.declared(rest)?;
                let (body, end) = self.block()?;
                let otherwise = self.otherwise(end)?;
                self.variables.truncate(declared);
                Ok(Node::With(variable, pipe, body, otherwise))
            }
            "range" => {
                let declared = self.variables.len();
                let (variables, rest) = match rest.split_once(":=") {
                    Some((names, rest)) => {
                        (names.split(',').map(|name| name.trim().to_owned()).collect(), rest)
                    }
                    None => (Vec::new(), rest),
                };
                let over = self.pipe_of(rest)?;
                self.variables.extend(variables.iter().cloned());
                let (body, end) = self.block()?;
                let otherwise = self.otherwise(end)?;
                self.variables.truncate(declared);
                Ok(Node::Range { variables, over, body, otherwise })
            }
            "define" => {
                let (name, _) = quoted(rest).ok_or("`define` needs a quoted name")?;
                let (body, end) = self.block()?;
                close(end.as_deref())?;
                Ok(Node::Define(name, body))
            }
            "template" => {
                let (name, rest) = quoted(rest).ok_or("`template` needs a quoted name")?;
                let pipe = if rest.trim().is_empty() { None } else { Some(self.pipe_of(rest)?) };
                Ok(Node::Use(name, pipe))
            }
            "block" | "break" | "continue" => Err(format!("`{word}` is not supported")),
            _ => {
                if let Some((name, rest)) = action.split_once('=')
                    && let Some(name) = name.trim_end().strip_suffix(':').or(Some(name))
                    && is_variable(name.trim())
                {
                    let declares = action.contains(":=");
                    let name = name.trim().to_owned();
                    let pipe = self.pipe_of(rest)?;
                    if declares {
                        self.variables.push(name.clone());
                    } else {
                        self.check_variable(&name)?;
                    }
                    return Ok(Node::Action(Some((name, declares)), pipe));
                }
                Ok(Node::Action(None, self.pipe_of(action)?))
            }
        }
    }

    fn branches(&mut self, condition: &str) -> Result<Node, String> {
        let mut branches = Vec::new();
        let mut condition = Some(self.declared(condition)?.1);
        loop {
            let (body, end) = self.block()?;
            branches.push((condition, body));
            match end.as_deref() {
                Some("end") => return Ok(Node::If(branches)),
                Some("else") => condition = None,
                Some(word) => {
                    let rest = word.trim_start_matches("else").trim_start();
                    let rest =
                        rest.strip_prefix("if").ok_or("`else` is followed by neither `if` nor nothing")?;
                    condition = Some(self.pipe_of(rest)?);
                }
                None => return Err("`if` has no `end`".to_owned()),
            }
        }
    }

    fn otherwise(&mut self, end: Option<String>) -> Result<Block, String> {
        if end.as_deref() == Some("else") {
            let (body, end) = self.block()?;
            close(end.as_deref())?;
            return Ok(body);
        }
        close(end.as_deref()).map(|()| Vec::new())
    }

    /// A pipeline that may set a variable, as after `with`.
    fn declared(&mut self, text: &str) -> Result<(Option<String>, Pipe), String> {
        match text.split_once(":=") {
            Some((name, rest)) if is_variable(name.trim()) => {
                let pipe = self.pipe_of(rest)?;
                self.variables.push(name.trim().to_owned());
                Ok((Some(name.trim().to_owned()), pipe))
            }
            _ => Ok((None, self.pipe_of(text)?)),
        }
    }

    fn check_variable(&self, name: &str) -> Result<(), String> {
        if self.variables.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(format!("undefined variable \"{name}\""))
    }

    fn pipe_of(&self, text: &str) -> Result<Pipe, String> {
        let mut rest = text.trim();
        let pipe = self.pipe(&mut rest, 0)?;
        if rest.is_empty() { Ok(pipe) } else { Err(format!("unexpected `{rest}`")) }
    }

    fn pipe(&self, rest: &mut &str, depth: usize) -> Result<Pipe, String> {
        if depth > DEPTH_MAX {
            return Err(format!("parentheses are nested deeper than {DEPTH_MAX}"));
        }
        let mut pipe = Vec::new();
        loop {
            let mut command = Vec::new();
            loop {
                *rest = rest.trim_start();
                if rest.is_empty() || rest.starts_with(['|', ')']) {
                    break;
                }
                command.push(self.operand(rest, depth)?);
            }
            if command.is_empty() {
                return Err("a value is missing".to_owned());
            }
            if !pipe.is_empty() && !matches!(command[0], Operand::Function(_)) {
                return Err("only a function can follow `|`".to_owned());
            }
            pipe.push(command);
            match rest.strip_prefix('|') {
                // Go lets a pipe lead nowhere.
                Some(after) if !after.trim_start().is_empty() => *rest = after,
                Some(after) => {
                    *rest = after;
                    return Ok(pipe);
                }
                None => return Ok(pipe),
            }
        }
    }

    fn operand(&self, rest: &mut &str, depth: usize) -> Result<Operand, String> {
        let text = *rest;
        let c = text.chars().next().unwrap_or_default();
        if "\"`".contains(c) {
            let (value, after) = quoted(text).ok_or("a text is not closed")?;
            *rest = after;
            return Ok(Operand::Text(value));
        }
        if let Some(after) = text.strip_prefix('(') {
            *rest = after;
            let pipe = self.pipe(rest, depth + 1)?;
            *rest = rest.strip_prefix(')').ok_or("`)` is missing")?;
            return Ok(Operand::Paren(pipe, fields(rest)));
        }
        if c == '.' && !text[1..].starts_with(|c: char| c.is_ascii_digit()) {
            if text[1..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                return Ok(Operand::Dot(fields(rest)));
            }
            *rest = &text[1..];
            return Ok(Operand::Dot(Vec::new()));
        }
        let end = text.find(|c: char| c.is_whitespace() || "|()".contains(c)).unwrap_or(text.len());
        let word_end = text[..end].find('.').filter(|at| *at > 0).unwrap_or(end);
        if c == '$' {
            let name = &text[..word_end];
            self.check_variable(name)?;
            *rest = &text[word_end..];
            return Ok(Operand::Variable(name.to_owned(), fields(rest)));
        }
        let word = &text[..end];
        *rest = &text[end..];
        if c.is_ascii_digit() || "+-.".contains(c) {
            if let Ok(number) = word.parse() {
                return Ok(Operand::Integer(number));
            }
            let number = word.parse().ok().map(Operand::Number);
            return number.ok_or_else(|| format!("`{word}` is no number"));
        }
        match word {
            "true" | "false" => Ok(Operand::Bool(word == "true")),
            "nil" => Ok(Operand::Nil),
            _ if functions::NAMES.contains(&word) => Ok(Operand::Function(word.to_owned())),
            _ => Err(format!("function \"{word}\" not defined")),
        }
    }
}

fn close(end: Option<&str>) -> Result<(), String> {
    match end {
        Some("end") => Ok(()),
        Some(other) => Err(format!("unexpected `{{{{{other}}}}}`")),
        None => Err("a block has no `end`".to_owned()),
    }
}

fn is_variable(name: &str) -> bool {
    name.strip_prefix('$').is_some_and(|rest| rest.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

/// Takes `.a.b` from the start of `rest`.
fn fields(rest: &mut &str) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(after) = rest.strip_prefix('.') {
        let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(after.len());
        if end == 0 {
            break;
        }
        found.push(after[..end].to_owned());
        *rest = &after[end..];
    }
    found
}
