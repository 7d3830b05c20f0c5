//! Metrics as an OTLP request, in its JSON encoding.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::family::{Families, Family, Kind, Labels, Sample};

/// A counter's value is since the job's beginning, not since the last request.
const CUMULATIVE: u8 = 2;

/// The body of a request to `/v1/metrics`. Labels of the job are attributes of the resource; `begin` and `now` are in
/// nanoseconds since 1970. Values that no JSON number can be are left out: OTLP has no way to say them.
pub fn request(families: &Families, resource: &Labels, begin: u64, now: u64) -> Value {
    let time = Times { begin, now };
    let metrics: Vec<Value> =
        families.iter().filter_map(|(name, family)| metric(name, family, time)).collect();
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(resource) },
        "scopeMetrics": [{ "scope": { "name": "buildkite-operator" }, "metrics": metrics }],
    }] })
}

#[derive(Clone, Copy)]
struct Times {
    begin: u64,
    now: u64,
}

impl Times {
    /// When the sample was taken, as text: 64 bits do not fit JSON's numbers.
    fn of(self, sample: &Sample) -> String {
        let own =
            sample.timestamp.and_then(|ms| u64::try_from(ms).ok()).map(|ms| ms.saturating_mul(1_000_000));
        own.unwrap_or(self.now).to_string()
    }
}

fn metric(name: &str, family: &Family, times: Times) -> Option<Value> {
    let (form, data) = match family.kind {
        Kind::Gauge | Kind::Untyped => ("gauge", json!({ "dataPoints": numbers(family, times) })),
        Kind::Counter => (
            "sum",
            json!({
                "dataPoints": numbers(family, times),
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
            }),
        ),
        Kind::Histogram => (
            "histogram",
            json!({ "dataPoints": histograms(name, family, times), "aggregationTemporality": CUMULATIVE }),
        ),
        Kind::Summary => ("summary", json!({ "dataPoints": summaries(name, family, times) })),
    };
    let empty = data["dataPoints"].as_array().is_none_or(Vec::is_empty);
    (!empty).then(
        || json!({ "name": name, "description": family.help.as_deref().unwrap_or_default(), form: data }),
    )
}

/// An attribute, as OTLP writes it.
#[derive(Serialize)]
pub struct Attribute<'a> {
    key: &'a str,
    value: BTreeMap<&'a str, &'a str>,
}

/// Labels as attributes.
pub fn attributes(labels: &Labels) -> Vec<Attribute<'_>> {
    let value = |value| BTreeMap::from([("stringValue", value)]);
    labels.iter().map(|(key, text)| Attribute { key, value: value(text.as_str()) }).collect()
}

fn numbers(family: &Family, times: Times) -> Vec<Value> {
    let finite = family.samples.iter().filter(|sample| sample.value.is_finite());
    finite
        .map(|sample| {
            json!({
                "attributes": attributes(&sample.labels),
                "startTimeUnixNano": times.begin.to_string(),
                "timeUnixNano": times.of(sample),
                "asDouble": sample.value,
            })
        })
        .collect()
}

/// Samples of one histogram or summary: those whose labels are the same but for the one that tells buckets or quantiles apart.
fn series<'a>(family: &'a Family, apart: &str) -> BTreeMap<Labels, Vec<&'a Sample>> {
    let mut series = BTreeMap::<Labels, Vec<&Sample>>::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.remove(apart);
        series.entry(labels).or_default().push(sample);
    }
    series
}

fn named<'a>(samples: &[&'a Sample], name: &str) -> Option<&'a Sample> {
    samples.iter().find(|sample| sample.name == name).copied()
}

fn histograms(name: &str, family: &Family, times: Times) -> Vec<Value> {
    let points = series(family, "le");
    points.iter().filter_map(|(labels, samples)| histogram(name, labels, samples, times)).collect()
}

/// Prometheus' buckets count all that is below their bound, OTLP's only what is not in one before.
fn histogram(name: &str, labels: &Labels, samples: &[&Sample], times: Times) -> Option<Value> {
    let bucket = format!("{name}_bucket");
    let bound = |sample: &Sample| Some((sample.labels.get("le")?.parse::<f64>().ok()?, count(sample.value)?));
    let mut buckets: Vec<(f64, u64)> =
        samples.iter().filter(|sample| sample.name == bucket).filter_map(|sample| bound(sample)).collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total = named(samples, &format!("{name}_count"))?;
    let all = count(total.value)?;
    if buckets.last().is_none_or(|(bound, _)| bound.is_finite()) {
        buckets.push((f64::INFINITY, all));
    }
    let before = std::iter::once(0).chain(buckets.iter().map(|(_, below)| *below));
    let counts: Vec<String> = buckets
        .iter()
        .zip(before)
        .map(|((_, below), before)| below.saturating_sub(before).to_string())
        .collect();
    let bounds: Vec<f64> =
        buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
    let mut point = json!({
        "attributes": attributes(labels),
        "startTimeUnixNano": times.begin.to_string(),
        "timeUnixNano": times.of(total),
        "count": all.to_string(),
        "bucketCounts": counts,
        "explicitBounds": bounds,
    });
    if let Some(sum) = named(samples, &format!("{name}_sum")).filter(|sum| sum.value.is_finite()) {
        point["sum"] = json!(sum.value);
    }
    Some(point)
}

fn summaries(name: &str, family: &Family, times: Times) -> Vec<Value> {
    let points = series(family, "quantile");
    points.iter().filter_map(|(labels, samples)| summary(name, labels, samples, times)).collect()
}

fn summary(name: &str, labels: &Labels, samples: &[&Sample], times: Times) -> Option<Value> {
    let total = named(samples, &format!("{name}_count"))?;
    let quantile = |sample: &Sample| {
        let quantile: f64 = sample.labels.get("quantile")?.parse().ok()?;
        sample.value.is_finite().then(|| json!({ "quantile": quantile, "value": sample.value }))
    };
    let quantiles: Vec<Value> =
        samples.iter().filter(|sample| sample.name == name).filter_map(|sample| quantile(sample)).collect();
    let sum = named(samples, &format!("{name}_sum")).map_or(0.0, |sum| sum.value);
    Some(json!({
        "attributes": attributes(labels),
        "startTimeUnixNano": times.begin.to_string(),
        "timeUnixNano": times.of(total),
        "count": count(total.value)?.to_string(),
        "sum": if sum.is_finite() { sum } else { 0.0 },
        "quantileValues": quantiles,
    }))
}

/// A number of observations.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked before")]
fn count(value: f64) -> Option<u64> {
    (0.0..9.0e18).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests;
