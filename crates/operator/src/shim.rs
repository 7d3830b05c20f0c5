//! The shim's ConfigMap: how PID 1 of every job container gets into pods without an init container.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    pin::pin,
};

use bk_api::names;
use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::PostParams,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use sha2::{Digest, Sha256};

use crate::{
    error::Error,
    settings::{self, Cluster, patience},
};

/// The file's name, on disk and in the ConfigMap.
const FILE: &str = "buildkite-shim";

/// The most that fits into a ConfigMap beside its metadata.
const MAX_BYTES: usize = 1_000_000;

/// Reads the shim from `path`, or from beside the running program.
pub fn read(path: Option<&Path>) -> Result<Vec<u8>, Error> {
    let path = path.map_or_else(beside_program, Path::to_path_buf);
    let shim = std::fs::read(&path).map_err(|error| {
        Error::Setup(format!("cannot read the shim {}: {error}; pass its path with --shim", path.display()))
    })?;
    if !shim.starts_with(b"\x7fELF") || shim.len() > MAX_BYTES {
        return Err(Error::Setup(format!(
            "the shim {} must be an ELF program of at most {MAX_BYTES} bytes, to fit into a ConfigMap",
            path.display()
        )));
    }
    Ok(shim)
}

fn beside_program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(FILE)
}

/// Makes sure that the job namespace has this shim, and returns its ConfigMap's name.
///
/// The name holds the content's digest and the ConfigMap is immutable: pods of an older operator keep theirs,
/// and kubelets need not watch it. It goes with its owner, if that is in the namespace.
pub async fn ensure(
    client: Client,
    namespace: &str,
    shim: &[u8],
    owner: Option<&OwnerReference>,
) -> Result<String, Error> {
    let name = name(shim);
    let config_map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(BTreeMap::from([(names::LABEL_COMPONENT.to_owned(), "shim".to_owned())])),
            owner_references: owner.map(|owner| vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(FILE.to_owned(), ByteString(shim.to_vec()))])),
        immutable: Some(true),
        ..ConfigMap::default()
    };
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let (attempt, params) = (format!("create ConfigMap {namespace}/{name}"), PostParams::default());
    match patience::insist(&attempt, || api.create(&params, &config_map)).await {
        Ok(_) => Ok(name),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(name),
        Err(error) => Err(Error::kubernetes(attempt)(error)),
    }
}

/// Puts the shim back when somebody deletes it: without it no pod can start.
pub async fn keep(cluster: &Cluster, namespace: &str, shim: &[u8], owner: Option<&OwnerReference>) {
    let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(cluster.streams.clone(), namespace);
    let name = name(shim);
    let config = settings::watch().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(api, config).backoff(settings::pauses()));
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => is_listed = false,
            Ok(watcher::Event::InitApply(_)) => is_listed = true,
            Ok(watcher::Event::InitDone) if is_listed => {}
            Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => {
                let put = async || ensure(cluster.calls.clone(), namespace, shim, owner).await;
                patience::put_back("the shim", put).await;
            }
            Ok(watcher::Event::Apply(_)) => {}
            Err(error) => {
                tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot watch the shim");
            }
        }
    }
}

/// The name of the ConfigMap that holds this shim.
pub fn name(shim: &[u8]) -> String {
    names::shim(&hex(&Sha256::digest(shim)))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
