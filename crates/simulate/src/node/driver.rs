//! How the node's driver answers: a scenario of the fake driver library.

use std::fmt::Write;

use super::{Card, Node};

impl Node {
    /// The scenario of the fake driver library for this moment. `pids` are the processes on each card.
    pub fn driver_scenario(&self, pids: &dyn Fn(u32) -> Vec<u32>) -> String {
        let mut text = format!(
            "steady = true\nload = {}\ndriver_version = \"{}\"\n",
            u64::from(self.boots),
            self.driver
        );
        for (gpu, card) in self.cards.iter().enumerate() {
            if self.is_up {
                card.answer(&pids(gpu as u32), &mut text);
            }
        }
        text
    }
}

impl Card {
    fn answer(&self, pids: &[u32], text: &mut String) {
        let profile = self.profile;
        let [major, minor] = profile.capability;
        let _ = write!(
            text,
            "\n[[gpu]]\nuuid = \"{}\"\nname = \"{}\"\nbus_id = \"0000{}\"\ncompute_capability = [{major}, {minor}]\nlinks = {}\n",
            self.uuid,
            profile.name,
            self.bus_id.to_uppercase(),
            profile.links
        );
        if !self.is_present {
            // The driver keeps a card that fell off the bus in its list, and every call about it fails.
            text.push_str("gone = true\n");
            return;
        }
        if !pids.is_empty() {
            let rows: Vec<String> = pids
                .iter()
                .map(|pid| {
                    let memory = self.memory_used_bytes / pids.len() as f64;
                    format!("{{ pid = {pid}, memory = {memory:.0} }}")
                })
                .collect();
            let _ = writeln!(text, "processes = [{}]", rows.join(", "));
        }
        text.push_str("[gpu.values]\n");
        for (name, value) in self.values() {
            let _ = writeln!(text, "{name} = {value:.0}");
        }
    }

    /// Answers by name, as the fake library knows them.
    fn values(&self) -> Vec<(String, f64)> {
        let profile = self.profile;
        let used = self.memory_used_bytes;
        let [power, sw_thermal, hw_thermal, brake] = self.throttled;
        let numbers: [(&str, f64); 37] = [
            ("utilization", self.busy * 100.0),
            ("utilization_memory", self.dram * 100.0),
            ("memory_total", profile.memory_bytes as f64),
            ("memory_used", used),
            ("memory_reserved", 6.4e8),
            ("temperature", self.temperature),
            ("margin", 87.0 - self.temperature),
            ("field_82", self.temperature + 8.0),
            ("power_mw", self.power_watts * 1e3),
            ("limit_mw", profile.power_limit_watts * 1e3),
            ("energy_mj", self.energy_joules * 1e3),
            ("graphics_mhz", self.clock_mhz),
            ("sm_mhz", self.clock_mhz),
            ("memory_mhz", profile.memory_clock_mhz),
            ("sm_max_mhz", profile.clock_max_mhz),
            ("throttle_mask", self.throttle_mask as f64),
            ("field_74", power * 1e9),
            ("field_75", (sw_thermal + hw_thermal) * 1e9),
            ("field_269", sw_thermal * 1e9),
            ("field_270", hw_thermal * 1e9),
            ("field_271", brake * 1e9),
            ("field_230", 0.0),
            ("field_138", self.link_bytes / 1024.0),
            ("field_139", self.link_bytes / 1024.0),
            ("pcie_generation", 5.0),
            ("pcie_generation_max", 5.0),
            ("pcie_width", 16.0),
            ("pcie_width_max", 16.0),
            ("pcie_replays", 0.0),
            ("ecc_corrected_volatile", self.corrected),
            ("ecc_uncorrected_volatile", 0.0),
            ("ecc_corrected_aggregate", self.corrected),
            ("ecc_uncorrected_aggregate", 0.0),
            ("rows_failed", 0.0),
            ("rows_corrected", 0.0),
            ("rows_uncorrected", self.remapped as f64),
            ("rows_pending", f64::from(u8::from(self.remap_pending))),
        ];
        let mut all: Vec<(String, f64)> =
            numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if profile.capability[0] >= 9 {
            let shares = [
                (1, self.busy),
                (2, self.sm_active),
                (3, self.occupancy),
                (5, self.tensor),
                (10, self.dram),
                (11, 0.0),
                (12, self.sm_active * 0.1),
                (13, self.sm_active * 0.2),
            ];
            all.extend(shares.map(|(id, share)| (format!("gpm_{id}"), share * 100_000.0)));
            all.push(("gpm_20".to_owned(), self.dram * 2e6));
            all.push(("gpm_21".to_owned(), self.dram * 2e6));
        }
        let errors = self.link_errors.iter().enumerate();
        all.extend(errors.map(|(link, count)| (format!("nvlink_errors_{link}_2"), *count)));
        all
    }
}
