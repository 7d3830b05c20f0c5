//! Mirrors of git repositories: the syncer keeps them on the node or on a volume, as the guide and its manifests say, and checkouts of jobs borrow
//! from them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use bk_e2e::{
    World, eventually,
    guide::example,
    registry::{Manner, Registry},
    repository::Repository,
    scenario,
    shell::Shell,
};

const GUIDE: &str = include_str!("../../../../docs/mirrors.md");
const NODE_LOCAL: &str = include_str!("../../../../deploy/repo-syncer/node-local.yaml");
/// What the syncer, its account and its Service are called.
const SYNCER: &str = "buildkite-operator-repo-syncer";
const ON_NODES: &str = "/var/lib/buildkite/repo-mirrors";
const IN_PODS: &str = "/buildkite/repo-mirrors";

/// A syncer with a directory of the test's own, and a mirror of the test's repository.
struct Mirrors<'a> {
    directory: PathBuf,
    shell: Shell<'a>,
}

impl<'a> Mirrors<'a> {
    /// A syncer on each node.
    async fn on_nodes(world: &'a World) -> Result<Self> {
        let directory = world.directory().join("mirrors");
        let shell = Shell::open(world)?.replacing(ON_NODES, &directory.display().to_string());
        shell.write("deploy/repo-syncer/node-local.yaml", NODE_LOCAL)?;
        // Packs are joined after each second fetch, so that there is something to see.
        let config = shell
            .here(example(GUIDE, "yaml", "layout: nodeLocal")?)
            .replace("    intervalSeconds: 120\n", "    intervalSeconds: 120\n    gc: {maxPacks: 2}\n");
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&config))?;
        Self::keep(world, shell, "node-local.yaml", directory).await
    }

    /// One syncer that writes to a volume. The test provides it, as the cluster has nobody who does.
    async fn on_a_volume(world: &'a World) -> Result<Self> {
        let directory = world.directory().join("mirrors");
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
        world.cluster.kubectl(&["apply", "-f", "-"], Some(example(GUIDE, "yaml", "layout: shared")?))?;
        let namespace = &world.cluster.namespace;
        let volume = format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {namespace}}}, spec: {{capacity: {{storage: 100Gi}}, \
             accessModes: [ReadWriteMany], hostPath: {{path: {}}}, claimRef: {{name: repo-mirrors, namespace: {namespace}}}}}}}",
            directory.display()
        );
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&volume))?;
        Self::keep(world, Shell::open(world)?, "shared.yaml", directory).await
    }

    /// Runs the guide's commands with this manifest.
    async fn keep(world: &World, shell: Shell<'a>, manifest: &str, directory: PathBuf) -> Result<Self> {
        shell.run(example(GUIDE, "sh", manifest)?).await?;
        let mirror = example(GUIDE, "yaml", "kind: RepoMirror")?
            .replace("git@github.com:example/app.git", &world.repository.url)
            .replace("  credentials:\n    sshSecret: git-credentials\n", "");
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&mirror))?;
        let wait = ["wait", "--for=condition=Ready", "--timeout=90s", "repomirror/app"];
        world.cluster.kubectl(&wait, None)?;
        let address = ["get", "service", SYNCER, "-o", "jsonpath={.spec.clusterIP}"];
        let address = format!("http://{}/", world.cluster.kubectl(&address, None)?.trim());
        let token = ["get", "secret", "repo-syncer-token", "--template={{.data.token | base64decode}}"];
        let shell = shell
            .replacing("http://buildkite-operator-repo-syncer/", &address)
            .replacing("git@github.com:example/app.git", &world.repository.url)
            .replacing("$TOKEN", &world.cluster.kubectl(&token, None)?);
        Ok(Self { directory, shell })
    }

    /// Has the mirror fetched now, as the guide shows.
    async fn sync(&self) -> Result<()> {
        self.shell.run(example(GUIDE, "sh", "/sync?url=")?).await.map(drop)
    }
}

/// Shows where objects come from. The command's image has no git.
const SHOW: &str = "./hello.sh; cat .git/objects/info/alternates || true; ls .git/objects/pack | wc -l";

async fn run(world: &World, url: &str, step: &str) -> Result<String> {
    let steps = format!("agents: {{queue: bk-operator}}\nsteps: [{step}]");
    let build = world.buildkite.build(url, &steps).await?;
    let id = build.jobs[0].id;
    let job = world.buildkite.ended(id).await?;
    let log = world.buildkite.log(id).await?;
    assert_eq!(job.exit_status, Some(0), "{log}");
    assert!(log.contains("hello from the repository"), "{log}");
    Ok(log)
}

fn assert_borrowed(log: &str) {
    assert!(log.contains(&format!("{IN_PODS}/")), "the checkout names the mirror: {log}");
    assert!(!log.contains("git clone"), "nothing is cloned: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_borrows_from_its_mirror_and_does_without_where_there_is_none() {
    scenario(async |world| {
        let mirrors = Mirrors::on_nodes(world).await?;
        let _operator = world.operator().await?;
        mirrors.sync().await?;
        eventually("the syncers of other nodes are told", async || {
            let request = r"jsonpath={.metadata.annotations.buildkite-operator\.dev/sync-requested}";
            let request = world.cluster.kubectl(&["get", "repomirror", "app", "-o", request], None)?;
            Ok((!request.is_empty()).then_some(()))
        })
        .await?;
        let image = &world.environment.toolbox_image;
        let step = format!("{{command: \"{SHOW}\", image: \"{image}\"}}");
        let log = run(world, &world.repository.url, &step).await?;
        assert_borrowed(&log);
        assert!(log.contains("is borrowed from its mirror, fetched "), "the job's log says so: {log}");

        let user =
            "plugins: [{kubernetes: {podSpec: {securityContext: {runAsUser: 4321, runAsGroup: 4321}}}}]";
        let log = run(world, &world.repository.url, &format!("{{command: \"{SHOW}; git status\", {user}}}"))
            .await?;
        assert_borrowed(&log);

        let files =
            [("hello.txt", "hello from the repository\n"), ("hello.sh", "#!/bin/sh\ncat hello.txt\n")];
        let other = Repository::serve(world.environment.host, &files)?;
        let log = run(world, &other.url, &step).await?;
        assert!(log.contains("is cloned from its server: there is no mirror of it"), "{log}");
        assert!(log.contains("git clone"), "{log}");

        let off =
            format!("{{command: \"{SHOW}\", image: \"{image}\", env: {{BK_OPERATOR_REPO_MIRROR: 'false'}}}}");
        let log = run(world, &world.repository.url, &off).await?;
        assert!(log.contains("git clone") && !log.contains("from its "), "{log}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_borrows_from_a_volume_that_one_syncer_writes() {
    scenario(async |world| {
        let mirrors = Mirrors::on_a_volume(world).await?;
        let _operator = world.operator().await?;
        let step = format!("{{command: \"{SHOW}\", image: \"{}\"}}", world.environment.toolbox_image);
        assert_borrowed(&run(world, &world.repository.url, &step).await?);
        world.repository.replace_history("another")?;
        mirrors.sync().await?;
        mirrors.shell.run(example(GUIDE, "sh", "sync-requested")?).await?;
        assert_borrowed(&run(world, &world.repository.url, &step).await?);
        // It belongs to no namespace, so it does not go with the test's.
        world.cluster.kubectl(&["delete", "pv", &world.cluster.namespace, "--wait=false"], None)?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_buildkite_borrows_also_further_repositories() {
    scenario(async |world| {
        let _mirrors = Mirrors::on_nodes(world).await?;
        let _operator = world.operator().await?;
        let url = &world.repository.url;
        let borrows = |git: &str| format!("grep {IN_PODS} {git}/objects/info/alternates");
        let further = "/workspace/repos/*/repo";
        let command = format!(
            "./hello.sh; {}; {}; cat {further}/hello.txt",
            borrows(".git"),
            borrows(&format!("{further}/.git"))
        );
        let job = format!(
            "{{apiVersion: buildkite-operator.dev/v1alpha1, kind: BuildJob, metadata: {{name: lone}}, spec: {{command: '{command}', \
             source: {{repo: '{url}', commit: HEAD, branch: main}}, repoMirror: {{enabled: true, extraRepos: ['{url}']}}}}}}"
        );
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&job))?;
        let ended = world
            .cluster
            .build_job_with("lone", "over", |job| job.status_or_default().phase.is_terminal())
            .await?;
        let status = ended.status_or_default();
        assert_eq!(status.exit_status, Some(0), "{status:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_borrows_misses_an_object_while_everything_changes() {
    borrow_while_everything_changes(4, 6).await;
}

/// `cargo xtask test --only e2e --ignored --filter twenty`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "twenty pods that read all the time leave nothing for tests beside it"]
async fn none_of_twenty_who_borrow_misses_an_object_while_everything_changes() {
    borrow_while_everything_changes(20, 20).await;
}

/// Nobody but the image says who checks out, and it is not root, who prepares the checkout.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_borrows_where_the_agents_image_has_a_user_of_its_own() {
    scenario(async |world| {
        let registry = Registry::serve_agent_as(&world.environment, "1000:1000").await?;
        let _mirrors = Mirrors::on_nodes(world).await?;
        let _operator = world.operator().await?;
        let patch =
            format!("{{containers: [{{name: checkout, image: '{}'}}]}}", registry.image(Manner::Open));
        let step = format!(
            "{{command: \"{SHOW}\", image: \"{}\", plugins: [{{kubernetes: {{podSpecPatch: {patch}}}}}]}}",
            world.environment.toolbox_image
        );
        assert_borrowed(&run(world, &world.repository.url, &step).await?);
        Ok(())
    })
    .await;
}

/// Jobs read what they have borrowed while its repository gets other histories and its mirror other packs.
async fn borrow_while_everything_changes(jobs: usize, rounds: usize) {
    scenario(async |world| {
        let mirrors = Mirrors::on_nodes(world).await?;
        let _operator = world.operator().await?;
        let command = format!(
            "./hello.sh; echo reading; until test -e {IN_PODS}/stop; do git fsck --full --no-dangling --no-progress; \
             git rev-list --objects --all > /dev/null; git log --all --stat > /dev/null; sleep 0.2; done; echo read"
        );
        let step = format!("{{command: \"{command}\", parallelism: {jobs}}}");
        let steps = format!("agents: {{queue: bk-operator}}\nsteps: [{step}]");
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        for job in &build.jobs {
            world.buildkite.log_with(job.id, "reading\r\n").await?;
        }
        for round in 0..rounds {
            world.repository.replace_history(&format!("round {round}"))?;
            mirrors.sync().await?;
        }
        let generations = generations(&mirrors.directory)?;
        std::fs::write(mirrors.directory.join("stop"), "")?;
        for job in &build.jobs {
            let ended = world.buildkite.ended(job.id).await?;
            let log = world.buildkite.log(job.id).await?;
            assert_eq!(ended.exit_status, Some(0), "{log}");
            assert_borrowed(&log);
        }
        ensure!(generations.len() > 1, "packs were joined meanwhile: {generations:?}");
        Ok(())
    })
    .await;
}

/// The repositories that the one mirror consists of.
fn generations(directory: &Path) -> Result<Vec<String>> {
    let mirror = std::fs::read_dir(directory)?
        .filter_map(Result::ok)
        .find(|entry| entry.path().join("mirror.json").exists())
        .context("there is a mirror")?;
    let names = std::fs::read_dir(mirror.path())?.filter_map(Result::ok);
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with('g')).collect())
}
