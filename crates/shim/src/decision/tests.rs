use super::{Container, Fence, Seen, Turn, fence, outcome, turn};
use crate::layout::Name;

fn names() -> impl Iterator<Item = Name<'static>> {
    ["a", "b"].into_iter().filter_map(Name::new)
}

fn is(name: Name<'_>, text: &str) -> bool {
    Some(name) == Name::new(text)
}

#[test]
fn the_fence_opens_when_all_have_started() {
    let started = |a, b| move |name| Container { started: if is(name, "a") { a } else { b }, ended: None };
    for (a, b, expected) in [
        (false, false, Fence::Closed),
        (true, false, Fence::Closed),
        (false, true, Fence::Closed),
        (true, true, Fence::Open),
    ] {
        assert_eq!(fence(names(), false, started(a, b)), expected);
        assert_eq!(fence(names(), true, started(a, b)), expected);
    }
}

#[test]
fn a_container_that_has_ended_breaks_the_fence_unless_standalone() {
    let look = |name| Container { started: is(name, "b"), ended: is(name, "b").then_some(3) };
    assert_eq!(fence(names(), false, look), Fence::Broken(Name::new("b").unwrap(), 3));
    assert_eq!(fence(names(), true, look), Fence::Closed);
}

#[test]
fn the_outcome_is_the_first_failure_once_all_have_ended() {
    for (a, b, expected) in [
        (None, None, None),
        (Some(1), None, None),
        (None, Some(1), None),
        (Some(0), Some(0), Some(0)),
        (Some(0), Some(2), Some(2)),
        (Some(3), Some(2), Some(3)),
    ] {
        assert_eq!(outcome(names(), |name| if is(name, "a") { a } else { b }), expected);
    }
}

#[test]
fn turns() {
    let all = Seen { ready: true, socket: true, before: Some(0), agent_ended: false };
    for (seen, expected) in [
        (all, Turn::Run),
        (Seen { ready: false, ..all }, Turn::Wait),
        (Seen { socket: false, ..all }, Turn::Wait),
        (Seen { before: None, ..all }, Turn::Wait),
        (Seen { before: Some(7), ready: false, socket: false, ..all }, Turn::BeforeFailed(7)),
        (Seen { before: Some(7), agent_ended: true, ..all }, Turn::BeforeFailed(7)),
        (Seen { before: None, agent_ended: true, ..all }, Turn::AgentEnded),
        (Seen { agent_ended: true, ..all }, Turn::AgentEnded),
    ] {
        assert_eq!(turn(seen), expected, "{seen:?}");
    }
}
