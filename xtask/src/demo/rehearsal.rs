//! What `cargo xtask test` shows of the demo: it runs, it goes, and it leaves alone what is not its own.

use anyhow::{Context, Result, ensure};

use super::kubectl::Kubectl;
use super::overlay::Overlay;
use super::ownership::Owner;
use super::{DEFINITION, Demo, NAMESPACE, directory};
use crate::images::Built;
use crate::{cluster, process, progress};

/// A BuildJob that is not the demo's.
const ELSEWHERE: &str = "apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: elsewhere}
spec: {image: busybox, command: 'true'}
";

/// Runs the demo on a cluster of this machine that has the images, and then takes the cluster for somebody else's.
pub(crate) fn rehearse(cluster: &cluster::Running, images: &[Built]) -> Result<()> {
    let demo = Demo { kubectl: Kubectl::local(cluster), directory: directory("demo-test") };
    demo.run(&Overlay::loaded(&demo.directory, images)?)?;
    demo.check().context("the demo does not know itself again")?;

    let mut create = demo.kubectl.command(&["create", "--namespace=default", "--filename=-"]);
    process::run(create.stdin(process::input(ELSEWHERE)?))?;
    demo.remove()?;
    ensure!(demo.kubectl.owner("namespace", NAMESPACE)? == Owner::Nobody, "the demo's namespace is left");
    ensure!(definition(&demo)? == Owner::Demo, "removing the demo took somebody's BuildJob away");
    demo.kubectl.output(&["delete", "buildjob", "elsewhere", "--namespace=default"])?;
    demo.remove()?;
    ensure!(definition(&demo)? == Owner::Nobody, "the demo's definition of BuildJobs is left");

    progress::step("checking that the demo refuses somebody else's namespace", || refuse(&demo))?;
    demo.remove_files()
}

fn definition(demo: &Demo) -> Result<Owner> {
    demo.kubectl.owner("customresourcedefinition", DEFINITION)
}

fn refuse(demo: &Demo) -> Result<()> {
    demo.kubectl.output(&["create", "namespace", NAMESPACE])?;
    ensure!(demo.check().is_err(), "the demo would take over somebody else's namespace");
    ensure!(demo.remove().is_err(), "the demo would remove somebody else's namespace");
    ensure!(demo.kubectl.owner("namespace", NAMESPACE)? == Owner::Somebody, "somebody's namespace is gone");
    demo.kubectl.output(&["delete", "namespace", NAMESPACE]).map(drop)
}
