//! What runs, for people.
#![allow(clippy::print_stdout, reason = "this module prints what was asked for")]

use std::path::Path;

use anyhow::Result;

use super::component::Component;
use super::node::Node;
use super::state::{Home, State};
use crate::process::Identity;
use crate::progress;

/// A row of the table.
type Row = [String; 5];

/// Prints the state of each component, and returns whether all run.
pub(crate) fn print(home: &Home, state: &State, programs: &Path) -> Result<bool> {
    let running = match Node::find(state) {
        Some(node) => node.programs()?,
        None => std::collections::HashMap::new(),
    };
    let rows = Component::ALL.map(|component| row(component, running.get(component.name()), state));
    print!("{}", table(&rows));
    println!();
    println!("cluster     {}", state.name);
    println!("kubeconfig  {}", home.kubeconfig().display());
    println!("kubectl     {}", programs.join("kubectl").display());
    println!("addresses   {} (this machine is {})", state.block.all(), state.block.machine());
    Ok(Component::ALL.iter().all(|component| running.contains_key(component.name())))
}

fn row(component: Component, process: Option<&Identity>, state: &State) -> Row {
    let address = component.address(state.block);
    let Some(process) = process else {
        return [component.name(), "-", "down", "-", &address].map(str::to_owned);
    };
    let since = process.age().map_or_else(|| "-".to_owned(), progress::duration);
    [component.name().to_owned(), process.pid.to_string(), "running".to_owned(), since, address]
}

fn table(rows: &[Row]) -> String {
    let header = ["COMPONENT", "PID", "STATE", "SINCE", "ADDRESS"].map(str::to_owned);
    let lines: Vec<_> = std::iter::once(&header).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let line = |[name, pid, state, since, address]: &Row| {
        let [a, b, c, d] = widths;
        format!("{name:a$}  {pid:b$}  {state:c$}  {since:d$}  {address}\n")
    };
    lines.into_iter().map(line).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::network::Block;

    #[test]
    fn the_table_is_aligned_and_has_no_trailing_blanks() {
        let block = Block::candidates().next().unwrap();
        let state = State { name: "dev".to_owned(), block, node: None };
        let me = Identity::of(std::process::id());
        let rows = [row(Component::Etcd, None, &state), row(Component::ApiServer, me.as_ref(), &state)];
        let text = table(&rows);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("etcd            -"), "{text}");
        assert!(lines[2].ends_with("10.200.0.2:6443"), "{text}");
        let column = lines[0].find("ADDRESS").unwrap();
        assert_eq!(lines[1].find("127.0.0.1"), Some(column), "{text}");
        assert!(lines.iter().all(|line| !line.ends_with(' ')), "{text}");
    }
}
