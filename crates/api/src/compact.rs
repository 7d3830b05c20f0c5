//! JSON that is kept as text.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A JSON object that is kept as text. Of thousands of them few are looked into, and a tree takes ten times the memory.
#[derive(Clone, PartialEq, Eq)]
pub struct CompactObject(Box<str>);

impl CompactObject {
    /// The object as a tree.
    pub fn read(&self) -> Map<String, Value> {
        serde_json::from_str(&self.0).expect("the text was written from an object")
    }
}

impl From<Map<String, Value>> for CompactObject {
    fn from(object: Map<String, Value>) -> Self {
        Self(Value::Object(object).to_string().into())
    }
}

impl fmt::Debug for CompactObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for CompactObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.read().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CompactObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_read_and_written_as_the_object_it_is() {
        let given = json!({ "b": [1, -2.5, 1e300, "ü\u{0}\"", null, { "d": true }], "a": {}, "c": u64::MAX });
        let kept: CompactObject = serde_json::from_value(given.clone()).unwrap();
        assert_eq!(Value::Object(kept.read()), given);
        assert_eq!(serde_json::to_value(&kept).unwrap(), given);
        assert!(serde_json::from_value::<CompactObject>(json!(["no object"])).is_err());
    }
}
