//! A way to a `buildkite-local` by TLS, as the hosted service has it: what agents and controllers do for that is in what they take.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bk_e2e::tls::Identity;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// The way. It ends with this value.
pub(super) struct Front {
    /// Where it begins.
    pub(super) url: String,
    authority: PathBuf,
    _directory: TempDir,
    _task: AbortOnDropHandle<()>,
}

impl Front {
    /// A way from this address to the server at a URL.
    pub(super) async fn to(url: &str, host: IpAddr) -> Result<Self> {
        let server = url.trim_start_matches("http://").to_owned();
        let identity = Identity::at(host)?;
        let directory = TempDir::new()?;
        let authority = directory.path().join("ca.crt");
        fs::write(&authority, &identity.certificate)?;
        let listener = TcpListener::bind((host, 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let task = AbortOnDropHandle::new(tokio::spawn(carry_all(listener, identity, server)));
        Ok(Self { url, authority, _directory: directory, _task: task })
    }

    /// The file with the certificate that clients have to trust.
    pub(super) fn authority(&self) -> &Path {
        &self.authority
    }
}

async fn carry_all(listener: TcpListener, identity: Identity, server: String) {
    // They end with this task.
    let mut connections = JoinSet::new();
    while let Ok((here, _)) = listener.accept().await {
        let (acceptor, server) = (identity.acceptor.clone(), server.clone());
        connections.spawn(async move {
            // Whoever loses a connection tells of it; either side may end it as it likes.
            let _nagle = here.set_nodelay(true);
            let Ok(mut here) = acceptor.accept(here).await else { return };
            let Ok(mut there) = TcpStream::connect(server).await else { return };
            let _nagle = there.set_nodelay(true);
            let _ended = copy_bidirectional(&mut here, &mut there).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
