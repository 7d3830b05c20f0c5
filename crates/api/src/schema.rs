//! Schemas of what the CRDs take without a schema of their own.
//!
//! The API server's own schema of a pod is larger than the rest of ours a hundred times over. What these fields
//! hold is checked when the pod is built.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// What a container may be called.
pub(crate) fn container_name() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(
        "a container's name consists of small letters, digits and dashes, and dashes are inside only",
    )
}

/// What an object may be called.
pub(crate) fn object_name() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("an object's name consists of small letters, digits, dashes and dots, and begins and ends with one of the first two")
}

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
