//! Expanding a template.

use std::collections::BTreeMap;

use super::functions::call;
use super::parse::{Block, Node, Operand, Pipe};
use super::{Scene, Value};

/// Most bytes that a template may print.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Most nodes that one expansion may visit.
const VISITS_MAX: usize = 100_000;
/// Templates inside templates.
const DEPTH_MAX: usize = 50;

struct Run<'a> {
    scene: &'a Scene<'a>,
    variables: Vec<(String, Value)>,
    defined: BTreeMap<&'a str, &'a Block>,
    out: String,
    visits: usize,
}

/// The text of `block` for `scene`.
pub(super) fn run(block: &Block, scene: &Scene<'_>) -> Result<String, String> {
    let labels = Value::of_labels(scene.labels);
    let external = Value::of_labels(scene.external_labels);
    let url = Value::Text(scene.external_url.to_owned());
    let dot = Value::Map(
        BTreeMap::from([
            ("Labels".to_owned(), labels),
            ("ExternalLabels".to_owned(), external),
            ("ExternalURL".to_owned(), url),
            ("Value".to_owned(), Value::Number(scene.value)),
        ]),
        false,
    );
    run_over(block, scene, dot)
}

/// The text of `block` with `dot` as its data.
pub(super) fn run_over(block: &Block, scene: &Scene<'_>, dot: Value) -> Result<String, String> {
    let variables = [
        ("$", dot.clone()),
        ("$labels", Value::of_labels(scene.labels)),
        ("$externalLabels", Value::of_labels(scene.external_labels)),
        ("$externalURL", Value::Text(scene.external_url.to_owned())),
        ("$value", Value::Number(scene.value)),
    ];
    let mut run = Run {
        scene,
        variables: variables.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        defined: BTreeMap::new(),
        out: String::new(),
        visits: 0,
    };
    run.define(block);
    run.block(block, &dot, 0)?;
    Ok(run.out)
}

impl<'a> Run<'a> {
    fn define(&mut self, block: &'a Block) {
        for node in block {
            if let Node::Define(name, body) = node {
                self.defined.insert(name, body);
            }
        }
    }

    fn block(&mut self, block: &'a Block, dot: &Value, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("templates are nested deeper than {DEPTH_MAX}"));
        }
        let declared = self.variables.len();
        for node in block {
            self.visits += 1;
            if self.visits > VISITS_MAX || self.out.len() > OUTPUT_BYTES_MAX {
                return Err("the template prints too much".to_owned());
            }
            self.node(node, dot, depth)?;
        }
        self.variables.truncate(declared);
        Ok(())
    }

    fn node(&mut self, node: &'a Node, dot: &Value, depth: usize) -> Result<(), String> {
        match node {
            Node::Text(text) => self.out.push_str(text),
            Node::Action(None, pipe) => {
                let value = self.pipe(pipe, dot)?;
                self.out.push_str(&value.print());
            }
            Node::Action(Some((name, declares)), pipe) => {
                let value = self.pipe(pipe, dot)?;
                let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
                match known {
                    Some((_, known)) if !declares => *known = value,
                    _ => self.variables.push((name.clone(), value)),
                }
            }
            Node::If(branches) => {
                for (condition, body) in branches {
                    let holds = match condition {
                        Some(pipe) => self.pipe(pipe, dot)?.is_true(),
                        None => true,
                    };
                    if holds {
                        return self.block(body, dot, depth + 1);
                    }
                }
            }
            Node::With(variable, pipe, body, otherwise) => {
                let value = self.pipe(pipe, dot)?;
                if !value.is_true() {
                    return self.block(otherwise, dot, depth + 1);
                }
                let declared = self.variables.len();
                self.variables.extend(variable.iter().map(|name| (name.clone(), value.clone())));
                self.block(body, &value, depth + 1)?;
                self.variables.truncate(declared);
            }
            Node::Range { variables, over, body, otherwise } => {
                let entries: Vec<(Value, Value)> = match self.pipe(over, dot)? {
                    Value::List(items) => items
                        .into_iter()
                        .enumerate()
                        .map(|(at, item)| (Value::Integer(at as i64), item))
                        .collect(),
                    Value::Map(entries, _) => {
                        entries.into_iter().map(|(name, value)| (Value::Text(name), value)).collect()
                    }
                    Value::Nothing => Vec::new(),
                    other => return Err(format!("can't range over `{}`", other.print())),
                };
                if entries.is_empty() {
                    return self.block(otherwise, dot, depth + 1);
                }
                for (key, item) in entries {
                    let declared = self.variables.len();
                    match &variables[..] {
                        [one] => self.variables.push((one.clone(), item.clone())),
                        [first, second, ..] => {
                            self.variables.push((first.clone(), key));
                            self.variables.push((second.clone(), item.clone()));
                        }
                        [] => {}
                    }
                    self.block(body, &item, depth + 1)?;
                    self.variables.truncate(declared);
                }
            }
            Node::Define(..) => {}
            Node::Use(name, pipe) => {
                let value = match pipe {
                    Some(pipe) => self.pipe(pipe, dot)?,
                    None => Value::Nothing,
                };
                let body =
                    *self.defined.get(&**name).ok_or_else(|| format!("template \"{name}\" not defined"))?;
                self.block(body, &value, depth + 1)?;
            }
        }
        Ok(())
    }

    fn pipe(&mut self, pipe: &'a Pipe, dot: &Value) -> Result<Value, String> {
        let mut last = None;
        for command in pipe {
            let [first, rest @ ..] = &command[..] else { return Err("a value is missing".to_owned()) };
            let mut arguments = Vec::with_capacity(rest.len() + 1);
            for operand in rest {
                arguments.push(self.operand(operand, dot)?);
            }
            arguments.extend(last.take());
            last = Some(match first {
                Operand::Function(name) => call(name, arguments, self.scene)?,
                _ if arguments.is_empty() => self.operand(first, dot)?,
                _ => return Err("a value is followed by arguments as if it were a function".to_owned()),
            });
        }
        Ok(last.unwrap_or(Value::Nothing))
    }

    fn operand(&mut self, operand: &'a Operand, dot: &Value) -> Result<Value, String> {
        Ok(match operand {
            Operand::Text(text) => Value::Text(text.clone()),
            Operand::Number(number) => Value::Number(*number),
            Operand::Integer(number) => Value::Integer(*number),
            Operand::Bool(value) => Value::Bool(*value),
            Operand::Nil => Value::Nothing,
            Operand::Dot(fields) => field(dot.clone(), fields)?,
            Operand::Variable(name, fields) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                let (_, value) = known.ok_or_else(|| format!("undefined variable \"{name}\""))?;
                field(value.clone(), fields)?
            }
            Operand::Function(name) => call(name, Vec::new(), self.scene)?,
            Operand::Paren(pipe, fields) => field(self.pipe(pipe, dot)?, fields)?,
        })
    }
}

fn field(mut value: Value, fields: &[String]) -> Result<Value, String> {
    for name in fields {
        value = match value {
            Value::Map(mut entries, texts) => match entries.remove(name) {
                Some(found) => found,
                None if texts => Value::Text(String::new()),
                None => return Err(format!("can't evaluate field {name}")),
            },
            Value::Nothing => return Err(format!("nil has no field {name}")),
            other => return Err(format!("`{}` has no field {name}", other.print())),
        };
    }
    Ok(value)
}
