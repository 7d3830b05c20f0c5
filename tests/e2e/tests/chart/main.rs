//! The chart as helm renders it: what each value does, what is refused, and the manifests that are made of it.

mod behaviour;
mod broker;
mod documents;
mod manifests;
mod refusals;
mod seeing;

use bk_e2e::helm::{CHART, Helm, KUBE_VERSION};
use serde_json::Value;

fn helm() -> Helm {
    Helm::provided().expect("`cargo xtask test` provides helm")
}

/// The objects of a kind.
fn of_kind(objects: &[Value], kind: &str) -> Vec<Value> {
    objects.iter().filter(|object| object["kind"] == kind).cloned().collect()
}

/// The only object of a kind.
fn only(objects: &[Value], kind: &str) -> Value {
    let [object] = of_kind(objects, kind).try_into().unwrap_or_else(|all| panic!("one {kind}: {all:#?}"));
    object
}

/// The object of a kind by this name.
fn named(objects: &[Value], kind: &str, name: &str) -> Value {
    let found = of_kind(objects, kind).into_iter().find(|object| object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    helm().succeed(&["lint", "--strict", CHART, KUBE_VERSION]).unwrap();
}
