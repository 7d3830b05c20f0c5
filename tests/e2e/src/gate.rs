//! A way to a server that can be closed, so that connections end, or fall silent, so that nobody answers.

use std::{net::SocketAddr, sync::Mutex};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// The way. It is open at first.
pub struct Gate {
    /// Where it begins.
    pub url: String,
    address: SocketAddr,
    server: String,
    open: Mutex<Option<AbortOnDropHandle<()>>>,
    silent: watch::Sender<bool>,
}

impl Gate {
    /// A way to the server at this URL.
    pub async fn to(url: &str) -> Result<Self> {
        let server = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let silent = watch::Sender::new(false);
        let open = Mutex::new(Some(pass(listener, server.clone(), silent.clone())));
        Ok(Self { url: format!("http://{address}"), address, server, open, silent })
    }

    /// Cuts all connections, and refuses new ones.
    pub fn close(&self) {
        self.set(None);
    }

    /// Lets everybody through again.
    pub async fn open(&self) -> Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.set(Some(pass(listener, self.server.clone(), self.silent.clone())));
        Ok(())
    }

    /// Carries nothing any more, over all connections there are and over new ones, and ends none of them.
    pub fn fall_silent(&self) {
        self.silent.send_replace(true);
    }

    /// Carries new connections again. Those from before stay silent for ever.
    pub fn speak(&self) {
        self.silent.send_replace(false);
    }

    fn set(&self, open: Option<AbortOnDropHandle<()>>) {
        *self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = open;
    }
}

fn pass(listener: TcpListener, server: String, silent: watch::Sender<bool>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        // They end with this task.
        let mut connections = JoinSet::new();
        while let Ok((here, _)) = listener.accept().await {
            connections.spawn(carry(here, server.clone(), silent.subscribe()));
        }
    }))
}

async fn carry(mut here: TcpStream, server: String, mut silent: watch::Receiver<bool>) {
    let carried = async {
        if let Ok(mut there) = TcpStream::connect(server).await {
            // Either side may end it as it likes.
            let _ended = copy_bidirectional(&mut here, &mut there).await;
        }
    };
    tokio::select! {
        biased;
        Ok(_) = silent.wait_for(|silent| *silent) => {}
        () = carried => return,
    }
    std::future::pending::<()>().await;
}
