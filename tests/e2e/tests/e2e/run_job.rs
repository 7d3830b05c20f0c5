//! `buildkite-operator run-job` on a real cluster, from a terminal and from the plugin's hook on an agent outside.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use bk_api::BuildJob;
use bk_e2e::{World, eventually, proxy::Proxy, scenario};
use kube::{Api, ResourceExt as _, api::ListParams};
use tokio::net::{TcpListener, TcpStream};

/// The command line, in an environment of its own.
fn run_job(world: &World, args: &[&str]) -> Command {
    let mut command = Command::new(&world.environment.operator);
    command
        .arg("run-job")
        .arg(format!("--kubeconfig={}", world.environment.kubeconfig.display()))
        .arg(format!("--namespace={}", world.cluster.namespace))
        .args(args)
        .env_clear()
        .stdin(Stdio::null());
    command
}

/// Runs it to its end, beside the test.
async fn outcome(mut command: Command) -> Result<Output> {
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn build_jobs(world: &World) -> Result<Vec<BuildJob>> {
    let jobs = Api::<BuildJob>::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
    Ok(jobs.list(&ListParams::default()).await?.items)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_and_its_whole_log_comes() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let image = format!("--image={}", world.environment.toolbox_image);
        let repo = format!("--repo={}", world.repository.url);
        // Long enough to be followed, and with lines to the very end.
        let script =
            "cat hello.txt; for i in $(seq 1 2000); do echo line $i of $COUNT; done; sleep 2; echo last";
        let output =
            outcome(run_job(world, &[&image, &repo, "--env=COUNT=2000", "--", "sh", "-c", script])).await?;
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said}\n{printed}");
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert!(lines.contains(&"hello from the repository"), "the checkout was its own: {printed}");
        let counted: Vec<_> = lines.iter().filter(|line| line.starts_with("line ")).collect();
        let expected: Vec<_> = (1..=2000).map(|i| format!("line {i} of 2000")).collect();
        assert_eq!(counted.len(), expected.len());
        assert!(
            counted.iter().zip(&expected).all(|(line, expected)| *line == expected),
            "in order, each once"
        );
        assert!(lines.contains(&"last"), "{printed}");
        assert!(said.contains("created") && said.contains("is on node"), "{said}");
        assert_eq!(build_jobs(world).await?, [], "nothing is left of what passed");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quick_failure_is_told_with_its_status_and_its_log() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let image = format!("--image={}", world.environment.toolbox_image);
        let output = outcome(run_job(world, &[&image, "--name=quick", "--", "echo gone; exit 3"])).await?;
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{said}\n{printed}");
        assert!(printed.contains("gone"), "{said}\n{printed}");
        assert!(said.contains("CommandFailed"), "{said}");
        assert!(world.cluster.build_job("quick").await?.is_some(), "it stays for who wants to look");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_pipeline_and_a_template_run_as_they_are_written() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let image = &world.environment.toolbox_image;
        let pipeline = world.directory().join("pipeline.yml");
        let steps = format!(
            r#"
env: {{GREETING: good morning, FLAVOUR: plain}}
steps:
  - {{command: exit 9, key: build}}
  - wait
  - group: Tests
    steps:
      - label: Taste
        key: taste
        command: ["cat hello.txt", 'echo "$$GREETING, $$FLAVOUR $$SEED"', exit 4]
        env: {{FLAVOUR: lemon}}
        image: "{image}"
"#
        );
        fs::write(&pipeline, steps)?;
        let file = format!("--pipeline={}", pipeline.display());
        let repo = format!("--repo={}", world.repository.url);
        for step in ["taste", "Taste", "2"] {
            let step = format!("--step={step}");
            let output = outcome(run_job(world, &[&file, &step, &repo, "--env=SEED=7"])).await?;
            let (printed, said) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(4), "{step}: {said}\n{printed}");
            assert!(printed.contains("hello from the repository"), "{step}: {said}\n{printed}");
            assert!(printed.contains("good morning, lemon 7"), "{step}: {said}\n{printed}");
        }
        let output = outcome(run_job(world, &[&file, "--step=tast", &repo])).await?;
        assert_eq!(output.status.code(), Some(125));
        let expected = "there is no command step `tast`; there are 1 (build), 2 (taste)";
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));

        let template = world.directory().join("nightly.yaml");
        let job = format!(
            "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {{name: nightly, labels: {{team: web}}}}\n\
             spec: {{image: \"{image}\", env: [{{name: SEED, value: '1'}}, {{name: DEPTH, value: '2'}}], \
             command: 'echo seed $SEED, depth $DEPTH; exit 6'}}\n"
        );
        fs::write(&template, job)?;
        let template = format!("--template={}", template.display());
        let output = outcome(run_job(world, &[&template, "--env=SEED=7"])).await?;
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(6), "{said}\n{printed}");
        assert!(printed.contains("seed 7, depth 2"), "{said}\n{printed}");
        let failed = build_jobs(world).await?;
        let nightly = failed.iter().find(|job| job.name_any().starts_with("nightly-"));
        assert_eq!(nightly.map(|job| job.labels()["team"].as_str()), Some("web"), "{failed:?}");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_has_a_status_of_its_own() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let output = outcome(run_job(world, &["--environment=missing", "--", "true"])).await?;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("there is no BuildEnvironment \"missing\""), "{said}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_cancels_the_job() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let image = format!("--image={}", world.environment.toolbox_image);
        let mut command = run_job(world, &[&image, "--", "echo here; sleep 1000"]);
        let log = world.directory().join("run-job.log");
        let mut child = command.stdout(File::create(&log)?).stderr(Stdio::null()).spawn()?;
        eventually("the job runs", async || Ok(fs::read_to_string(&log)?.contains("here").then_some(())))
            .await?;
        Command::new("sh").args(["-c", &format!("kill {}", child.id())]).status()?;
        let status = eventually("it ends", async || Ok(child.try_wait()?)).await?;
        assert_eq!(status.code(), Some(143));
        assert_eq!(build_jobs(world).await?, []);
        world.cluster.no_pods().await
    })
    .await;
}

/// A way to a server on which all connections can be cut.
struct Cable {
    url: String,
    cut: tokio::sync::watch::Sender<u32>,
}

impl Cable {
    async fn lay(server: &str) -> Result<Self> {
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (cut, uncut) = tokio::sync::watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let (server, mut cuts) = (server.clone(), uncut.clone());
                tokio::spawn(async move {
                    let mut there = TcpStream::connect(&server).await?;
                    cuts.mark_unchanged();
                    tokio::select! {
                        done = tokio::io::copy_bidirectional(&mut here, &mut there) => done.map(drop),
                        _ = cuts.changed() => Ok(()),
                    }
                });
            }
        });
        Ok(Self { url, cut })
    }

    fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_on_where_it_broke_off() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let kubectl = |args: &[&str]| world.cluster.kubectl(args, None);
        let account = format!("--serviceaccount={}:buildkite-operator", world.cluster.home);
        kubectl(&["create", "role", "reader", "--verb=get", "--resource=pods/log"])?;
        kubectl(&["create", "rolebinding", "reader", "--role=reader", &account])?;
        let proxy = Proxy::serve(&world.environment).await?;
        let cable = Cable::lay(&proxy.url).await?;
        let directory = world.directory().join("through-cable");
        fs::create_dir(&directory)?;
        let kubeconfig = world.cluster.operator_kubeconfig(&directory, Some(&cable.url)).await?;
        let log = directory.join("log");
        let script = "for i in $(seq 1 40); do echo line $i; echo line $i again; sleep 0.2; done";
        let mut child = Command::new(&world.environment.operator)
            .arg("run-job")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--image={}", world.environment.toolbox_image))
            .args(["--", script])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::create(directory.join("said"))?)
            .spawn()?;
        for line in ["line 5", "line 15", "line 25"] {
            eventually(line, async || Ok(fs::read_to_string(&log)?.contains(line).then_some(()))).await?;
            cable.cut();
        }
        let status = eventually("it ends", async || Ok(child.try_wait()?)).await?;
        let (printed, said) = (fs::read_to_string(&log)?, fs::read_to_string(directory.join("said"))?);
        assert_eq!(status.code(), Some(0), "{said}\n{printed}");
        let lines: Vec<_> = printed.lines().filter(|line| line.starts_with("line ")).collect();
        let expected: Vec<_> =
            (1..=40).flat_map(|i| [format!("line {i}"), format!("line {i} again")]).collect();
        assert_eq!(lines, expected, "{said}");
        Ok(())
    })
    .await;
}

/// A git repository of the plugin, as an agent clones it.
fn plugin_repository(directory: &Path) -> Result<String> {
    let repository = directory.join("buildkite-operator-buildkite-plugin");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugin");
    let script = format!(
        "set -e; cp -r '{source}' '{path}'; cd '{path}'; git init --quiet --initial-branch=main; git add .; \
         git -c user.name=Test -c user.email=test@example.com commit --quiet -m First",
        path = repository.display()
    );
    let status = Command::new("sh").args(["-c", &script]).env("GIT_CONFIG_GLOBAL", "/dev/null").status()?;
    ensure!(status.success(), "the plugin becomes a repository");
    Ok(format!("file://{}#main", repository.display()))
}

/// An agent outside the cluster, for one job. It is killed with everything that it started when dropped.
struct Outside(Child);

impl Outside {
    fn start(world: &World, job: &str) -> Result<Self> {
        let home = world.directory().join("agent");
        let directory = |name: &str| -> Result<String> {
            let path = home.join(name);
            fs::create_dir_all(&path)?;
            Ok(path.display().to_string())
        };
        let log = File::create(world.directory().join("agent.log"))?;
        let child = Command::new(&world.environment.agent)
            .args(["start", "--no-color", "--no-pty", "--acquire-job", job, "--cancel-grace-period=10"])
            .arg(format!("--endpoint={}", world.buildkite.endpoint()))
            .arg(format!("--build-path={}", directory("builds")?))
            .arg(format!("--hooks-path={}", directory("hooks")?))
            .arg(format!("--plugins-path={}", directory("plugins")?))
            .arg(format!("--sockets-path={}", directory("sockets")?))
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", directory("home")?)
            .env("KUBECONFIG", &world.environment.kubeconfig)
            .env("BUILDKITE_JOB_NAMESPACE", &world.cluster.namespace)
            .env("BUILDKITE_OPERATOR", &world.environment.operator)
            .env("BUILDKITE_AGENT_TOKEN", &world.buildkite.agent_token)
            .env("SECRET_OF_THE_MACHINE", "hidden")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start the agent")?;
        Ok(Self(child))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let kill = format!("kill -s KILL -- -{}", self.0.id());
        // It may have ended by itself.
        let _ended = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
        let _reaped = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_on_an_agent_outside_runs_on_the_cluster_by_the_plugin() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let plugin = plugin_repository(world.directory())?;
        let image = &world.environment.toolbox_image;
        let steps = format!(
            r#"
agents: {{queue: outside}}
steps:
  - command: |
      ./hello.sh
      echo "build $BUILDKITE_BUILD_NUMBER, $FLAVOUR, [$SECRET_OF_THE_MACHINE], [$BUILDKITE_AGENT_ACCESS_TOKEN]"
      exit 5
    env: {{FLAVOUR: lemon}}
    plugins:
      - "{plugin}":
          image: "{image}"
"#
        )
        .replace("$BUILDKITE", "$$BUILDKITE")
        .replace("$FLAVOUR", "$$FLAVOUR")
        .replace("$SECRET", "$$SECRET");
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        let id = build.jobs[0].id;
        let _agent = Outside::start(world, &id.to_string())?;
        let job = world.buildkite.ended(id).await?;
        let log = world.buildkite.log(id).await?;
        assert_eq!(job.exit_status, Some(5), "{log}");
        assert!(log.contains("hello from the repository"), "{log}");
        assert!(log.contains(&format!("build {}, lemon, [], []", build.number)), "{log}");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_cancelled_outside_is_cancelled_on_the_cluster() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let plugin = plugin_repository(world.directory())?;
        let steps = format!(
            "agents: {{queue: outside}}\nsteps: [{{command: 'echo here; sleep 1000', plugins: [{{\"{plugin}\": {{image: \"{}\"}}}}]}}]",
            world.environment.toolbox_image
        );
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        let id = build.jobs[0].id;
        let _agent = Outside::start(world, &id.to_string())?;
        eventually("the job runs on the cluster", async || {
            Ok(world.buildkite.log(id).await?.lines().any(|line| line.trim_end() == "here").then_some(()))
        })
        .await?;
        world.buildkite.cancel(id).await?;
        world.buildkite.ended(id).await?;
        eventually("the BuildJob is gone", async || Ok(build_jobs(world).await?.is_empty().then_some(()))).await?;
        world.cluster.no_pods().await
    })
    .await;
}
