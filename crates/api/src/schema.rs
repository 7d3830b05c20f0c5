//! Schemas of what the CRDs take without a schema of their own.
//!
//! The API server's own schema of a pod is larger than the rest of ours a hundred times over. What these fields
//! hold is checked when the pod is built.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any object.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of any objects.
pub(crate) fn any_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
    })
}

/// A list of plugins as in a pipeline: objects of one key each.
pub(crate) fn plugins(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "items": { "type": "object", "maxProperties": 1, "x-kubernetes-preserve-unknown-fields": true }
    })
}
