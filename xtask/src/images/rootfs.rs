//! Debian root file systems, the lower layer of most images.
//!
//! mmdebstrap installs the packages that the Dockerfile's last stage installs, from the mirrors that this machine is
//! set up for. The result is kept as a finished layer outside the work tree: it is made once, not per build.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::layer::{self, Digest, EPOCH, Layer};
use crate::{cache, deps, process, progress};

const SUITE: &str = "bookworm";
/// Where Debian keeps the sources of its own archive, newest habit first.
const HOST_SOURCES: [&str; 2] = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
/// How the machine reaches its mirrors; these settings must not end up in the image.
const HOST_SETTINGS: [&str; 3] =
    ["Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Valid-Until"];
/// Those of them that apt takes from the environment too, and how they are called there.
const HOST_VARIABLES: [(&str, &str); 2] =
    [("Acquire::http::Proxy", "http_proxy"), ("Acquire::https::Proxy", "https_proxy")];
/// Ends mmdebstrap with this process, and its mounts with it: a killed run must not leave the machine's own `/dev/shm`
/// in a tree that is going to be removed.
const CONTAINED: [&str; 8] =
    ["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"];
/// Merges /bin and its like into /usr before any package comes, which spares a package for it and a whole Perl.
const MERGED_USR: &str = "--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr";
/// What dpkg leaves out, as the slim variants of Debian's own images do.
const EXCLUDED: [&str; 6] = [
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
];
/// Directories whose contents belong to the machine, the moment or the run time, never to an image.
const EMPTIED: [&str; 6] = ["dev", "run", "tmp", "var/cache", "var/lib/apt/lists", "var/log"];
/// Files that tell where and how the tree was made.
const REMOVED: [&str; 5] = [
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/0000debian.sources",
    "etc/hostname",
    "etc/resolv.conf",
];

/// How directories begin in which a root file system is made.
const SCRATCH: &str = "tree-";

/// A root file system by its contents.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rootfs {
    /// Debian packages on top of the minimal base.
    pub(crate) packages: &'static [&'static str],
    /// Commands that add groups and users.
    pub(crate) accounts: &'static [&'static str],
}

impl Rootfs {
    /// The layer, from the cache if it was made before.
    pub(crate) fn layer(&self, cache: &Path) -> Result<Layer> {
        let place = cache.join("rootfs").join(self.key()?);
        let (file, record) = (place.join("layer.tar"), place.join("layer.json"));
        let _lock = cache::lock(&place.join("lock"), "installing the same Debian packages")?;
        if let Some(layer) = read_record(&record) {
            return Ok(Layer { file, ..layer });
        }
        let root = rustix::process::geteuid().is_root();
        ensure!(root, "an image's root file system has files of many owners: run this as root");
        deps::packages_for(deps::Need::Rootfs)?;
        cache::clear(&place, SCRATCH)?;
        let label = format!("installing Debian {SUITE} with {}", self.packages.join(", "));
        let layer = progress::step(&label, || self.make(&place, &file))?;
        cache::replace(&record, &serde_json::to_vec(&layer)?)?;
        Ok(layer)
    }

    /// The name in the cache: a digest of everything that decides the contents, except for Debian's package versions.
    fn key(&self) -> Result<String> {
        let inputs = serde_json::to_vec(&(
            self,
            SUITE,
            MERGED_USR,
            EXCLUDED,
            EMPTIED,
            REMOVED,
            EPOCH,
            std::env::consts::ARCH,
        ))?;
        Ok(Digest::of(&inputs).hex()[..16].to_owned())
    }

    fn make(&self, place: &Path, file: &Path) -> Result<Layer> {
        let scratch = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(place)
            .with_context(|| format!("creating a directory in {}", place.display()))?;
        let tree = scratch.path().join("root");
        process::run(&mut self.mmdebstrap(&tree, host_sources().as_deref(), &Settings::of_host()?))?;
        prune(&tree)?;
        layer::write(file, layer::scan(&tree)?)
    }

    fn mmdebstrap(&self, tree: &Path, sources: Option<&Path>, settings: &Settings) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(CONTAINED)
            .arg("mmdebstrap")
            .env("SOURCE_DATE_EPOCH", EPOCH.to_string())
            .envs(settings.variables.iter().map(|(name, value)| (name, value)))
            .args(["--quiet", "--mode=root", "--format=directory", "--variant=minbase", MERGED_USR])
            .arg(format!("--include={}", self.packages.join(",")))
            .args(EXCLUDED.iter().map(|option| format!("--dpkgopt={option}")))
            .args(settings.options.iter().map(|option| format!("--aptopt={option}")))
            .args(self.accounts.iter().map(|account| format!("--customize-hook=chroot \"$1\" {account}")))
            .arg(SUITE)
            .arg(tree)
            .args(sources);
        command
    }
}

/// The record is written last, so it vouches for the layer beside it. One that cannot be read does not.
fn read_record(path: &Path) -> Option<Layer> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The machine's own list of Debian mirrors; without one mmdebstrap uses Debian's public ones.
fn host_sources() -> Option<PathBuf> {
    HOST_SOURCES
        .iter()
        .map(PathBuf::from)
        .find(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(SUITE)))
}

/// How apt reaches the mirrors.
#[derive(Debug, Default, PartialEq, Eq)]
struct Settings {
    /// A proxy's address may hold a password, and arguments can be seen by everybody on the machine.
    variables: Vec<(&'static str, String)>,
    options: Vec<String>,
}

impl Settings {
    fn of_host() -> Result<Self> {
        let mut command = Command::new("apt-config");
        command.args(["dump", "--no-empty", "--format", "%F %v%n"]).args(HOST_SETTINGS);
        Ok(Self::read(&process::run(&mut command)?))
    }

    /// Reads lines of a name and a value.
    fn read(dump: &str) -> Self {
        let mut settings = Self::default();
        for (name, value) in dump.lines().filter_map(|line| line.split_once(' ')) {
            match HOST_VARIABLES.iter().find(|(setting, _)| *setting == name) {
                Some((_, variable)) => settings.variables.push((variable, value.to_owned())),
                None => settings.options.push(format!("{name} \"{value}\";")),
            }
        }
        settings
    }
}

/// Removes what would make two trees of the same packages differ, or bigger than they need to be.
fn prune(tree: &Path) -> Result<()> {
    for directory in EMPTIED {
        empty(&tree.join(directory))?;
    }
    for file in REMOVED {
        let path = tree.join(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn empty(directory: &Path) -> Result<()> {
    let listing = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listing => listing.with_context(|| format!("listing {}", directory.display()))?,
    };
    for item in listing {
        let item = item.with_context(|| format!("listing {}", directory.display()))?;
        let path = item.path();
        let removed =
            if item.file_type()?.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTFS: Rootfs = Rootfs { packages: &["git", "jq"], accounts: &["useradd --uid 7 x"] };

    #[test]
    fn the_command_installs_packages_and_accounts_from_the_machines_mirrors() {
        let settings = Settings { variables: vec![], options: vec!["Acquire::X \"false\";".to_owned()] };
        let command = ROOTFS.mmdebstrap(Path::new("/tree"), Some(Path::new("/sources")), &settings);
        let line = process::line(&command);
        assert!(line.starts_with("setpriv --pdeathsig KILL unshare --mount --pid "), "{line}");
        assert!(line.contains(" --kill-child mmdebstrap "), "{line}");
        assert!(line.contains(" --include=git,jq "), "{line}");
        assert!(line.contains(" --aptopt=Acquire::X \"false\"; "), "{line}");
        assert!(line.contains(" --customize-hook=chroot \"$1\" useradd --uid 7 x "), "{line}");
        assert!(line.ends_with(" bookworm /tree /sources"), "{line}");
    }

    #[test]
    fn a_proxy_with_its_password_stays_out_of_the_command_line() {
        let dump = "\
Acquire::http::Proxy http://user:secret@proxy:3142
Acquire::http::Proxy::mirror.example DIRECT
Acquire::https::Proxy http://user:secret@proxy:3143
Acquire::Check-Valid-Until false
";
        let settings = Settings::read(dump);
        let options =
            ["Acquire::http::Proxy::mirror.example \"DIRECT\";", "Acquire::Check-Valid-Until \"false\";"];
        assert_eq!(settings.options, options);
        let command = ROOTFS.mmdebstrap(Path::new("/tree"), None, &settings);
        assert!(!process::line(&command).contains("secret"));
        for (name, value) in [("http_proxy", "3142"), ("https_proxy", "3143")] {
            let expected = format!("http://user:secret@proxy:{value}");
            assert!(command.get_envs().any(|env| env == (name.as_ref(), Some(expected.as_ref()))), "{name}");
        }
    }

    #[test]
    fn the_key_follows_the_contents() {
        let key = ROOTFS.key().unwrap();
        assert_eq!(key, ROOTFS.clone().key().unwrap());
        assert_ne!(key, Rootfs { packages: &["git"], ..ROOTFS }.key().unwrap());
        assert_ne!(key, Rootfs { accounts: &[], ..ROOTFS }.key().unwrap());
    }

    #[test]
    fn pruning_keeps_directories_and_what_is_not_the_machines() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for file in
            ["var/log/apt/history.log", "dev/null", "etc/resolv.conf", "etc/passwd", "var/lib/dpkg/status"]
        {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        prune(root).unwrap();
        for (path, kept) in [
            ("var/log", true),
            ("var/log/apt", false),
            ("dev", true),
            ("dev/null", false),
            ("etc/resolv.conf", false),
            ("etc/passwd", true),
            ("var/lib/dpkg/status", true),
        ] {
            assert_eq!(root.join(path).exists(), kept, "{path}");
        }
    }

    #[test]
    fn a_finished_layer_is_used_again_wherever_the_cache_is() {
        let cache = tempfile::tempdir().unwrap();
        let place = cache.path().join("rootfs").join(ROOTFS.key().unwrap());
        fs::create_dir_all(&place).unwrap();
        let made = Layer { file: "/elsewhere/layer.tar".into(), digest: Digest::of(b""), size: 0 };
        fs::write(place.join("layer.json"), serde_json::to_vec(&made).unwrap()).unwrap();
        let layer = ROOTFS.layer(cache.path()).unwrap();
        assert_eq!(layer, Layer { file: place.join("layer.tar"), ..made });
    }

    #[test]
    fn a_broken_record_vouches_for_nothing() {
        let place = tempfile::tempdir().unwrap();
        let record = place.path().join("layer.json");
        assert_eq!(read_record(&record), None);
        fs::write(&record, r#"{"file": "/layer.tar","#).unwrap();
        assert_eq!(read_record(&record), None);
    }
}
