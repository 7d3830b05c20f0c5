//! Everything a test needs, together.

use std::{
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, anyhow};
use bk_api::config::TOKEN_KEY;
use futures::FutureExt;
use jiff::Timestamp;
use tempfile::TempDir;

use crate::{
    audit::{self, ApiCall},
    buildkite::{Buildkite, QUEUE},
    cluster::Cluster,
    diagnose,
    environment::Environment,
    operator::Operator,
    proxy::Proxy,
    repository::Repository,
};

/// No test takes longer than this unless something hangs.
const TEST_DEADLINE: Duration = Duration::from_mins(5);

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
}

/// Runs a test in a world of its own. If it fails, prints everything that explains it.
pub async fn scenario(test: impl AsyncFnOnce(&World) -> Result<()>) {
    let world = World::new().await.expect("the stage can be set");
    let run = AssertUnwindSafe(tokio::time::timeout(TEST_DEADLINE, test(&world))).catch_unwind().await;
    let outcome = match run {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(anyhow!("the test took longer than {} s", TEST_DEADLINE.as_secs())),
        Err(panic) => {
            diagnose::print(&world);
            std::panic::resume_unwind(panic);
        }
    };
    if let Err(error) = outcome {
        diagnose::print(&world);
        panic!("{error:#}");
    }
    world.cluster.remove().await.expect("the namespace can be deleted");
}

impl World {
    async fn new() -> Result<Self> {
        let environment = Environment::read()?;
        bk_ops::http::install_crypto_provider();
        let cluster = Cluster::prepare(&environment).await?;
        let buildkite = Buildkite::start(environment.host).await?;
        let files = [
            ("hello.txt", "hello from the repository\n"),
            ("hello.sh", "#!/bin/sh\nset -eu\ncat hello.txt\n"),
        ];
        let repository = Repository::serve(environment.host, &files)?;
        cluster.create_secret("buildkite-agent-token", TOKEN_KEY, &buildkite.agent_token).await?;
        Ok(Self { environment, cluster, buildkite, repository, directory: TempDir::new()? })
    }

    /// Starts the operator on the default queue.
    pub async fn operator(&self) -> Result<Operator> {
        self.operator_with(QUEUE, None).await
    }

    /// Starts the operator on the default queue, with this way to the API server.
    pub async fn operator_through(&self, proxy: &Proxy) -> Result<Operator> {
        self.operator_with(QUEUE, Some(&proxy.url)).await
    }

    /// Starts the operator on a queue.
    pub async fn operator_on(&self, queue: &str) -> Result<Operator> {
        self.operator_with(queue, None).await
    }

    /// The operator has its service account's permissions and logs JSON.
    async fn operator_with(&self, queue: &str, way: Option<&str>) -> Result<Operator> {
        let kubeconfig = self.cluster.operator_kubeconfig(self.directory.path(), way).await?;
        let args = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--endpoint={}", self.buildkite.endpoint()),
            format!("--agent-image={}", self.environment.agent_image),
            format!("--queue={queue}"),
            "--log-format=json".to_owned(),
            "--log-level=info,buildkite_operator=debug".to_owned(),
        ];
        Operator::start(&self.environment, &args, &self.log_file())
    }

    /// What operators of this test have logged.
    pub fn operator_log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// What the operator has asked of the API server since `mark`. Watches that go on are not among it.
    pub fn api_calls(&self, mark: Timestamp) -> Result<Vec<ApiCall>> {
        audit::calls(&self.environment.audit_log, &self.cluster.operator_user(), mark)
    }

    /// A directory of the test's own.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("operator.log")
    }
}
