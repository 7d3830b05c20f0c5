//! The machine's rules that let pods reach beyond it. Each carries the cluster's tag, and goes with it.

use std::process::Command;

use anyhow::{Result, ensure};

use super::LINK_PREFIX;
use crate::process;

/// The tables that have rules of a cluster.
const TABLES: [&str; 2] = ["nat", "filter"];

/// A rule: the table, the chain and what follows.
type Rule = (&'static str, &'static str, String);

/// Adds the rules that are not there yet.
pub(super) fn open(tag: &str, addresses: &str) -> Result<()> {
    for (table, chain, rule) in rules(tag, addresses) {
        let iptables = |action| iptables(table, &format!("{action} {chain} {rule}"));
        if process::run(&mut iptables("--check")).is_err() {
            process::run(&mut iptables("--insert"))?;
        }
    }
    Ok(())
}

/// Removes whatever carries the tag.
pub(super) fn close(tag: &str) -> Result<()> {
    for table in TABLES {
        for rule in list(table, tag) {
            process::run(&mut iptables(table, &format!("--delete {rule}")))?;
        }
    }
    let left = existing(tag);
    ensure!(left.is_empty(), "cannot remove the firewall rules of {tag}: {}", left.join(", "));
    Ok(())
}

/// The rules that carry the tag.
pub(super) fn existing(tag: &str) -> Vec<String> {
    let of_table = |table| list(table, tag).into_iter().map(move |rule| format!("{table} {rule}"));
    TABLES.into_iter().flat_map(of_table).collect()
}

/// A machine that cannot list its rules has none.
fn list(table: &str, tag: &str) -> Vec<String> {
    tagged(&process::run(&mut iptables(table, "--list-rules")).unwrap_or_default(), tag)
}

/// Those of the listed rules that carry the tag: the chain and what follows.
fn tagged(listing: &str, tag: &str) -> Vec<String> {
    let rules = listing.lines().filter_map(|line| line.strip_prefix("-A "));
    let comment = |rule: &&str| rule.split(' ').skip_while(|word| *word != "--comment").nth(1) == Some(tag);
    rules.filter(comment).map(str::to_owned).collect()
}

/// Pods' packets leave with the machine's address, and a strict firewall lets them and their answers pass. The
/// machine passes packets on, so its neighbours could send some of their own: only clusters may start a conversation.
/// The machine's own packets are not passed on but sent, and meet none of this.
fn rules(tag: &str, addresses: &str) -> [Rule; 4] {
    let mark = format!("-m comment --comment {tag}");
    let answers = "-m conntrack --ctstate RELATED,ESTABLISHED";
    let others = format!("! --in-interface {LINK_PREFIX}+ -m conntrack ! --ctstate RELATED,ESTABLISHED");
    [
        ("nat", "POSTROUTING", format!("--source {addresses} ! --out-interface {tag} {mark} -j MASQUERADE")),
        ("filter", "FORWARD", format!("--in-interface {tag} {mark} -j ACCEPT")),
        ("filter", "FORWARD", format!("--out-interface {tag} {answers} {mark} -j ACCEPT")),
        ("filter", "FORWARD", format!("--out-interface {tag} {others} {mark} -j DROP")),
    ]
}

fn iptables(table: &str, words: &str) -> Command {
    let mut command = Command::new("iptables");
    command.args(["--wait", "--table", table]).args(words.split(' '));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_carries_the_tag_and_is_in_a_table_that_is_cleared() {
        for (table, chain, rule) in rules("bko10-200", "10.200.0.0/16") {
            assert!(rule.contains(" --comment bko10-200 -j "), "{chain} {rule}");
            assert!(TABLES.contains(&table), "{table}");
        }
    }

    #[test]
    fn nothing_but_answers_is_let_in() {
        for (_, _, rule) in rules("bko10-200", "10.200.0.0/16") {
            let lets_in = rule.starts_with("--out-interface") && rule.ends_with("ACCEPT");
            assert!(!lets_in || rule.contains(" --ctstate RELATED,ESTABLISHED "), "{rule}");
        }
    }

    #[test]
    fn rules_are_found_by_their_tag_alone() {
        let listing = "\
-P FORWARD ACCEPT
-A FORWARD -o bko10-20 -m comment --comment bko10-20 -j DROP
-A FORWARD -i bko10-200 -m comment --comment bko10-200 -j ACCEPT
-A FORWARD -i bko10-200 -j ACCEPT
-A POSTROUTING -s 10.200.0.0/16 ! -o bko10-200 -m comment --comment bko10-200 -j MASQUERADE
";
        let expected = [
            "FORWARD -i bko10-200 -m comment --comment bko10-200 -j ACCEPT",
            "POSTROUTING -s 10.200.0.0/16 ! -o bko10-200 -m comment --comment bko10-200 -j MASQUERADE",
        ];
        assert_eq!(tagged(listing, "bko10-200"), expected);
    }
}
