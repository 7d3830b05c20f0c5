//! A real Kubernetes on this machine: one node, every component a process, nothing simulated.
//!
//! A cluster has a name, a directory and a block of addresses; several live side by side. [`node`] tells how they keep
//! out of each other's way, [`network`] how they are reached.

mod cgroup;
mod component;
mod config;
mod down;
mod leftovers;
mod logs;
mod network;
mod node;
mod pki;
mod readiness;
mod running;
mod state;
mod status;
mod up;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use self::node::Node;
pub(crate) use self::running::Running;
use self::state::Home;
pub(crate) use self::state::check_name;
use crate::{cache, deps, progress};

/// The cluster that is meant when none is named.
pub(crate) const DEFAULT_NAME: &str = "dev";

/// Which cluster, and what to do with it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start the cluster, or what is missing of it, and wait until it works.
    Up(Choice),
    /// Stop the cluster and remove everything it made on this machine.
    Down(Choice),
    /// Show the components; exits with 1 if one of them is down.
    Status(Choice),
    /// Show the end of the components' logs.
    Logs {
        /// The component; all of them if none is named.
        component: Option<String>,
        /// How many lines to show of each.
        #[arg(long, short = 'n', default_value_t = 20)]
        lines: usize,
        /// Go on with what comes.
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        choice: Choice,
    },
}

/// A cluster among others.
#[derive(clap::Args)]
struct Choice {
    /// The cluster's name.
    #[arg(long, default_value = DEFAULT_NAME, value_parser = state::check_name)]
    name: String,
    /// The directory with everything the cluster has; by default one in the cache, named after the cluster.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Choice {
    fn home(&self) -> Result<Home> {
        match &self.state {
            Some(directory) => Home::new(directory),
            None => Home::new(&cache::root()?.join("clusters").join(&self.name)),
        }
    }

    /// The cluster's record, which has to be there.
    fn existing(&self) -> Result<(Home, state::State)> {
        let home = self.home()?;
        let state = home.load()?;
        let state = state.with_context(|| {
            format!(
                "there is no cluster {} in {}: start it with `cluster up`",
                self.name,
                home.root().display()
            )
        })?;
        Ok((home, state))
    }
}

/// Does what the command line says.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.action {
        Action::Up(choice) => {
            let home = choice.home()?;
            up::check(&home)?;
            let _lock = cache::lock(&home.lock(), "changing this cluster")?;
            if let (_, false) = up::up(&home, &choice.name)? {
                progress::note(&format!("cluster {} is up already", choice.name));
            }
            print_status(choice)
        }
        Action::Down(choice) => {
            if !remove(choice)? {
                progress::note(&format!("there is no cluster {} to remove", choice.name));
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Status(choice) => print_status(choice),
        Action::Logs { component, lines, follow, choice } => {
            let components = logs::select(component.as_deref())?;
            let (home, _) = choice.existing()?;
            logs::show(&home, &components, *lines, *follow)
        }
    }
}

fn print_status(choice: &Choice) -> Result<ExitCode> {
    let (home, state) = choice.existing()?;
    let well = status::print(&home, &state, &deps::kubernetes()?)?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the cluster of this name unless it runs already.
pub(crate) fn start(name: &str) -> Result<Running> {
    let choice = Choice { name: name.to_owned(), state: None };
    let home = choice.home()?;
    up::check(&home)?;
    let _lock = cache::lock(&home.lock(), "changing this cluster")?;
    up::up(&home, name).map(|(cluster, _)| cluster)
}

/// Removes the cluster of this name and returns whether there was one. Fails if anything of it is left on the machine.
pub(crate) fn stop(name: &str) -> Result<bool> {
    remove(&Choice { name: name.to_owned(), state: None })
}

fn remove(choice: &Choice) -> Result<bool> {
    let home = choice.home()?;
    let lock = cache::lock(&home.lock(), "changing this cluster")?;
    let removed = down::down(&home)?;
    fs::remove_file(home.lock()).context("removing the cluster's lock")?;
    drop(lock);
    Ok(removed)
}

/// Copies every component's log into a directory, where it outlives the cluster.
pub(crate) fn save_logs(name: &str, directory: &Path) -> Result<()> {
    let (home, _) = Choice { name: name.to_owned(), state: None }.existing()?;
    logs::save(&home, directory)
}

/// The socket of the containerd of a running cluster.
pub(crate) fn containerd_socket(name: &str) -> Result<PathBuf> {
    Ok(node(name)?.containerd_socket())
}

/// The processes of a running cluster: name and number.
pub(crate) fn processes(name: &str) -> Result<Vec<(String, u32)>> {
    let programs = node(name)?.programs()?;
    Ok(programs.into_iter().map(|(name, process)| (name, process.pid)).collect())
}

fn node(name: &str) -> Result<Node> {
    let (_, state) = Choice { name: name.to_owned(), state: None }.existing()?;
    let node = Node::find(&state);
    node.with_context(|| format!("cluster {name} does not run: start it with `cluster up`"))
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, contents: &str) -> Result<()> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(contents.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}
