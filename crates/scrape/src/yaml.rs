//! YAML as a tree that knows where it stands, so that an error can name line and column.

use granit_parser::{Event, Parser, ScalarStyle};

/// Largest document, bytes.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Most nodes of a document, its aliases spelled out.
const NODES_MAX: usize = 1_000_000;
/// Deepest nesting.
const DEPTH_MAX: usize = 32;

/// A place in a document, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Place, Node)>),
}

impl Value {
    /// What it is, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// What is wrong with a document, and where.
pub(crate) type Fault = (Place, String);

/// Reads the first document of `text`; nothing at all reads as null.
pub(crate) fn read(text: &str) -> Result<Node, Fault> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err((Place::default(), format!("the file is over {DOCUMENT_BYTES_MAX} bytes")));
    }
    let mut builder = Builder { events: Parser::new_from_str(text), anchors: Vec::new(), nodes: 0 };
    loop {
        let (event, place) = builder.next()?;
        match event {
            Event::StreamEnd => return Ok(Node { place, value: Value::Null }),
            Event::DocumentStart(..) => {
                let (event, place) = builder.next()?;
                return builder.node(event, place, 0);
            }
            _ => {}
        }
    }
}

struct Builder<'a> {
    events: Parser<'a, granit_parser::StrInput<'a>>,
    /// Anchored nodes by id, with how many nodes each stands for.
    anchors: Vec<(usize, Node, usize)>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Place), Fault> {
        let place = |marker: &granit_parser::Marker| Place { line: marker.line(), column: marker.col() + 1 };
        match self.events.next_event() {
            None => Ok((Event::StreamEnd, Place::default())),
            Some(Ok((event, span))) => Ok((event, place(&span.start))),
            Some(Err(error)) => {
                Err((place(error.marker()), format!("the file is not YAML: {}", error.kind())))
            }
        }
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), Fault> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err((place, format!("the file has more than {NODES_MAX} values, aliases spelled out")));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, place: Place, depth: usize) -> Result<Node, Fault> {
        if depth > DEPTH_MAX {
            return Err((place, format!("the file is nested over {DEPTH_MAX} levels deep")));
        }
        let before = self.nodes;
        self.count(1, place)?;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null");
                (if is_null { Value::Null } else { Value::Text(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.map(depth)?, anchor),
            Event::Alias(id) => {
                let found = self.anchors.iter().rfind(|(known, ..)| *known == id).cloned();
                let (_, node, nodes) =
                    found.ok_or_else(|| (place, "an alias stands inside its own anchor".to_owned()))?;
                self.count(nodes, place)?;
                (node.value, 0)
            }
            _ => return Err((place, "a value is wanted".to_owned())),
        };
        let node = Node { place, value };
        if anchor != 0 {
            self.anchors.push((anchor, node.clone(), self.nodes - before));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, place) => items.push(self.node(event, place, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut entries: Vec<(String, Place, Node)> = Vec::new();
        loop {
            let (event, place) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Map(entries)),
                next => next,
            };
            let Value::Text(key) = self.node(event, place, depth + 1)?.value else {
                return Err((place, "a key must be a single value".to_owned()));
            };
            if entries.iter().any(|(known, ..)| *known == key) {
                return Err((place, format!("the key `{key}` comes twice")));
            }
            let (event, value_place) = self.next()?;
            let node = self.node(event, value_place, depth + 1)?;
            entries.push((key, place, node));
        }
    }
}
