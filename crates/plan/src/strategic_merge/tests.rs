use proptest::prelude::*;
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("not an object: {value}") };
    object
}

fn merged(original: Value, patch: Value) -> Result<Value, String> {
    let mut spec = object(original);
    merge(&mut spec, &object(patch), "patch").map_err(|error| error.to_string())?;
    Ok(Value::Object(spec))
}

#[derive(Deserialize)]
struct Case {
    name: String,
    original: Value,
    patch: Value,
    expected: Value,
}

#[test]
fn merges_are_those_of_kubernetes() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("tests/kubectl.yaml")).expect("a table");
    assert!(cases.len() > 40, "the table has its cases");
    for Case { name, original, patch, expected } in cases {
        assert_eq!(merged(original, patch), Ok(expected), "{name}");
    }
}

/// Kubernetes loses or refuses these.
#[rstest]
#[case::replaced_where_nothing_was(
    json!({}),
    json!({"securityContext": {"$patch": "replace", "runAsUser": 1}}),
    json!({"securityContext": {"runAsUser": 1}})
)]
#[case::a_deleted_object_leaves_nothing(
    json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
    json!({"volumes": [{"name": "v", "emptyDir": {"$patch": "delete"}, "hostPath": {"path": "/"}}]}),
    json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})
)]
#[case::merge_is_the_rule(
    json!({"securityContext": {"runAsUser": 1}}),
    json!({"securityContext": {"$patch": "merge", "runAsGroup": 2}}),
    json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2}})
)]
#[case::a_list_that_is_replaced_anyway(
    json!({"tolerations": [{"key": "a"}]}),
    json!({"tolerations": [{"$patch": "replace"}, {"key": "b"}]}),
    json!({"tolerations": [{"key": "b"}]})
)]
#[case::nulls_in_what_is_added(
    json!({"containers": [{"name": "a"}]}),
    json!({"containers": [{"name": "b", "image": "x", "command": null}]}),
    json!({"containers": [{"name": "b", "image": "x"}, {"name": "a"}]})
)]
#[case::everything_is_replaced(json!({"hostname": "h"}), json!({"$patch": "replace", "priority": 1}), json!({"priority": 1}))]
#[case::everything_is_deleted(json!({"hostname": "h"}), json!({"$patch": "delete"}), json!({}))]
fn what_was_meant_is_done(#[case] original: Value, #[case] patch: Value, #[case] expected: Value) {
    assert_eq!(merged(original, patch), Ok(expected));
}

#[rstest]
#[case::directive(json!({"$patsch": "delete"}), "patch.$patsch: unknown directive; known: $patch, $retainKeys, $deleteFromPrimitiveList/…, $setElementOrder/…")]
#[case::directive_in_what_is_added(json!({"affinity": {"$x": 1}}), "patch.affinity.$x: unknown directive; known: $patch, $retainKeys, $deleteFromPrimitiveList/…, $setElementOrder/…")]
#[case::verb(json!({"containers": [{"name": "a", "$patch": "remove"}]}), "patch.containers[0].$patch: must be `delete`, `replace` or `merge`")]
#[case::replace_beside_others(
    json!({"containers": [{"name": "a", "$patch": "replace", "image": "y"}]}),
    "patch.containers[0]: `$patch: replace` in a list replaces the whole list; it stands in an element of its own"
)]
#[case::no_key(json!({"containers": [{"image": "y"}]}), "patch.containers[0]: needs `name`: elements of this list are told apart by it")]
#[case::no_key_to_delete(json!({"containers": [{"$patch": "delete"}]}), "patch.containers[0]: needs `name`: elements of this list are told apart by it")]
#[case::an_element_that_cannot_be_found(
    json!({"tolerations": [{"key": "a", "$patch": "delete"}]}),
    "patch.tolerations[0]: elements of this list cannot be told apart: the patch's list replaces all of it"
)]
#[case::no_object(json!({"containers": ["a"]}), "patch.containers[0]: must be an object, not a single value")]
#[case::a_list_for_an_object(json!({"securityContext": []}), "patch.securityContext: must be an object, not a list")]
#[case::an_object_for_a_list(json!({"containers": {}}), "patch.containers: must be a list, not an object")]
#[case::a_value_for_a_list(json!({"containers": "a"}), "patch.containers: must be a list, not a single value")]
#[case::null_in_a_list(json!({"containers": [{"name": "a", "args": [null]}]}), "patch.containers[0].args[0]: must not be null")]
#[case::retained_keys(
    json!({"securityContext": {"$retainKeys": ["runAsUser"], "fsGroup": 1}}),
    "patch.securityContext.$retainKeys: must name every key of the patch, also `fsGroup`"
)]
#[case::no_list_of_keys(json!({"$retainKeys": "a"}), "patch.$retainKeys: must be a list, not a single value")]
#[case::no_list_of_values(
    json!({"$deleteFromPrimitiveList/x": 1}),
    "patch.$deleteFromPrimitiveList/x: must be a list, not a single value"
)]
#[case::order_of_some(
    json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}),
    "patch.containers: `$setElementOrder/` must name every element of the patch, also \"b\""
)]
fn what_is_wrong_is_named_with_its_path(#[case] patch: Value, #[case] expected: &str) {
    let original = json!({"containers": [{"name": "a", "image": "x", "args": ["b"]}], "securityContext": {"runAsUser": 1}});
    assert_eq!(merged(original, patch), Err(expected.to_owned()));
}

/// Keys and values that meet one another often, whether they make sense or not.
fn any_value(directives: bool) -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec!["a", "b", "delete", "replace", "merge"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        words.prop_map(Value::from),
        (0..3).prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(directives), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn key(directives: bool) -> impl Strategy<Value = String> {
    let mut keys = vec![
        "containers",
        "volumes",
        "env",
        "name",
        "args",
        "securityContext",
        "ports",
        "containerPort",
        "ephemeral",
    ];
    if directives {
        keys.extend([
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$setElementOrder/env",
            "$deleteFromPrimitiveList/args",
        ]);
    }
    prop::sample::select(keys).prop_map(str::to_owned)
}

fn any_object(directives: bool) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(key(directives), any_value(directives), 0..6)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn no_patch_is_too_strange(mut original in any_object(true), patch in any_object(true)) {
        let _ = merge(&mut original, &patch, "patch");
    }

    #[test]
    fn an_empty_patch_changes_nothing(original in any_object(false)) {
        let mut spec = original.clone();
        merge(&mut spec, &Map::new(), "patch").expect("it merges");
        prop_assert_eq!(spec, original);
    }

    #[test]
    fn a_patch_without_directives_may_be_applied_twice(original in any_object(false), patch in any_object(false)) {
        let mut once = original;
        if merge(&mut once, &patch, "patch").is_ok() {
            let mut twice = once.clone();
            merge(&mut twice, &patch, "patch").expect("it merged once");
            prop_assert_eq!(twice, once);
        }
    }

    #[test]
    fn no_directive_is_left(mut original in any_object(false), patch in any_object(true)) {
        if merge(&mut original, &patch, "patch").is_ok() {
            let text = Value::Object(original).to_string();
            prop_assert!(!text.contains("\"$"), "{}", text);
        }
    }
}
