//! The cards of the node as owners are looked for: NVIDIA's from the driver, AMD's from sysfs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::device_id::DeviceId;
use super::files::{entries, number, read_text};
use crate::cards::Cards;

/// Most processes of a card that are looked at, and most entries of a folder of sysfs.
const USERS_MAX: usize = 512;
const ENTRIES_MAX: usize = 4_096;

/// A card, or a slice of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The card's UUID.
    pub(super) uuid: String,
    /// The GPU instance; for AMD's cards the partition. `None` for a whole card.
    pub(super) gi: Option<u32>,
}

/// A slice of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    /// What the slice itself is called: its UUID or its device.
    pub(super) name: String,
    /// Its GPU instance or partition.
    pub(super) gi: u32,
}

/// A card with who uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Board {
    /// The driver's index, the label `gpu`.
    pub(super) gpu: u32,
    /// Its UUID, else its serial number.
    pub(super) uuid: String,
    /// Its place on the bus.
    pub(super) bus: String,
    /// The number of its device file.
    pub(super) file: Option<u32>,
    /// Its slices; empty for a whole card.
    pub(super) slices: Vec<Slice>,
    /// The processes that compute on it, with their slice where it is known; `None` when the driver didn't tell.
    pub(super) users: Option<Vec<(u32, Option<u32>)>>,
}

impl Board {
    fn slice(&self, gi: Option<u32>) -> Place {
        Place { uuid: self.uuid.clone(), gi }
    }
}

/// Where a device is; `None` when no card of the node has this name.
pub(super) fn place_of(boards: &[Board], id: &DeviceId) -> Option<Place> {
    let at = |found: Option<&Board>, gi| found.map(|board| board.slice(gi));
    match id {
        DeviceId::Uuid(name) | DeviceId::Partition(name) => {
            let slice = boards.iter().find_map(|board| {
                let slice = board.slices.iter().find(|slice| slice.name.eq_ignore_ascii_case(name))?;
                Some(board.slice(Some(slice.gi)))
            });
            slice.or_else(|| at(boards.iter().find(|board| board.uuid.eq_ignore_ascii_case(name)), None))
        }
        DeviceId::Slice(uuid, gi) => at(boards.iter().find(|board| board.uuid == *uuid), Some(*gi)),
        DeviceId::File(file, gi) => {
            let by_file = boards.iter().find(|board| board.file == Some(*file));
            // Drivers that don't say their files number them as they number the cards.
            at(by_file.or_else(|| boards.iter().find(|b| b.file.is_none() && b.gpu == *file)), *gi)
        }
        DeviceId::Bus(bus) => {
            let board = boards.iter().find(|board| board.bus == *bus);
            // The first partition of an AMD card goes by the card's own place.
            at(board, board.and_then(|board| board.slices.iter().map(|slice| slice.gi).min()))
        }
    }
}

/// Finds the boards, and remembers what doesn't change.
#[derive(Debug)]
pub(super) struct Finder {
    proc: PathBuf,
    sys: PathBuf,
    files: HashMap<String, Option<u32>>,
}

impl Finder {
    pub(super) fn new(proc: &Path, sys: &Path) -> Self {
        Self { proc: proc.to_owned(), sys: sys.to_owned(), files: HashMap::new() }
    }

    /// The boards as they are now.
    pub(super) fn find(&mut self, cards: &Cards) -> Vec<Board> {
        let mut found: Vec<Board> = cards.all.iter().map(|card| self.nvidia(card)).collect();
        found.extend(amd(&self.sys));
        found
    }

    fn nvidia(&mut self, card: &crate::cards::Card) -> Board {
        let device = &card.device;
        let slices = device
            .instances
            .iter()
            .filter_map(|instance| Some(Slice { name: instance.uuid.clone(), gi: instance.gpu_instance? }));
        let users = card.processes.as_ref().ok().map(|all| {
            let computing = all.iter().filter(|process| process.computes).take(USERS_MAX);
            computing.map(|process| (process.pid, process.gpu_instance)).collect()
        });
        let bus = device.pci_bus_id.clone();
        let file =
            *self.files.entry(bus.clone()).or_insert_with(|| device_file(&self.proc, &device.pci_bus_id));
        let (gpu, uuid) = (device.index, device.uuid.clone());
        Board { gpu, uuid, bus, file, slices: slices.collect(), users }
    }
}

/// Which `/dev/nvidia<n>` is a card's, as the driver says in `/proc`.
fn device_file(proc: &Path, bus: &str) -> Option<u32> {
    if bus.is_empty() {
        return None;
    }
    let text = read_text(&proc.join("driver/nvidia/gpus").join(bus).join("information"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
    line.trim().parse().ok()
}

/// AMD's cards, in the order of their places on the bus.
fn amd(sys: &Path) -> Vec<Board> {
    let kfd = sys.join("class/kfd/kfd");
    let mut nodes: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    let mut all: Vec<(u32, PathBuf)> = entries(&kfd.join("topology/nodes"), ENTRIES_MAX)
        .into_iter()
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path)))
        .collect();
    all.sort_unstable();
    for node in all.iter().filter_map(|(_, path)| node(path)) {
        nodes.entry(node.bus.clone()).or_default().push(node);
    }
    if nodes.is_empty() {
        return Vec::new();
    }
    let users = kfd_users(&kfd);
    let partitions = partitions(sys);
    let boards = nodes.into_iter().enumerate().map(|(index, (bus, nodes))| {
        let is_cut = nodes.len() > 1;
        let mut board = Board { gpu: index as u32, bus, users: Some(Vec::new()), ..Board::default() };
        let device = sys.join("bus/pci/devices").join(&board.bus);
        let serial = ["serial_number", "unique_id"].iter().filter_map(|name| read_text(&device.join(name)));
        let mut names = serial.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        board.uuid = names.next().unwrap_or_else(|| board.bus.clone());
        for (gi, node) in nodes.iter().enumerate() {
            let gi = is_cut.then_some(gi as u32);
            let own = users.iter().filter(|(gpu_id, _)| *gpu_id == node.gpu_id);
            board.users.get_or_insert_default().extend(own.take(USERS_MAX).map(|(_, pid)| (*pid, gi)));
            if let Some(gi) = gi {
                let name = partitions.get(&node.render_minor).cloned().unwrap_or_default();
                board.slices.push(Slice { name, gi });
            }
        }
        board
    });
    boards.collect()
}

/// A card, or a partition of one, as the kernel's compute driver lists it.
struct Node {
    gpu_id: u64,
    bus: String,
    render_minor: u64,
}

fn node(path: &Path) -> Option<Node> {
    let gpu_id = number(&path.join("gpu_id")).filter(|id| *id != 0)?;
    let text = read_text(&path.join("properties"))?;
    let property = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.split_once(' '));
        values.find(|(found, _)| *found == name).and_then(|(_, value)| value.trim().parse::<u64>().ok())
    };
    let (domain, location) = (property("domain").unwrap_or_default(), property("location_id")?);
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    // A partition's number stands where the function would; cards of their own have none but 0.
    let bus = format!("{domain:04x}:{bus:02x}:{device:02x}.{}", if device == 0 { 0 } else { function });
    Some(Node { gpu_id, bus, render_minor: property("drm_render_minor").unwrap_or_default() })
}

/// Which processes have memory of which card: the driver's id of it, and the process.
fn kfd_users(kfd: &Path) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    for process in entries(&kfd.join("proc"), ENTRIES_MAX) {
        let pid = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        for file in entries(&process, ENTRIES_MAX) {
            let id = file.file_name().and_then(|name| name.to_str()?.strip_prefix("vram_")?.parse().ok());
            if let (Some(id), Some(1..)) = (id, number(&file)) {
                found.push((id, pid));
            }
        }
    }
    found
}

/// The devices of partitions by the number of their file under `/dev/dri`.
fn partitions(sys: &Path) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    for device in entries(&sys.join("devices/platform"), ENTRIES_MAX) {
        let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with("amdgpu_xcp") {
            continue;
        }
        for file in entries(&device.join("drm"), ENTRIES_MAX) {
            let minor =
                file.file_name().and_then(|name| name.to_str()?.strip_prefix("renderD")?.parse().ok());
            found.extend(minor.map(|minor: u64| (minor, name.to_owned())));
        }
    }
    found
}
