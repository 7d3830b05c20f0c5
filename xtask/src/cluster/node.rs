//! The node: a set of namespaces that looks like a machine of its own.
//!
//! Everything a cluster runs lives in them: processes, mounts, network, and the directories that a container runtime
//! and a kubelet take for granted (`/run`, `/var/lib`, `/var/log`). When the node's first process dies, the kernel
//! kills all others, and with the last of them the mounts and the network vanish. That makes `down` complete, whatever
//! happened before; nothing has to be found and removed piece by piece.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::network::Block;
use super::state::{Home, State};
use crate::process::{self, Identity};
use crate::workspace;

/// Where the cluster's directory is inside the node.
pub(crate) const CLUSTER: &str = "/run/cluster";
/// Where Kubernetes' programs are inside the node.
pub(crate) const PROGRAMS: &str = "/run/kubernetes";
/// The first process, inside the node.
const PAUSE: &str = "/run/cluster/pause";
/// Turns new namespaces into the node, with root's full powers: see the file.
const SETUP: &str = include_str!("node.sh");
const NAMESPACES: [&str; 5] = ["--mount", "--net", "--pid", "--uts", "--ipc"];
const LOG: &str = "node";

/// A running node.
pub(crate) struct Node {
    first: Identity,
}

impl Node {
    /// The node on record, if it runs.
    pub(crate) fn find(state: &State) -> Option<Self> {
        let first = state.node.clone().filter(Identity::alive)?;
        let node = Self { first };
        // It may have been left half-made, when the run that made it was killed.
        node.complete().then_some(node)
    }

    /// Makes the node and puts it on record.
    pub(crate) fn start(home: &Home, state: &mut State, programs: &Path) -> Result<Self> {
        if let Some(first) = &state.node {
            first.kill()?;
        }
        build_pause(&home.root().join("pause"))?;
        let log = home.log(LOG);
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut starter = Command::new("setsid")
            .arg("unshare")
            .args(NAMESPACES)
            // Mounts of the machine come in, the node's own do not go out.
            .args(["--propagation", "slave", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", SETUP, "node"])
            .args([home.root(), programs])
            .args([&state.name, &state.block.tag()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stderr(output.try_clone()?)
            .stdout(output)
            .spawn()
            .context("starting unshare")?;
        let first = wait(|| Ok(child(starter.id()))).context("waiting for the node's first process")?;
        state.node = Some(first.clone());
        home.save(state)?;
        // It waits for this word. Had this run died before, it would have seen its input end and gone.
        starter.stdin.take().context("unshare has no standard input")?.write_all(b"go\n")?;
        let node = Self { first };
        wait(|| node.settled(&mut starter)).with_context(|| {
            format!("setting up the node's namespaces; {} says:\n{}", log.display(), process::tail(&log, 20))
        })?;
        Ok(node)
    }

    /// Whether the set-up is over and only the first process is left of it.
    fn complete(&self) -> bool {
        arguments(self.pid()).first().is_some_and(|program| program == PAUSE)
    }

    fn settled(&self, starter: &mut Child) -> Result<Option<()>> {
        if let Some(status) = starter.try_wait()? {
            bail!("it ended with {status}");
        }
        Ok(self.complete().then_some(()))
    }

    /// The first process, as the machine counts.
    pub(crate) fn pid(&self) -> u32 {
        self.first.pid
    }

    /// Where the machine finds the socket of the node's containerd. Short, wherever the cluster's directory is.
    pub(crate) fn containerd_socket(&self) -> PathBuf {
        format!("/proc/{}/root/run/containerd/containerd.sock", self.pid()).into()
    }

    /// A command that runs a program in the node.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.pid().to_string()).args(NAMESPACES).args(["--", program]);
        command
    }

    /// Starts a program in the node that outlives this process and its terminal.
    pub(crate) fn spawn(&self, program: &str, arguments: &[String], log: &Path) -> Result<Child> {
        let output = File::options().create(true).append(true).open(log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        let enter = self.command(program);
        let mut command = Command::new("setsid");
        command.arg(enter.get_program()).args(enter.get_args()).args(arguments);
        // Credentials and proxies in a developer's shell are none of the cluster's business.
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        // Memory is cheaper here than processor time, of which the control plane would spend a tenth on collecting garbage.
        command.env("GOGC", "400");
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output).current_dir("/");
        command.spawn().with_context(|| format!("starting {program}"))
    }

    /// The programs that run directly in the node, rather than in a container, by name.
    ///
    /// The kernel is asked, not a record: so a program that was started by a run that was killed is found, too.
    pub(crate) fn programs(&self) -> Result<HashMap<String, Identity>> {
        let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(self.pid()).context("the node's first process is gone")?;
        let mut programs = HashMap::<String, Identity>::new();
        for pid in processes()? {
            let (Some(found), Some(identity)) = (namespace(pid), Identity::of(pid)) else { continue };
            let Some(name) = program_name(&arguments(pid)) else { continue };
            if found == own {
                // A child that has not become another program yet has its parent's name, and is younger.
                let known = programs.entry(name).or_insert_with(|| identity.clone());
                if identity.started < known.started {
                    *known = identity;
                }
            }
        }
        Ok(programs)
    }
}

/// The state of a running node whose record was lost, as when somebody cleared the cache: its arguments tell.
pub(crate) fn lost(home: &Home) -> Result<Option<State>> {
    for pid in processes()? {
        let Some((name, block)) = recover(&arguments(pid), home.root()) else { continue };
        if let Some(first) = Identity::of(pid) {
            return Ok(Some(State { name, block, node: Some(first) }));
        }
    }
    Ok(None)
}

/// Name and addresses from the arguments of a node's first process, if it belongs to this directory.
fn recover(arguments: &[String], root: &Path) -> Option<(String, Block)> {
    let [program, name, tag, directory] = arguments else { return None };
    let ours = program == PAUSE && Path::new(directory) == root;
    ours.then(|| Some((name.clone(), Block::from_tag(tag)?))).flatten()
}

/// The namespaces of a node, known by the kernel's numbers for them, which outlive its first process.
pub(crate) struct Namespaces(HashSet<PathBuf>);

impl Namespaces {
    /// Those of the node on record, if it runs.
    pub(crate) fn of(state: &State) -> Self {
        let first = state.node.as_ref().filter(|first| first.alive());
        let own = namespaces(std::process::id());
        Self(first.map(|first| namespaces(first.pid)).unwrap_or_default().difference(&own).cloned().collect())
    }

    /// The processes that are in one of them, by number and name.
    pub(crate) fn processes(&self) -> Result<Vec<(u32, String)>> {
        let inside = processes()?.into_iter().filter(|pid| !namespaces(*pid).is_disjoint(&self.0));
        let named = |pid| (pid, program_name(&arguments(pid)).unwrap_or_default());
        Ok(inside.map(named).collect())
    }
}

/// The namespaces of a process; none if it has ended, waited for or not.
fn namespaces(pid: u32) -> HashSet<PathBuf> {
    let kinds = ["ipc", "mnt", "net", "pid", "uts"];
    kinds.iter().filter_map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()).collect()
}

/// The processes of the machine.
fn processes() -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("listing processes")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Kills the node on record and everything in it.
pub(crate) fn kill(state: &State) -> Result<()> {
    state.node.as_ref().map_or(Ok(()), Identity::kill)
}

/// Compiles the node's first process, which is also what the sandbox image holds.
fn build_pause(target: &Path) -> Result<()> {
    let source = workspace().join("hack/pause/pause.c");
    process::run(Command::new("cc").args(["-static", "-Os", "-s", "-o"]).args([target, &source]))?;
    Ok(())
}

/// The first child of a process.
fn child(pid: u32) -> Option<Identity> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Identity::of(children.split_whitespace().next()?.parse().ok()?)
}

fn arguments(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).split_terminator('\0').map(str::to_owned).collect()
}

/// The name by which a process was called.
fn program_name(arguments: &[String]) -> Option<String> {
    let name = Path::new(arguments.first()?).file_name()?;
    Some(name.to_string_lossy().into_owned())
}

/// Asks until there is an answer, but not for long: all of this takes milliseconds.
fn wait<T>(mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "not done within 20 s");
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_the_name_it_was_called_by() {
        let name = |words: &[&str]| program_name(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(name(&["/run/kubernetes/etcd", "--data-dir=x"]).as_deref(), Some("etcd"));
        assert_eq!(name(&["containerd"]).as_deref(), Some("containerd"));
        // Threads of the kernel have no arguments.
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn a_lost_node_is_recovered_by_its_directory() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let node = words(&[PAUSE, "dev", "bko10-203", "/cache/dev"]);
        let (name, block) = recover(&node, Path::new("/cache/dev")).unwrap();
        assert_eq!((name.as_str(), block.tag().as_str()), ("dev", "bko10-203"));
        assert_eq!(recover(&node, Path::new("/cache/other")), None);
        assert_eq!(recover(&words(&["/pause"]), Path::new("/cache/dev")), None);
    }

    #[test]
    fn a_dead_node_has_no_namespaces_and_a_live_one_none_of_this_process() {
        let block = Block::candidates().next().unwrap();
        for node in [None, Identity::of(std::process::id())] {
            let state = State { name: "dev".to_owned(), block, node };
            assert!(Namespaces::of(&state).processes().unwrap().is_empty());
        }
        let own = Namespaces(namespaces(std::process::id())).processes().unwrap();
        assert!(own.iter().any(|(pid, _)| *pid == std::process::id()));
    }

    #[test]
    fn own_arguments_are_read_from_proc() {
        let expected: Vec<_> = std::env::args().collect();
        assert_eq!(arguments(std::process::id()), expected);
    }
}
