//! Metrics as an OTLP request, in its JSON encoding.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::family::{Families, Family, Kind, Labels, Sample};

/// A counter's value is since the job's beginning, not since the last request.
const CUMULATIVE: u8 = 2;

/// A request to `/v1/metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its body.
    pub body: Value,
    /// What OTLP has no way to say, and why, for each series.
    pub left_out: Vec<String>,
}

/// A request with these metrics. Labels of the job are attributes of the resource; `begin` and `now` are in nanoseconds since 1970.
pub fn request(families: &Families, resource: &Labels, begin: u64, now: u64) -> Request {
    let times = Times { begin, now };
    let mut left_out = Vec::new();
    let metrics: Vec<Value> =
        families.iter().filter_map(|(name, family)| metric(name, family, times, &mut left_out)).collect();
    let body = json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(resource) },
        "scopeMetrics": [{ "scope": { "name": "buildkite-operator" }, "metrics": metrics }],
    }] });
    Request { body, left_out }
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

fn metric(name: &str, family: &Family, times: Times, left_out: &mut Vec<String>) -> Option<Value> {
    let mut told = |points: Vec<Result<Value, String>>| -> Vec<Value> {
        points.into_iter().filter_map(|point| point.map_err(|why| left_out.push(why)).ok()).collect()
    };
    let (form, points) = match family.kind {
        Kind::Gauge | Kind::Untyped => ("gauge", numbers(family, times)),
        Kind::Counter => ("sum", numbers(family, times)),
        Kind::Histogram => ("histogram", told(histograms(name, family, times))),
        Kind::Summary => ("summary", told(summaries(name, family, times))),
    };
    if points.is_empty() {
        return None;
    }
    let mut data = json!({ "dataPoints": points });
    if matches!(family.kind, Kind::Counter | Kind::Histogram) {
        data["aggregationTemporality"] = json!(CUMULATIVE);
    }
    if family.kind == Kind::Counter {
        data["isMonotonic"] = json!(true);
    }
    Some(json!({ "name": name, "description": family.help.as_deref().unwrap_or_default(), form: data }))
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

/// A number as protobuf's JSON has it: what JSON cannot say is a word.
fn double(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}

fn numbers(family: &Family, times: Times) -> Vec<Value> {
    let point = |sample: &Sample| {
        json!({
            "attributes": attributes(&sample.labels),
            "startTimeUnixNano": times.begin.to_string(),
            "timeUnixNano": times.of(sample),
            "asDouble": double(sample.value),
        })
    };
    family.samples.iter().map(point).collect()
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

/// The sample that says how many observations there were, and what it says.
fn total<'a>(name: &str, samples: &[&'a Sample]) -> Result<(&'a Sample, u64), String> {
    let total = named(samples, &format!("{name}_count"));
    let total = total.ok_or_else(|| format!("{name} cannot be sent by OTLP: there is no {name}_count"))?;
    Ok((total, count(total)?))
}

/// What the label that tells buckets or quantiles apart says. Reading the file has made sure that it is a number.
fn bound(sample: &Sample, label: &str) -> f64 {
    sample.labels.get(label).and_then(|text| text.parse().ok()).unwrap_or(f64::INFINITY)
}

fn histograms(name: &str, family: &Family, times: Times) -> Vec<Result<Value, String>> {
    let points = series(family, "le");
    points.iter().map(|(labels, samples)| histogram(name, labels, samples, times)).collect()
}

/// Prometheus' buckets count all that is below their bound, OTLP's only what is not in one before.
fn histogram(name: &str, labels: &Labels, samples: &[&Sample], times: Times) -> Result<Value, String> {
    let bucket = format!("{name}_bucket");
    let buckets = samples.iter().filter(|sample| sample.name == bucket);
    let mut buckets = buckets
        .map(|sample| Ok((bound(sample, "le"), count(sample)?)))
        .collect::<Result<Vec<(f64, u64)>, String>>()?;
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (total, all) = total(name, samples)?;
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
    if let Some(sum) = named(samples, &format!("{name}_sum")) {
        point["sum"] = double(sum.value);
    }
    Ok(point)
}

fn summaries(name: &str, family: &Family, times: Times) -> Vec<Result<Value, String>> {
    let points = series(family, "quantile");
    points.iter().map(|(labels, samples)| summary(name, labels, samples, times)).collect()
}

fn summary(name: &str, labels: &Labels, samples: &[&Sample], times: Times) -> Result<Value, String> {
    let (total, all) = total(name, samples)?;
    let quantiles: Vec<Value> = samples
        .iter()
        .filter(|sample| sample.name == name)
        .map(|sample| json!({ "quantile": bound(sample, "quantile"), "value": double(sample.value) }))
        .collect();
    Ok(json!({
        "attributes": attributes(labels),
        "startTimeUnixNano": times.begin.to_string(),
        "timeUnixNano": times.of(total),
        "count": all.to_string(),
        "sum": named(samples, &format!("{name}_sum")).map_or(json!(0.0), |sum| double(sum.value)),
        "quantileValues": quantiles,
    }))
}

/// A number of observations.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked before")]
fn count(sample: &Sample) -> Result<u64, String> {
    let known = (0.0..9.0e18).contains(&sample.value).then_some(sample.value as u64);
    known.ok_or_else(|| format!("{} is no number of observations: {}", sample.name, sample.value))
}

/// What a receiver says of a request that it has taken.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    partial_success: PartialSuccess,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    /// A number, or in the JSON of protobuf a string.
    rejected_data_points: Value,
    error_message: String,
}

/// How many values a receiver refused of a request that it has taken, and why. An empty answer refuses none.
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let Answer { partial_success } = serde_json::from_slice(answer).unwrap_or_default();
    let number = match &partial_success.rejected_data_points {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| *number > 0).map(|number| (number, partial_success.error_message))
}

#[cfg(test)]
mod tests;
