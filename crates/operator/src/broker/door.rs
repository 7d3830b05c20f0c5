//! Who may come in: job pods, which run anybody's code, can open connections as they like. So there are so many at once, fewer of one address, and
//! none stays for longer than a registration takes. Who keeps coming in vain is let in so often and no more.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
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
    /// How often one address may come without registering an agent, at first.
    pub(super) in_vain: f64,
    /// How often in a second after that.
    pub(super) per_second: f64,
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
    pub(super) fn new(inside: A, limits: Limits, visitors: Visitors, metrics: Metrics) -> Self {
        Self { inside, limits, visitors, metrics }
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
        let visit = peer.ok().and_then(|address| self.visitors.enter(address, self.limits, Instant::now()));
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

/// How many addresses are remembered before those are forgotten that there is nothing to say of.
const REMEMBERED: usize = 1024;

/// Who is there, and who has come in vain, by address. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Visitors(Arc<Mutex<HashMap<IpAddr, Visitor>>>);

/// What is known of an address.
#[derive(Clone, Copy)]
struct Visitor {
    /// Its connections at present.
    present: usize,
    /// How often it has come for nothing, as of then; each connection counts until an agent is registered by it.
    in_vain: f64,
    at: Instant,
}

impl Visitor {
    fn in_vain(&self, limits: Limits, now: Instant) -> f64 {
        let forgiven = now.duration_since(self.at).as_secs_f64() * limits.per_second;
        (self.in_vain - forgiven).max(0.0)
    }

    fn is_stranger(&self, limits: Limits, now: Instant) -> bool {
        self.present == 0 && self.in_vain(limits, now) == 0.0
    }
}

impl Visitors {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Visitor>> {
        // Each change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, address: IpAddr, limits: Limits, now: Instant) -> Option<Visit> {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, visitor| !visitor.is_stranger(limits, now));
        }
        let left = limits.all.saturating_sub(known.values().map(|visitor| visitor.present).sum());
        let visitor = known.entry(address).or_insert(Visitor { present: 0, in_vain: 0.0, at: now });
        let in_vain = visitor.in_vain(limits, now) + 1.0;
        if left == 0 || visitor.present >= limits.of_one.min(left.max(FEW)) || in_vain > limits.in_vain {
            return None;
        }
        *visitor = Visitor { present: visitor.present + 1, in_vain, at: now };
        drop(known);
        Some(Visit { visitors: self.clone(), address })
    }

    /// An agent was registered from there: a connection was not in vain.
    pub(super) fn welcome(&self, address: IpAddr) {
        if let Some(visitor) = self.lock().get_mut(&address) {
            visitor.in_vain = (visitor.in_vain - 1.0).max(0.0);
        }
    }
}

/// A connection's place.
struct Visit {
    visitors: Visitors,
    address: IpAddr,
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(visitor) = self.visitors.lock().get_mut(&self.address) {
            visitor.present = visitor.present.saturating_sub(1);
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
    use std::net::SocketAddr;

    use axum::{Router, routing::get};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMITS: Limits =
        Limits { all: 3, of_one: 2, stay: Duration::from_secs(30), in_vain: 100.0, per_second: 1.0 };

    #[test]
    fn there_is_room_for_so_many_and_for_fewer_of_one_address() {
        let (visitors, [one, two]) =
            (Visitors::default(), ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap()));
        let enter = |address| visitors.enter(address, LIMITS, Instant::now());
        let (first, second) = (enter(one), enter(one));
        assert!(first.is_some() && second.is_some() && enter(one).is_none());
        let third = enter(two);
        assert!(third.is_some() && enter(two).is_none(), "there are three");
        drop(first);
        assert!(enter(two).is_some());
    }

    #[test]
    fn who_keeps_coming_in_vain_is_let_in_now_and_then() {
        let (visitors, begin) = (Visitors::default(), Instant::now());
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let limits = Limits { in_vain: 2.0, ..LIMITS };
        // None of them stays.
        let comes = |address, after: u64| {
            visitors.enter(address, limits, begin + Duration::from_secs(after)).is_some()
        };
        assert_eq!([comes(one, 0), comes(one, 0), comes(one, 0)], [true, true, false]);
        assert!(comes(two, 0), "that is no other's fault");
        assert_eq!([comes(one, 1), comes(one, 1)], [true, false], "one in a second");
        visitors.welcome(one);
        assert!(comes(one, 1), "an agent was registered");
        assert_eq!([comes(one, 60), comes(one, 60), comes(one, 60)], [true, true, false], "it is forgiven");
    }

    #[test]
    fn who_has_nothing_to_answer_for_is_forgotten() {
        let (visitors, begin) = (Visitors::default(), Instant::now());
        let addresses = (0..u32::try_from(REMEMBERED).unwrap()).map(|last| IpAddr::from(last.to_be_bytes()));
        for address in addresses {
            assert!(visitors.enter(address, LIMITS, begin).is_some());
        }
        let later = visitors.enter(IpAddr::from([10, 0, 0, 1]), LIMITS, begin + Duration::from_secs(2));
        assert!(later.is_some() && visitors.lock().len() == 1);
    }

    #[test]
    fn a_handful_of_addresses_cannot_take_all_the_room() {
        let (visitors, mut visits) = (Visitors::default(), Vec::new());
        let mut greedy = Vec::new();
        for last in 0..8_u8 {
            let address = IpAddr::from([10, 0, 0, last]);
            let before = visits.len();
            visits
                .extend(std::iter::from_fn(|| visitors.enter(address, super::super::LIMITS, Instant::now())));
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

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    /// A server behind such a door.
    fn serve(limits: Limits) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum_server::from_tcp(listener).unwrap();
        let server =
            server.map(move |inside| Door::new(inside, limits, Visitors::default(), Metrics::default()));
        let router = Router::new().route("/", get(async || "come in"));
        tokio::spawn(server.serve(router.into_make_service()));
        address
    }

    /// Two that say nothing.
    async fn silent(address: SocketAddr) -> [TcpStream; 2] {
        [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()]
    }

    #[tokio::test]
    async fn who_comes_when_there_are_enough_of_an_address_is_not_let_in() {
        let address = serve(LIMITS);
        let _silent = silent(address).await;
        let mut third = TcpStream::connect(address).await.unwrap();
        // Its connection may be gone already.
        let _sent = third.write_all(ASK).await;
        assert_eq!(answer(&mut third).await, "");
    }

    #[tokio::test]
    async fn who_says_nothing_has_to_go_and_makes_room() {
        let address = serve(Limits { stay: Duration::from_millis(500), ..LIMITS });
        for mut one in silent(address).await {
            assert_eq!(answer(&mut one).await, "");
        }
        let mut later = TcpStream::connect(address).await.unwrap();
        later.write_all(ASK).await.unwrap();
        assert!(answer(&mut later).await.ends_with("come in"));
    }
}
