//! Programs that are published as archives in Maven repositories.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::packages::{self, Need};
use crate::{cache, process, progress};

/// The plugin that fetches and unpacks; pinned, as without a version the newest is taken.
const FETCHER: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack";
/// A distribution without the parts under Elastic's own licence. It is one directory, which has this name.
const GROUP: &str = "org.elasticsearch.distribution.integ-test-zip";
const ELASTICSEARCH: &str = "elasticsearch-8.19.21";

/// The directory of Elasticsearch, fetched if no earlier run has fetched it.
pub(super) fn elasticsearch() -> Result<PathBuf> {
    packages::install(&[Need::Elasticsearch])?;
    let store = cache::root()?.join("programs");
    let target = store.join(ELASTICSEARCH);
    let _lock = cache::lock(&store.join("elasticsearch.lock"), "fetching Elasticsearch")?;
    if target.exists() {
        return Ok(target);
    }
    let prefix = ".unfinished-elasticsearch-";
    cache::clear(&store, prefix)?;
    let scratch = tempfile::Builder::new().prefix(prefix).tempdir_in(&store)?;
    let artifact = format!("{GROUP}:{}:zip", ELASTICSEARCH.replacen('-', ":", 1));
    progress::step(&format!("fetching {ELASTICSEARCH} (100 MB)"), || {
        process::run(
            Command::new("mvn")
                .args(["--quiet", "--batch-mode", FETCHER])
                .arg(format!("-Dartifact={artifact}"))
                .arg(format!("-DoutputDirectory={}", scratch.path().display()))
                // Not the workspace, which a file of Maven's could change.
                .current_dir(scratch.path()),
        )
    })?;
    let fetched = scratch.path().join(ELASTICSEARCH);
    fs::rename(&fetched, &target)
        .with_context(|| format!("moving {} to {}", fetched.display(), target.display()))?;
    Ok(target)
}
