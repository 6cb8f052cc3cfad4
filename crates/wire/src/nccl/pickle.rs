//! The part of Python's pickle format that plain data takes, as PyTorch writes it: nothing in it is ever called.

/// Most values of a pickle.
const NODES_MAX: usize = 2_000_000;
/// Functions that PyTorch names to make lists of one type, and what they are given is such a list already.
const LISTS: [&str; 6] = [
    "torch.jit._pickle\nbuild_intlist",
    "torch.jit._pickle\nbuild_doublelist",
    "torch.jit._pickle\nbuild_boollist",
    "torch.jit._pickle\nbuild_tensorlist",
    "torch.jit._pickle\nrestore_type_tag",
    "collections\nOrderedDict",
];

/// A value, by its place among all.
pub(super) type Place = u32;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Where its bytes are.
    Text(std::ops::Range<usize>),
    List(Vec<Place>),
    Dict(Vec<(Place, Place)>),
    /// One of [`LISTS`].
    Name,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Pickle<'b> {
    bytes: &'b [u8],
    nodes: Vec<Node>,
    pub(super) root: Place,
}

/// Why a pickle can't be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PickleError {
    /// It ends too early, or takes what is not there.
    #[error("it is cut off or damaged")]
    Damaged,
    /// It has something in it that is no plain data.
    #[error("it has the operation {0:#04x} in it, which plain data has not")]
    Operation(u8),
    /// It would have a function called.
    #[error("it names the function `{0}`, which is not called")]
    Function(String),
    /// It is too large.
    #[error("it has more than {NODES_MAX} values")]
    TooLarge,
}

impl Pickle<'_> {
    pub(super) fn node(&self, place: Place) -> &Node {
        self.nodes.get(place as usize).unwrap_or(&Node::None)
    }

    pub(super) fn text(&self, place: Place) -> Option<&str> {
        match self.node(place) {
            Node::Text(range) => std::str::from_utf8(self.bytes.get(range.clone())?).ok(),
            _ => None,
        }
    }

    pub(super) fn get(&self, place: Place, key: &str) -> Option<Place> {
        let Node::Dict(pairs) = self.node(place) else { return None };
        pairs.iter().rev().find(|(name, _)| self.text(*name) == Some(key)).map(|(_, value)| *value)
    }
}

/// Reads a pickle of plain data.
pub(super) fn read(bytes: &[u8]) -> Result<Pickle<'_>, PickleError> {
    let mut machine = Machine { bytes, ..Machine::default() };
    while machine.step()? {}
    let root = machine.pop()?;
    Ok(Pickle { bytes, nodes: machine.nodes, root })
}

#[derive(Default)]
struct Machine<'b> {
    bytes: &'b [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Place>,
    marks: Vec<usize>,
    memo: std::collections::HashMap<u32, Place>,
}

impl<'b> Machine<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], PickleError> {
        let end = self.at.checked_add(length).ok_or(PickleError::Damaged)?;
        let taken = self.bytes.get(self.at..end).ok_or(PickleError::Damaged)?;
        self.at = end;
        Ok(taken)
    }

    /// A number of up to eight bytes, little end first.
    fn number(&mut self, length: usize) -> Result<u64, PickleError> {
        let mut number = 0;
        for (at, byte) in self.take(length)?.iter().enumerate() {
            number |= u64::from(*byte) << (8 * at.min(7));
        }
        Ok(number)
    }

    fn make(&mut self, node: Node) -> Result<(), PickleError> {
        if self.nodes.len() >= NODES_MAX || self.stack.len() >= NODES_MAX {
            return Err(PickleError::TooLarge);
        }
        self.stack.push(self.nodes.len() as Place);
        self.nodes.push(node);
        Ok(())
    }

    fn pop(&mut self) -> Result<Place, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(PickleError::Damaged);
        }
        self.stack.pop().ok_or(PickleError::Damaged)
    }

    fn top(&self) -> Result<Place, PickleError> {
        self.stack.last().copied().ok_or(PickleError::Damaged)
    }

    fn since_mark(&mut self) -> Result<Vec<Place>, PickleError> {
        let mark = self.marks.pop().ok_or(PickleError::Damaged)?;
        if mark > self.stack.len() {
            return Err(PickleError::Damaged);
        }
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, length: usize) -> Result<(), PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(length).filter(|from| *from >= floor);
        let items = self.stack.split_off(from.ok_or(PickleError::Damaged)?);
        self.make(Node::List(items))
    }

    fn text(&mut self, width: usize) -> Result<(), PickleError> {
        let length = usize::try_from(self.number(width)?).map_err(|_too_long| PickleError::Damaged)?;
        let from = self.at;
        self.take(length)?;
        self.make(Node::Text(from..self.at))
    }

    fn line(&mut self) -> Result<&'b str, PickleError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().take(200).position(|byte| *byte == b'\n').ok_or(PickleError::Damaged)?;
        let line = self.take(length + 1)?;
        std::str::from_utf8(&line[..length]).map_err(|_no_text| PickleError::Damaged)
    }

    /// One operation; false behind the last one.
    fn step(&mut self) -> Result<bool, PickleError> {
        let operation = self.take(1)?[0];
        match operation {
            b'.' => return Ok(false),
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => {
                if self.marks.len() >= NODES_MAX {
                    return Err(PickleError::TooLarge);
                }
                self.marks.push(self.stack.len());
            }
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(operation)?,
            b'N' | 0x88 | 0x89 | b'K' | b'M' | b'J' | 0x8a | b'G' => self.scalar(operation)?,
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            b'c' | b'R' => self.function(operation)?,
            _ => self.collection(operation)?,
        }
        Ok(true)
    }

    fn remember(&mut self, operation: u8) -> Result<(), PickleError> {
        let number = match operation {
            b'q' | b'h' => self.number(1)? as u32,
            b'r' | b'j' => self.number(4)? as u32,
            _ => self.memo.len() as u32,
        };
        if matches!(operation, b'h' | b'j') {
            let place = *self.memo.get(&number).ok_or(PickleError::Damaged)?;
            if self.stack.len() >= NODES_MAX {
                return Err(PickleError::TooLarge);
            }
            self.stack.push(place);
        } else {
            let top = self.top()?;
            self.memo.insert(number, top);
        }
        Ok(())
    }

    fn scalar(&mut self, operation: u8) -> Result<(), PickleError> {
        let node = match operation {
            b'N' => Node::None,
            0x88 => Node::Bool(true),
            0x89 => Node::Bool(false),
            b'K' => Node::Int(self.number(1)? as i64),
            b'M' => Node::Int(self.number(2)? as i64),
            b'J' => Node::Int(i64::from(self.number(4)? as u32 as i32)),
            b'G' => {
                let bytes = self.take(8)?.try_into().map_err(|_length| PickleError::Damaged)?;
                Node::Float(f64::from_be_bytes(bytes))
            }
            _ => self.long()?,
        };
        self.make(node)
    }

    /// A whole number of any length; one of more than 64 bits is nothing here.
    fn long(&mut self) -> Result<Node, PickleError> {
        let length = self.number(1)? as usize;
        let bytes = self.take(length)?;
        if length > 8 {
            return Ok(Node::None);
        }
        let sign = if bytes.last().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
        let mut whole = [sign; 8];
        whole[..length].copy_from_slice(bytes);
        Ok(Node::Int(i64::from_le_bytes(whole)))
    }

    fn function(&mut self, operation: u8) -> Result<(), PickleError> {
        if operation == b'c' {
            let name = format!("{}\n{}", self.line()?, self.line()?);
            if !LISTS.contains(&name.as_str()) {
                return Err(PickleError::Function(name.replace('\n', ".")));
            }
            return self.make(Node::Name);
        }
        let given = self.pop()?;
        let named = self.pop()?;
        let Node::List(items) = &self.nodes[given as usize] else { return Err(PickleError::Damaged) };
        if !matches!(self.nodes[named as usize], Node::Name) {
            return Err(PickleError::Operation(operation));
        }
        match items.first() {
            Some(list) => self.stack.push(*list),
            None => self.make(Node::Dict(Vec::new()))?,
        }
        Ok(())
    }

    fn collection(&mut self, operation: u8) -> Result<(), PickleError> {
        match operation {
            b'}' => self.make(Node::Dict(Vec::new())),
            b']' | b')' => self.make(Node::List(Vec::new())),
            b't' => {
                let items = self.since_mark()?;
                self.make(Node::List(items))
            }
            0x85..=0x87 => self.tuple(usize::from(operation - 0x84)),
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(&items)
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)
            }
            _ => Err(PickleError::Operation(operation)),
        }
    }

    fn append(&mut self, items: &[Place]) -> Result<(), PickleError> {
        let top = self.top()?;
        let Node::List(list) = &mut self.nodes[top as usize] else { return Err(PickleError::Damaged) };
        list.extend_from_slice(items);
        Ok(())
    }

    fn set(&mut self, items: &[Place]) -> Result<(), PickleError> {
        let top = self.top()?;
        let Node::Dict(pairs) = &mut self.nodes[top as usize] else { return Err(PickleError::Damaged) };
        pairs.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }
}
