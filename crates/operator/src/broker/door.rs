//! Who may come in: job pods, which run anybody's code, can open connections as they like. So there are so many at once, fewer of one address, and
//! none stays for longer than a registration takes.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use futures::future::{BoxFuture, FutureExt};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

use crate::telemetry::Metrics;

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once.
    pub(super) all: usize,
    /// Connections of one address at once, and no more than are left to others, but for a few; a node may hide its pods behind its own.
    pub(super) of_one: usize,
    /// How long each may last.
    pub(super) stay: Duration,
}

/// How many connections an address may have even where few are left.
const FEW: usize = 8;

/// Lets connections in, and hands them on to what makes something of them.
#[derive(Clone)]
pub(super) struct Door<A> {
    inside: A,
    limits: Limits,
    visitors: Visitors,
    metrics: Metrics,
}

impl<A> Door<A> {
    pub(super) fn new(inside: A, limits: Limits, metrics: Metrics) -> Self {
        Self { inside, limits, visitors: Visitors::default(), metrics }
    }
}

impl<A, S> Accept<TcpStream, S> for Door<A>
where
    A: Accept<TcpStream, S>,
    A::Stream: Send + 'static,
    A::Service: Send + 'static,
    A::Future: Send + 'static,
{
    type Stream = Timed<A::Stream>;
    type Service = A::Service;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let peer = stream.peer_addr().map(|peer| peer.ip().to_canonical());
        let visit = peer.ok().and_then(|address| self.visitors.enter(address, self.limits));
        let Some(visit) = visit else {
            self.metrics.broker.turned_away();
            return std::future::ready(Err(io::ErrorKind::ConnectionAborted.into())).boxed();
        };
        let end = Box::pin(tokio::time::sleep(self.limits.stay));
        let inside = self.inside.accept(stream, service);
        async move {
            let (stream, service) = inside.await?;
            Ok((Timed { stream, end, _visit: visit }, service))
        }
        .boxed()
    }
}

/// Connections at present, by address.
#[derive(Clone, Default)]
struct Visitors(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Visitors {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Each change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, address: IpAddr, limits: Limits) -> Option<Visit> {
        let mut present = self.lock();
        let left = limits.all.saturating_sub(present.values().sum());
        let of_one = present.get(&address).copied().unwrap_or_default();
        if left == 0 || of_one >= limits.of_one.min(left.max(FEW)) {
            return None;
        }
        present.insert(address, of_one + 1);
        drop(present);
        Some(Visit { visitors: self.clone(), address })
    }
}

/// A connection's place.
struct Visit {
    visitors: Visitors,
    address: IpAddr,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut present = self.visitors.lock();
        match present.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(present.remove(&self.address)),
        }
    }
}

/// A connection that ends in time, whoever is slow.
pub(super) struct Timed<S> {
    stream: S,
    end: Pin<Box<Sleep>>,
    _visit: Visit,
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMITS: Limits = Limits { all: 3, of_one: 2, stay: Duration::from_millis(500) };

    #[test]
    fn there_is_room_for_so_many_and_for_fewer_of_one_address() {
        let (visitors, [one, two]) =
            (Visitors::default(), ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap()));
        let first = visitors.enter(one, LIMITS);
        let second = visitors.enter(one, LIMITS);
        assert!(first.is_some() && second.is_some() && visitors.enter(one, LIMITS).is_none());
        let third = visitors.enter(two, LIMITS);
        assert!(third.is_some() && visitors.enter(two, LIMITS).is_none(), "there are three");
        drop(first);
        assert!(visitors.enter(two, LIMITS).is_some());
        drop((second, third));
        assert!(visitors.lock().is_empty(), "who is gone is forgotten");
    }

    #[test]
    fn a_handful_of_addresses_cannot_take_all_the_room() {
        let limits = Limits { all: 512, of_one: 128, stay: Duration::from_secs(30) };
        let (visitors, mut visits) = (Visitors::default(), Vec::new());
        let mut greedy = Vec::new();
        for last in 0..8_u8 {
            let address = IpAddr::from([10, 0, 0, last]);
            let before = visits.len();
            visits.extend(std::iter::from_fn(|| visitors.enter(address, limits)));
            greedy.push(visits.len() - before);
        }
        assert_eq!(greedy, [128, 128, 128, 64, 32, 16, 8, 8]);
    }

    /// Reads until the other side is done.
    async fn answer(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        // A connection that is turned away may be reset.
        let _end = stream.read_to_string(&mut text).await;
        text
    }

    #[tokio::test]
    async fn who_says_nothing_has_to_go_and_makes_room() {
        const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum_server::from_tcp(listener).unwrap();
        let server = server.map(|inside| Door::new(inside, LIMITS, Metrics::default()));
        let router = Router::new().route("/", get(async || "come in"));
        tokio::spawn(server.serve(router.into_make_service()));

        let mut silent =
            [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let mut third = TcpStream::connect(address).await.unwrap();
        // Its connection may be gone already.
        let _sent = third.write_all(ASK).await;
        assert_eq!(answer(&mut third).await, "", "there are two of this address");
        for one in &mut silent {
            assert_eq!(answer(one).await, "");
        }
        let mut later = TcpStream::connect(address).await.unwrap();
        later.write_all(ASK).await.unwrap();
        assert!(answer(&mut later).await.ends_with("come in"));
    }
}
