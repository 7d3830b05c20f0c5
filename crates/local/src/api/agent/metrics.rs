//! The counts that autoscalers ask for.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::auth::Registration;
use super::super::error::ApiResult;
use crate::store::metrics::{self, AgentCount, JobCount};

/// A sum, and what each queue has of it.
#[derive(Serialize)]
struct Section<T> {
    #[serde(flatten)]
    sum: T,
    queues: BTreeMap<String, T>,
}

impl<T: Copy + Default + AddAssign> Section<T> {
    fn of(queues: BTreeMap<String, T>) -> Self {
        let mut sum = T::default();
        for count in queues.values() {
            sum += *count;
        }
        Self { sum, queues }
    }
}

impl AddAssign for AgentCount {
    fn add_assign(&mut self, other: Self) {
        let Self { idle, busy, total } = other;
        self.idle += idle;
        self.busy += busy;
        self.total += total;
    }
}

impl AddAssign for JobCount {
    fn add_assign(&mut self, other: Self) {
        let Self { scheduled, running, waiting, total } = other;
        self.scheduled += scheduled;
        self.running += running;
        self.waiting += waiting;
        self.total += total;
    }
}

pub(super) async fn show(_: Registration, State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let (agents, jobs) = app
        .store
        .transact(|transaction| Ok((metrics::agents(transaction)?, metrics::jobs(transaction)?)))
        .await?;
    Ok(Json(json!({
        "agents": Section::of(agents),
        "jobs": Section::of(jobs),
        "organization": { "slug": app.config.organization },
    })))
}
