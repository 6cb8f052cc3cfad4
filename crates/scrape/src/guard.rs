//! Which addresses are never asked, whatever a name resolves to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Metadata services of clouds outside the link-local ranges.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Why an address is not asked; none when it may be.
///
/// Link-local ranges hold the metadata services of clouds, which hand out credentials. Loopback and
/// private addresses are ordinary targets: only the operator names targets.
pub fn refusal(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if METADATA.contains(&address) {
        Some("a cloud's metadata service")
    } else if is_link_local {
        Some("a link-local address, where metadata services are")
    } else if address.is_unspecified() {
        Some("no address")
    } else if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("an address of many")
    } else {
        None
    }
}

/// Resolves once and refuses what must not be asked; the connection goes to the address checked.
#[derive(Debug)]
pub(crate) struct GuardedResolver {
    pub(crate) allow_link_local: bool,
    pub(crate) inner: DefaultResolver,
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        if self.allow_link_local {
            return Ok(found);
        }
        match found.iter().find_map(|address| refusal(address.ip()).map(|why| (address.ip(), why))) {
            None => Ok(found),
            Some((address, why)) => Err(ureq::Error::Other(Box::new(RefusedAddress { address, why }))),
        }
    }
}

/// An address that is not asked.
#[derive(Debug, thiserror::Error)]
#[error("the address {address} is {why}, and is not asked")]
struct RefusedAddress {
    address: IpAddr,
    why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_refused_in_every_spelling() {
        let check = |address: &str, is_refused: bool| {
            assert_eq!(refusal(address.parse().unwrap()).is_some(), is_refused, "{address}");
        };
        check("169.254.169.254", true);
        check("169.254.0.1", true);
        check("::ffff:169.254.169.254", true);
        check("fe80::1", true);
        check("fd00:ec2::254", true);
        check("100.100.100.200", true);
        check("0.0.0.0", true);
        check("::", true);
        check("224.0.0.1", true);
        check("255.255.255.255", true);
        check("127.0.0.1", false);
        check("::1", false);
        check("10.0.0.1", false);
        check("192.168.1.1", false);
        check("fd00::1", false);
        check("8.8.8.8", false);
    }
}
