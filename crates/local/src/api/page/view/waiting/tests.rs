use jiff::Timestamp;
use rstest::rstest;

use super::*;
use crate::build::bench::Bench;
use crate::store::overview::JobPlace;

fn why(yaml: &str, label: &str, runners: &Runners) -> Option<Waits> {
    let build = Bench::new(yaml).build;
    let step = build.steps.iter().find(|placed| placed.step.label.as_deref() == Some(label)).unwrap().id;
    let job = build.jobs.iter().find(|job| job.step == step).unwrap();
    Waiting::new(&build, runners, &BTreeMap::new()).of_job(job)
}

#[rstest]
#[case::a_step("{label: a, key: a, command: x}, {label: z, command: x, depends_on: a}", "Waits for a.")]
#[case::behind_a_wait(
    "{label: a, command: x}, {label: b, command: x}, wait, {label: z, command: x}",
    "Waits for a, b."
)]
#[case::behind_two_waits("{label: a, command: x}, wait, wait, {label: z, command: x}", "Waits for a.")]
#[case::many(
    "{label: a, command: x}, {label: b, command: x}, {label: c, command: x}, {label: d, command: x}, wait, {label: z, command: x}",
    "Waits for a, b, c and 1 more."
)]
#[case::a_block("{block: Go?}, {label: z, command: x}", "Waits for somebody to unblock “Go?”.")]
#[case::a_block_that_waits("{label: a, command: x}, {block: Go?}, {label: z, command: x}", "Waits for Go?.")]
#[case::a_group(
    "{group: g, key: g, steps: [{label: a, command: x}]}, {label: z, command: x, depends_on: g}",
    "Waits for g."
)]
#[case::several_jobs_of_a_step(
    "{label: \"a %n\", command: x, parallelism: 2}, wait, {label: z, command: x}",
    "Waits for a."
)]
fn for_other_steps(#[case] steps: &str, #[case] expected: &str) {
    let waits = why(&format!("steps: [{steps}]"), "z", &Runners::default()).unwrap();
    assert_eq!(waits, just(expected.to_owned()));
}

#[test]
fn a_key_that_nobody_has_is_named() {
    let yaml = "steps: [{label: a, command: x}, {label: z, command: x, depends_on: [late]}]";
    let waits = why(yaml, "z", &Runners::default()).unwrap();
    assert!(waits.why.contains("the key late"), "{}", waits.why);
}

#[test]
fn what_runs_or_has_ended_waits_for_nothing() {
    let mut build = Bench::new("steps: [{label: a, command: x}]").build;
    let runners = Runners::default();
    for state in [JobState::Running, JobState::Finished, JobState::Canceled, JobState::Assigned] {
        build.jobs[0].state = state;
        let found = Waiting::new(&build, &runners, &BTreeMap::new()).of_job(&build.jobs[0]);
        assert_eq!(found, None, "{state}");
    }
}

#[rstest]
#[case::the_first("ordered", 0, "1 of 1 places taken.")]
#[case::the_second("ordered", 1, "1 of 1 places taken, 1 job is before it.")]
#[case::the_third("ordered", 2, "1 of 1 places taken, 2 jobs are before it.")]
#[case::eager("eager", 2, "1 of 1 places taken.")]
fn for_a_turn(#[case] method: &str, #[case] before: u128, #[case] expected: &str) {
    let concurrency = Concurrency {
        group: "deploy".to_owned(),
        limit: 1,
        method: serde_json::from_value(method.into()).unwrap(),
    };
    let member = |id: u128, state| Member {
        job: Uuid::from_u128(id),
        build: Uuid::nil(),
        state,
        priority: 0,
        concurrency: concurrency.clone(),
    };
    let mut members = vec![member(100, JobState::Running)];
    members.extend((0..=before).map(|id| member(id, JobState::Limited)));
    let waits = for_turn(Uuid::from_u128(before), &concurrency, &members);
    assert_eq!(waits.why, format!("Waits for its turn in concurrency group deploy: {expected}"));
}

/// `name tag tag !busy`, where the last words may be `!busy`, `!paused` and `!stopping`.
fn agent(text: &str) -> AgentLine {
    let (flags, tags): (Vec<&str>, Vec<&str>) =
        text.split_whitespace().skip(1).partition(|word| word.starts_with('!'));
    let busy = JobPlace {
        job: Uuid::nil(),
        step: Bench::new("steps: [{command: x}]").build.steps[0].step.clone(),
        matrix: None,
        parallel: None,
        pipeline: "demo".to_owned(),
        number: 1,
    };
    AgentLine {
        id: Uuid::nil(),
        name: text.split_whitespace().next().unwrap().to_owned(),
        hostname: String::new(),
        version: String::new(),
        tags: tags.into_iter().map(str::to_owned).collect(),
        state: "connected".to_owned(),
        stopping: flags.contains(&"!stopping"),
        paused: flags.contains(&"!paused"),
        created_at: Timestamp::UNIX_EPOCH,
        last_seen: Timestamp::UNIX_EPOCH,
        job: flags.contains(&"!busy").then_some(busy),
    }
}

#[rstest]
#[case::nobody("", &[], "No agent is connected.", Some(""))]
#[case::nobody_for_its_rules("gpu: '*', os: linux", &[], "No agent is connected.", Some("gpu=true os=linux"))]
#[case::another_queue("queue: big", &["a"], "No agent serves queue big.", Some("queue=big"))]
#[case::no_queue("", &["a queue=big"], "No agent serves queue default.", Some(""))]
#[case::other_tags("gpu: a100", &["a os=linux"], "No agent of queue default has the tags gpu=a100.", Some("gpu=a100"))]
#[case::paused_agents("", &["a !paused", "b !stopping"], "Every agent that could take it is paused or about to stop.", Some(""))]
#[case::a_busy_agent("", &["a !busy", "b queue=big"], "Agent a is busy.", None)]
#[case::busy_agents("", &["a !busy", "b !busy", "c !paused"], "All 2 agents that can take it are busy.", None)]
#[case::an_idle_agent("", &["a !busy", "b"], "An agent takes it as soon as it asks for work.", None)]
#[case::a_stack("queue: k8s", &[], "Stack operator has not reserved it yet.", None)]
#[case::a_paused_queue("queue: closed", &["a queue=closed"], "Queue closed is paused.", None)]
fn for_somebody_who_runs_it(
    #[case] rules: &str,
    #[case] agents: &[&str],
    #[case] expected: &str,
    #[case] tags: Option<&str>,
) {
    let of_a_stack = rules.contains("k8s");
    let runners = Runners {
        agents: agents.iter().map(|text| agent(text)).collect(),
        stacks: of_a_stack.then(|| ("operator".to_owned(), "k8s".to_owned())).into_iter().collect(),
        paused_queues: HashSet::from(["closed".to_owned()]),
    };
    let yaml = format!("steps: [{{label: z, command: x, agents: {{{rules}}}}}]");
    let waits = why(&yaml, "z", &runners).unwrap();
    assert_eq!(waits.why, expected);
    let mend = if rules.contains("closed") {
        Some(Mend::ResumeQueue("closed".to_owned()))
    } else {
        tags.map(|tags| Mend::StartAgent(tags.split_whitespace().map(str::to_owned).collect()))
    };
    assert_eq!(waits.mend, mend);
}
