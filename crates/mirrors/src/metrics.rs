//! Numbers for Prometheus, by the names of RepoMirrors.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

type Seconds = Gauge<f64, AtomicU64>;

/// The syncer's numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    last_syncs: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    age: Family<OfMirror, Seconds>,
    size: Family<OfMirror, Gauge>,
    packs: Family<OfMirror, Gauge>,
    failing: Family<OfMirror, Gauge>,
    duration: Family<OfMirror, Seconds>,
    syncs: Family<Ended, Counter>,
    rebuilds: Family<OfMirror, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMirror {
    mirror: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    mirror: String,
    result: &'static str,
}

fn of(mirror: &str) -> OfMirror {
    OfMirror { mirror: mirror.to_owned() }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            last_syncs: Arc::default(),
            age: Family::default(),
            size: Family::default(),
            packs: Family::default(),
            failing: Family::default(),
            duration: Family::default(),
            syncs: Family::default(),
            rebuilds: Family::default(),
        };
        let mut all = Registry::with_prefix("buildkite_repo_mirror");
        all.register(
            "age_seconds",
            "Time since the mirror was the same as its repository",
            metrics.age.clone(),
        );
        all.register("size_bytes", "Room that the mirror takes", metrics.size.clone());
        all.register("packs", "Packs that the mirror has", metrics.packs.clone());
        all.register("failing", "1 if the last fetch failed, else 0", metrics.failing.clone());
        all.register("sync_duration_seconds", "How long the last fetch took", metrics.duration.clone());
        all.register("syncs", "Fetches, by what came of them", metrics.syncs.clone());
        all.register("rebuilds", "How often the mirror was damaged and made anew", metrics.rebuilds.clone());
        metrics.registry = Arc::new(all);
        metrics
    }
}

impl Metrics {
    /// A fetch went well.
    pub fn synced(
        &self,
        mirror: &str,
        at: Timestamp,
        size_bytes: u64,
        packs: usize,
        took: Duration,
        rebuilt: bool,
    ) {
        self.last_syncs.lock().unwrap_or_else(PoisonError::into_inner).insert(mirror.to_owned(), at);
        self.size.get_or_create(&of(mirror)).set(i64::try_from(size_bytes).unwrap_or(i64::MAX));
        self.packs.get_or_create(&of(mirror)).set(i64::try_from(packs).unwrap_or(i64::MAX));
        self.failing.get_or_create(&of(mirror)).set(0);
        self.duration.get_or_create(&of(mirror)).set(took.as_secs_f64());
        self.syncs.get_or_create(&Ended { mirror: mirror.to_owned(), result: "success" }).inc();
        if rebuilt {
            self.rebuilds.get_or_create(&of(mirror)).inc();
        }
    }

    /// A fetch failed.
    pub fn failed(&self, mirror: &str, took: Duration) {
        self.failing.get_or_create(&of(mirror)).set(1);
        self.duration.get_or_create(&of(mirror)).set(took.as_secs_f64());
        self.syncs.get_or_create(&Ended { mirror: mirror.to_owned(), result: "failure" }).inc();
    }

    /// There is no such mirror any more.
    pub fn forget(&self, mirror: &str) {
        self.last_syncs.lock().unwrap_or_else(PoisonError::into_inner).remove(mirror);
        self.age.remove(&of(mirror));
        self.size.remove(&of(mirror));
        self.packs.remove(&of(mirror));
        self.failing.remove(&of(mirror));
        self.duration.remove(&of(mirror));
        self.rebuilds.remove(&of(mirror));
        for result in ["success", "failure"] {
            self.syncs.remove(&Ended { mirror: mirror.to_owned(), result });
        }
    }

    /// The page that Prometheus reads.
    pub fn text(&self, now: Timestamp) -> String {
        for (mirror, at) in self.last_syncs.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.age.get_or_create(&of(mirror)).set(now.duration_since(*at).as_secs_f64().max(0.0));
        }
        let mut page = String::new();
        text::encode(&mut page, &self.registry).expect("a string takes everything");
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page() {
        let metrics = Metrics::default();
        let at = Timestamp::from_second(1000).unwrap();
        metrics.synced("app", at, 2048, 3, Duration::from_millis(1500), true);
        metrics.failed("lib", Duration::from_secs(2));
        metrics.synced("gone", at, 1, 1, Duration::ZERO, false);
        metrics.forget("gone");
        let page = metrics.text(Timestamp::from_second(1060).unwrap());
        let mut lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        buildkite_repo_mirror_age_seconds{mirror="app"} 60.0
        buildkite_repo_mirror_failing{mirror="app"} 0
        buildkite_repo_mirror_failing{mirror="lib"} 1
        buildkite_repo_mirror_packs{mirror="app"} 3
        buildkite_repo_mirror_rebuilds_total{mirror="app"} 1
        buildkite_repo_mirror_size_bytes{mirror="app"} 2048
        buildkite_repo_mirror_sync_duration_seconds{mirror="app"} 1.5
        buildkite_repo_mirror_sync_duration_seconds{mirror="lib"} 2.0
        buildkite_repo_mirror_syncs_total{mirror="app",result="success"} 1
        buildkite_repo_mirror_syncs_total{mirror="lib",result="failure"} 1
        "#);
    }
}
