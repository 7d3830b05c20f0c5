//! The registration broker: agents in pods register by way of the operator, so that no pod has the agent token and the operator can end the job of
//! an agent that cannot.
//!
//! Every replica answers, whether it works or stands by. Who may register is decided in `bk_plan::broker`.
//!
//! - [`args`]: where to listen, and how pods get there
//! - [`identity`], [`keeper`]: certificate, authority and the key of one-time tokens
//! - [`trust`]: how pods come to trust the authority
//! - [`door`]: how many may come at once, and for how long
//! - [`server`][]: registrations
//! - [`turns`]: one registration at a time for each one-time token
//! - [`sessions`]: what is kept of them
//! - [`spokesman`]: ending jobs for their agents

mod args;
mod door;
pub(crate) mod identity;
mod keeper;
mod server;
pub(crate) mod sessions;
mod spokesman;
mod trust;
mod turns;

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::Router;
use axum_server::{Handle, Server};
use bk_api::config::{AgentCredentials, Config};
use bk_buildkite::Registrar;
use bk_plan::pod::BrokerAccess;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use reqwest::Url;
use rustls::ServerConfig;
use tokio::{sync::watch, task::AbortHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use args::BrokerArgs;
pub(crate) use args::DEFAULT_NAME;
pub(crate) use spokesman::Spokesman;

use self::{
    door::{Door, Limits, Visitors},
    identity::Identity,
    server::{Desk, Terms},
    sessions::Sessions,
    turns::Turns,
};
use crate::{
    certificates,
    error::Error,
    settings::{Cluster, Settings},
    telemetry::{self, Health, Metrics},
};

/// How long registrations that are under way may take when the operator stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Connections are closed after the answer, so these are registrations that are under way, and strangers.
const LIMITS: Limits =
    Limits { all: 512, of_one: 128, stay: Duration::from_secs(30), in_vain: 256.0, per_second: 16.0 };

/// The most that the head of a request may take.
const HEAD: usize = 32 << 10;

/// How long the broker's Secret may take to be filled when the operator starts.
const FILLING: Duration = Duration::from_secs(30);

/// The broker of this replica, if it has one.
pub struct Broker(Option<Open>);

/// What pods are told of the broker, and rely on for as long as they live.
pub struct Introduction {
    /// How agents register by way of it.
    pub access: BrokerAccess,
    /// The authority that they trust, as PEM.
    authority: String,
}

/// A broker that listens.
struct Open {
    url: Url,
    name: String,
    namespace: String,
    terms: watch::Sender<Option<Arc<Terms>>>,
    identity: watch::Receiver<Option<Identity>>,
    sessions: Sessions,
    /// What follows the agent token while nobody else does.
    following: Mutex<Option<AbortHandle>>,
}

impl Broker {
    /// Listens if the operator is to. Agents are registered once there is a certificate, and [`Self::learn`] was called. Those that are being
    /// registered when the operator stops are among its `farewells`.
    pub async fn start(
        args: &BrokerArgs,
        cluster: &Cluster,
        metrics: &Metrics,
        shutdown: &CancellationToken,
        farewells: &TaskTracker,
    ) -> Result<Self, Error> {
        let Some(listener) = telemetry::bind(args.broker_listen, "--broker-listen").await? else {
            return Ok(Self(None));
        };
        let failed = |error| Error::Setup(format!("cannot listen for --broker-listen: {error}"));
        let listener = listener.into_std().map_err(failed)?;
        let (url, host) = address(args.broker_url.as_deref())?;
        let (name, namespace) = (args.broker_name.clone(), cluster.namespace.clone());
        let (identities, identity) = watch::channel(None);
        let (terms, known) = watch::channel(None);
        let keeping = keeper::keep(cluster.clone(), name.clone(), host, identities);
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(keeping));
        let (sessions, visitors) = (Sessions::start(cluster, &name), Visitors::default());
        let desk = Desk {
            cluster: cluster.clone(),
            terms: known,
            identity: identity.clone(),
            sessions: sessions.clone(),
            metrics: metrics.clone(),
            room: server::room(),
            turns: Turns::new(server::REST),
            visitors: visitors.clone(),
        };
        let router = server::routes(url.path(), Arc::new(desk));
        let has_tls = url.scheme() == "https";
        let proof = has_tls.then(|| identity.clone());
        let guard = Guard { visitors, metrics: metrics.clone() };
        farewells.spawn(serve(listener, router, proof, guard, shutdown.clone()));
        Ok(Self(Some(Open { url, name, namespace, terms, identity, sessions, following: Mutex::default() })))
    }

    /// Has the replica not ready until the certificate is there, or turns out not to be needed.
    pub fn report(&self, health: &Health) {
        let Some(open) = &self.0 else { return };
        health.lacks_certificate(true);
        tokio::spawn(certified(open.identity.clone(), open.terms.subscribe(), health.clone()));
    }

    /// What pods are told of it, if agents are to register by way of it: its certificate is there, and pods can trust it.
    pub async fn introduce(
        &self,
        config: &Config,
        cluster: &Cluster,
        namespace: &str,
        owner: Option<&OwnerReference>,
    ) -> Result<Option<Introduction>, Error> {
        let Some(open) = self.used(config)? else { return Ok(None) };
        let mut identity = open.identity.clone();
        let filled = tokio::time::timeout(FILLING, identity.wait_for(Option::is_some)).await;
        let Ok(Ok(identity)) = filled.map(|filled| filled.map(|identity| identity.clone())) else {
            let Open { name, namespace, .. } = open;
            return Err(Error::Setup(format!(
                "the broker has no certificate: Secret {namespace}/{name} is missing, or the operator may not write it; install it with the \
                 chart, or set `agentCredentials: secret` in `pod_config`"
            )));
        };
        let Some(identity) = identity else { return Ok(None) };
        let has_tls = open.url.scheme() == "https";
        if has_tls {
            trust::ensure(&cluster.calls, namespace, &open.name, &identity.authority, owner).await?;
        }
        let access = BrokerAccess {
            url: open.url.to_string().trim_end_matches('/').to_owned(),
            name: open.name.clone(),
            has_authority: has_tls,
            key: Some(identity.ticket_key),
        };
        Ok(Some(Introduction { access, authority: identity.authority }))
    }

    /// Waits until pods have to be told something else, as somebody has emptied the broker's Secret.
    pub async fn outdates(&self, introduction: Option<&Introduction>) {
        if let (Some(open), Some(introduction)) = (&self.0, introduction) {
            let is_another = |identity: &Option<Identity>| {
                identity.as_ref().is_some_and(|identity| !introduction.is_by(identity))
            };
            if open.identity.clone().wait_for(is_another).await.is_ok() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Sees to it that pods can trust it, for as long as they are told of it like this.
    pub async fn keep_trusted(
        &self,
        introduction: Option<&Introduction>,
        cluster: &Cluster,
        namespace: &str,
        owner: Option<&OwnerReference>,
    ) {
        let Some(introduction) = introduction.filter(|introduction| introduction.access.has_authority) else {
            return;
        };
        trust::keep(cluster, namespace, &introduction.access.name, &introduction.authority, owner).await;
    }

    /// Agents are registered by these settings from now on.
    pub fn learn(&self, settings: &Settings) {
        let Some(open) = &self.0 else { return };
        let terms = Terms {
            namespace: settings.namespace.clone(),
            registrar: settings.registrar.clone(),
            proof: settings.config.pods.registration_proof,
            is_used: settings.config.pods.registers_by_operator(),
        };
        open.terms.send_replace(Some(Arc::new(terms)));
        open.follow(None);
    }

    /// The same while another replica works: nobody else follows the agent token meanwhile.
    pub fn learn_standing_by(&self, settings: &Settings, cluster: &Cluster) {
        self.learn(settings);
        let Some(open) = &self.0 else { return };
        let (followed, streams) = (settings.followed.clone(), cluster.streams.clone());
        let following = tokio::spawn(async move {
            let tokens = followed.iter();
            join_all(tokens.map(|(secret, credentials)| secret.follow(streams.clone(), credentials))).await;
        });
        open.follow(Some(following.abort_handle()));
    }

    /// The Secrets that it keeps, if there is one, whether pods use it or not.
    pub fn secrets(&self) -> Vec<String> {
        self.0.iter().flat_map(|open| bk_plan::broker::secrets(&open.name)).collect()
    }

    /// Who ends jobs for their agents. Without a broker nobody can.
    pub(crate) fn spokesman(&self, registrar: &Registrar, metrics: &Metrics) -> Spokesman {
        Spokesman::new(self.0.as_ref().map(|open| open.sessions.clone()), registrar.clone(), metrics.clone())
    }

    /// The broker, if pods are to use it.
    fn used(&self, config: &Config) -> Result<Option<&Open>, Error> {
        match (config.pods.agent_credentials, &self.0) {
            (Some(AgentCredentials::Secret), _) | (None, None) => Ok(None),
            (_, Some(open)) => Ok(Some(open)),
            (Some(AgentCredentials::Broker), None) => Err(Error::Setup(
                "`agentCredentials: broker` in `pod_config` needs --broker-listen and --broker-url, or `broker.enabled` in the chart"
                    .to_owned(),
            )),
        }
    }
}

impl Introduction {
    /// Whether that is what pods would be told now.
    fn is_by(&self, identity: &Identity) -> bool {
        self.authority == identity.authority && self.access.key.as_ref() == Some(&identity.ticket_key)
    }
}

impl Open {
    /// From now on the agent token is followed by this, if by anything here.
    fn follow(&self, following: Option<AbortHandle>) {
        let before =
            std::mem::replace(&mut *self.following.lock().unwrap_or_else(PoisonError::into_inner), following);
        if let Some(before) = before {
            before.abort();
        }
    }
}

/// How pods reach the broker, and the host in it.
fn address(url: Option<&str>) -> Result<(Url, String), Error> {
    const EXPECTED: &str = "something like https://buildkite-operator-broker.buildkite.svc:8444/v3";
    let unusable = |problem: &str| Error::Setup(format!("--broker-url {problem}; expected {EXPECTED}"));
    let url = url.filter(|url| !url.is_empty()).ok_or_else(|| unusable("is needed with --broker-listen"))?;
    let url: Url = url.parse().map_err(|error| unusable(&format!("is no URL: {error}")))?;
    let host = url.host_str().map(|host| host.trim_matches(['[', ']']).to_owned());
    match host.filter(|_| matches!(url.scheme(), "http" | "https")) {
        Some(host) => Ok((url, host)),
        None => Err(unusable("is no HTTP URL")),
    }
}

/// Tells once there is a certificate, or once it is known that pods have no use for one.
async fn certified(
    mut identity: watch::Receiver<Option<Identity>>,
    mut terms: watch::Receiver<Option<Arc<Terms>>>,
    health: Health,
) {
    let is_unused = |terms: &Option<Arc<Terms>>| terms.as_ref().is_some_and(|terms| !terms.is_used);
    let known = tokio::select! {
        identity = identity.wait_for(Option::is_some) => identity.is_ok(),
        terms = terms.wait_for(is_unused) => terms.is_ok(),
    };
    if known {
        health.lacks_certificate(false);
    }
}

/// Answers until the shutdown; with TLS once there is a certificate.
async fn serve(
    listener: TcpListener,
    router: Router,
    identity: Option<watch::Receiver<Option<Identity>>>,
    guard: Guard,
    shutdown: CancellationToken,
) {
    let handle = Handle::new();
    tokio::spawn(telemetry::farewell(shutdown.clone(), handle.clone(), FAREWELL));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let served = match identity {
        None => match axum_server::from_tcp(listener) {
            Ok(server) => guard.at(server).handle(handle).serve(service).await,
            Err(error) => Err(error),
        },
        Some(identity) => {
            let tls = certificates::tls("registrations", one_answer, identity, &shutdown);
            let Some(tls) = tls.await else { return };
            match axum_server::from_tcp_rustls(listener, tls) {
                Ok(server) => guard.at(server).handle(handle).serve(service).await,
                Err(error) => Err(error),
            }
        }
    };
    if let Err(error) = served {
        tracing::error!(%error, "agents cannot register any more");
    }
}

/// Nobody comes back, so nothing is agreed on for later.
fn one_answer(tls: &mut ServerConfig) {
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls.send_tls13_tickets = 0;
}

/// Looks after a server that strangers talk to.
struct Guard {
    visitors: Visitors,
    metrics: Metrics,
}

impl Guard {
    /// Each of them can have it keep no more than the head and the body of one request.
    fn at<A>(self, server: Server<SocketAddr, A>) -> Server<SocketAddr, Door<A>> {
        let Self { visitors, metrics } = self;
        let mut server = server.http1_only().map(|inside| Door::new(inside, LIMITS, visitors, metrics));
        server.http_builder().http1().max_buf_size(HEAD);
        server
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bk_api::config::RegistrationProof;
    use bk_buildkite::{Credentials, TokenKind};
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    /// A replica that stands by, and whose broker lacks a certificate.
    fn unready() -> Health {
        let health = Health::default();
        health.stand_by(Some(Instant::now()));
        health.lacks_certificate(true);
        health
    }

    #[tokio::test]
    async fn a_replica_is_ready_once_the_broker_has_a_certificate() {
        let (health, (identities, identity)) = (unready(), watch::channel(None));
        let (_terms, known) = watch::channel(None);
        let telling = tokio::spawn(certified(identity, known, health.clone()));
        assert_eq!(health.readiness(Instant::now()), Err("broker: no certificate yet\n".to_owned()));
        let secret = identity::renewed(&Secret::default(), "broker.ci.svc", Timestamp::now()).unwrap();
        identities.send_replace(Identity::of(&secret, "broker.ci.svc", Timestamp::now()));
        telling.await.unwrap();
        assert_eq!(health.readiness(Instant::now()), Ok(()));
    }

    #[tokio::test]
    async fn a_replica_whose_broker_is_not_used_needs_no_certificate() {
        let (health, (_identities, identity)) = (unready(), watch::channel(None));
        let (terms, known) = watch::channel(None);
        let telling = tokio::spawn(certified(identity, known, health.clone()));
        let credentials = Credentials::new(TokenKind::Agent, &"token".into()).unwrap();
        let terms_with = |is_used| {
            let registrar = Registrar::new("http://127.0.0.1:1", credentials.clone(), "test").unwrap();
            let proof = RegistrationProof::Address;
            Some(Arc::new(Terms { namespace: String::new(), registrar, proof, is_used }))
        };
        terms.send_replace(terms_with(true));
        tokio::task::yield_now().await;
        assert!(!telling.is_finished() && health.readiness(Instant::now()).is_err());
        terms.send_replace(terms_with(false));
        telling.await.unwrap();
        assert_eq!(health.readiness(Instant::now()), Ok(()));
    }

    #[test]
    fn pods_have_to_be_told_of_another_authority_or_key_and_of_no_other_certificate() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let of = |secret: &Secret| Identity::of(secret, "broker.ci.svc", now).unwrap();
        let secret = identity::renewed(&Secret::default(), "broker.ci.svc", now).unwrap();
        let Identity { authority, ticket_key, .. } = of(&secret);
        let access = BrokerAccess {
            url: String::new(),
            name: String::new(),
            has_authority: true,
            key: Some(ticket_key),
        };
        let introduction = Introduction { access, authority };
        assert!(introduction.is_by(&of(&identity::renewed(&secret, "broker.ci.svc", now).unwrap())));
        assert!(
            !introduction.is_by(&of(&identity::renewed(&Secret::default(), "broker.ci.svc", now).unwrap()))
        );
    }
}
