//! What a pod's metrics exporter is told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::AtEnd;

/// Everything that the metrics exporter of one pod has to know, as in [`super::DOCUMENT_VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsExporterDocument {
    /// The directory whose files hold metrics.
    pub directory: String,
    /// Labels of every value.
    pub labels: BTreeMap<String, String>,
    /// Files of which one exists once the job has ended.
    pub job_ended: Vec<String>,
    /// How metrics leave the pod.
    pub delivery: MetricsDelivery,
    /// How often they are sent, if they are sent.
    pub interval_seconds: u32,
    /// How long the exporter tries on after the job's end while nobody takes them.
    pub drain_seconds: u32,
    /// How long the pod may take to end once it is told to.
    pub grace_seconds: u32,
}

/// How metrics leave the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum MetricsDelivery {
    /// They are served.
    #[serde(rename_all = "camelCase")]
    Scrape {
        /// The port.
        port: u16,
    },
    /// They are sent to a Pushgateway.
    #[serde(rename_all = "camelCase")]
    Push {
        /// The gateway's address.
        url: String,
        /// The group's label `job`.
        job: String,
        /// The group's other labels.
        grouping: BTreeMap<String, String>,
        /// What becomes of the group when the job has ended.
        at_end: AtEnd,
        /// The directory that the gateway's Secret is mounted at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credentials: Option<String>,
    },
    /// They are sent by OTLP.
    #[serde(rename_all = "camelCase")]
    Otlp {
        /// The receiver's address, to which `/v1/metrics` is added.
        url: String,
        /// The directory that the receiver's Secret is mounted at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credentials: Option<String>,
    },
}
