//! Figures reckoned from figures: the same for the command line and for HTTP.
//!
//! A calculator is a row of [`TOOLS`]: what it takes, how it reckons, what it answers. The arithmetic is
//! `insight`'s; here are names, bounds, words and the reasons for what is not known.

mod answer;
mod capacity;
mod economics;
mod ettr;
mod file;
mod goodput;
mod input;
mod mfu;
mod needs;
mod peak;
mod ranks;
mod roofline;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use answer::{Absent, Answer, AnswerColumn, Assumption, Formula};
pub use file::columns_of;
pub use input::{Column, Input, Kind, Range};
pub use needs::{Lack, flag_of};

use input::Given;
use needs::Need;

/// A calculator.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it answers, in a line.
    pub about: &'static str,
    /// What it takes.
    pub inputs: &'static [Input],
    /// What it can't do without: of each need one way.
    needs: &'static [Need],
    /// The figures that it is asked for first: where one is not there, why is said unasked.
    pub main: &'static [&'static str],
    /// Lines to try.
    pub examples: &'static [&'static str],
    reckon: fn(&Given, &mut Answer) -> Result<(), CalcError>,
}

/// Every calculator.
pub const TOOLS: [Tool; 7] =
    [economics::TOOL, roofline::TOOL, stream::TOOL, mfu::TOOL, goodput::TOOL, ettr::TOOL, capacity::TOOL];

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CalcError {
    /// The input that is wrong, where it is one.
    pub field: Option<String>,
    /// What could not be done and what was found.
    pub message: String,
    /// The next step; may be empty.
    pub hint: String,
    /// Whether each number can be, and together they can't: a finding, not a slip.
    pub is_impossible: bool,
    /// What was not given, and what could stand for it.
    pub lacks: Vec<Lack>,
}

impl CalcError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            field: None,
            message: message.into(),
            hint: String::new(),
            is_impossible: false,
            lacks: Vec::new(),
        }
    }

    pub(crate) fn of(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(crate) fn impossible(mut self) -> Self {
        self.is_impossible = true;
        self
    }
}

/// The calculator of this name.
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Answers with a calculator; `body` has its inputs by name.
pub fn answer(tool: &'static Tool, body: &Value) -> Result<Answer, CalcError> {
    let given = Given::of(body, tool.inputs)?;
    needs::check(tool, &given)?;
    let mut answer = Answer {
        tool: tool.name,
        inputs: given.shown(),
        command: given.command(tool.name, tool.inputs),
        ..Answer::default()
    };
    (tool.reckon)(&given, &mut answer)?;
    answer.warnings.extend(input::unlikely(&given));
    Ok(answer)
}
