//! Variables of containers.

use k8s_openapi::api::core::v1::EnvVar;

/// A variable with a value of its own.
pub(super) fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.into()), value_from: None }
}

/// Gives each variable its value: in place, if it is there already.
pub(super) fn set_all(vars: &mut Vec<EnvVar>, new: impl IntoIterator<Item = EnvVar>) {
    for var in new {
        match vars.iter_mut().find(|old| old.name == var.name) {
            Some(old) => *old = var,
            None => vars.push(var),
        }
    }
}
