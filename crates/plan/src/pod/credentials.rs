//! Secrets with which git authenticates, as files of the container that checks out and of no other.
//!
//! The files of a Secret belong to root. ssh refuses a key that its owner lets others read, and a user other than root could
//! not read one that only root may. So the shim makes copies for the user who runs git, on a volume in memory.

use bk_api::credentials::GitCredentials;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, EnvVar, SecretVolumeSource, Volume, VolumeMount};

use super::{git, identity::HOME, mount, variables::env};

const SSH_VOLUME: &str = "git-ssh";
const SSH_DIRECTORY: &str = "/buildkite/git-ssh";
const HTTPS_VOLUME: &str = "git-https";
const HTTPS_DIRECTORY: &str = "/buildkite/git-https";
const STORE_VOLUME: &str = "git-credentials-ro";
const STORE_DIRECTORY: &str = "/buildkite/git-credentials-ro";
/// Copies for the user who runs git.
const COPIES_VOLUME: &str = "git-credentials";
const COPIES_DIRECTORY: &str = "/buildkite/git-credentials";
/// The key of a Secret with URLs, and the file that git's own helper reads.
const STORE_KEY: &str = ".git-credentials";
/// The mode of the Secrets' files: whoever runs git can read them, and nobody else has them.
const READABLE: i32 = 0o444;

/// A helper that gives a user name and a password to the repository's own server. Others, which a submodule may name, get
/// nothing.
const BASIC_HELPER: &str = "!f() { test \"$1\" = get || exit 0; cd /buildkite/git-https && test -f password || exit 0; \
     while IFS== read -r key value; do test \"$key\" != host || host=$value; done; \
     case $BUILDKITE_REPO in *[/@]\"$host\"[/:]*) \
     echo \"username=$(cat username)\"; echo \"password=$(cat password)\";; esac; }; f";

/// Secrets for git.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Credentials {
    ssh: Option<String>,
    https: Option<String>,
    store: Option<SecretVolumeSource>,
}

impl Credentials {
    /// The environment's Secrets go before the configuration's, each for itself.
    pub(super) fn new(configured: Option<&GitCredentials>, environment: Option<&GitCredentials>) -> Self {
        let first = |choose: fn(&GitCredentials) -> Option<&String>| {
            [environment, configured].into_iter().flatten().find_map(choose).cloned()
        };
        Self {
            ssh: first(|credentials| credentials.ssh_secret.as_ref()),
            https: first(|credentials| credentials.https_secret.as_ref()),
            store: None,
        }
    }

    /// The same with another Secret of URLs.
    pub(super) fn with_store(self, store: Option<&SecretVolumeSource>) -> Self {
        Self { store: store.cloned(), ..self }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The Secrets as volumes.
    pub(super) fn volumes(&self) -> Vec<Volume> {
        let named = |name: &str, secret: &String| {
            let source = SecretVolumeSource {
                secret_name: Some(secret.clone()),
                default_mode: Some(READABLE),
                ..SecretVolumeSource::default()
            };
            volume(name, source)
        };
        let ssh = self.ssh.iter().map(|secret| named(SSH_VOLUME, secret));
        let https = self.https.iter().map(|secret| named(HTTPS_VOLUME, secret));
        let store = self.store.iter().map(|source| volume(STORE_VOLUME, source.clone()));
        let copies = (!self.is_empty()).then(|| Volume {
            name: COPIES_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        });
        ssh.chain(https).chain(store).chain(copies).collect()
    }

    /// Where they are mounted.
    pub(super) fn mounts(&self) -> Vec<VolumeMount> {
        let all = [
            (self.ssh.is_some(), SSH_VOLUME, SSH_DIRECTORY),
            (self.https.is_some(), HTTPS_VOLUME, HTTPS_DIRECTORY),
            (self.store.is_some(), STORE_VOLUME, STORE_DIRECTORY),
        ];
        let used = all.into_iter().filter(|(used, ..)| *used);
        let copies = (!self.is_empty()).then(|| mount(COPIES_VOLUME, COPIES_DIRECTORY, None));
        used.map(|(_, name, path)| mount(name, path, Some(true))).chain(copies).collect()
    }

    /// Files of which the user who runs git needs copies: from where, to where.
    pub(super) fn private_files(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        if self.ssh.is_some() {
            files.push((format!("{SSH_DIRECTORY}/ssh-privatekey"), key_file()));
        }
        for (directory, copy) in self.stores() {
            files.push((format!("{directory}/{STORE_KEY}"), copy));
        }
        files
    }

    /// The Secrets that may hold URLs, and the files that git's helper reads and writes.
    fn stores(&self) -> Vec<(&'static str, String)> {
        let https =
            self.https.as_ref().map(|_| (HTTPS_DIRECTORY, format!("{COPIES_DIRECTORY}/{STORE_KEY}-https")));
        let store = self.store.as_ref().map(|_| (STORE_DIRECTORY, format!("{COPIES_DIRECTORY}/{STORE_KEY}")));
        https.into_iter().chain(store).collect()
    }

    /// Variables that tell git where everything is.
    pub(super) fn env(&self) -> Vec<EnvVar> {
        let mut settings = vec![git::trust()];
        for (_, file) in self.stores() {
            settings.push(("credential.helper", format!("store --file={file}")));
        }
        if self.https.is_some() {
            settings.push(("credential.helper", BASIC_HELPER.to_owned()));
        }
        let mut vars = git::settings(&settings);
        if self.ssh.is_some() {
            vars.push(env("GIT_SSH_COMMAND", ssh_command()));
        }
        vars
    }
}

fn key_file() -> String {
    format!("{COPIES_DIRECTORY}/ssh-privatekey")
}

/// The command that git runs. Servers are trusted that the Secret knows, and no others; a Secret without any leaves it to the agent,
/// which looks servers up and keeps what it finds at home. It would also look up those that it overlooks in the Secret's list.
fn ssh_command() -> String {
    let key = key_file();
    let hosts = format!("$(ls {SSH_DIRECTORY}/known_hosts 2>/dev/null || echo {HOME}/.ssh/known_hosts)");
    format!("ssh -i {key} -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile={hosts}")
}

fn volume(name: &str, source: SecretVolumeSource) -> Volume {
    Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() }
}

#[cfg(test)]
mod tests;
