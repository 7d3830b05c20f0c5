use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn fault(value: Value) -> Fault {
    serde_json::from_value(value).unwrap()
}

fn armed(value: Value) -> Armed {
    let fault = fault(value);
    assert_eq!(check(&fault), Ok(()));
    Armed::new(1, fault, Instant::now())
}

#[rstest]
#[case("/v3/ping", "/v3/ping", true)]
#[case("/v3/ping", "/v3/ping/", false)]
#[case("/v3/ping", "/v3", false)]
#[case("/v3/jobs/*/finish", "/v3/jobs/a/finish", true)]
#[case("/v3/jobs/*/finish", "/v3/jobs/a/b/finish", false)]
#[case("/v3/jobs/{job}/finish", "/v3/jobs/a/finish", true)]
#[case("/v3/jobs/*", "/v3/jobs/a/finish", false)]
#[case("/v3/**", "/v3/jobs/a/finish", true)]
#[case("/v3/**", "/v3", true)]
#[case("/v3/**", "/v2/x", false)]
#[case("/**", "/anything", true)]
#[case("/v3/stacks/*/jobs/get-states", "/v3/stacks/my%2Dkey/jobs/get-states", true)]
fn patterns_match_by_segments(#[case] pattern: &str, #[case] path: &str, #[case] expected: bool) {
    assert_eq!(path_matches(pattern, path), expected);
}

#[rstest]
#[case(json!({"path": "v3/ping", "action": "close"}), "does not begin")]
#[case(json!({"path": "/v3/**/finish", "action": "close"}), "before its end")]
#[case(json!({"path": "/", "action": "close", "probability": 1.5}), "probability")]
#[case(json!({"path": "/", "action": "close", "seconds": -1.0}), "seconds")]
#[case(json!({"path": "/", "action": {"wait_before": -1.0}}), "wait")]
#[case(json!({"path": "/", "action": {"wait_after": 1e9}}), "wait")]
#[case(json!({"path": "/", "action": {"answer": {"status": 99}}}), "status")]
#[case(json!({"path": "/", "action": {"answer": {"status": 500, "headers": {"a b": "c"}}}}), "header")]
fn senseless_faults_are_refused(#[case] value: Value, #[case] reason: &str) {
    let message = check(&fault(value)).unwrap_err();
    assert!(message.contains(reason), "{message}");
}

#[test]
fn unknown_fields_and_actions_are_refused() {
    for value in [
        json!({"path": "/", "action": "explode"}),
        json!({"path": "/", "action": "close", "tims": 1}),
        json!({"path": "/", "action": {"answer": {"code": 500}}}),
    ] {
        assert!(serde_json::from_value::<Fault>(value).is_err());
    }
}

#[test]
fn skipping_comes_before_striking_and_striking_ends() {
    let mut one = armed(json!({"method": "get", "path": "/a", "action": "close", "skip": 2, "times": 2}));
    let now = Instant::now();
    assert_eq!(one.strike("POST", "/a", now), None);
    let struck: Vec<bool> = (0..6).map(|_| one.strike("GET", "/a", now).is_some()).collect();
    assert_eq!(struck, [false, false, true, true, false, false]);
    let standing = one.standing(now);
    assert_eq!((standing.matched, standing.hits, standing.spent), (4, 2, true));
}

#[test]
fn a_fault_ends_with_its_time() {
    let mut one = armed(json!({"path": "/a", "action": "lose_answer", "seconds": 5.0}));
    let begin = Instant::now();
    assert_eq!(one.strike("GET", "/a", begin), Some(Action::LoseAnswer));
    assert_eq!(one.strike("GET", "/a", begin + Duration::from_secs(6)), None);
    assert!(one.standing(begin + Duration::from_secs(6)).spent);
}

#[test]
fn the_same_seed_strikes_the_same_requests() {
    let value = json!({"path": "/a", "action": "close", "probability": 0.3, "seed": 7});
    let run = || {
        let mut one = armed(value.clone());
        (0..1000).map(|_| one.strike("GET", "/a", Instant::now()).is_some()).collect::<Vec<_>>()
    };
    let struck = run();
    assert_eq!(struck, run());
    let hits = struck.iter().filter(|hit| **hit).count();
    assert!((230..370).contains(&hits), "{hits}");
}

proptest! {
    #[test]
    fn nothing_that_is_written_makes_matching_panic(pattern in ".{0,40}", path in ".{0,40}") {
        let _any = path_matches(&pattern, &path);
        let literal = format!("/{}", path.replace(['*', '{'], "x"));
        prop_assert!(path_matches(&literal, &literal));
        prop_assert!(path_matches("/**", &literal));
    }
}
