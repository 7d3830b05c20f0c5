use super::*;
use crate::build::Event;
use crate::build::bench::Bench;

fn group(name: &str) -> Effect {
    Effect::Reconsider { group: name.to_owned() }
}

#[test]
fn a_trigger_asks_for_its_build_once_and_takes_it_along_when_cancelled() {
    let mut bench = Bench::new("steps: [{label: a, command: x}, wait, {trigger: other, label: t}]");
    let (a, t) = (bench.job("a").id, bench.job("t").id);
    bench.start(a);
    assert_eq!(bench.answer(a, 0), [Effect::StartChild { job: t }]);
    let child = Uuid::from_u128(99);
    assert_eq!(bench.event(&Event::ChildStarted { job: t, child }).unwrap(), []);
    assert_eq!(bench.event(&Event::CancelBuild).unwrap(), [Effect::CancelChild { build: child }]);
    let ended = bench.event(&Event::ChildEnded { job: t, passed: false }).unwrap();
    assert!(ended.contains(&Effect::Ended { passed: false }), "{ended:?}");
}

#[test]
fn an_async_trigger_ends_with_the_start_of_its_build() {
    let mut bench = Bench::new("steps: [{trigger: other, label: t, async: true}]");
    let job = bench.job("t").id;
    let effects = bench.event(&Event::ChildStarted { job, child: Uuid::from_u128(99) }).unwrap();
    assert_eq!(effects, [Effect::Ended { passed: true }]);
}

#[test]
fn a_concurrency_group_hears_of_those_who_come_and_go() {
    let mut bench = Bench::new(
        "steps: [{label: a, command: x}, wait, {label: b, command: x, concurrency: 1, concurrency_group: g, soft_fail: true}, {label: c, command: x}]",
    );
    let (a, b) = (bench.job("a").id, bench.job("b").id);
    bench.start(a);
    assert_eq!(bench.answer(a, 0), [group("g")]);
    assert_eq!(bench.answer(b, 0), [], "let in");
    bench.start(b);
    assert_eq!(bench.answer(b, 1), [group("g")]);
    let c = bench.job("c").id;
    assert_eq!(bench.event(&Event::CancelJob { job: c }).unwrap(), [Effect::Ended { passed: false }]);
}

#[test]
fn cancelled_while_waiting_leaves_the_group() {
    let mut bench = Bench::new(
        "steps: [{label: a, command: x}, wait, {label: b, command: x, concurrency: 1, concurrency_group: g}]",
    );
    assert_eq!(bench.event(&Event::CancelBuild).unwrap(), [group("g"), Effect::Ended { passed: false }]);
}

#[test]
fn the_end_is_told_again_after_a_retry() {
    let mut bench = Bench::new("steps: [{label: a, command: x}]");
    let job = bench.job("a").id;
    bench.start(job);
    assert_eq!(bench.answer(job, 1), [Effect::Ended { passed: false }]);
    assert_eq!(bench.event(&Event::Retry { job }).unwrap(), []);
    let again = bench.job("a").id;
    bench.start(again);
    assert_eq!(bench.answer(again, 0), [Effect::Ended { passed: true }]);
}
