//! Which calculators there are, and what each of them takes.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::calc::{Input, Kind, TOOLS, Tool};
use semconv::peaks::GPUS;

/// Calculators, and the names that they know.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalcTools {
    tools: Vec<CalcTool>,
    /// GPUs whose peaks are known.
    gpus: Vec<&'static str>,
}

/// A calculator.
#[derive(Debug, Serialize, ToSchema)]
struct CalcTool {
    name: &'static str,
    /// What it answers.
    about: &'static str,
    inputs: Vec<CalcInput>,
    /// Command lines to try.
    examples: &'static [&'static str],
}

/// An input of a calculator.
#[derive(Debug, Serialize, ToSchema)]
struct CalcInput {
    /// Its name in the body; a flag has `-` for `_`.
    name: &'static str,
    /// What stands for its value in a description.
    value: &'static str,
    /// What it is, with its unit.
    help: &'static str,
    /// `number`, `numbers`, `word`, `text`, `switch`, `table` or `series`.
    kind: &'static str,
    /// What a number can be, in words.
    bounds: Option<&'static str>,
    /// The words that it can be.
    words: Option<&'static [&'static str]>,
    /// The columns of a table.
    columns: Option<Vec<CalcColumn>>,
    /// Whether the command line names a file for it, without a flag.
    is_file: bool,
}

/// A column of a table.
#[derive(Debug, Serialize, ToSchema)]
struct CalcColumn {
    name: &'static str,
    /// Whether every row has it.
    is_needed: bool,
}

/// Lists the calculators with what each of them takes.
#[utoipa::path(get, operation_id = "calculators", path = "/api/tg/v1/calc",
    responses((status = 200, body = CalcTools)))]
pub(crate) async fn list() -> Json<CalcTools> {
    let gpus = GPUS.iter().map(|gpu| gpu.id).collect();
    Json(CalcTools { tools: TOOLS.iter().map(tool).collect(), gpus })
}

fn tool(tool: &Tool) -> CalcTool {
    CalcTool {
        name: tool.name,
        about: tool.about,
        inputs: tool.inputs.iter().map(input).collect(),
        examples: tool.examples,
    }
}

fn input(input: &Input) -> CalcInput {
    let (kind, bounds, words, columns) = match input.kind {
        Kind::Number(range) => ("number", Some(range.words), None, None),
        Kind::Numbers(range) => ("numbers", Some(range.words), None, None),
        Kind::Word(words) => ("word", None, Some(words), None),
        Kind::Text => ("text", None, None, None),
        Kind::Switch => ("switch", None, None, None),
        Kind::Table(columns) => ("table", None, None, Some(columns)),
        Kind::Series => ("series", None, None, None),
    };
    let column = |column: &crate::calc::Column| CalcColumn { name: column.name, is_needed: column.is_needed };
    CalcInput {
        name: input.name,
        value: input.value,
        help: input.help,
        kind,
        bounds,
        words,
        columns: columns.map(|columns| columns.iter().map(column).collect()),
        is_file: input.is_file,
    }
}
