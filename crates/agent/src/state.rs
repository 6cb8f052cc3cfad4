//! What an agent keeps between two starts, and that there is one of it.

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Why there can't be an agent here.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another agent has the state directory.
    #[error("cannot use the state directory {}: the agent of process {pid} has it", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// That process.
        pid: String,
    },
    /// Another agent reports this node.
    #[error("cannot report `{host}`: another agent on this machine does")]
    Reported {
        /// The node.
        host: String,
    },
    /// The file system refused.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl StateError {
    /// The next step.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Taken { .. } => "stop that agent, or give this one another `--state-dir` and `--host`",
            Self::Reported { .. } => "stop the other agent, or give this one another `--host`",
            Self::Io { .. } => "name a directory that this user may write with `--state-dir`",
        }
    }
}

/// The state directory, held as long as this lives.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) dir: PathBuf,
    /// Which agent this is, over restarts.
    pub(crate) agent_id: [u8; 16],
    _lock: File,
    _name: Option<Name>,
}

/// Held by one agent of a node.
#[cfg(target_os = "linux")]
type Name = std::os::unix::net::UnixListener;
#[cfg(not(target_os = "linux"))]
type Name = ();

impl State {
    pub(crate) fn open(dir: &Path, host: &str) -> Result<Self, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| StateError::Io { path, source }
        };
        private_dir(dir).map_err(failed(dir))?;
        let lock = lock(dir)?;
        let name = name(host)?;
        let path = dir.join("agent-id");
        let agent_id = agent_id(&path).map_err(failed(&path))?;
        Ok(Self { dir: dir.to_owned(), agent_id, _lock: lock, _name: name })
    }
}

fn lock(dir: &Path) -> Result<File, StateError> {
    let path = dir.join("lock");
    let failed = |source: io::Error| StateError::Io { path: path.clone(), source };
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let pid = if pid.trim().is_empty() { "unknown".to_owned() } else { pid.trim().to_owned() };
            return Err(StateError::Taken { dir: dir.to_owned(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

/// A name in the network namespace: agents with different state directories meet there.
#[cfg(target_os = "linux")]
fn name(host: &str) -> Result<Option<Name>, StateError> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    // A name has at most 107 bytes; longer ones that begin alike would be taken for one.
    let Ok(address) = SocketAddr::from_abstract_name(format!("truegauge-agent/{host}")) else {
        return Ok(None);
    };
    match UnixListener::bind_addr(&address) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(StateError::Reported { host: host.to_owned() })
        }
        // Where there are no such names the state directory alone tells.
        Err(_) => Ok(None),
    }
}

#[cfg(not(target_os = "linux"))]
fn name(_host: &str) -> Result<Option<Name>, StateError> {
    Ok(None)
}

fn agent_id(path: &Path) -> io::Result<[u8; 16]> {
    if let Ok(text) = fs::read_to_string(path)
        && let Some(id) = from_hex(text.trim())
    {
        return Ok(id);
    }
    let id = random();
    let fresh = path.with_extension("new");
    fs::write(&fresh, format!("{}\n", to_hex(&id)))?;
    fs::rename(&fresh, path)?;
    Ok(id)
}

/// 16 random bytes.
pub(crate) fn random() -> [u8; 16] {
    let mut id = [0; 16];
    if getrandom::fill(&mut id).is_err() {
        // No random numbers this early: time and process tell apart well enough.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        id[..12].copy_from_slice(&now.as_nanos().to_le_bytes()[..12]);
        id[12..].copy_from_slice(&std::process::id().to_le_bytes());
    }
    id
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Into a text it always succeeds.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn from_hex(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(id)
}

#[cfg(unix)]
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(not(unix))]
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_agent_of_a_directory_and_of_a_node_and_it_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let host = format!("state-{}", std::process::id());
        let first = State::open(&dir.path().join("a"), &host).unwrap();
        let error = State::open(&dir.path().join("a"), &host).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        if cfg!(target_os = "linux") {
            let error = State::open(&dir.path().join("b"), &host).unwrap_err();
            assert!(matches!(error, StateError::Reported { .. }), "{error}");
        }
        let id = first.agent_id;
        drop(first);
        assert_eq!(State::open(&dir.path().join("a"), &host).unwrap().agent_id, id);
    }
}
