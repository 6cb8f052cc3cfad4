//! What a device plugin calls a device, as the kubelet repeats it.

/// A device by one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceId {
    /// A card or a slice by its UUID: `GPU-...`, `MIG-...`.
    Uuid(String),
    /// A slice as drivers before R470 name it: the card's UUID and the GPU instance.
    Slice(String, u32),
    /// The number of the card's device file, and the GPU instance of a slice: `nvidia0/gi1`.
    File(u32, Option<u32>),
    /// The place on the bus: `0000:83:00.0`.
    Bus(String),
    /// A partition of an AMD card: `amdgpu_xcp_30`.
    Partition(String),
}

/// Longest id that is looked at.
const BYTES_MAX: usize = 256;

impl DeviceId {
    /// Reads an id; `None` for one of a form that we don't know. A replica (`<id>::3`, `nvidia0/vgpu2`) is the
    /// device that it is a replica of.
    pub(super) fn read(id: &str) -> Option<Self> {
        if id.len() > BYTES_MAX {
            return None;
        }
        let id = id.split_once("::").map_or(id, |(device, _)| device);
        if let Some(rest) = id.strip_prefix("MIG-GPU-") {
            let mut parts = rest.split('/');
            let card = parts.next().filter(|uuid| is_uuid(uuid))?;
            return Some(Self::Slice(format!("GPU-{card}"), parts.next()?.parse().ok()?));
        }
        if let Some(rest) = id.strip_prefix("nvidia") {
            let mut parts = rest.split('/');
            let file = parts.next()?.parse().ok()?;
            let slice = parts.find_map(|part| part.strip_prefix("gi")).map(str::parse);
            return Some(Self::File(file, slice.transpose().ok()?));
        }
        if let Some(number) = id.strip_prefix("amdgpu_xcp_") {
            return number.parse::<u32>().ok().map(|_| Self::Partition(id.to_owned()));
        }
        let by_uuid = ["GPU-", "MIG-", "gpu-", "mig-"].iter().find_map(|prefix| id.strip_prefix(prefix));
        if let Some(uuid) = by_uuid.filter(|uuid| is_uuid(uuid)) {
            return Some(Self::Uuid(format!("{}{uuid}", id[..4].to_ascii_uppercase())));
        }
        is_bus_id(id).then(|| Self::Bus(id.to_ascii_lowercase()))
    }
}

/// Whether a text can be a UUID of a driver: tools for tests have shorter ones than the real.
fn is_uuid(text: &str) -> bool {
    (8..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn is_bus_id(text: &str) -> bool {
    let lengths: Vec<usize> = text.split([':', '.']).map(str::len).collect();
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    is_hex && matches!(lengths[..], [4..=8, 2, 2, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &str, wanted: Option<DeviceId>) {
        assert_eq!(DeviceId::read(id), wanted, "{id}");
    }

    #[test]
    fn ids_of_every_plugin_are_read() {
        let uuid = "8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21";
        let card = format!("GPU-{uuid}");
        check(&card, Some(DeviceId::Uuid(card.clone())));
        check(&format!("{card}::7"), Some(DeviceId::Uuid(card.clone())));
        check(&format!("gpu-{uuid}"), Some(DeviceId::Uuid(card.clone())));
        check(&format!("MIG-{uuid}::0"), Some(DeviceId::Uuid(format!("MIG-{uuid}"))));
        check(&format!("MIG-{card}/5/0"), Some(DeviceId::Slice(card, 5)));
        check("nvidia3", Some(DeviceId::File(3, None)));
        check("nvidia0/gi1/vgpu2", Some(DeviceId::File(0, Some(1))));
        check("nvidia0/vgpu2", Some(DeviceId::File(0, None)));
        check("0000:83:00.0", Some(DeviceId::Bus("0000:83:00.0".into())));
        check("amdgpu_xcp_30", Some(DeviceId::Partition("amdgpu_xcp_30".into())));
    }

    #[test]
    fn what_is_no_device_is_none() {
        let long = format!("GPU-{}", "a".repeat(300));
        for id in
            ["", "GPU-", "GPU-hello world", "nvidia", "nvidiax", "nvidia0/gix", "::1", "gpu-0", &long, "eth0"]
        {
            check(id, None);
        }
    }
}
