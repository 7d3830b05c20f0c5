//! Properties of random builds.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use uuid::Uuid;

use crate::build::bench::Bench;
use crate::build::{Build, Effect, Event, Job, JobState};
use crate::pipeline::step::Kind;

/// What a command step may be like.
fn any_command() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        5 => Just(""),
        1 => Just(", soft_fail: true"),
        1 => Just(", retry: {automatic: true}"),
        1 => Just(", parallelism: 3"),
        1 => Just(", skip: true"),
        1 => Just(", if: build.branch != 'main'"),
        1 => Just(", if: build.branch == 'main'"),
        1 => Just(", branches: '!main'"),
        1 => Just(", matrix: [a, b]"),
        1 => Just(", matrix: {setup: {x: [a, b], y: [c]}, adjustments: [{with: {x: b, y: c}, skip: true}]}"),
        1 => Just(", concurrency: 1, concurrency_group: g"),
        1 => Just(", cancel_on_build_failing: true"),
        1 => Just(", allow_dependency_failure: true"),
    ]
}

fn any_step(index: usize) -> impl Strategy<Value = String> {
    let on = if index == 0 { 0..1 } else { 0..index };
    let dependency = prop_oneof![
        3 => Just(String::new()),
        1 => Just(", depends_on: []".to_owned()),
        2 => on.prop_map(move |on| if index == 0 { String::new() } else { format!(", depends_on: k{on}") }),
    ];
    (any_command(), any_command(), dependency, 0..16u8).prop_map(move |(one, two, depends, kind)| match kind {
        0 | 1 => "wait".to_owned(),
        2 => "{wait: ~, continue_on_failure: true}".to_owned(),
        3 => format!("{{block: go, key: k{index}{depends}}}"),
        4 => format!("{{input: go, key: k{index}}}"),
        5 => format!("{{trigger: other, key: k{index}{depends}}}"),
        6 => format!("{{trigger: other, key: k{index}, async: true, soft_fail: true}}"),
        7 | 8 => format!(
            "{{group: g, key: k{index}{depends}, steps: [{{command: x{one}}}, wait, {{command: x{two}}}]}}"
        ),
        _ => format!("{{key: k{index}, command: x{one}{depends}}}"),
    })
}

fn any_pipeline() -> impl Strategy<Value = String> {
    (1usize..9)
        .prop_flat_map(|count| (0..count).map(any_step).collect::<Vec<_>>())
        .prop_map(|steps| format!("steps: [{}]", steps.join(", ")))
}

proptest! {
    /// Whatever agents, people and other builds answer, in whatever order: ended jobs stay as they are, nothing
    /// starts before what it waits for, each trigger asks for one build, and once all are answered the build
    /// has ended and says so once.
    #[test]
    fn every_build_ends_and_nothing_ended_changes(
        yaml in any_pipeline(),
        answers in prop::collection::vec((any::<prop::sample::Index>(), 0u8..10), 400),
    ) {
        let mut bench = Bench::new(&yaml);
        let mut ended: HashMap<Uuid, Job> = HashMap::new();
        let mut asked = HashSet::new();
        let mut ends = 0;
        for (pick, action) in answers {
            let open = bench.open();
            if open.is_empty() {
                break;
            }
            let id = *pick.get(&open);
            let effects = match action {
                9 => bench.event(&Event::CancelJob { job: id }).unwrap_or_default(),
                6..=8 => bench.answer(id, i64::from(action) - 7),
                _ => bench.answer(id, 0),
            };
            for effect in effects {
                match effect {
                    Effect::StartChild { job } => prop_assert!(asked.insert(job), "{}", yaml),
                    Effect::Ended { .. } => ends += 1,
                    _ => {}
                }
            }
            for job in &bench.build.jobs {
                if let Some(before) = ended.get(&job.id) {
                    prop_assert_eq!(before.state, job.state);
                    prop_assert_eq!(before.exit_status, job.exit_status);
                } else if job.state.is_terminal() {
                    ended.insert(job.id, job.clone());
                }
            }
            prop_assert!(waits_hold(&bench.build), "{yaml}");
            prop_assert!(dependencies_hold(&bench.build), "{yaml}");
        }
        prop_assert_eq!(bench.open().is_empty(), bench.build.is_over(), "{}", yaml);
        prop_assert_eq!(bench.build.is_over(), bench.build.finished_at.is_some());
        prop_assert!(ends <= 1);
    }
}

fn has_begun(build: &Build, step: Uuid) -> bool {
    build.jobs.iter().any(|job| job.step == step && job.state.is_active())
}

/// No step with implicit dependencies has begun while a wait before it, in its group or outside, is open.
fn waits_hold(build: &Build) -> bool {
    let mut open: HashSet<Option<Uuid>> = HashSet::new();
    build.steps.iter().all(|placed| {
        if matches!(placed.step.kind, Kind::Block(_)) && placed.step.depends_on.is_some() {
            // Those behind it wait for it alone, and it for what it names.
            open.remove(&placed.group);
            return true;
        }
        if matches!(placed.step.kind, Kind::Wait { .. }) {
            if build.jobs.iter().any(|job| job.step == placed.id && job.state == JobState::Waiting) {
                open.insert(placed.group);
            }
            return true;
        }
        let group = build.steps.iter().find(|group| Some(group.id) == placed.group);
        let held_outside = group.is_none_or(|group| group.step.depends_on.is_none()) && open.contains(&None);
        let held = held_outside || (placed.group.is_some() && open.contains(&placed.group));
        let exempt = placed.step.depends_on.is_some() || matches!(placed.step.kind, Kind::Input(_));
        !held || exempt || !has_begun(build, placed.id)
    })
}

/// No step has begun while one that it names is open.
fn dependencies_hold(build: &Build) -> bool {
    let is_open = |key: &str| {
        let named = build.steps.iter().filter(|placed| placed.step.key.as_deref() == Some(key));
        let ids: HashSet<Uuid> = named.map(|placed| placed.id).collect();
        let within = build.steps.iter().filter(|placed| {
            ids.contains(&placed.id) || placed.group.is_some_and(|group| ids.contains(&group))
        });
        let within: HashSet<Uuid> = within.map(|placed| placed.id).collect();
        build.jobs.iter().any(|job| within.contains(&job.step) && !job.state.is_terminal())
    };
    build.steps.iter().all(|placed| {
        let waits = placed.step.depends_on.iter().flatten().any(|dependency| is_open(&dependency.step));
        !waits || !has_begun(build, placed.id)
    })
}
