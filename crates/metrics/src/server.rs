//! Metrics on a port: `/metrics` for scrapers, `/ready` for whoever wants to know whether there are any.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};

use crate::{exporter::Source, family};

/// What every answer needs.
#[derive(Debug)]
pub(crate) struct Served {
    source: Source,
    /// Whether the job has ended.
    ended: AtomicBool,
    /// The last answer.
    answered: Mutex<Option<String>>,
    /// Whether somebody has got what it left behind.
    taken: AtomicBool,
    /// Is told when that happens.
    pub(crate) told: tokio::sync::Notify,
}

impl Served {
    pub(crate) fn new(source: Source) -> Arc<Self> {
        Arc::new(Self {
            source,
            ended: AtomicBool::new(false),
            answered: Mutex::default(),
            taken: AtomicBool::new(false),
            told: tokio::sync::Notify::new(),
        })
    }

    /// From now on the next answer is the last one that is needed, or the one before was, if nothing has changed since.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner).take();
        if answered.is_some_and(|answered| answered == self.text()) {
            self.take();
        }
    }

    /// Somebody has got the last values.
    fn take(&self) {
        self.taken.store(true, Ordering::SeqCst);
        self.told.notify_one();
    }

    /// The present values.
    fn text(&self) -> String {
        family::Page(&self.source.page().families).to_string()
    }

    /// Whether somebody has got the last values.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst)
    }
}

/// What the port answers.
pub(crate) fn routes(served: Arc<Served>) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/ready", get(ready)).with_state(served)
}

async fn metrics(State(served): State<Arc<Served>>) -> impl IntoResponse {
    // Before the files are read: what is written after the answer began is not in it.
    let last = served.ended.load(Ordering::SeqCst);
    let text = served.text();
    if last {
        served.take();
    } else {
        *served.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

/// Ready means that there is something to scrape.
async fn ready(State(served): State<Arc<Served>>) -> (StatusCode, &'static str) {
    if served.source.page().families.is_empty() {
        (StatusCode::SERVICE_UNAVAILABLE, "no metrics yet\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}
