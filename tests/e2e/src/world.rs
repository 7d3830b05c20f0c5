//! Everything a test needs, together.

use std::{
    fmt,
    fs::File,
    io::Write,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use bk_api::config::TOKEN_KEY;
use bk_plan::broker::ticket::PREFIX;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Pod},
};
use kube::{Api, api::ListParams};
use tempfile::TempDir;

use crate::{
    audit::{self, ApiCall},
    buildkite::{Buildkite, QUEUE},
    cluster::Cluster,
    diagnose,
    environment::Environment,
    eventually,
    gate::Gate,
    operator::{Operator, Running},
    proxy::Proxy,
    release::Release,
    repository::Repository,
};

/// No test takes longer than this, also with hundreds of jobs on a busy machine, unless something hangs.
const TEST_DEADLINE: Duration = Duration::from_mins(10);

/// The Lease that the operator's role lets it write.
const LEASE: &str = "buildkite-operator";

/// The test is about the operator's process, and there is none: the operator is installed by Helm.
#[derive(Debug)]
struct LeftOut;

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an operator that is installed by Helm is no process of this machine")
    }
}

impl std::error::Error for LeftOut {}

/// The file of [`World::note`].
const NOTES: &str = "notes.txt";

/// A cluster, a Buildkite and a repository. The operator runs when the test says so.
pub struct World {
    /// What `cargo xtask test` provides.
    pub environment: Environment,
    /// The test's namespace.
    pub cluster: Cluster,
    /// The test's Buildkite.
    pub buildkite: Buildkite,
    /// The test's repository: `hello.txt` and `hello.sh`.
    pub repository: Repository,
    directory: TempDir,
    /// Where agents in pods register, by way of the operator.
    broker: SocketAddr,
    /// Whether the test takes permissions away.
    weakened: AtomicBool,
}

/// Runs a test in a world of its own. If it fails, tells why, first and last, with what explains it in between.
pub async fn scenario(test: impl AsyncFnOnce(&World) -> Result<()>) {
    scenario_with(buildkite_local::Config::default(), test).await;
}

/// The same with a Buildkite that is set up like this.
pub async fn scenario_with(config: buildkite_local::Config, test: impl AsyncFnOnce(&World) -> Result<()>) {
    let environment = Environment::read().expect("`cargo xtask test` provides a cluster");
    play(environment, config, test).await;
}

/// The same where the operator is installed by Helm, in every run.
pub async fn scenario_installed(test: impl AsyncFnOnce(&World) -> Result<()>) {
    let environment = Environment::read().expect("`cargo xtask test` provides a cluster");
    play(Environment { installed: true, ..environment }, buildkite_local::Config::default(), test).await;
}

async fn play(
    environment: Environment,
    config: buildkite_local::Config,
    test: impl AsyncFnOnce(&World) -> Result<()>,
) {
    let world = World::new(environment, config).await.expect("the stage can be set");
    let run = AssertUnwindSafe(tokio::time::timeout(TEST_DEADLINE, test(&world))).catch_unwind().await;
    let failure = match run {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(error))) if error.is::<LeftOut>() => {
            diagnose::leave_out().err().map(|error| format!("{error:#}"))
        }
        Ok(Ok(Err(error))) => Some(format!("{error:#}")),
        Ok(Err(_)) => Some(format!("the test took longer than {} s", TEST_DEADLINE.as_secs())),
        Err(panic) => Some(diagnose::panic_message(&*panic)),
    };
    let failure = failure.or_else(|| world.overreach().err().map(|error| format!("{error:#}")));
    let failure = match failure {
        None => world.indiscretion().await.err().map(|error| format!("{error:#}")),
        failure => failure,
    };
    if let Some(failure) = failure {
        diagnose::print(&world, &failure);
        // It has been told already.
        std::panic::resume_unwind(Box::new(failure));
    }
    world.cluster.remove().await.expect("the namespace can be deleted");
}

impl World {
    async fn new(environment: Environment, config: buildkite_local::Config) -> Result<Self> {
        let buildkite = Buildkite::start_with(environment.host, config).await?;
        Self::around(environment, buildkite).await
    }

    /// A world with this Buildkite.
    pub async fn around(environment: Environment, buildkite: Buildkite) -> Result<Self> {
        bk_ops::http::install_crypto_provider();
        let cluster = Cluster::prepare(&environment).await?;
        let files = [
            ("hello.txt", "hello from the repository\n"),
            ("hello.sh", "#!/bin/sh\nset -eu\ncat hello.txt\n"),
        ];
        let repository = Repository::serve(environment.host, &files)?;
        cluster.create_secret("buildkite-agent-token", TOKEN_KEY, &buildkite.agent_token).await?;
        // An operator that is started again is reached where it was before.
        let broker = std::net::TcpListener::bind((environment.host, 0))?.local_addr()?;
        Ok(Self {
            environment,
            cluster,
            buildkite,
            repository,
            directory: TempDir::new()?,
            broker,
            weakened: AtomicBool::new(false),
        })
    }

    /// Starts the operator on the default queue: as a process, or by Helm, as the run is meant.
    pub async fn operator(&self) -> Result<Running> {
        self.operator_on(QUEUE).await
    }

    /// The same on another queue.
    pub async fn operator_on(&self, queue: &str) -> Result<Running> {
        if self.environment.installed {
            return Ok(Running::Installed(Release::install(self, queue, &self.log_file()).await?));
        }
        Ok(Running::Process(self.operator_with(queue, None).await?))
    }

    /// Installs the operator on the default queue by Helm.
    pub async fn release(&self) -> Result<Release> {
        Release::install(self, QUEUE, &self.log_file()).await
    }

    /// Starts the operator on the default queue as a process, which a test can stop and look into.
    pub async fn process(&self) -> Result<Operator> {
        self.operator_with(QUEUE, None).await
    }

    /// Starts the operator on the default queue, with this way to the API server.
    pub async fn operator_through(&self, proxy: &Proxy) -> Result<Operator> {
        self.operator_with(QUEUE, Some(&proxy.url)).await
    }

    /// Starts the operator on the default queue with an agent token of its own, whatever the Secret holds from which agents have theirs.
    pub async fn operator_with_token(&self) -> Result<Operator> {
        let token = format!("--agent-token={}", self.buildkite.agent_token);
        self.operator_given(None, [format!("--queue={QUEUE}"), token].into_iter().chain(self.broker_flags()))
            .await
    }

    /// Starts the operator on the default queue, with this way to the API server, which can be closed.
    pub async fn operator_behind(&self, gate: &Gate) -> Result<Operator> {
        self.operator_with(QUEUE, Some(&gate.url)).await
    }

    /// Starts a replica of the Deployment of this name on the default queue.
    pub async fn operator_of(&self, deployment: &str) -> Result<Operator> {
        self.operator_given(None, [format!("--queue={QUEUE}"), format!("--deployment={deployment}")]).await
    }

    /// Starts one of several operators on the default queue, of which one works and the others stand by.
    pub async fn replica(&self) -> Result<Operator> {
        self.operator_given(None, [format!("--queue={QUEUE}"), format!("--lease={LEASE}")]).await
    }

    /// Starts the operator on the default queue as an installation does: as a replica of a Deployment, with a Lease.
    pub async fn installed_operator(&self) -> Result<Operator> {
        let flags = [format!("--queue={QUEUE}"), format!("--lease={LEASE}"), format!("--deployment={LEASE}")];
        self.operator_given(None, flags.into_iter().chain(self.broker_flags())).await
    }

    /// Who holds the Lease of the replicas, if anybody.
    pub async fn leader(&self) -> Result<Option<String>> {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), &self.cluster.home);
        let spec = leases.get_opt(LEASE).await?.and_then(|lease| lease.spec);
        Ok(spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty()))
    }

    /// Waits until another than `before` holds the Lease.
    pub async fn leader_after(&self, before: Option<&str>) -> Result<String> {
        eventually("another replica works", async || {
            Ok(self.leader().await?.filter(|leader| Some(leader.as_str()) != before))
        })
        .await
    }

    /// Starts an operator on the default queue in another namespace than the test's own.
    pub async fn operator_in(&self, cluster: &Cluster) -> Result<Operator> {
        self.needs_process()?;
        let directory = self.directory.path().join(&cluster.namespace);
        std::fs::create_dir_all(&directory)?;
        cluster.create_secret("buildkite-agent-token", TOKEN_KEY, &self.buildkite.agent_token).await?;
        let mut args = self.arguments(&cluster.operator_kubeconfig(&directory, None).await?);
        args.push(format!("--queue={QUEUE}"));
        Operator::start(&self.environment, &args, &self.log_file())
    }

    /// Starts the operator on the queues that its configuration names. It answers questions about itself at `listen`.
    pub async fn operator_as_configured(&self, listen: SocketAddr) -> Result<Operator> {
        let flags = [format!("--listen={listen}")].into_iter().chain(self.broker_flags());
        self.operator_given(None, flags).await
    }

    /// Starts the operator on the default queue. It answers questions about itself at `listen`, and sends traces of jobs to `traces`.
    pub async fn operator_seen(&self, listen: SocketAddr, traces: &str) -> Result<Operator> {
        let seen = [format!("--listen={listen}"), format!("--otlp-endpoint={traces}")];
        let flags = [format!("--queue={QUEUE}")].into_iter().chain(seen).chain(self.broker_flags());
        self.operator_given(None, flags).await
    }

    async fn operator_with(&self, queue: &str, way: Option<&str>) -> Result<Operator> {
        let flags = [format!("--queue={queue}")].into_iter().chain(self.broker_flags());
        self.operator_given(way, flags).await
    }

    /// Starts the operator with these arguments besides those that every test needs.
    pub async fn operator_given(
        &self,
        way: Option<&str>,
        more: impl IntoIterator<Item = String>,
    ) -> Result<Operator> {
        self.needs_process()?;
        let mut args = self.arguments(&self.kubeconfig(way).await?);
        args.extend(more);
        Operator::start(&self.environment, &args, &self.log_file())
    }

    /// What makes agents register by way of the operator. Of several at once, the first is reached there; the pods of the others have the agent
    /// token.
    pub fn broker_flags(&self) -> Vec<String> {
        if std::net::TcpListener::bind(self.broker).is_err() {
            return Vec::new();
        }
        vec![format!("--broker-listen={}", self.broker), format!("--broker-url={}", self.broker_url())]
    }

    /// How pods reach the operator.
    pub fn broker_url(&self) -> String {
        format!("https://{}/v3", self.broker)
    }

    /// Leaves the test out if the operator is no process of this machine.
    pub fn needs_process(&self) -> Result<()> {
        if self.environment.installed { Err(LeftOut.into()) } else { Ok(()) }
    }

    async fn kubeconfig(&self, way: Option<&str>) -> Result<PathBuf> {
        self.cluster.operator_kubeconfig(self.directory.path(), way).await
    }

    /// The operator has its service account's permissions and logs JSON.
    fn arguments(&self, kubeconfig: &Path) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--endpoint={}", self.buildkite.endpoint()),
            format!("--agent-image={}", self.environment.agent_image),
            format!("--operator-image={}", self.environment.operator_image),
            "--log-format=json".to_owned(),
            "--log-level=info,buildkite_operator=debug".to_owned(),
        ]
    }

    /// What operators of this test have logged.
    pub fn operator_log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Keeps something for the file that explains a failure.
    pub fn note(&self, text: &str) -> Result<()> {
        let mut notes = File::options().create(true).append(true).open(self.directory.path().join(NOTES))?;
        Ok(writeln!(notes, "{text}")?)
    }

    /// What was kept for the file that explains a failure.
    pub fn notes(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(NOTES)).unwrap_or_default()
    }

    /// What the operator has asked of the API server since `mark`. Watches that go on are not among it.
    pub fn api_calls(&self, mark: Timestamp) -> Result<Vec<ApiCall>> {
        audit::calls(&self.environment.audit_log, &self.cluster.operator_user(), mark)
    }

    /// The operator is about to lose permissions, or to be sent where it has none, and may ask for what it may not have.
    pub fn weaken(&self) {
        self.weakened.store(true, Ordering::Relaxed);
    }

    /// Fails if the operator has asked for something that its role does not allow: every test shows that the role is enough.
    fn overreach(&self) -> Result<()> {
        let calls = self.api_calls(Timestamp::UNIX_EPOCH)?;
        let refused: Vec<String> =
            calls.iter().filter(|call| call.forbidden).map(ToString::to_string).collect();
        ensure!(
            refused.is_empty() || self.weakened.load(Ordering::Relaxed),
            "the operator has no permission for:\n{}",
            refused.join("\n")
        );
        Ok(())
    }

    /// Fails if what the operator has made or said gives a token away: nobody may read the agent token anywhere, nor a one-time token outside
    /// of its pod.
    async fn indiscretion(&self) -> Result<()> {
        let (client, namespace) = (self.cluster.client.clone(), &self.cluster.namespace);
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
        let events = Api::<Event>::namespaced(client, namespace).list(&ListParams::default()).await?;
        let pods = serde_json::to_string(&pods.items)?;
        let said = [serde_json::to_string(&events.items)?, self.operator_log()];
        ensure!(
            said.iter().chain([&pods]).all(|text| !self.knows_token(text)),
            "the agent token is in a pod, an event or the operator's log"
        );
        ensure!(
            said.iter().all(|text| !text.contains(&format!("{PREFIX}~"))),
            "a one-time token is in an event or in the operator's log"
        );
        Ok(())
    }

    /// Whether a text gives the agent token away.
    pub fn knows_token(&self, text: &str) -> bool {
        text.contains(&self.buildkite.agent_token)
    }

    /// A directory of the test's own.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("operator.log")
    }
}
