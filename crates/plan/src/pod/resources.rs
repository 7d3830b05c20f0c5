//! Requests of the operator's own containers, where the configuration names none: what they use while they wait. Requests that are
//! too large keep jobs from nodes that have room for them.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity};

/// Of `agent`.
pub(super) const AGENT: (&str, &str) = ("10m", "32Mi");
/// Of `checkout`.
pub(super) const CHECKOUT: (&str, &str) = ("10m", "32Mi");
/// Of the init containers.
pub(super) const INIT: (&str, &str) = ("10m", "16Mi");
/// Of exporters.
pub(super) const EXPORTER: (&str, &str) = ("10m", "32Mi");

/// What is configured, or else these requests of processor and memory.
pub(super) fn or_small(
    configured: Option<&ResourceRequirements>,
    (cpu, memory): (&str, &str),
) -> ResourceRequirements {
    let small = || ResourceRequirements {
        requests: Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ])),
        ..ResourceRequirements::default()
    };
    configured.cloned().unwrap_or_else(small)
}
