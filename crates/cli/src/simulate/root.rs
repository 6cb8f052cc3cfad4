//! The root that a simulated node's agent sees: this machine's, but for what the node has of its own: its
//! cards on the PCI bus, its boot, and the control groups of the processes on its cards.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use simulate::Node;

use super::Play;
use super::kubelet::Pod;

/// NVIDIA's number as a maker of PCI devices, and the class of a 3D controller.
const VENDOR: &str = "0x10de\n";
const CLASS: &str = "0x030200\n";

/// A node's root.
#[derive(Debug)]
pub(super) struct Root(PathBuf);

impl Root {
    /// Makes it in a folder that may be there already. The locks of the node's processes are in `locks`.
    pub(super) fn make(folder: PathBuf, node: &Node, locks: &Path) -> io::Result<Self> {
        let _ = std::fs::remove_dir_all(&folder);
        // What another play's processes hold is on another machine.
        link_all(Path::new("/"), &folder, &["dev", "proc", "sys", "tmp", "var"])?;
        link_all(Path::new("/dev"), &folder.join("dev"), &["shm"])?;
        symlink(locks, folder.join("dev/shm"))?;
        // The pods are the node's own, whatever this machine is a node of.
        link_all(Path::new("/var"), &folder.join("var"), &["lib", "log"])?;
        link_all(Path::new("/var/lib"), &folder.join("var/lib"), &["kubelet"])?;
        link_all(Path::new("/var/log"), &folder.join("var/log"), &["pods"])?;
        link_all(Path::new("/sys"), &folder.join("sys"), &["bus"])?;
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        link_where(Path::new("/proc"), &folder.join("proc"), &|name| name != "sys" && !is_process(name))?;
        link_all(Path::new("/proc/sys"), &folder.join("proc/sys"), &["kernel"])?;
        link_all(Path::new("/proc/sys/kernel"), &folder.join("proc/sys/kernel"), &["random"])?;
        std::fs::create_dir_all(folder.join("proc/sys/kernel/random"))?;
        for card in node.cards() {
            let device = folder.join("sys/bus/pci/devices").join(&card.bus_id);
            std::fs::create_dir_all(&device)?;
            std::fs::write(device.join("vendor"), VENDOR)?;
            std::fs::write(device.join("class"), CLASS)?;
        }
        let root = Self(folder);
        root.boot(node)?;
        Ok(root)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Gives the node the boot that it is in.
    pub(super) fn boot(&self, node: &Node) -> io::Result<()> {
        write_boot(&self.0, node)
    }

    /// Shows a pod by the folder that a kubelet keeps for its logs.
    pub(super) fn has_pod(&self, pod: &Pod) -> io::Result<()> {
        std::fs::create_dir_all(self.0.join("var/log/pods").join(pod.folder()))
    }

    /// Shows a process in a control group of the node's own, and started by a run if one is named.
    pub(super) fn show(&self, pid: u32, cgroup: &str, run_id: Option<&str>) -> io::Result<()> {
        let (real, shown) = (PathBuf::from(format!("/proc/{pid}")), self.0.join(format!("proc/{pid}")));
        std::fs::create_dir_all(&shown)?;
        let environment = shown.join("environ");
        if let Some(id) = run_id {
            std::fs::write(&environment, format!("OTEL_RESOURCE_ATTRIBUTES=truegauge.run_id={id}\0"))?;
        }
        for name in ["comm", "cmdline", "environ", "ns", "stat", "status"] {
            if !shown.join(name).exists() {
                symlink(real.join(name), shown.join(name))?;
            }
        }
        std::fs::write(shown.join("cgroup"), format!("0::{cgroup}\n"))
    }
}

/// The boot that a node is in: the machine's own at first, then one of its own.
fn write_boot(root: &Path, node: &Node) -> io::Result<()> {
    let file = root.join("proc/sys/kernel/random/boot_id");
    if node.boots() <= 1 {
        return std::fs::copy("/proc/sys/kernel/random/boot_id", file).map(drop);
    }
    let host = node.host().bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let boot = node.boots();
    std::fs::write(file, format!("{boot:08x}-0000-4000-8000-{:012x}\n", host & 0xffff_ffff_ffff))
}

/// Says how long a node has been up: the machine's time at its first boot.
pub(super) fn show_uptime(root: &Path, play: &Play, node: &Node) -> io::Result<()> {
    let Some(booted) = node.booted() else { return Ok(()) };
    let up = (play.now() - booted).max(0.0) / play.speed;
    let fresh = root.join("proc/uptime.new");
    std::fs::write(&fresh, format!("{up:.2} 0.00\n"))?;
    std::fs::rename(fresh, root.join("proc/uptime"))
}

/// Makes the root of a node whose agent reads its boot and the time since then only.
pub(super) fn light(folder: &Path, node: &Node) -> io::Result<()> {
    std::fs::create_dir_all(folder.join("proc/sys/kernel/random"))?;
    let uptime = folder.join("proc/uptime");
    if !uptime.exists() {
        symlink("/proc/uptime", uptime)?;
    }
    write_boot(folder, node)
}

/// Links to everything in `from`, but for the names in `without`.
fn link_all(from: &Path, to: &Path, without: &[&str]) -> io::Result<()> {
    link_where(from, to, &|name| !without.contains(&name))
}

fn link_where(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(wanted) {
            symlink(from.join(&name), to.join(&name))?;
        }
    }
    Ok(())
}
