//! Order and uploads never hold a build up for ever; only `depends_on` can.

use proptest::prelude::*;
use rstest::rstest;

use crate::build::bench::Bench;
use crate::build::{BuildState, JobState};

#[test]
fn a_wait_in_an_upload_does_not_hold_for_those_who_wait_for_the_upload() {
    let mut bench = Bench::new(
        "steps: [{label: early, command: x, depends_on: up}, {label: up, key: up, command: x}, wait, {label: last, command: x}]",
    );
    let (up, step) = (bench.job("up").id, bench.job("up").step);
    bench.start(up);
    bench.lay("steps: [{label: one, command: x}, wait, {label: two, command: x}]", Some(step));
    bench.end(up, 0);
    bench.run("one", 0);
    assert_eq!((bench.state("early"), bench.state("two")), (JobState::Waiting, JobState::Scheduled));
    bench.run("two", 0);
    assert_eq!((bench.state("early"), bench.state("last")), (JobState::Scheduled, JobState::Waiting));
    bench.run("early", 0);
    bench.run("last", 0);
    assert_eq!(bench.build.state, BuildState::Passed);
}

#[test]
fn an_uploaded_step_may_name_one_that_waits_for_its_uploader() {
    let mut bench = Bench::new(
        "steps: [{label: up, key: up, command: x}, {label: after, key: after, command: x, depends_on: up}]",
    );
    let (up, step) = (bench.job("up").id, bench.job("up").step);
    bench.start(up);
    bench.lay(
        "steps: [{label: last, command: x, depends_on: after}, {label: beside, command: x}]",
        Some(step),
    );
    bench.end(up, 0);
    assert_eq!((bench.state("after"), bench.state("last")), (JobState::Waiting, JobState::Waiting));
    bench.run("beside", 0);
    bench.run("after", 0);
    bench.run("last", 0);
    assert_eq!(bench.build.state, BuildState::Passed);
}

#[rstest]
#[case::over_a_wait("[{label: a, depends_on: b, command: x}, wait, {label: b, key: b, command: x}]")]
#[case::out_of_a_group(
    "[{group: g, steps: [{label: a, depends_on: b, command: x}]}, wait, {label: b, key: b, command: x}]"
)]
#[case::on_a_group(
    "[{label: a, depends_on: g, command: x}, wait, {group: g, key: g, steps: [{label: b, command: x}]}]"
)]
fn a_step_may_name_a_later_one(#[case] steps: &str) {
    let mut bench = Bench::new(&format!("steps: {steps}"));
    assert_eq!((bench.state("a"), bench.state("b")), (JobState::Waiting, JobState::Scheduled));
    bench.run("b", 0);
    bench.run("a", 0);
    assert_eq!(bench.build.state, BuildState::Passed);
}

#[test]
fn what_is_not_part_of_the_circle_still_holds() {
    let mut bench = Bench::new(
        "steps: [{label: a, depends_on: b, command: x}, {label: c, command: x}, wait, {label: b, key: b, command: x}, {label: d, command: x}]",
    );
    assert_eq!((bench.state("b"), bench.state("d")), (JobState::Scheduled, JobState::Waiting));
    bench.run("b", 0);
    bench.run("a", 0);
    assert_eq!(bench.state("d"), JobState::Waiting);
    bench.run("c", 0);
    assert_eq!(bench.state("d"), JobState::Scheduled);
}

/// A step that names only steps of a lower number, wherever those stand.
fn any_step(number: usize) -> impl Strategy<Value = String> {
    let lower = prop::collection::vec(0..number.max(1), 0..3);
    (0..10u8, prop::option::of(lower)).prop_map(move |(kind, lower)| {
        let names = lower
            .filter(|_| number > 0)
            .map(|list| list.iter().map(|on| format!("k{on}")).collect::<Vec<_>>().join(", "));
        let depends = names.map(|names| format!(", depends_on: [{names}]")).unwrap_or_default();
        match kind {
            0 => format!("{{wait: ~, key: k{number}}}"),
            1 => format!("{{wait: ~, key: k{number}{depends}}}"),
            2 => format!("{{block: go, key: k{number}{depends}}}"),
            3 => format!("{{trigger: other, key: k{number}{depends}}}"),
            4 => format!(
                "{{group: g, key: k{number}, steps: [{{command: x}}, wait, {{command: x{depends}}}]}}"
            ),
            5 => format!(
                "{{group: g, key: k{number}{depends}, steps: [{{command: x}}, wait, {{command: x}}]}}"
            ),
            _ => format!("{{key: k{number}, command: x{depends}}}"),
        }
    })
}

/// Documents with the steps of each in random order; steps name those of their own or an earlier document.
fn any_documents() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(1usize..6, 1..4).prop_flat_map(|counts| {
        let mut next = 0;
        let mut documents = Vec::new();
        for count in counts {
            let steps: Vec<_> = (next..next + count).map(any_step).collect();
            next += count;
            let document = steps.prop_shuffle().prop_map(|steps| format!("steps: [{}]", steps.join(", ")));
            documents.push(document);
        }
        documents
    })
}

proptest! {
    /// A build whose explicit dependencies are no circle passes when all of its jobs do, whoever uploads what.
    #[test]
    fn only_explicit_dependencies_can_be_stuck(
        documents in any_documents(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 300),
    ) {
        let mut bench = Bench::new(&documents[0]);
        let mut uploads = documents[1..].iter();
        for pick in picks {
            let open = bench.open();
            if open.is_empty() {
                break;
            }
            let id = *pick.get(&open);
            let job = bench.build.jobs.iter().find(|job| job.id == id).unwrap();
            if job.state == JobState::Running && job.kind == crate::build::JobKind::Command
                && let Some(upload) = uploads.next()
            {
                let step = job.step;
                bench.lay(upload, Some(step));
            } else {
                bench.answer(id, 0);
            }
        }
        prop_assert!(bench.open().is_empty());
        let stuck = bench.build.jobs.iter().any(|job| !job.is_good());
        prop_assert!(!stuck, "{:?}: {:?}", documents, bench.build.jobs);
    }
}
