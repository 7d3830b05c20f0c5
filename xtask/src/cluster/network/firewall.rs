//! The machine's rules that let pods reach beyond it. Each carries the cluster's tag, and goes with it.

use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// A rule: the table, the chain and what follows.
type Rule = (&'static str, &'static str, Vec<String>);

/// Adds the rules that are not there yet.
pub(super) fn open(tag: &str, addresses: &str) -> Result<()> {
    for rule in rules(tag, addresses) {
        if process::run(&mut iptables("--check", &rule)).is_err() {
            process::run(&mut iptables("--insert", &rule))?;
        }
    }
    Ok(())
}

/// Removes the rules.
pub(super) fn close(tag: &str, addresses: &str) -> Result<()> {
    for rule in rules(tag, addresses) {
        // Deleting stops at the first match, so ask again until none is left.
        for _ in 0..10 {
            if process::run(&mut iptables("--check", &rule)).is_err() {
                break;
            }
            process::run(&mut iptables("--delete", &rule))?;
        }
        if process::run(&mut iptables("--check", &rule)).is_ok() {
            bail!("cannot remove the firewall rules of {tag}: see iptables-save");
        }
    }
    Ok(())
}

/// Pods' packets leave with the machine's address, and a strict firewall lets them pass.
fn rules(tag: &str, addresses: &str) -> [Rule; 3] {
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    let mark = format!("-m comment --comment {tag}");
    [
        (
            "nat",
            "POSTROUTING",
            words(format!("--source {addresses} ! --out-interface {tag} {mark} -j MASQUERADE")),
        ),
        ("filter", "FORWARD", words(format!("--in-interface {tag} {mark} -j ACCEPT"))),
        ("filter", "FORWARD", words(format!("--out-interface {tag} {mark} -j ACCEPT"))),
    ]
}

fn iptables(action: &str, (table, chain, rule): &Rule) -> Command {
    let mut command = Command::new("iptables");
    command.args(["--wait", "--table", table, action, chain]).args(rule);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_carries_the_tag_in_its_comment() {
        for rule in rules("bko10-200", "10.200.0.0/16") {
            let line = process::line(&iptables("--check", &rule));
            assert!(line.contains("--comment bko10-200 -j "), "{line}");
            assert!(line.starts_with("iptables --wait --table "), "{line}");
        }
    }
}
