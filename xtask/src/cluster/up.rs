//! From nothing, from a half, or from what was running yesterday, to a cluster that works.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::component::Component;
use super::config::{self, PAUSE_IMAGE, Settings};
use super::node::Node;
use super::readiness::{prints, resolves, wait};
use super::running::Running;
use super::state::{Home, State};
use super::{cgroup, network, node, pki};
use crate::images::archive::{self, Entry, ImageConfig, LayerSource};
use crate::{deps, images, process, progress};

/// Much longer than anything takes on a slow and busy machine.
const LIMIT: Duration = Duration::from_mins(2);

/// Whether there may be a cluster here at all.
pub(crate) fn check(home: &Home) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a cluster makes namespaces and mounts: run this as root");
    home.create()
}

/// Brings the cluster up and returns it, and whether there was anything to do.
pub(crate) fn up(home: &Home, name: &str) -> Result<(Running, bool)> {
    deps::packages_for(deps::Need::Cluster)?;
    let programs = deps::kubernetes()?;
    home.create()?;
    let known = home.load()?;
    if let Some(state) = &known {
        ensure!(state.name == name, "{} holds the cluster {:?}", home.root().display(), state.name);
        if let Some(cluster) = working(home, state, &programs) {
            return Ok((cluster, false));
        }
    }
    progress::step(&format!("starting cluster {name}"), || {
        let (state, node) = start_node(home, known, name, &programs)?;
        let cluster = Running::new(home, &state, &node, &programs);
        Start { home, state: &state, node: &node, cluster: &cluster, started: HashMap::new() }.run()?;
        Ok((cluster, true))
    })
}

/// The cluster, if all of it is running and the API server is well.
fn working(home: &Home, state: &State, programs: &Path) -> Option<Running> {
    let node = Node::find(state)?;
    let running = node.programs().ok()?;
    let cluster = Running::new(home, state, &node, programs);
    let complete = Component::ALL.iter().all(|component| running.contains_key(component.name()));
    let works = complete
        && network::linked(state.block)
        && prints(&mut node_status(&cluster, &state.name), "True").is_ok();
    works.then_some(cluster)
}

/// Finds the node or makes it, and connects it.
fn start_node(home: &Home, known: Option<State>, name: &str, programs: &Path) -> Result<(State, Node)> {
    let _lock = network::lock()?;
    let mut state = if let Some(state) = known {
        state
    } else {
        // Nothing on record, but still running: nobody could use it any more.
        node::lost(home)?.map_or(Ok(()), |lost| super::down::release(&lost))?;
        State { name: name.to_owned(), block: network::choose()?, node: None }
    };
    home.save(&state)?;
    home.lay_out()?;
    let node = if let Some(node) = Node::find(&state) {
        node
    } else {
        // What a crash, a reboot or a killed run has left.
        super::down::release(&state)?;
        network::check_free(state.block)?;
        cgroup::create(&state.block.tag())?;
        Node::start(home, &mut state, programs)?
    };
    network::connect(state.block, &node)?;
    Ok((state, node))
}

/// The start of the components that do not run.
struct Start<'a> {
    home: &'a Home,
    state: &'a State,
    node: &'a Node,
    cluster: &'a Running,
    /// What was started here and now.
    started: HashMap<Component, Child>,
}

impl Start<'_> {
    fn run(mut self) -> Result<()> {
        pki::ensure(self.home, self.state)?;
        pki::write_kubeconfig(self.home, self.state)?;
        self.write_files()?;

        self.ensure(&[Component::Containerd, Component::Etcd, Component::ApiServer])?;
        self.import_pause()?;
        self.wait_for_api()?;
        self.apply_objects()?;
        self.ensure(&Component::ALL)?;
        self.wait_for_node()?;
        self.wait_for_names()?;
        self.wait_for_account()?;
        self.check_running()
    }

    fn write_files(&self) -> Result<()> {
        let network_plugins = ["/usr/lib/cni", "/opt/cni/bin"];
        let network_plugins =
            network_plugins.into_iter().find(|path| Path::new(path).join("bridge").exists());
        let settings = Settings {
            name: &self.state.name,
            block: self.state.block,
            network_plugins: network_plugins
                .context("found no network plugins in /usr/lib/cni or /opt/cni/bin")?,
            name_servers: &name_servers(),
        };
        for (name, contents) in config::files(&settings) {
            let path = self.home.config().join(name);
            let parent = path.parent().context("configuration files are in a directory")?;
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
            // kube-proxy ends when its file is written, even with the same contents.
            if fs::read_to_string(&path).is_ok_and(|before| before == contents) {
                continue;
            }
            fs::write(&path, contents).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Starts those of the components that do not run.
    fn ensure(&mut self, components: &[Component]) -> Result<()> {
        let running = self.node.programs()?;
        for component in components {
            if !running.contains_key(component.name()) && !self.started.contains_key(component) {
                let arguments = component.arguments(&self.state.name, self.state.block);
                let log = self.home.log(component.name());
                let child = self.node.spawn(&component.program(), &arguments, &log)?;
                self.started.insert(*component, child);
            }
        }
        Ok(())
    }

    /// Gives the node the image of the pods' sandboxes, which no registry has.
    fn import_pause(&mut self) -> Result<()> {
        let archive = self.home.root().join("pause.tar");
        if !archive.exists() {
            let program = Entry::new("pause", 0o755, archive::Node::File(self.home.root().join("pause")));
            let config = ImageConfig { entrypoint: vec!["/pause".to_owned()], ..ImageConfig::default() };
            archive::write(&archive, PAUSE_IMAGE, vec![LayerSource::Entries(vec![program])], &config)?;
        }
        let cluster = self.cluster;
        self.wait(Component::Containerd, "serving", || images::import(&cluster.containerd_socket, &archive))
    }

    fn wait_for_api(&mut self) -> Result<()> {
        let cluster = self.cluster;
        self.wait(Component::ApiServer, "ready", || {
            prints(cluster.kubectl().args(["get", "--raw", "/readyz"]), "ok")
        })
    }

    fn apply_objects(&self) -> Result<()> {
        let objects = self.home.config().join("objects.json");
        let mut command = self.cluster.kubectl();
        command
            .args(["apply", "--server-side", "--force-conflicts", "--validate=ignore", "--filename"])
            .arg(objects);
        process::run(&mut command).context("creating the cluster's own objects")?;
        Ok(())
    }

    fn wait_for_node(&mut self) -> Result<()> {
        let (cluster, name) = (self.cluster, &self.state.name);
        self.wait(Component::Kubelet, "reporting a ready node", || {
            // The status alone may be what a kubelet reported that has ended since.
            let health = format!("/api/v1/nodes/{name}/proxy/healthz");
            prints(cluster.kubectl().args(["get", "--raw", &health]), "ok")?;
            prints(&mut node_status(cluster, name), "True")
        })
    }

    fn wait_for_names(&mut self) -> Result<()> {
        let block = self.state.block;
        self.wait(Component::Dns, "answering through its Service, which is kube-proxy's work", || {
            resolves(block.dns_service(), "kubernetes.default.svc.cluster.local", block.api_service())
        })
    }

    fn wait_for_account(&mut self) -> Result<()> {
        let cluster = self.cluster;
        self.wait(Component::ControllerManager, "giving the namespace its service account", || {
            let query = ["get", "serviceaccount", "default", "--namespace=default", "--output=name"];
            prints(cluster.kubectl().args(query), "serviceaccount/default")
        })
    }

    /// Catches those that ended after they had started well.
    fn check_running(&self) -> Result<()> {
        let running = self.node.programs()?;
        if let Some(component) =
            Component::ALL.iter().find(|component| !running.contains_key(component.name()))
        {
            let log = self.home.log(component.name());
            bail!("{component} has ended; the end of {}:\n{}", log.display(), process::tail(&log, 15));
        }
        Ok(())
    }

    fn wait(&mut self, component: Component, what: &str, ready: impl FnMut() -> Result<()>) -> Result<()> {
        let log = self.home.log(component.name());
        wait(component, what, &log, self.started.get_mut(&component), LIMIT, ready)
    }
}

fn node_status(cluster: &Running, name: &str) -> Command {
    let mut command = cluster.kubectl();
    let condition = r#"--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    command.args(["get", "node", name, condition, "--request-timeout=5s"]);
    command
}

/// The machine's name servers; those behind a local stub if that is what it has.
fn name_servers() -> Vec<Ipv4Addr> {
    let files = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"].map(PathBuf::from);
    let servers =
        files.iter().map(|file| config::name_servers(&fs::read_to_string(file).unwrap_or_default()));
    servers.into_iter().find(|servers| !servers.is_empty()).unwrap_or_default()
}
