//! Which cgroup directories hold this process: mount table and membership joined.
//!
//! Sources: `/proc/self/mountinfo` and `/proc/self/cgroup` (kernel: `proc.rst`, `cgroup-v2.rst`,
//! `cgroup-v1/cgroups.rst`). The names of the mount points say nothing; a hierarchy is known by its
//! controllers. Where no mount of the table leads anywhere, the usual places are tried.

use std::{collections::HashSet, path::PathBuf};

use crate::{
    facts::CgroupMode,
    host::Host,
    parse::{self, CgroupMount, Membership},
};

/// One cgroup directory on the way from the process to the mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Level {
    /// True in the unified hierarchy.
    pub(crate) unified: bool,
    /// The cgroup's path, without a slash at the end; empty for the root. Equal paths in two
    /// hierarchies are taken for the same group of processes.
    pub(crate) cgroup: Vec<u8>,
    /// Its directory.
    pub(crate) directory: PathBuf,
}

/// The hierarchies of this process.
#[derive(Debug)]
pub(crate) struct Hierarchies {
    mounts: Vec<CgroupMount>,
    memberships: Vec<Membership>,
}

impl Hierarchies {
    /// Joins the mount table of `host` with the memberships in `cgroup`, a `/proc/self/cgroup`.
    pub(crate) fn new(host: &Host, cgroup: &[u8]) -> Self {
        let table = std::fs::read(host.path(b"/proc/self/mountinfo")).unwrap_or_default();
        let mut mounts = parse::mountinfo(&table);
        // Of two mounts at one place only the later one is seen.
        mounts.reverse();
        let mut points = HashSet::new();
        mounts.retain(|mount| points.insert(mount.point.clone()));
        Self { mounts, memberships: parse::memberships(cgroup) }
    }

    /// Which kinds of hierarchies there are.
    pub(crate) fn mode(&self, host: &Host) -> CgroupMode {
        // A named hierarchy (`name=systemd`) controls nothing and makes no version 1 host.
        let names_controller = |options: &Vec<Vec<u8>>| {
            options
                .iter()
                .any(|option| [&b"memory"[..], b"cpu", b"cpuacct", b"cpuset"].contains(&&option[..]))
        };
        let v1 = self.mounts.iter().any(|mount| !mount.unified && names_controller(&mount.options));
        let v2 = self.mounts.iter().any(|mount| mount.unified);
        match (v1, v2) {
            _ if self.mounts.is_empty() => self.usual_mode(host),
            (true, true) => CgroupMode::Hybrid,
            (true, false) => CgroupMode::V1,
            (false, true) => CgroupMode::V2,
            (false, false) => CgroupMode::None,
        }
    }

    /// The kind of what lies in the usual places, for a mount table that tells nothing.
    fn usual_mode(&self, host: &Host) -> CgroupMode {
        let levels = [&b"memory"[..], b"cpu"].map(|controller| self.chain(host, controller));
        let any = |unified| levels.iter().flatten().any(|level| level.unified == unified);
        match (any(false), any(true)) {
            (true, true) => CgroupMode::Hybrid,
            (true, false) => CgroupMode::V1,
            (false, true) => CgroupMode::V2,
            (false, false) => CgroupMode::None,
        }
    }

    /// The levels that `controller` sees of this process, innermost first.
    ///
    /// On version 1 when the process is in a hierarchy of that controller and it is visible,
    /// otherwise in the unified one.
    pub(crate) fn chain(&self, host: &Host, controller: &[u8]) -> Vec<Level> {
        let names = |list: &[Vec<u8>]| list.iter().any(|name| name == controller);
        let own = self.memberships.iter().find(|line| names(&line.controllers));
        let unified = self.memberships.iter().find(|line| line.controllers.is_empty());
        let mut chain = Vec::new();
        if let Some(line) = own {
            let mounts = self.mounts.iter().filter(|mount| !mount.unified && names(&mount.options));
            chain = best(host, mounts, &line.path);
            if chain.is_empty() {
                chain = usual_v1(host, line, controller);
            }
        }
        if let (true, Some(line)) = (chain.is_empty(), unified) {
            chain = best(host, self.mounts.iter().filter(|mount| mount.unified), &line.path);
            if chain.is_empty() {
                chain = usual_v2(host, line);
            }
        }
        chain
    }
}

/// The levels under the mount that shows the most of them, the process's own one above all.
fn best<'a>(host: &Host, mounts: impl Iterator<Item = &'a CgroupMount>, path: &[u8]) -> Vec<Level> {
    let mut best: Option<(bool, Vec<Level>)> = None;
    for mount in mounts {
        let inside = inside(&mount.root, path);
        let chain = levels(host, mount, inside.unwrap_or_default());
        let exact = inside.is_some() && chain.first().is_some_and(|level| level.cgroup == trimmed(path));
        let better = match &best {
            None => !chain.is_empty(),
            Some((best_exact, best_chain)) => (exact, chain.len()) > (*best_exact, best_chain.len()),
        };
        if better {
            best = Some((exact, chain));
        }
    }
    best.map(|(_, chain)| chain).unwrap_or_default()
}

/// Where the cgroup `path` lies below the one at the mount point; `None` when it lies elsewhere.
///
/// `..` in either means that it lies outside the cgroup namespace, so that nothing but the mount
/// point itself is known to hold the process.
fn inside<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let escapes = |path: &[u8]| path.split(|byte| *byte == b'/').any(|part| part == b"..");
    if escapes(root) || escapes(path) {
        return None;
    }
    let rest = path.strip_prefix(trimmed(root))?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// A path without slashes at its end.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// The directory of `below` under the mount point and all above it, those that exist.
fn levels(host: &Host, mount: &CgroupMount, below: &[u8]) -> Vec<Level> {
    let mut chain = Vec::new();
    let mut below = trimmed(below);
    loop {
        let mut absolute = trimmed(&mount.point).to_vec();
        absolute.extend_from_slice(below);
        let directory = host.path(&absolute);
        if directory.is_dir() {
            let mut cgroup = trimmed(&mount.root).to_vec();
            cgroup.extend_from_slice(below);
            chain.push(Level { unified: mount.unified, cgroup, directory });
        }
        let Some(slash) = below.iter().rposition(|byte| *byte == b'/') else { return chain };
        below = trimmed(&below[..slash]);
    }
}

/// The usual mount points of a version 1 hierarchy: its controllers joined, and each by itself.
fn usual_v1(host: &Host, line: &Membership, controller: &[u8]) -> Vec<Level> {
    let joined = line.controllers.join(&b","[..]);
    let mounts = [&joined[..], controller].map(|name| usual(&[b"/sys/fs/cgroup/", name].concat(), false));
    best(host, mounts.iter(), &line.path)
}

/// The usual mount points of the unified hierarchy, when it is mounted there.
fn usual_v2(host: &Host, line: &Membership) -> Vec<Level> {
    let mounts = [&b"/sys/fs/cgroup"[..], b"/sys/fs/cgroup/unified"].map(|point| usual(point, true));
    let mounted = mounts.iter().filter(|mount| host.path(&mount.point).join("cgroup.controllers").is_file());
    best(host, mounted, &line.path)
}

fn usual(point: &[u8], unified: bool) -> CgroupMount {
    CgroupMount { unified, root: b"/".to_vec(), point: point.to_vec(), options: Vec::new() }
}

/// Whether the cgroup `outer` is `inner` or holds it.
pub(crate) fn holds(outer: &[u8], inner: &[u8]) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
