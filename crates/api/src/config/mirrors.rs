//! `repo_syncer_config`: where mirrors of git repositories are, and how they are kept.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::directory::check_name;

/// `repo_syncer_config`: where mirrors of git repositories are, and how they are kept. Without `layout` there are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MirrorConfig {
    /// Where mirrors are; none if there are no mirrors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<MirrorLayout>,
    /// Whether jobs that say nothing about it borrow from mirrors.
    pub enabled: bool,
    /// The claim of the volume that holds the mirrors, with `layout: shared`. Syncer and jobs are in its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The directory on each node that holds the mirrors, with `layout: nodeLocal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Where mirrors are mounted, in the syncer and in jobs alike: checkouts refer to them by this path.
    pub path: String,
    /// How many seconds pass between two fetches, where a RepoMirror does not say.
    pub interval_seconds: u32,
    /// How many mirrors are fetched at once.
    pub parallelism: usize,
    /// How long one fetch may take, the first of a repository included.
    pub timeout_seconds: u32,
    /// A mirror that was not fetched for so long is not used by jobs any more.
    pub stale_seconds: u32,
    /// How long a job's checkout may be prepared from mirrors before it goes on without.
    pub borrow_timeout_seconds: u32,
    /// The endpoint that asks for a fetch at once.
    pub endpoint: MirrorEndpoint,
    /// How mirrors are tidied up.
    pub gc: MirrorGc,
}

/// Where mirrors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MirrorLayout {
    /// On a volume that many nodes can read, with one syncer.
    Shared,
    /// In a directory of each node, with a syncer on each.
    NodeLocal,
}

/// The endpoint that asks for a fetch at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MirrorEndpoint {
    /// Where it listens, such as `0.0.0.0:8081`; nowhere if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The Secret whose key `token` callers have to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret: Option<String>,
}

/// How mirrors are tidied up. Objects are never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MirrorGc {
    /// How many packs a mirror may have before small ones are joined.
    pub max_packs: usize,
    /// How long files stay that are no longer needed. Longer than any job runs: jobs may still read them.
    pub grace_seconds: u32,
    /// How many seconds pass between two checks that no object is missing.
    pub verify_seconds: u32,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        Self {
            layout: None,
            enabled: true,
            claim_name: None,
            host_path: None,
            path: "/buildkite/repo-mirrors".to_owned(),
            interval_seconds: 60,
            parallelism: 4,
            timeout_seconds: 3600,
            stale_seconds: 604_800,
            borrow_timeout_seconds: 120,
            endpoint: MirrorEndpoint::default(),
            gc: MirrorGc::default(),
        }
    }
}

impl Default for MirrorGc {
    fn default() -> Self {
        Self { max_packs: 20, grace_seconds: 86_400, verify_seconds: 86_400 }
    }
}

impl MirrorConfig {
    /// What cannot be meant.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_place()?;
        let objects =
            [("claimName", &self.claim_name), ("endpoint.tokenSecret", &self.endpoint.token_secret)];
        for (field, name) in objects {
            check_name(name.as_deref()).map_err(|problem| format!("`{field}` {problem}"))?;
        }
        if self.interval_seconds < 5 {
            return Err("`intervalSeconds` must be at least 5".to_owned());
        }
        let positive = [
            ("parallelism", self.parallelism),
            ("timeoutSeconds", self.timeout_seconds as usize),
            ("staleSeconds", self.stale_seconds as usize),
            ("borrowTimeoutSeconds", self.borrow_timeout_seconds as usize),
            ("gc.verifySeconds", self.gc.verify_seconds as usize),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(format!("`{name}` must be at least 1"));
        }
        if self.gc.max_packs < 2 {
            return Err("`gc.maxPacks` must be at least 2".to_owned());
        }
        if self.gc.grace_seconds < 600 {
            return Err("`gc.graceSeconds` must be at least 600: running jobs read the files".to_owned());
        }
        if self.endpoint.listen.is_some() && self.endpoint.token_secret.is_none() {
            return Err(
                "`endpoint.listen` needs `endpoint.tokenSecret`: whoever can reach the endpoint could use it"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_place(&self) -> Result<(), String> {
        let absolute =
            |path: &str| path.starts_with('/') && path.len() > 1 && !path.split('/').any(|part| part == "..");
        if !absolute(&self.path) {
            return Err(format!("`path: {}` must be an absolute path below /", self.path));
        }
        match (self.layout, &self.claim_name, &self.host_path) {
            (Some(MirrorLayout::Shared), None, _) => Err("`layout: shared` needs `claimName`".to_owned()),
            (Some(MirrorLayout::Shared), _, Some(_)) => {
                Err("`hostPath` is for `layout: nodeLocal`".to_owned())
            }
            (Some(MirrorLayout::NodeLocal), _, None) => {
                Err("`layout: nodeLocal` needs `hostPath`".to_owned())
            }
            (Some(MirrorLayout::NodeLocal), Some(_), _) => {
                Err("`claimName` is for `layout: shared`".to_owned())
            }
            (Some(MirrorLayout::NodeLocal), _, Some(path)) if !absolute(path) => {
                Err(format!("`hostPath: {path}` must be an absolute path below /"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn check(document: &str) -> Result<(), String> {
        serde_saphyr::from_str::<MirrorConfig>(document).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn no_mirrors_and_both_layouts_are_accepted() {
        for document in [
            "{}",
            "{layout: shared, claimName: mirrors}",
            "{layout: nodeLocal, hostPath: /var/lib/mirrors, endpoint: {listen: '0.0.0.0:8081', tokenSecret: t}}",
        ] {
            assert_eq!(check(document), Ok(()), "{document}");
        }
    }

    #[rstest]
    #[case("{layout: shared}", "`layout: shared` needs `claimName`")]
    #[case("{layout: nodeLocal}", "`layout: nodeLocal` needs `hostPath`")]
    #[case("{layout: shared, claimName: a, hostPath: /b}", "`hostPath` is for `layout: nodeLocal`")]
    #[case("{layout: nodeLocal, claimName: a, hostPath: /b}", "`claimName` is for `layout: shared`")]
    #[case(
        "{layout: nodeLocal, hostPath: /a/../etc}",
        "`hostPath: /a/../etc` must be an absolute path below /"
    )]
    #[case("{layout: shared, claimName: ''}", "`claimName` must not be empty")]
    #[case(
        "{layout: shared, claimName: My Claim}",
        "`claimName` `My Claim` is no name that an object can have: lower-case letters, digits, `-` and `.`"
    )]
    #[case(
        "{endpoint: {listen: '0.0.0.0:8081', tokenSecret: ''}}",
        "`endpoint.tokenSecret` must not be empty"
    )]
    #[case("{path: mirrors}", "`path: mirrors` must be an absolute path below /")]
    #[case("{intervalSeconds: 1}", "`intervalSeconds` must be at least 5")]
    #[case("{parallelism: 0}", "`parallelism` must be at least 1")]
    #[case("{gc: {maxPacks: 1}}", "`gc.maxPacks` must be at least 2")]
    #[case("{gc: {graceSeconds: 60}}", "`gc.graceSeconds` must be at least 600: running jobs read the files")]
    #[case(
        "{endpoint: {listen: '0.0.0.0:8081'}}",
        "`endpoint.listen` needs `endpoint.tokenSecret`: whoever can reach the endpoint could use it"
    )]
    fn what_cannot_be_meant_is_refused(#[case] document: &str, #[case] expected: &str) {
        assert_eq!(check(document), Err(expected.to_owned()));
    }
}
