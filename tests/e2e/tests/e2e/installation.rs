//! The operator as it is installed: by Helm, with the commands of docs/installing.md.

use std::{fs, os::unix::fs::symlink, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use bk_e2e::{
    World, eventually,
    guide::{Block, blocks, example},
    helm::KUBE_VERSION,
    scenario,
    shell::Shell,
};
use rstest::rstest;

/// What the Prometheus operator defines.
const MONITORING: &str = include_str!("monitoring.yaml");

/// Values with which the chart makes everything that it can.
const EVERYTHING: &str = "
agentToken: agent-token
apiToken: api-token
service: {enabled: true}
serviceMonitor: {enabled: true}
podMonitor: {enabled: true}
prometheusRule: {enabled: true}
dashboard: {enabled: true}
networkPolicy:
  enabled: true
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  jobs: {enabled: true, ingress: [{from: [{podSelector: {}}]}]}
webhook: {enabled: true, lookUpSecrets: true}
repoSyncer: {enabled: true}
";

const GUIDE: &str = include_str!("../../../../docs/installing.md");

/// The guide's blocks of commands.
fn commands() -> Vec<String> {
    let shown = blocks(GUIDE).into_iter().filter(|block: &Block| block.language == "sh");
    shown.map(|block| block.body).collect()
}

/// A shell that has the guide's values in a file.
fn shell(world: &World) -> Result<Shell<'_>> {
    let shell = Shell::open(world)?;
    shell.write("my-values.yaml", example(GUIDE, "yaml", "image:\n")?)?;
    Ok(shell)
}

/// Installs the operator with the guide's commands.
pub(crate) async fn install(world: &World) -> Result<()> {
    let commands = commands();
    let install = commands.first().context("the guide begins with the installation")?;
    shell(world)?.run(install).await.map(drop)
}

/// Makes the chart one of an earlier version, whose RepoMirrors could not be suspended. Returns where the present one is.
fn turn_back(shell: &Shell<'_>) -> Result<PathBuf> {
    let charts = shell.path("charts");
    let present = fs::read_link(&charts)?;
    fs::remove_file(&charts)?;
    let copied = Command::new("cp").arg("-r").arg(&present).arg(&charts).status()?;
    ensure!(copied.success(), "cannot copy the chart");
    let chart = charts.join("buildkite-operator");
    let definitions = chart.join("files/crds.yaml");
    let text = fs::read_to_string(&definitions)?;
    let (before, rest) =
        text.split_once("              suspend:\n").context("RepoMirrors can be suspended")?;
    let (_, after) = rest.split_once("              url:\n").context("they have an address after that")?;
    fs::write(&definitions, format!("{before}              url:\n{after}"))?;
    let about = chart.join("Chart.yaml");
    fs::write(&about, fs::read_to_string(&about)?.replace("\nversion: ", "\nversion: 0.0.1-before-"))?;
    Ok(present)
}

/// What is left in the namespace of what the operator or its chart have made.
fn left(world: &World) -> Result<Vec<String>> {
    let kinds = "deployments,replicasets,pods,configmaps,secrets,serviceaccounts,roles,rolebindings,leases,\
                 poddisruptionbudgets,buildjobs";
    let listed = world.cluster.kubectl(&["get", kinds, "-o", "name"], None)?;
    let theirs = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    Ok(listed.lines().filter(|name| !theirs.contains(name)).map(ToOwned::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_installs_upgrades_and_uninstalls() {
    scenario(async |world| {
        let shell = shell(world)?;
        let commands = commands();
        let [install, upgrade, uninstall] = &commands[..] else {
            anyhow::bail!("the guide has three blocks of commands: {commands:#?}");
        };
        let present = turn_back(&shell)?;
        let notes = shell.run(install).await?;
        assert!(notes.contains("takes jobs from the queue bk-operator"), "{notes}");
        let step =
            |command: &str| format!("steps: [{{command: '{command}', agents: {{queue: bk-operator}}}}]");
        let build = world.buildkite.build(&world.repository.url, &step("./hello.sh")).await?;
        let passed = world.buildkite.ended(build.jobs[0].id).await?;
        assert_eq!(passed.exit_status, Some(0), "{}", world.buildkite.log(passed.id).await?);

        // A job that runs while the operator is replaced, and one that comes meanwhile.
        let slow =
            world.buildkite.build(&world.repository.url, &step("echo started $((40 + 2)); sleep 15")).await?;
        world.buildkite.log_with(slow.jobs[0].id, "started 42").await?;
        let late = world.buildkite.build(&world.repository.url, &step("./hello.sh")).await?;
        let manifest = shell.run("helm get manifest --namespace buildkite buildkite-operator").await?;
        assert!(manifest.contains("kind: RepoMirror") && !manifest.contains("suspend:"), "{manifest}");
        fs::remove_dir_all(shell.path("charts"))?;
        symlink(present, shell.path("charts"))?;
        shell.run(upgrade).await?;
        let suspend =
            "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.suspend.type}";
        let definition = ["get", "crd", "repomirrors.buildkite-operator.dev", "-o", suspend];
        assert_eq!(world.cluster.kubectl(&definition, None)?, "boolean", "definitions come with the chart");
        for build in [&slow, &late] {
            let ended = world.buildkite.ended(build.jobs[0].id).await?;
            assert_eq!((ended.job_state.as_str(), ended.exit_status), ("finished", Some(0)));
        }
        let log = world.buildkite.log(slow.jobs[0].id).await?;
        assert_eq!(log.matches("started 42").count(), 1, "it ran once: {log}");
        let config =
            ["get", "configmap", "buildkite-operator-config", "-o", "jsonpath={.data.job_spawner_config}"];
        assert!(world.cluster.kubectl(&config, None)?.contains("maxInFlight: 50"));
        eventually("no BuildJob is left", async || {
            let jobs = world.cluster.kubectl(&["get", "buildjobs", "-o", "name"], None)?;
            Ok(jobs.is_empty().then_some(()))
        })
        .await?;

        // Helm takes the Roles away with the rest, while the operator is still leaving.
        world.weaken();
        shell.run(uninstall).await?;
        eventually("nothing is left", async || {
            let left = left(world)?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await?;
        world.cluster.kubectl(&["get", "crd", "buildjobs.buildkite-operator.dev"], None)?;
        Ok(())
    })
    .await;
}

/// The API server knows every kind and every field of them.
#[rstest]
#[case::a_volume_for_mirrors("{layout: shared, claimName: mirrors}")]
#[case::mirrors_on_nodes("{layout: nodeLocal, hostPath: /mirrors}")]
#[tokio::test(flavor = "multi_thread")]
async fn everything_that_the_chart_makes_is_accepted(#[case] mirrors: &str) {
    scenario(async |world| {
        world.cluster.kubectl(&["apply", "-f", "-"], Some(MONITORING))?;
        world.cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"], None)?;
        let shell = Shell::open(world)?;
        shell.write("all.yaml", &format!("{EVERYTHING}config: {{repo_syncer_config: {mirrors}}}\n"))?;
        let template = format!("helm template buildkite-operator charts/buildkite-operator {KUBE_VERSION}");
        shell.run(&format!("{template} --namespace buildkite --values all.yaml > objects.yaml")).await?;
        let strictly =
            "kubectl apply --namespace buildkite --dry-run=server --validate=strict -f objects.yaml";
        let applied = shell.run(strictly).await?;
        for kind in [
            "servicemonitor.monitoring.coreos.com",
            "podmonitor.monitoring.coreos.com",
            "prometheusrule.monitoring.coreos.com",
            "networkpolicy.networking.k8s.io",
            "validatingwebhookconfiguration.admissionregistration.k8s.io",
            "service",
        ] {
            assert!(applied.contains(&format!("\n{kind}/")), "{kind}: {applied}");
        }
        Ok(())
    })
    .await;
}
