//! What the kubelet has given to whom.

use prost::Message;

use super::boards::{Board, Place, place_of};
use super::device_id::DeviceId;

/// Answer to `List`: every pod of the node with what it was given. Field numbers are those of the
/// `v1.PodResourcesLister` of Kubernetes; what is not asked for is left out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListResponse {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub(super) pods: Vec<Pod>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Pod {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub(super) containers: Vec<Container>,
}

/// A container of a pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Container {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Devices of device plugins.
    #[prost(message, repeated, tag = "2")]
    pub(super) devices: Vec<Devices>,
    /// Devices of claims.
    #[prost(message, repeated, tag = "5")]
    pub(super) claims: Vec<Claim>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Devices {
    /// The resource, such as `nvidia.com/gpu`.
    #[prost(string, tag = "1")]
    pub(super) resource: String,
    /// The ids that its plugin gave them.
    #[prost(string, repeated, tag = "2")]
    pub(super) ids: Vec<String>,
}

/// A claim of dynamic resource allocation.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Claim {
    /// Its devices.
    #[prost(message, repeated, tag = "4")]
    pub(super) resources: Vec<ClaimResource>,
}

/// A device of a claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ClaimResource {
    /// Its names for container runtimes.
    #[prost(message, repeated, tag = "1")]
    pub(super) cdi: Vec<Cdi>,
    /// The driver that gives it, such as `gpu.nvidia.com`.
    #[prost(string, tag = "2")]
    pub(super) driver: String,
    /// The driver's name of it.
    #[prost(string, tag = "4")]
    pub(super) device: String,
}

/// A name for container runtimes: `<vendor>/<class>=<device>`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Cdi {
    /// The name.
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// Answer to `GetAllocatableResources`: what could be given.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AllocatableResponse {
    /// Devices of device plugins.
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<Devices>,
}

/// A device that a container was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Given {
    /// The pod's namespace.
    pub(super) namespace: String,
    /// The pod.
    pub(super) pod: String,
    /// The container.
    pub(super) container: String,
    /// What the plugin calls the device.
    pub(super) id: String,
}

/// An allocation, brought to the cards of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocation {
    /// Where the device is; `None` when the node has no such card.
    pub(super) place: Option<Place>,
    pub(super) given: Given,
}

/// Most devices of an answer that are looked at, GPUs only: 4,096 cards' worth of replicas is no node.
const GIVEN_MAX: usize = 16_384;
/// The longest names that Kubernetes has.
const NAME_BYTES_MAX: usize = 253;

/// The GPUs of an answer, and how many entries made no sense.
pub(super) fn given(answer: &ListResponse) -> (Vec<Given>, usize) {
    let mut found = Vec::new();
    let mut senseless = 0;
    for pod in &answer.pods {
        for container in &pod.containers {
            let plugged = container.devices.iter().filter(|devices| is_gpu(&devices.resource));
            let claimed = container.claims.iter().flat_map(|claim| &claim.resources).filter_map(claimed);
            let ids = plugged.flat_map(|devices| &devices.ids).map(String::as_str).chain(claimed);
            for id in ids {
                let names = [&*pod.namespace, &*pod.name, &*container.name];
                if found.len() >= GIVEN_MAX || !names.iter().all(|name| is_name(name)) {
                    senseless += 1;
                    continue;
                }
                let [namespace, pod, container] = names.map(str::to_owned);
                let id: String = id.chars().take(NAME_BYTES_MAX).collect();
                found.push(Given { namespace, pod, container, id });
            }
        }
    }
    (found, senseless)
}

/// The GPUs that could be given.
pub(super) fn offered(answer: &AllocatableResponse) -> Vec<String> {
    let gpus = answer.devices.iter().filter(|devices| is_gpu(&devices.resource));
    gpus.flat_map(|devices| devices.ids.iter().cloned()).take(GIVEN_MAX).collect()
}

/// Whether a resource is a GPU or a slice of one. Replicas may go under names of their own.
fn is_gpu(resource: &str) -> bool {
    let Some((vendor, name)) = resource.split_once('/') else { return false };
    match vendor {
        "nvidia.com" => name.starts_with("gpu") || name.starts_with("mig-"),
        "amd.com" => name.starts_with("gpu") || name.ends_with("_nps1") || name.ends_with("_nps4"),
        _ => false,
    }
}

/// The device of a claim, where one of its names is a UUID or a place on the bus.
fn claimed(resource: &ClaimResource) -> Option<&str> {
    if !resource.driver.starts_with("gpu.") {
        return None;
    }
    let cdi = resource.cdi.iter().filter_map(|cdi| cdi.name.rsplit('=').next());
    std::iter::once(&*resource.device).chain(cdi).find(|name| DeviceId::read(name).is_some())
}

/// Whether Kubernetes can have given a name.
fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fit)
}

/// Where everything that was given is.
pub(super) fn placed(given: &[Given], boards: &[Board]) -> Vec<Allocation> {
    let place = |given: &Given| DeviceId::read(&given.id).and_then(|id| place_of(boards, &id));
    given.iter().map(|given| Allocation { place: place(given), given: given.clone() }).collect()
}
