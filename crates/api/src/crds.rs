//! The custom resource definitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{BuildEnvironment, BuildJob, RepoMirror};

/// All definitions, in the order in which they should be applied.
pub fn all() -> Vec<CustomResourceDefinition> {
    [BuildJob::crd(), BuildEnvironment::crd(), RepoMirror::crd()]
        .into_iter()
        .map(with_whole_paragraphs)
        .collect()
}

/// Descriptions are comments of the source, which has lines of its own; whoever shows them breaks them anew.
fn with_whole_paragraphs(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(crd).expect("a definition can be written as JSON");
    join_lines(&mut value);
    serde_json::from_value(value).expect("only texts have changed")
}

fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| match value {
            Value::String(text) if key == "description" => *text = paragraphs(text),
            value => join_lines(value),
        }),
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

/// Joins lines that a sentence runs through. Blank lines and lists stay.
fn paragraphs(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let goes_on = line.starts_with(|c: char| c.is_alphanumeric() || "`*(".contains(c));
        if !joined.is_empty() {
            joined.push(if goes_on && !joined.ends_with('\n') { ' ' } else { '\n' });
        }
        joined.push_str(line);
    }
    joined
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[test]
    fn definitions_stay_small_enough_for_client_side_apply() {
        for crd in super::all() {
            let size = serde_json::to_vec(&crd).unwrap().len();
            // kubectl keeps the whole object in an annotation of at most 262,144 bytes.
            assert!(size < 200_000, "{:?} has {size} bytes", crd.metadata.name);
        }
    }

    #[test]
    fn the_definition_of_build_jobs() {
        let yaml = serde_saphyr::to_string(&super::all()[0]).unwrap();
        insta::assert_snapshot!(yaml);
    }

    #[test]
    fn the_definition_of_repo_mirrors() {
        let yaml = serde_saphyr::to_string(&super::all()[2]).unwrap();
        insta::assert_snapshot!(yaml);
    }

    #[rstest]
    #[case("one line", "one line")]
    #[case("two lines of\none sentence", "two lines of one sentence")]
    #[case("a paragraph\n\nand another\none", "a paragraph\n\nand another one")]
    #[case("a list:\n- one\n- two", "a list:\n- one\n- two")]
    fn sentences_are_not_broken(#[case] comment: &str, #[case] shown: &str) {
        assert_eq!(super::paragraphs(comment), shown);
    }
}
