//! Whatever a step says, it is understood or refused by name.

use proptest::prelude::*;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "[a-z=!<>:;,\\[{ ]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn option() -> impl Strategy<Value = StepOption> {
    prop::sample::select(ALL)
}

proptest! {
    #[test]
    fn any_value_is_understood_or_refused_under_its_name(option in option(), value in value()) {
        if let Err(error) = of(&BTreeMap::new(), &plugin(&json!({ option.name: value }))) {
            let expected = format!("buildkite-operator plugin: {}", option.name);
            prop_assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn any_text_in_a_variable_is_understood_or_refused_under_its_name(option in option(), text in ".{0,40}") {
        let variable = option.variable();
        if let Err(error) = of(&variables(&[(&variable, &text)]), "") {
            prop_assert!(error.to_string().starts_with(&variable), "{error}");
        }
    }

    #[test]
    fn any_list_of_plugins_is_read(text in ".{0,40}") {
        let _understood_or_not = of(&BTreeMap::new(), &text);
    }
}
