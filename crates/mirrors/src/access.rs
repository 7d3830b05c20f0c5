//! Credentials: from a Secret into private files, and from there into git's variables. Nothing of them is ever an argument.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    Error,
    address::{Address, Scheme},
    git::Git,
};

/// Options of ssh that make it give up by itself, and ask nobody.
const SSH: &str =
    "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4";

/// Entries of a Secret.
pub type Entries = BTreeMap<String, Vec<u8>>;

/// How git reaches one repository. The files go when this goes.
pub struct Access {
    url: String,
    scheme: Scheme,
    settings: Vec<(String, String)>,
    ssh_command: String,
    /// Kept for as long as git may need them.
    files: Option<TempDir>,
}

impl Access {
    /// Access to a repository with what the Secrets hold: `ssh` of type `kubernetes.io/ssh-auth`, `https` with `.git-credentials` or
    /// with `username` and `password`. `private` is a directory in memory that only we can read.
    pub fn new(
        address: &Address,
        ssh: Option<&Entries>,
        https: Option<&Entries>,
        private: &Path,
    ) -> Result<Self, Error> {
        let login = address.password().is_some();
        let mut access = Self {
            url: address.without_secrets(),
            scheme: address.scheme(),
            settings: Vec::new(),
            ssh_command: format!("{SSH} -o StrictHostKeyChecking=yes"),
            files: None,
        };
        if ssh.is_none() && https.is_none() && !login {
            return Ok(access);
        }
        let files = private_directory(private)?;
        if let Some(entries) = ssh {
            access.ssh_command = ssh_command(entries, files.path())?;
        }
        let store = match https {
            Some(entries) => Some(store(address, entries)?),
            None => {
                address.password().map(|password| line(address, address.user().unwrap_or_default(), password))
            }
        };
        if let Some(store) = store {
            let file = private_file(files.path(), "git-credentials", store.as_bytes())?;
            // The helper is git's own; no other that a configuration may name is asked first.
            access.settings.push(("credential.helper".to_owned(), String::new()));
            access.settings.push(("credential.helper".to_owned(), format!("store --file={}", quoted(&file))));
            access.settings.push(("credential.useHttpPath".to_owned(), "false".to_owned()));
        }
        if let (Scheme::Https | Scheme::Http, Some(user)) = (address.scheme(), address.user()) {
            access.settings.push(("credential.username".to_owned(), user.to_owned()));
        }
        access.files = Some(files);
        Ok(access)
    }

    /// Whether there are private files.
    #[cfg(test)]
    fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Gives a command its remote `origin` and what it needs to reach it. No other protocol will be used, whatever the server says.
    pub fn of(&self, git: Git) -> Git {
        let url = [("remote.origin.url".to_owned(), self.url.clone())];
        git.settings(&url)
            .settings(&self.settings)
            .env("GIT_SSH_COMMAND", self.ssh_command.clone())
            .env("GIT_ALLOW_PROTOCOL", self.scheme.name())
    }
}

fn private_directory(private: &Path) -> Result<TempDir, Error> {
    let made = tempfile::Builder::new()
        .prefix("git-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(private);
    made.map_err(Error::file(format!("make a private directory in {}", private.display())))
}

fn private_file(directory: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
    let path = directory.join(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(bytes));
    written.map_err(Error::file(format!("write {}", path.display())))?;
    Ok(path)
}

fn ssh_command(entries: &Entries, files: &Path) -> Result<String, Error> {
    let key = entries
        .get("ssh-privatekey")
        .ok_or_else(|| Error::Credentials("the Secret for ssh has no key `ssh-privatekey`".to_owned()))?;
    let mut key = key.clone();
    if !key.ends_with(b"\n") {
        // ssh takes a key without its last line break for damaged.
        key.push(b'\n');
    }
    let key = private_file(files, "ssh-privatekey", &key)?;
    let command = format!("{SSH} -i {} -o IdentitiesOnly=yes -o IdentityAgent=none", quoted(&key));
    let hosts = match entries.get("known_hosts") {
        Some(hosts) => private_file(files, "known_hosts", hosts)?,
        None => return Err(Error::Credentials(
            "the Secret for ssh has no key `known_hosts`: without it nobody knows whether the server is the right one; \
             `ssh-keyscan HOST` prints what belongs there".to_owned(),
        )),
    };
    Ok(format!(
        "{command} -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes",
        quoted(&hosts)
    ))
}

/// The content of a file for `git credential-store`.
fn store(address: &Address, entries: &Entries) -> Result<String, Error> {
    let text = |key: &str| entries.get(key).map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    if let Some(lines) = text(".git-credentials") {
        return Ok(lines + "\n");
    }
    match (text("username"), text("password")) {
        (user, Some(password)) => {
            let user = user.as_deref().or(address.user()).unwrap_or("git");
            Ok(line(address, user, &password))
        }
        _ => Err(Error::Credentials(
            "the Secret for HTTPS has neither `.git-credentials` nor `password`".to_owned(),
        )),
    }
}

fn line(address: &Address, user: &str, password: &str) -> String {
    let bare = address.without_secrets();
    let (scheme, rest) = bare.split_once("://").unwrap_or(("https", &bare));
    let host = rest.split('/').next().unwrap_or_default();
    format!("{scheme}://{}:{}@{host}\n", encoded(user), encoded(password))
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// A path as the shell takes it, which git runs helpers and ssh with.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// The directory for private files: in memory where there is such a place.
pub fn private_root() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let usable =
        fs::metadata(memory).is_ok_and(|meta| meta.is_dir()) && tempfile::tempfile_in(memory).is_ok();
    if usable { memory.to_owned() } else { std::env::temp_dir() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> Entries {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn user_and_password_go_to_the_repositorys_own_server_only() {
        let address = Address::parse("https://git.example.com:8443/a/b.git").unwrap();
        let secret = entries(&[("username", "me"), ("password", "p@ss/word\n")]);
        assert_eq!(store(&address, &secret).unwrap(), "https://me:p%40ss%2Fword@git.example.com:8443\n");
        let missing = store(&address, &entries(&[("token", "x")])).unwrap_err();
        assert_eq!(missing.to_string(), "the Secret for HTTPS has neither `.git-credentials` nor `password`");
    }

    #[test]
    fn a_key_is_private_and_servers_must_be_known() {
        let private = tempfile::tempdir().unwrap();
        let address = Address::parse("git@host:a").unwrap();
        let Err(refused) =
            Access::new(&address, Some(&entries(&[("ssh-privatekey", "k")])), None, private.path())
        else {
            panic!("a Secret without known_hosts is refused");
        };
        assert!(refused.to_string().contains("known_hosts"), "{refused}");
        let secret = entries(&[("ssh-privatekey", "k"), ("known_hosts", "host key")]);
        let access = Access::new(&address, Some(&secret), None, private.path()).unwrap();
        assert!(access.has_files());
        let directory = fs::read_dir(private.path()).unwrap().next().unwrap().unwrap().path();
        let key = directory.join("ssh-privatekey");
        assert_eq!(fs::read(&key).unwrap(), b"k\n");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        drop(access);
        assert!(!directory.exists(), "files go with the access");
    }
}
