//! Values that are written differently here. Each says what is wrong with a value that it cannot use.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// How a value is translated.
pub(crate) type Convert = fn(&Value) -> Result<Value, String>;

/// As it is.
#[allow(clippy::unnecessary_wraps, reason = "the others may fail")]
pub(crate) fn same(value: &Value) -> Result<Value, String> {
    Ok(value.clone())
}

/// A duration of Go's, such as `10m`, in seconds.
pub(crate) fn seconds(value: &Value) -> Result<Value, String> {
    let problem = || format!("{value} is not a duration such as 10m");
    // A bare number counts nanoseconds there.
    let duration: jiff::SignedDuration = match value {
        Value::Number(number) => jiff::SignedDuration::from_nanos(number.as_i64().ok_or_else(problem)?),
        Value::String(text) => text.parse().map_err(|_| problem())?,
        _ => return Err(problem()),
    };
    let whole = duration.as_secs() + i64::from(duration.subsec_nanos() > 0);
    u32::try_from(whole).map(Value::from).map_err(|_| problem())
}

/// `timeouts.scheduleSeconds`, which may not be longer than a reservation lasts.
pub(crate) fn schedule_seconds(value: &Value) -> Result<Value, String> {
    /// What `timeouts.startSeconds` leaves by default.
    const MOST: u64 = 2400;
    let seconds = seconds(value)?.as_u64().unwrap_or(MOST);
    Ok(json!(seconds.clamp(1, MOST)))
}

/// No limit has to be a number here.
pub(crate) fn max_in_flight(value: &Value) -> Result<Value, String> {
    match value.as_u64() {
        Some(0) => Ok(json!(10_000)),
        Some(limit) => Ok(json!(limit)),
        None => Err(format!("{value} is not a number of jobs")),
    }
}

/// Where to listen, as Go has it: `localhost:6060`, or `:6060` for everywhere.
pub(crate) fn listen(value: &Value) -> Result<Value, String> {
    let problem = || format!("{value} is not an address such as localhost:6060");
    let (host, port) = value.as_str().and_then(|text| text.rsplit_once(':')).ok_or_else(problem)?;
    let host = match host {
        "" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let address: SocketAddr = format!("{host}:{port}").parse().map_err(|_| problem())?;
    Ok(json!(address))
}

/// `logfmt` or `json`.
pub(crate) fn log_format(value: &Value) -> Result<Value, String> {
    match value.as_str() {
        Some("json") => Ok(json!("json")),
        Some("logfmt" | "") => Ok(json!("human")),
        _ => Err(format!("{value} is neither logfmt nor json")),
    }
}

/// Resource classes, whose fields have other names.
pub(crate) fn resource_classes(value: &Value) -> Result<Value, String> {
    let Value::Object(classes) = value else { return Err("it must be a map of classes".to_owned()) };
    let mut translated = serde_json::Map::new();
    for (name, class) in classes {
        let Value::Object(fields) = class else { return Err(format!("{name} must be a map")) };
        let mut renamed = serde_json::Map::new();
        for (field, value) in fields {
            let field = match field.as_str() {
                "resource" => "resources",
                "podResource" => "podResources",
                "nodeSelector" => "nodeSelector",
                other => return Err(format!("{name}.{other}: there is no such field")),
            };
            renamed.insert(field.to_owned(), value.clone());
        }
        translated.insert(name.clone(), Value::Object(renamed));
    }
    Ok(Value::Object(translated))
}
