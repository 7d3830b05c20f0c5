//! Addresses, and the link between the machine and the node.
//!
//! ```text
//! machine ── bko10-200 (10.200.0.1) ──veth── eth0 (10.200.0.2) node ── cni0 (10.200.64.1) ── pods
//! ```
//!
//! The node has a network namespace of its own, so its bridge, its iptables rules and its ports meet nobody else's.
//! The machine has one route: the whole block, services included, goes to the node.

mod firewall;
mod forwarding;

use std::fmt;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::node::Node;
use crate::{cache, process, progress};

/// How the link of every cluster begins, and of nothing else.
const LINK_PREFIX: &str = "bko";

/// A set of addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    address: Ipv4Addr,
    length: u8,
}

impl Prefix {
    const fn new(address: Ipv4Addr, length: u8) -> Self {
        Self { address, length }
    }

    /// Reads `10.0.0.0/8`, or a lone address.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let length = length.parse().ok().filter(|length| *length <= 32)?;
        Some(Self { address: address.parse().ok()?, length })
    }

    fn overlaps(self, other: Self) -> bool {
        let length = u32::from(self.length.min(other.length));
        let difference = self.address.to_bits() ^ other.address.to_bits();
        difference.checked_shr(32 - length).unwrap_or(0) == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The addresses of one cluster: a `/16`, named by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block(u8, u8);

impl Block {
    /// All blocks there are, in the order in which they are tried.
    ///
    /// A company's network may claim all of 10.0.0.0/8, hence the second range.
    pub(crate) fn candidates() -> impl Iterator<Item = Self> {
        (200..=250).map(|second| Self(10, second)).chain((18..=31).map(|second| Self(172, second)))
    }

    /// The first block that nothing on the machine uses.
    fn choose(used: &[Prefix]) -> Option<Self> {
        Self::candidates().find(|block| block.free(used))
    }

    fn free(self, used: &[Prefix]) -> bool {
        !used.iter().any(|prefix| prefix.overlaps(self.all()))
    }

    /// Every address of the cluster.
    pub(crate) fn all(self) -> Prefix {
        Prefix::new(self.address(0, 0), 16)
    }

    /// The machine, as the node and its pods see it.
    pub(crate) fn machine(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// The node, where the API server listens.
    pub(crate) fn node(self) -> Ipv4Addr {
        self.address(0, 2)
    }

    /// Services.
    pub(crate) fn services(self) -> Prefix {
        Prefix::new(self.address(16, 0), 20)
    }

    /// The Service `kubernetes`: always the first of the range.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        self.address(16, 1)
    }

    /// The Service `kube-dns`.
    pub(crate) fn dns_service(self) -> Ipv4Addr {
        self.address(16, 10)
    }

    /// Pods.
    pub(crate) fn pods(self) -> Prefix {
        Prefix::new(self.address(64, 0), 18)
    }

    /// A name that no other cluster on the machine has: of the link, the cgroup and the firewall rules.
    pub(crate) fn tag(self) -> String {
        format!("{LINK_PREFIX}{}-{}", self.0, self.1)
    }

    /// Reads what [`Self::tag`] wrote.
    pub(crate) fn from_tag(tag: &str) -> Option<Self> {
        Self::candidates().find(|block| block.tag() == tag)
    }

    fn address(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(self.0, self.1, third, fourth)
    }
}

/// Kept while a block is chosen and its link made, so that two clusters never take the same.
pub(crate) fn lock() -> Result<File> {
    cache::lock(&Path::new(RUN).join("network.lock"), "choosing addresses for a cluster")
}

/// What all clusters of the machine share. Emptied by a reboot, which also undoes what is recorded here.
pub(crate) const RUN: &str = "/run/buildkite-operator";

/// A block for a new cluster.
pub(crate) fn choose() -> Result<Block> {
    Block::choose(&used()?).context("no free block of addresses: take a cluster down, or remove stale routes")
}

/// Checks that nobody has taken the block while the cluster was not running.
pub(crate) fn check_free(block: Block) -> Result<()> {
    if block.free(&used()?) {
        return Ok(());
    }
    bail!("something else uses {} by now: run `cluster down`, then `cluster up`", block.all())
}

fn used() -> Result<Vec<Prefix>> {
    Ok(prefixes(&list(&["address"])?, &list(&ROUTES)?))
}

const ROUTES: [&str; 4] = ["route", "show", "table", "all"];

fn list(arguments: &[&str]) -> Result<Value> {
    let text = process::run(Command::new("ip").args(["-json", "-4"]).args(arguments))?;
    serde_json::from_str(&text).context("reading what ip printed")
}

fn entries(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// The prefixes in what `ip address` and `ip route` print; the default route claims nothing.
fn prefixes(addresses: &Value, routes: &Value) -> Vec<Prefix> {
    let addresses = entries(addresses).into_iter().flat_map(|link| entries(&link["addr_info"]));
    let addresses = addresses.filter_map(|address| {
        let length = address["prefixlen"].as_u64()?;
        Prefix::parse(&format!("{}/{length}", address["local"].as_str()?))
    });
    let routes = entries(routes).into_iter().filter_map(|route| Prefix::parse(route["dst"].as_str()?));
    addresses.chain(routes).collect()
}

/// Whether the link is there.
pub(crate) fn linked(block: Block) -> bool {
    Path::new("/sys/class/net").join(block.tag()).exists()
}

/// Makes the link to the node, or completes it.
pub(crate) fn connect(block: Block, node: &Node) -> Result<()> {
    let link = block.tag();
    if !linked(block) {
        let owner = node.pid().to_string();
        process::run(
            Command::new("ip")
                .args(["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &owner]),
        )?;
    }
    // The node first: the machine's route is refused as long as the other end is down.
    batch(node.command("ip"), &node_setup(block))?;
    batch(Command::new("ip"), &machine_setup(block))?;
    let opened = forwarding::acquire().and_then(|()| firewall::open(&link, &block.all().to_string()));
    if let Err(error) = opened {
        progress::note(&format!("pods will not reach beyond this machine: {error:#}"));
    }
    Ok(())
}

fn node_setup(block: Block) -> Vec<String> {
    vec![
        "link set lo up".to_owned(),
        format!("address replace {}/30 dev eth0", block.node()),
        "link set eth0 up".to_owned(),
        format!("route replace default via {}", block.machine()),
    ]
}

fn machine_setup(block: Block) -> Vec<String> {
    let link = block.tag();
    vec![
        format!("address replace {}/30 dev {link}", block.machine()),
        format!("link set {link} up"),
        format!("route replace {} via {} dev {link}", block.all(), block.node()),
    ]
}

/// Hands lines to `ip -batch`, which stops at the first that fails.
fn batch(mut ip: Command, lines: &[String]) -> Result<()> {
    process::run(ip.args(["-batch", "-"]).stdin(process::input(&lines.join("\n"))?))?;
    Ok(())
}

/// Removes the link; what is not there is fine.
pub(crate) fn disconnect(block: Block) -> Result<()> {
    if linked(block) {
        let removed = process::run(Command::new("ip").args(["link", "delete", &block.tag()]));
        // The kernel removes the link too, a moment after the node's last process is gone.
        if linked(block) {
            removed?;
        }
    }
    firewall::close(&block.tag())
}

/// What of the connection is there: the link, its routes, firewall rules.
pub(crate) fn existing(block: Block) -> Result<Vec<String>> {
    let tag = block.tag();
    let link = linked(block).then(|| format!("link {tag}"));
    let routes = routes_over(&list(&ROUTES)?, &tag).into_iter().map(|route| format!("route {route}"));
    let rules = firewall::existing(&tag).into_iter().map(|rule| format!("firewall rule {rule}"));
    Ok(link.into_iter().chain(routes).chain(rules).collect())
}

/// The destinations that are reached over a link, in what `ip route` prints.
fn routes_over(routes: &Value, link: &str) -> Vec<String> {
    let routes = entries(routes).into_iter().filter(|route| route["dev"] == link);
    routes.filter_map(|route| Some(route["dst"].as_str()?.to_owned())).collect()
}

/// Undoes what clusters share on the machine, once there is none. Removes the lock, so it comes last.
pub(crate) fn retire() -> Result<()> {
    forwarding::release()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).unwrap()
    }

    #[test]
    fn overlap_is_symmetric_and_goes_by_the_shorter_prefix() {
        let cases = [
            ("10.200.0.0/16", "10.200.5.0/24", true),
            ("10.200.0.0/16", "10.0.0.0/8", true),
            ("10.200.0.0/16", "10.201.0.0/16", false),
            ("10.200.0.0/16", "10.200.255.255", true),
            ("10.200.0.0/16", "0.0.0.0/0", true),
            ("172.18.0.0/16", "172.17.0.0/16", false),
        ];
        for (a, b, expected) in cases {
            assert_eq!(prefix(a).overlaps(prefix(b)), expected, "{a} {b}");
            assert_eq!(prefix(b).overlaps(prefix(a)), expected, "{b} {a}");
        }
    }

    #[test]
    fn nonsense_is_no_prefix() {
        for text in ["default", "10.0.0.0/33", "10.0.0/8", "fe80::/64", ""] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_free_block_is_chosen() {
        assert_eq!(Block::choose(&[]), Some(Block(10, 200)));
        assert_eq!(Block::choose(&[prefix("10.200.0.2/30"), prefix("10.201.64.0/18")]), Some(Block(10, 202)));
        assert_eq!(Block::choose(&[prefix("10.0.0.0/8")]), Some(Block(172, 18)));
        assert_eq!(Block::choose(&[prefix("0.0.0.0/1"), prefix("128.0.0.0/1")]), None);
    }

    #[test]
    fn the_parts_of_a_block_lie_in_it_and_apart_and_no_two_blocks_meet() {
        let link = |block: Block| Prefix::new(block.address(0, 0), 30);
        let blocks: Vec<_> = Block::candidates().collect();
        for (number, block) in blocks.iter().enumerate() {
            let parts = [link(*block), block.services(), block.pods()];
            for (index, part) in parts.iter().enumerate() {
                assert!(part.overlaps(block.all()) && part.length > block.all().length);
                assert!(!parts[index + 1..].iter().any(|other| other.overlaps(*part)));
            }
            for address in [block.api_service(), block.dns_service()] {
                assert!(Prefix::new(address, 32).overlaps(block.services()));
            }
            assert!(blocks[number + 1..].iter().all(|other| !other.all().overlaps(block.all())));
            assert!(block.tag().len() < 16, "the kernel takes no longer name for a link");
        }
    }

    #[test]
    fn addresses_and_routes_are_read_from_ip() {
        let addresses = json!([
            {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
            {"ifname": "eth0", "addr_info": [{"local": "192.0.2.2", "prefixlen": 24}]},
            {},
        ]);
        let routes = json!([{"dst": "default"}, {"dst": "10.7.0.0/16"}, {"dst": "192.0.2.255"}]);
        let expected = ["127.0.0.1/8", "192.0.2.2/24", "10.7.0.0/16", "192.0.2.255/32"];
        assert_eq!(prefixes(&addresses, &routes), expected.map(prefix));
    }

    #[test]
    fn routes_are_told_by_their_link() {
        let routes = json!([
            {"dst": "default", "dev": "eth0"},
            {"dst": "10.200.0.0/16", "gateway": "10.200.0.2", "dev": "bko10-200"},
            {"dst": "10.201.0.0/16", "gateway": "10.201.0.2", "dev": "bko10-201"},
        ]);
        assert_eq!(routes_over(&routes, "bko10-200"), ["10.200.0.0/16"]);
    }

    #[test]
    fn the_machine_has_one_route_to_the_whole_block() {
        let setup = machine_setup(Block(10, 203));
        assert_eq!(setup.last().unwrap(), "route replace 10.203.0.0/16 via 10.203.0.2 dev bko10-203");
    }
}
