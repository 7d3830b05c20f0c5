//! How values are written to columns and read back.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::FromSql;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::problem::Problem;

/// A time as stored: milliseconds.
pub(crate) fn millis(time: Timestamp) -> i64 {
    time.as_millisecond()
}

/// A time as read. Nonsense becomes the epoch rather than a panic.
pub(crate) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A value as a JSON column.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, Problem> {
    Ok(serde_json::to_string(value)?)
}

/// Reading typed columns by name.
pub(crate) trait Columns {
    /// A column as the database gives it.
    fn column<T: FromSql>(&self, name: &str) -> Result<T, Problem>;

    /// An id.
    fn id(&self, name: &str) -> Result<Uuid, Problem> {
        parse(&self.column::<String>(name)?)
    }

    /// An id that may be absent.
    fn maybe_id(&self, name: &str) -> Result<Option<Uuid>, Problem> {
        self.column::<Option<String>>(name)?.as_deref().map(parse).transpose()
    }

    /// A time.
    fn at(&self, name: &str) -> Result<Timestamp, Problem> {
        Ok(time(self.column(name)?))
    }

    /// A time that may be absent.
    fn maybe_at(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        Ok(self.column::<Option<i64>>(name)?.map(time))
    }

    /// A JSON column that may be absent.
    fn maybe_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Problem> {
        Ok(self.column::<Option<String>>(name)?.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// A JSON column.
    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Problem> {
        Ok(serde_json::from_str(&self.column::<String>(name)?)?)
    }
}

impl Columns for Row<'_> {
    fn column<T: FromSql>(&self, name: &str) -> Result<T, Problem> {
        Ok(self.get(name)?)
    }
}

fn parse(text: &str) -> Result<Uuid, Problem> {
    Uuid::parse_str(text).map_err(|error| Problem::Corrupt(format!("{text:?}: {error}")))
}
