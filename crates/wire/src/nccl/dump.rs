//! Files of PyTorch's flight recorder: the last operations of a rank, as a pickle or as JSON.

use std::collections::BTreeMap;

use serde_json::Value;

use super::pickle::{self, Node, Pickle, PickleError, Place};
use super::{Finding, TEXT_BYTES_MAX, cut};

/// Largest file that is read, bytes.
pub const DUMP_BYTES_MAX: usize = 64 << 20;
/// Most groups of a file, and most operations that are looked at.
const GROUPS_MAX: usize = 256;
const ENTRIES_MAX: usize = 100_000;

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// It is larger than what is read.
    #[error("the file has {0} bytes, at most {DUMP_BYTES_MAX} are read")]
    TooLarge(usize),
    /// It is neither a pickle of plain data nor JSON.
    #[error("the file is no flight-recorder dump: {0}")]
    Pickle(#[from] PickleError),
    /// It begins as JSON does and is none.
    #[error("the file is no flight-recorder dump: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no operations in it.
    #[error("the file has no `entries` and no `pg_status`, which a flight-recorder dump has")]
    Empty,
}

/// Where a rank is in each of its groups. The file does not say which rank it is of: `rank` does.
pub fn read_dump(bytes: &[u8], rank: Option<u32>) -> Result<Vec<Finding>, DumpError> {
    if bytes.len() > DUMP_BYTES_MAX {
        return Err(DumpError::TooLarge(bytes.len()));
    }
    let groups = if bytes.first() == Some(&b'{') {
        let value: Value = serde_json::from_slice(bytes)?;
        groups(&&value)
    } else {
        let pickle = pickle::read(bytes)?;
        groups(&(&pickle, pickle.root))
    };
    let groups = groups.ok_or(DumpError::Empty)?;
    Ok(groups.into_iter().filter_map(|(id, group)| group.finding(&id, rank)).collect())
}

/// A value of either form.
trait Tree: Sized {
    fn get(&self, key: &str) -> Option<Self>;
    fn at(&self, index: usize) -> Option<Self>;
    fn items(&self) -> Vec<Self>;
    fn pairs(&self) -> Vec<(String, Self)>;
    /// A number as text too, and a text as it is.
    fn text(&self) -> Option<String>;

    fn whole(&self, key: &str) -> Option<i64> {
        self.get(key)?.text()?.parse().ok()
    }
}

impl<'v> Tree for &'v Value {
    fn get(&self, key: &str) -> Option<Self> {
        (*self).get(key)
    }

    fn at(&self, index: usize) -> Option<Self> {
        (*self).get(index)
    }

    fn items(&self) -> Vec<Self> {
        let value: &'v Value = self;
        value.as_array().map(|items| items.iter().take(ENTRIES_MAX).collect()).unwrap_or_default()
    }

    fn pairs(&self) -> Vec<(String, Self)> {
        let value: &'v Value = self;
        let pairs = value.as_object().into_iter().flatten().take(GROUPS_MAX);
        pairs.map(|(key, value)| (key.clone(), value)).collect()
    }

    fn text(&self) -> Option<String> {
        match self {
            Value::String(text) => Some(cut(text, TEXT_BYTES_MAX).to_owned()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }
}

impl Tree for (&Pickle<'_>, Place) {
    fn get(&self, key: &str) -> Option<Self> {
        self.0.get(self.1, key).map(|place| (self.0, place))
    }

    fn at(&self, index: usize) -> Option<Self> {
        let Node::List(items) = self.0.node(self.1) else { return None };
        items.get(index).map(|place| (self.0, *place))
    }

    fn items(&self) -> Vec<Self> {
        let Node::List(items) = self.0.node(self.1) else { return Vec::new() };
        items.iter().take(ENTRIES_MAX).map(|place| (self.0, *place)).collect()
    }

    fn pairs(&self) -> Vec<(String, Self)> {
        let Node::Dict(pairs) = self.0.node(self.1) else { return Vec::new() };
        let named = pairs.iter().take(GROUPS_MAX);
        named.filter_map(|(key, value)| Some(((self.0, *key).text()?, (self.0, *value)))).collect()
    }

    fn text(&self) -> Option<String> {
        match self.0.node(self.1) {
            Node::Text(_) => self.0.text(self.1).map(|text| cut(text, TEXT_BYTES_MAX).to_owned()),
            Node::Int(number) => Some(number.to_string()),
            Node::Float(number) => Some(number.to_string()),
            Node::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }
}

/// What is told of one group.
#[derive(Debug, Default)]
struct Group {
    name: String,
    /// The last operation that was begun, and the last one that was completed.
    begun: Option<i64>,
    completed: Option<i64>,
    /// Operations that are kept: number, whether it is completed, what it is.
    operations: BTreeMap<i64, Operation>,
}

#[derive(Debug, Default, Clone)]
struct Operation {
    is_completed: bool,
    op: String,
    sizes: String,
    timeout_ms: Option<u64>,
}

impl Group {
    fn finding(&self, id: &str, rank: Option<u32>) -> Option<Finding> {
        let kept = self.operations.keys().next_back().copied();
        let done = self.operations.iter().rev().find(|(_, one)| one.is_completed).map(|(number, _)| *number);
        let begun = self.begun.max(kept)?;
        let finding = Finding::of_numbers(None, begun, self.completed.max(done).unwrap_or(-1))?;
        // Where nothing is known to be completed, the first that is kept is the one.
        let open = self.operations.iter().find(|(_, one)| !one.is_completed).map(|(number, _)| *number);
        let sequence = match open {
            Some(open) if !finding.is_completed && self.completed.max(done).is_none() => open,
            _ => finding.sequence,
        };
        let operation = self.operations.get(&sequence).cloned().unwrap_or_default();
        let group = format!("pg-{}", cut(id, 40));
        let state = if finding.is_completed { "completed" } else { "did not complete" };
        let name = if self.name.is_empty() { group.clone() } else { self.name.clone() };
        let text = format!("The rank {state} operation {sequence} of {name} {}", operation.op);
        Some(Finding {
            rank,
            group,
            sequence,
            op: operation.op,
            sizes: operation.sizes,
            timeout_ms: operation.timeout_ms,
            text: cut(text.trim_end(), TEXT_BYTES_MAX).to_owned(),
            ..finding
        })
    }
}

fn groups<T: Tree>(dump: &T) -> Option<BTreeMap<String, Group>> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let (entries, states) = (dump.get("entries"), dump.get("pg_status"));
    if entries.is_none() && states.is_none() {
        return None;
    }
    for (id, state) in states.iter().flat_map(Tree::pairs) {
        let group = groups.entry(id).or_default();
        let known = |key: &str| state.whole(key).filter(|number| *number >= 0);
        (group.begun, group.completed) =
            (known("last_enqueued_collective"), known("last_completed_collective"));
    }
    for entry in entries.iter().flat_map(Tree::items) {
        let is_between_two = entry.get("is_p2p").and_then(|value| value.text()).as_deref() == Some("true");
        let number = entry.whole("collective_seq_id").or_else(|| entry.whole("seq_id"));
        let (Some(number), false) = (number, is_between_two) else { continue };
        let id = entry.get("pg_id").and_then(|id| id.text()).unwrap_or_else(|| "0".to_owned());
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&id) {
            continue;
        }
        let group = groups.entry(id).or_default();
        if let Some(name) = entry.get("process_group").and_then(|pair| pair.at(1)?.text()) {
            name.clone_into(&mut group.name);
        }
        group.operations.insert(number, operation(&entry));
    }
    Some(groups)
}

fn operation<T: Tree>(entry: &T) -> Operation {
    let op = entry.get("profiling_name").and_then(|name| name.text()).unwrap_or_default();
    let shape = |sizes: &T| {
        let one = |shape: &T| {
            let lengths: Vec<String> = shape.items().iter().take(8).filter_map(Tree::text).collect();
            lengths.join("x")
        };
        sizes.items().iter().take(8).map(one).collect::<Vec<_>>().join(" ")
    };
    let sizes = |key: &str| entry.get(key).map(|sizes| shape(&sizes)).unwrap_or_default();
    let (from, to) = (sizes("input_sizes"), sizes("output_sizes"));
    Operation {
        is_completed: entry.get("state").and_then(|state| state.text()).as_deref() == Some("completed"),
        op: cut(op.split_once(':').map_or(op.as_str(), |(_, name)| name), 40).to_owned(),
        sizes: if from.is_empty() && to.is_empty() {
            String::new()
        } else {
            cut(&format!("{from} to {to}"), 200).to_owned()
        },
        timeout_ms: entry.whole("timeout_ms").and_then(|ms| u64::try_from(ms).ok()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JSON: &str = r#"{"version": "2.9", "pg_status": {"0": {"last_enqueued_collective": "1204",
        "last_started_collective": "-1", "last_completed_collective": "1203"}, "7": {"last_enqueued_collective": -1}},
        "entries": [
        {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1203, "profiling_name": "nccl:all_reduce",
         "input_sizes": [[3, 4]], "output_sizes": [[3, 4]], "state": "completed", "is_p2p": false, "timeout_ms": 600000},
        {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1204, "profiling_name": "nccl:all_gather",
         "input_sizes": [[5], []], "output_sizes": [[10]], "state": "scheduled", "is_p2p": false, "timeout_ms": 600000},
        {"pg_id": 2, "collective_seq_id": 9, "profiling_name": "nccl:send", "state": "started", "is_p2p": true},
        {"pg_id": 3, "process_group": ["3", "tp"], "collective_seq_id": 8, "profiling_name": "nccl:reduce_scatter", "state": "started"},
        {"pg_id": 3, "process_group": ["3", "tp"], "collective_seq_id": 9, "profiling_name": "nccl:reduce_scatter", "state": "scheduled"}]}"#;

    /// A pickle of protocol 2, as Python writes one.
    fn pickled(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Null => out.push(b'N'),
            Value::Bool(value) => out.push(if *value { 0x88 } else { 0x89 }),
            Value::Number(number) => {
                out.extend([0x8a, 8]);
                out.extend(number.as_i64().unwrap().to_le_bytes());
            }
            Value::String(text) => {
                out.push(b'X');
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.bytes());
            }
            Value::Array(items) => {
                // As PyTorch does it for numbers.
                let is_named = items.first().is_some_and(Value::is_number);
                if is_named {
                    out.extend(b"ctorch.jit._pickle\nbuild_intlist\n(");
                }
                out.extend(b"](");
                for item in items {
                    pickled(item, out);
                }
                out.extend(if is_named { &b"etR"[..] } else { b"e" });
            }
            Value::Object(pairs) => {
                out.extend(b"}q\x01(");
                for (key, value) in pairs {
                    pickled(&Value::String(key.clone()), out);
                    pickled(value, out);
                }
                out.push(b'u');
            }
        }
    }

    fn pickle_of(value: &Value) -> Vec<u8> {
        let mut out = vec![0x80, 2];
        pickled(value, &mut out);
        out.push(b'.');
        out
    }

    #[test]
    fn a_dump_says_where_a_rank_is_in_each_group_whichever_form_it_has() {
        let json = read_dump(JSON.as_bytes(), Some(5)).unwrap();
        let pickle = read_dump(&pickle_of(&serde_json::from_str(JSON).unwrap()), Some(5)).unwrap();
        assert_eq!(json, pickle);
        let short: Vec<_> =
            json.iter().map(|f| (&*f.group, f.sequence, f.is_completed, &*f.op, &*f.sizes)).collect();
        assert_eq!(
            short,
            [("pg-0", 1204, false, "all_gather", "5  to 10"), ("pg-3", 8, false, "reduce_scatter", "")]
        );
        assert_eq!((json[0].rank, json[0].timeout_ms), (Some(5), Some(600_000)));
        assert_eq!(json[0].text, "The rank did not complete operation 1204 of default_pg all_gather");
    }

    #[test]
    fn a_rank_that_is_through_has_completed_its_last() {
        let dump = r#"{"pg_status": {"0": {"last_enqueued_collective": 7, "last_completed_collective": 7}}}"#;
        let found = read_dump(dump.as_bytes(), None).unwrap();
        assert_eq!((found[0].sequence, found[0].is_completed), (7, true));
    }

    #[test]
    fn what_would_have_something_called_is_refused() {
        let attack = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.";
        let error = read_dump(attack, None).unwrap_err().to_string();
        assert!(error.contains("`posix.system`"), "{error}");
        for hostile in [
            &b"\x80\x02)\x81."[..],
            b"\x80\x02}r\xff\xff\xff\xff.",
            b"\x80\x02X\xff\xff\xff\xffa.",
            b"\x80\x02((((((.",
            b"",
            b"{",
            b"{}",
            b"PK\x03\x04",
            b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
        ] {
            assert!(read_dump(hostile, None).is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn a_list_of_itself_ends() {
        // ]q0 h0 a h0 a: a list that holds itself twice.
        let dump = b"\x80\x02}X\x07\x00\x00\x00entries]q\x00h\x00ah\x00as.";
        assert_eq!(read_dump(dump, None).unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0_usize..3_000) {
            let mut dump = pickle_of(&serde_json::from_str(JSON).unwrap());
            let at = at.min(dump.len());
            let end = (at + bytes.len()).min(dump.len());
            dump.splice(at..end, bytes);
            let _ = read_dump(&dump, None);
        }
    }
}
