//! What `cargo xtask test` shows of the demo: it runs, it goes, and it leaves alone what is not its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::kubectl::Kubectl;
use super::overlay::Overlay;
use super::ownership::Owner;
use super::{CHART, Demo, NAMESPACE, directory};
use crate::images::Built;
use crate::{cluster, process, progress, workspace};

/// A BuildJob that is not the demo's.
const ELSEWHERE: &str = "apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: elsewhere}
spec: {image: busybox, command: 'true'}
";

/// Runs the demo on a cluster of this machine that has the images, and then takes the cluster for somebody else's.
pub(crate) fn rehearse(cluster: &cluster::Running, images: &[Built]) -> Result<()> {
    let demo = Demo { kubectl: Kubectl::local(cluster), directory: directory("demo-test") };
    let overlay = Overlay::loaded(&demo.directory, images)?;
    demo.run(&overlay)?;
    demo.check().context("the demo does not know itself again")?;

    let mut create = demo.kubectl.command(&["create", "--namespace=default", "--filename=-"]);
    process::run(create.stdin(process::input(ELSEWHERE)?))?;
    demo.remove()?;
    ensure!(demo.kubectl.owner("namespace", NAMESPACE)? == Owner::Nobody, "the demo's namespace is left");
    ensure!(demo.definitions()? == Owner::Demo, "removing the demo took somebody's BuildJob away");
    demo.kubectl.output(&["delete", "buildjob", "elsewhere", "--namespace=default"])?;
    demo.remove()?;
    ensure!(demo.definitions()? == Owner::Nobody, "the demo's definition of BuildJobs is left");

    match earlier(&demo)? {
        Some(chart) => progress::step("upgrading from the chart of the commit before", || {
            upgrade(&demo, &overlay, &chart)
        })?,
        None => progress::note("no upgrade from the commit before: git does not know it here"),
    }

    progress::step("checking that the demo refuses somebody else's namespace", || refuse(&demo))?;
    demo.remove_files()
}

/// The chart of the commit before this one, unless the history ends here.
fn earlier(demo: &Demo) -> Result<Option<PathBuf>> {
    let (directory, archive) = (demo.directory.join("earlier"), demo.directory.join("earlier.tar"));
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let mut git = Command::new("git");
    git.current_dir(workspace()).args(["archive", "--output"]).arg(&archive).args(["HEAD^", CHART]);
    if process::run(&mut git).is_err() {
        return Ok(None);
    }
    process::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&directory))?;
    Ok(Some(directory.join(CHART)))
}

/// What was installed by another chart becomes what this one installs. Its operator need not run: there are no images of it.
fn upgrade(demo: &Demo, overlay: &Overlay, chart: &Path) -> Result<()> {
    demo.kubectl.ensure_namespace()?;
    demo.helm_install(chart, &[workspace().join(super::VALUES)])?;
    demo.install(overlay)?;
    demo.remove()
}

fn refuse(demo: &Demo) -> Result<()> {
    demo.kubectl.output(&["create", "namespace", NAMESPACE])?;
    ensure!(demo.check().is_err(), "the demo would take over somebody else's namespace");
    ensure!(demo.remove().is_err(), "the demo would remove somebody else's namespace");
    ensure!(demo.kubectl.owner("namespace", NAMESPACE)? == Owner::Somebody, "somebody's namespace is gone");
    demo.kubectl.output(&["delete", "namespace", NAMESPACE]).map(drop)
}
