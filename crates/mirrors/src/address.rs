//! Addresses of repositories: which spellings mean the same one, and which parts of them nobody may see.

use std::fmt::{self, Write as _};

use sha2::{Digest, Sha256};

/// How many characters of a mirror's directory are for people.
const READABLE: usize = 60;
/// How many bytes of the digest make directories differ.
const DIGEST: usize = 8;

/// An address that cannot be mirrored.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct AddressError(String);

/// How a repository is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `https://`
    Https,
    /// `http://`
    Http,
    /// `ssh://` or `user@host:path`
    Ssh,
    /// `git://`
    Git,
    /// A directory of this machine.
    File,
}

impl Scheme {
    /// git's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Ssh => "ssh",
            Self::Git => "git",
            Self::File => "file",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
            Self::Ssh => 22,
            Self::Git => 9418,
            Self::File => 0,
        }
    }
}

/// The address of a repository, taken apart. Its `Debug` and `Display` show neither user nor password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    scheme: Scheme,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: Option<u16>,
    /// Without a leading slash, but for directories of this machine.
    path: String,
}

impl Address {
    /// Takes an address apart.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let refused = |why: &str| AddressError(format!("not the address of a repository: {why}"));
        let text = text.trim();
        if text.is_empty() {
            return Err(refused("it is empty"));
        }
        if text.starts_with('-') || text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(refused("it begins with a dash, or has blanks or control characters"));
        }
        let address = match text.split_once("://") {
            Some((scheme, rest)) => Self::with_scheme(scheme, rest)?,
            None if text.starts_with('/') => Self::local(text),
            None => Self::scp_like(text)?,
        };
        if address.path.is_empty() {
            return Err(refused("it has no path"));
        }
        if address.scheme != Scheme::File && (address.host.is_empty() || address.host.starts_with('-')) {
            return Err(refused("it has no host"));
        }
        Ok(address)
    }

    fn local(path: &str) -> Self {
        Self {
            scheme: Scheme::File,
            user: None,
            password: None,
            host: String::new(),
            port: None,
            path: path.to_owned(),
        }
    }

    fn with_scheme(scheme: &str, rest: &str) -> Result<Self, AddressError> {
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            "ssh" | "git+ssh" | "ssh+git" => Scheme::Ssh,
            "git" => Scheme::Git,
            "file" => return Ok(Self::local(rest)),
            _ => return Err(AddressError("a repository is reached by https, http, ssh or git".to_owned())),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) =
            authority.rsplit_once('@').map_or((None, authority), |(login, host)| (Some(login), host));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (some(user), some(password)),
            None => (None, None),
        };
        let (host, port) = host_and_port(host)?;
        let path = path.trim_start_matches('/').to_owned();
        Ok(Self {
            scheme,
            user,
            password,
            host,
            port: port.filter(|port| *port != scheme.default_port()),
            path,
        })
    }

    /// `user@host:path`, as ssh's copy program has it.
    fn scp_like(text: &str) -> Result<Self, AddressError> {
        let refused =
            || AddressError("a repository's address has a scheme, or the form user@host:path".to_owned());
        let (user, rest) = text.split_once('@').map_or((None, text), |(user, rest)| (some(user), rest));
        let (host, path) = match rest.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
            Some((host, path)) => (host, path),
            None => rest.split_once(':').ok_or_else(refused)?,
        };
        if host.contains('/')
            || path.starts_with(':')
            || user.as_ref().is_some_and(|user| user.contains([':', '/']))
        {
            return Err(refused());
        }
        let path = path.trim_start_matches('/').to_owned();
        let (host, port) = host_and_port(host)?;
        Ok(Self {
            scheme: Scheme::Ssh,
            user,
            password: None,
            host,
            port: port.filter(|port| *port != 22),
            path,
        })
    }

    /// How it is reached.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The user whom the address names.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password that the address should not have.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The server.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What all spellings of the same repository have in common: `github.com/example/app`.
    pub fn canonical(&self) -> String {
        let path = canonical_path(&self.path);
        match (self.scheme, self.port) {
            (Scheme::File, _) => format!("file:/{path}"),
            // GitHub's servers for networks that let nothing but HTTPS pass.
            (Scheme::Ssh, _) if self.host == "ssh.github.com" => format!("github.com/{path}"),
            (_, Some(port)) => format!("{}:{port}/{path}", self.host),
            (_, None) => format!("{}/{path}", self.host),
        }
    }

    /// What git is given. It has a user only where ssh needs one, and never a password.
    pub fn without_secrets(&self) -> String {
        let mut url = match self.scheme {
            Scheme::File => return self.path.clone(),
            Scheme::Ssh => {
                let user = self.user.as_deref().map(|user| format!("{user}@")).unwrap_or_default();
                format!("ssh://{user}")
            }
            scheme => format!("{}://", scheme.name()),
        };
        url.push_str(&bracketed(&self.host));
        if let Some(port) = self.port {
            // Writing to a string does not fail.
            let _written = write!(url, ":{port}");
        }
        format!("{url}/{}", self.path)
    }

    /// The name of the repository's mirror: some words for people, and what makes it unique.
    pub fn directory(&self) -> String {
        let canonical = self.canonical();
        let digest = Sha256::digest(canonical.as_bytes());
        let mut name = readable(&canonical);
        name.push('-');
        for byte in &digest[..DIGEST] {
            let _written = write!(name, "{byte:02x}");
        }
        name
    }

    /// The address that a relative one means, such as `../lib.git` of a submodule.
    pub fn relative(&self, other: &str) -> Result<Self, AddressError> {
        if !other.starts_with("./") && !other.starts_with("../") {
            return Self::parse(other);
        }
        let mut parts: Vec<&str> = self.path.trim_end_matches('/').split('/').collect();
        for part in other.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Err(AddressError("a relative address leads out of its server".to_owned()));
                    }
                }
                part => parts.push(part),
            }
        }
        let path = parts.join("/");
        if path.is_empty() {
            return Err(AddressError("a relative address leads out of its server".to_owned()));
        }
        Ok(Self { path, ..self.clone() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({}, {})", self.scheme.name(), self.canonical())
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), AddressError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port.filter(|port| !port.is_empty()) {
        None => None,
        Some(port) => {
            Some(port.parse().map_err(|_| AddressError("the port of the address is no number".to_owned()))?)
        }
    };
    Ok((host.trim_end_matches('.').to_ascii_lowercase(), port))
}

/// An IPv6 address as a URL has it.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn canonical_path(path: &str) -> String {
    let path = decoded(path);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let path = parts.join("/");
    path.strip_suffix(".git")
        .filter(|rest| !rest.is_empty() && !rest.ends_with('/'))
        .unwrap_or(&path)
        .to_owned()
}

/// Percent signs in front of characters that need none.
fn decoded(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut clear = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let plain = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(char::from);
        if let Some(c) = plain.filter(|c| c.is_ascii_alphanumeric() || "-._~".contains(*c)) {
            clear.push(c);
            clear.push_str(&piece[2..]);
        } else {
            clear.push('%');
            clear.push_str(piece);
        }
    }
    clear
}

fn readable(canonical: &str) -> String {
    let tail: Vec<&str> = canonical.rsplit('/').take(2).collect();
    let words: String = tail.into_iter().rev().collect::<Vec<_>>().join("-");
    let clean: String = words
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .take(READABLE)
        .collect();
    let clean = clean.trim_matches(['-', '.']);
    if clean.is_empty() { "repository".to_owned() } else { clean.to_owned() }
}

#[cfg(test)]
mod tests;
