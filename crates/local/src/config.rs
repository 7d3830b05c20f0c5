//! How a server is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::fault::Faults;
use crate::secret;

/// Tokens that work without being set, on loopback only.
pub(crate) const LOOPBACK_AGENT_TOKEN: &str = "local-agent-token";
pub(crate) const LOOPBACK_API_TOKEN: &str = "local-api-token";

const GIB: u64 = 1024 * 1024 * 1024;

/// The settings of a server. The default serves one laptop: loopback, in memory.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// The database file; in memory when absent.
    pub database: Option<PathBuf>,
    /// Where the bytes of artifacts are kept; `<database>.artifacts` when absent, and a temporary directory for a
    /// database in memory.
    pub artifacts: Option<PathBuf>,
    /// The largest artifact.
    pub max_artifact_bytes: u64,
    /// Artifacts from this size on are sent in parts, when the client can.
    pub multipart_from_bytes: u64,
    /// The secrets of jobs: a YAML file of names and values, read again for every request.
    pub secrets: Option<PathBuf>,
    /// Tokens for repositories: a YAML file of git hosts and tokens, read again for every request.
    pub git_credentials: Option<PathBuf>,
    /// The organisation's slug.
    pub organization: String,
    /// What agents and stacks register with. Must be given unless the address is loopback.
    pub agent_token: Option<String>,
    /// What the REST API asks for. Must be given unless the address is loopback.
    pub api_token: Option<String>,
    /// Where people and agents reach the server; taken from each request's `Host` when absent.
    pub external_url: Option<String>,
    /// The queues besides `default`. When empty, a queue comes into being as soon as somebody names it, so
    /// that a laptop needs no preparation. When given, others are refused as the hosted service does.
    pub queues: Vec<String>,
    /// Whether agents and jobs are outside clusters, as in organisations that have none. Then there are no stacks.
    pub unclustered: bool,
    /// What agents are told about how often to call.
    pub intervals: Intervals,
    /// How long a reservation holds when the stack does not say.
    pub reservation: Duration,
    /// An agent that stays silent for so long is lost, and its job with it.
    pub agent_lost_after: Duration,
    /// From accepting a job to starting it; then the job is offered again.
    pub start_within: Duration,
    /// From cancel or timeout to the agent's answer; then the job is settled without it.
    pub stop_within: Duration,
    /// Scheduled jobs that nobody takes expire after this.
    pub expire_after: Duration,
    /// Whether stacks that call too often are refused, as the hosted service does. They are told the limits
    /// in any case.
    pub rate_limits: bool,
    /// The faults that tests put into the server's way. When absent, the server has no such thing.
    pub faults: Option<Faults>,
    /// How many finished builds of each pipeline are kept; all when absent.
    pub keep_builds: Option<u32>,
    /// How long finished builds are kept; for ever when absent.
    pub keep_builds_for: Option<Duration>,
    /// How often the server looks for builds that need not be kept.
    pub prune_every: Duration,
    /// The most that is kept of one job's log; the rest is discarded.
    pub log_max_bytes: u64,
}

/// Seconds between an agent's calls; the agent needs at least 1 each.
#[derive(Debug, Clone, Copy)]
pub struct Intervals {
    /// Between pings.
    pub ping: u32,
    /// Between looks at the state of the running job.
    pub job_status: u32,
    /// Between heartbeats.
    pub heartbeat: u32,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { ping: 1, job_status: 1, heartbeat: 5 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8384)),
            database: None,
            artifacts: None,
            secrets: None,
            git_credentials: None,
            max_artifact_bytes: 5 * GIB,
            multipart_from_bytes: GIB / 16,
            organization: "local".to_owned(),
            agent_token: None,
            api_token: None,
            external_url: None,
            queues: Vec::new(),
            unclustered: false,
            intervals: Intervals::default(),
            reservation: Duration::from_mins(15),
            agent_lost_after: Duration::from_mins(3),
            start_within: Duration::from_mins(1),
            stop_within: Duration::from_mins(1),
            expire_after: Duration::from_hours(30 * 24),
            rate_limits: true,
            faults: None,
            keep_builds: None,
            keep_builds_for: None,
            prune_every: Duration::from_mins(1),
            log_max_bytes: 1024 * 1024 * 1024,
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A well-known token must not open a server to a network.
    #[error("listening on {listen}, which is not loopback, needs {missing} to be set")]
    TokenRequired {
        /// The address asked for.
        listen: SocketAddr,
        /// The setting that is missing.
        missing: &'static str,
    },
    /// Both tokens would open both doors.
    #[error("the agent token and the API token must differ")]
    SameTokens,
    /// An agent panics on an interval of 0.
    #[error("intervals must be at least 1 second each")]
    ZeroInterval,
}

/// The tokens in effect.
#[derive(Clone)]
pub(crate) struct Tokens {
    agent: Arc<RwLock<String>>,
    api: String,
}

impl Tokens {
    /// Whether this is the registration token.
    pub(crate) fn is_agent(&self, given: &str) -> bool {
        secret::is_same(given, &self.agent.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this is the token of the REST API.
    pub(crate) fn is_api(&self, given: &str) -> bool {
        secret::is_same(given, &self.api)
    }

    /// Replaces the registration token; the old one is worth nothing from then on.
    pub(crate) fn rotate_agent(&self, token: String) {
        *self.agent.write().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

impl Config {
    /// Where the bytes of artifacts are kept, unless they are temporary.
    pub(crate) fn artifacts(&self) -> Option<PathBuf> {
        self.artifacts.clone().or_else(|| {
            let mut name = self.database.clone()?.into_os_string();
            name.push(".artifacts");
            Some(PathBuf::from(name))
        })
    }

    /// Whether the page is open to everybody on this machine: on loopback, unless somebody has set a token.
    pub(crate) fn is_open(&self) -> bool {
        self.listen.ip().is_loopback() && self.api_token.is_none()
    }

    /// Checks the settings and fills in the tokens of a loopback server.
    pub(crate) fn tokens(&self) -> Result<Tokens, ConfigError> {
        let Intervals { ping, job_status, heartbeat } = self.intervals;
        if ping == 0 || job_status == 0 || heartbeat == 0 {
            return Err(ConfigError::ZeroInterval);
        }
        let resolve = |given: &Option<String>, fallback: &str, missing| match given {
            Some(token) if !token.is_empty() => Ok(token.clone()),
            _ if self.listen.ip().is_loopback() => Ok(fallback.to_owned()),
            _ => Err(ConfigError::TokenRequired { listen: self.listen, missing }),
        };
        let tokens = Tokens {
            agent: Arc::new(RwLock::new(resolve(&self.agent_token, LOOPBACK_AGENT_TOKEN, "an agent token")?)),
            api: resolve(&self.api_token, LOOPBACK_API_TOKEN, "an API token")?,
        };
        if tokens.is_agent(&tokens.api) {
            return Err(ConfigError::SameTokens);
        }
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_tokens_and_other_addresses_need_them() {
        assert!(Config::default().tokens().is_ok());
        let open = Config { listen: SocketAddr::from(([0, 0, 0, 0], 1)), ..Config::default() };
        assert!(matches!(open.tokens(), Err(ConfigError::TokenRequired { .. })));
        let half = Config { agent_token: Some("a".into()), ..open.clone() };
        assert!(matches!(half.tokens(), Err(ConfigError::TokenRequired { missing: "an API token", .. })));
        let both = Config { api_token: Some("b".into()), ..half };
        assert!(both.tokens().is_ok());
    }

    #[test]
    fn an_interval_of_zero_is_refused() {
        let intervals = Intervals { heartbeat: 0, ..Intervals::default() };
        let config = Config { intervals, ..Config::default() };
        assert!(matches!(config.tokens(), Err(ConfigError::ZeroInterval)));
    }
}
