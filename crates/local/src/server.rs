//! The server: listener, routes, timer.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use jiff::Timestamp;
use tokio::net::TcpListener;

use crate::api::faults::connection::{Cut, Cuttable};
use crate::api::files::{self, Files};
use crate::api::{self, App, Shared};
use crate::build::job::DEFAULT_QUEUE;
use crate::config::{Config, ConfigError};
use crate::depot::Depot;
use crate::problem::Problem;
use crate::secret::{GitCredentials, Secrets, SecretsError};
use crate::store::{Store, agents, facts, pipelines};
use crate::{prune, timer};

/// How long a server that stops waits for the requests under way. A client may be slow, or gone.
const FAREWELL: Duration = Duration::from_secs(5);

/// A server that listens and has not begun to answer yet.
pub struct Server {
    listener: TcpListener,
    local_addr: SocketAddr,
    router: Router,
    app: Shared,
}

/// Why a server cannot start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address is not free, or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The database cannot be opened or prepared.
    #[error("cannot open the database {path}: {reason}")]
    Database {
        /// The file, or "in memory".
        path: String,
        /// Why not.
        reason: String,
    },
    /// A file of secrets cannot be used.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The directory for artifacts cannot be used.
    #[error("cannot prepare the directory for artifacts")]
    Artifacts(#[source] std::io::Error),
    /// Accepting connections failed.
    #[error("the server stopped")]
    Serve(#[source] std::io::Error),
}

impl Server {
    /// Opens the database and the listener. Nothing is answered until [`Server::run`].
    pub async fn bind(config: Config) -> Result<Self, ServerError> {
        let tokens = config.tokens()?;
        Secrets::read(config.secrets.as_deref())?;
        GitCredentials::read(config.git_credentials.as_deref())?;
        let path = config.database.clone();
        let database = |problem: Problem| ServerError::Database {
            path: path.as_ref().map_or_else(|| "in memory".to_owned(), |path| path.display().to_string()),
            reason: bk_ops::report::one_line(&problem),
        };
        let store = Store::open(config.database.as_deref()).map_err(&database)?;
        let address = config.listen;
        let depot = Depot::open(config.artifacts()).map_err(ServerError::Artifacts)?;
        let files = Files::new(depot, &store).await.map_err(&database)?;
        let app = App::new(config, tokens, store, files);
        prepare(&app).await.map_err(&database)?;
        files::sweep(&app).await.map_err(&database)?;
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, local_addr, router: api::router(app.clone()), app })
    }

    /// Where the server listens; with the real port when 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Answers until `shutdown` ends; requests under way are finished, unless they take too long.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), ServerError> {
        let breakable = self.app.config.faults.is_some();
        let stopping = self.app.run.stopping.clone();
        let stopped = stopping.clone();
        let overdue = async move {
            stopped.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        };
        let shutdown = async move {
            shutdown.await;
            stopping.cancel();
        };
        let timer = tokio::spawn(timer::run(self.app.clone()));
        let pruning = tokio::spawn(prune::run(self.app));
        let router = self.router;
        let serving = async move {
            if breakable {
                let service = router.into_make_service_with_connect_info::<Cut>();
                axum::serve(Cuttable(self.listener), service).with_graceful_shutdown(shutdown).await
            } else {
                axum::serve(self.listener, router).with_graceful_shutdown(shutdown).await
            }
        };
        let served = tokio::select! {
            served = serving => served,
            () = overdue => {
                tracing::warn!("requests were still under way; they are broken off");
                Ok(())
            }
        };
        timer.abort();
        pruning.abort();
        served.map_err(ServerError::Serve)
    }
}

/// What must be in the database before the first request.
async fn prepare(app: &Shared) -> Result<(), Problem> {
    let organization = app.config.organization.clone();
    let queues = app.config.queues.clone();
    let lost_at = app.lost_at(Timestamp::now());
    app.store
        .transact(move |transaction| {
            facts::remember_organization(transaction, &organization)?;
            agents::forgive(transaction, lost_at)?;
            pipelines::create_queue(transaction, DEFAULT_QUEUE)?;
            queues.iter().try_for_each(|queue| pipelines::create_queue(transaction, queue))
        })
        .await
}
