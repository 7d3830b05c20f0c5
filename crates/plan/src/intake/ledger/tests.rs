use bk_api::{BuildJobSpec, BuildJobStatus, Phase, build_job::BuildkiteJob};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn candidate(uuid: &str, priority: i64, scheduled_at: i64) -> Candidate {
    Candidate {
        uuid: uuid.to_owned(),
        pipeline: Some("rocket".to_owned()),
        priority,
        scheduled_at: Timestamp::from_second(scheduled_at).unwrap(),
        rules: Vec::new(),
    }
}

fn candidates(prefix: &str, count: usize) -> Vec<Candidate> {
    (0..count).map(|number| candidate(&format!("{prefix}-{number:04}"), 0, 0)).collect()
}

fn terms(queue: &str) -> Terms {
    Terms { queue: queue.to_owned(), ..Terms::default() }
}

fn build_job(uuid: Option<&str>, queue: Option<&str>, phase: Phase) -> BuildJob {
    let mut job = BuildJob::new("any", BuildJobSpec::default());
    job.spec.buildkite = uuid.map(|uuid| BuildkiteJob {
        job_uuid: uuid.to_owned(),
        queue: queue.map(str::to_owned),
        pipeline: Some("rocket".to_owned()),
        ..BuildkiteJob::default()
    });
    job.status = Some(BuildJobStatus { phase, ..BuildJobStatus::default() });
    job
}

fn uuids(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate.uuid.as_str()).collect()
}

fn reasons(choice: &Choice<'_>) -> Vec<(String, Skip)> {
    let mut reasons: Vec<_> = choice.skip.iter().map(|(job, why)| (job.uuid.clone(), *why)).collect();
    reasons.sort();
    reasons
}

#[test]
fn the_highest_priority_goes_first_then_the_oldest() {
    let mut ledger = Ledger::new(3, vec![terms("q")]);
    let listing = [candidate("d", 0, 1), candidate("c", 0, 1), candidate("b", 0, 0), candidate("a", 7, 9)];
    let choice = ledger.choose(0, &listing, Instant::now());
    assert_eq!(uuids(&choice.take), ["a", "b", "c"]);
    assert_eq!(reasons(&choice), [("d".to_owned(), Skip::Limit)]);
}

#[test]
fn each_job_that_is_left_has_a_reason() {
    let mut terms = terms("q");
    terms.pipeline_limit = Some(2);
    terms.limit = Some(3);
    let mut ledger = Ledger::new(10, vec![terms]);
    ledger.seen("here", &build_job(Some("here"), Some("q"), Phase::Running));
    let mut listing = vec![candidate("here", 0, 0), candidate("a", 0, 0), candidate("b", 0, 0)];
    let picky = Candidate { rules: vec!["gpu=a100".to_owned()], ..candidate("picky", 0, 0) };
    let other = |uuid: &str| Candidate { pipeline: Some("other".to_owned()), ..candidate(uuid, 0, 0) };
    listing.extend([picky, other("c"), other("d")]);
    let choice = ledger.choose(0, &listing, Instant::now());
    assert_eq!(uuids(&choice.take), ["a", "c"]);
    let expected = [
        ("b", Skip::PipelineLimit),
        ("d", Skip::QueueLimit),
        ("here", Skip::Duplicate),
        ("picky", Skip::Unmatched),
    ];
    assert_eq!(reasons(&choice), expected.map(|(uuid, why)| (uuid.to_owned(), why)));
}

#[test]
fn what_is_chosen_is_not_chosen_again() {
    let mut ledger = Ledger::new(10, vec![terms("q")]);
    let listing = candidates("job", 2);
    assert_eq!(ledger.choose(0, &listing, Instant::now()).take.len(), 2);
    let again = ledger.choose(0, &listing, Instant::now());
    assert_eq!((again.take.len(), again.skip[0].1), (0, Skip::Duplicate));
    assert_eq!(ledger.in_flight(Some(0)), 2);
}

#[test]
fn a_claim_becomes_a_build_job_without_taking_two_places() {
    let mut ledger = Ledger::new(10, vec![terms("q")]);
    ledger.choose(0, &candidates("job", 1), Instant::now());
    ledger.created("job-0000", Instant::now());
    assert_eq!((ledger.in_flight(Some(0)), ledger.unfinished(0).len()), (1, 0));
    ledger.seen("buildkite-job-0000", &build_job(Some("job-0000"), Some("q"), Phase::Pending));
    assert_eq!(ledger.in_flight(Some(0)), 1);
    ledger.seen("buildkite-job-0000", &build_job(Some("job-0000"), Some("q"), Phase::Failed));
    assert_eq!((ledger.in_flight(Some(0)), ledger.has("job-0000")), (0, true));
    ledger.gone("buildkite-job-0000");
    assert!(!ledger.has("job-0000"));
}

#[test]
fn a_build_job_that_does_not_show_keeps_its_place_until_it_is_known_to_be_gone() {
    let mut ledger = Ledger::new(1, vec![terms("q")]);
    let now = Instant::now();
    ledger.choose(0, &candidates("job", 1), now);
    ledger.created("job-0000", now);
    let listing = candidates("next", 1);
    assert_eq!(ledger.choose(0, &listing, now + VISIBILITY / 2).take, []);
    assert!(ledger.doubtful(0).is_empty());
    assert_eq!(ledger.choose(0, &listing, now + VISIBILITY * 100).take, []);
    assert_eq!(ledger.doubtful(0), ["job-0000"]);
    // It is there after all.
    ledger.created("job-0000", now + VISIBILITY * 100);
    assert!(ledger.doubtful(0).is_empty());
    ledger.release("job-0000");
    assert_eq!(ledger.choose(0, &listing, now + VISIBILITY * 101).take.len(), 1);
}

#[test]
fn a_new_list_tells_whether_a_build_job_is_there() {
    let mut ledger = Ledger::new(9, vec![terms("q")]);
    let now = Instant::now();
    ledger.choose(0, &candidates("job", 4), now);
    ledger.created("job-0000", now);
    ledger.created("job-0001", now);
    ledger.relisting();
    ledger.created("job-0002", now);
    ledger.seen("buildkite-job-0000", &build_job(Some("job-0000"), Some("q"), Phase::Pending));
    ledger.relisted();
    // The second is gone; the list may be older than the third; the fourth has no BuildJob yet.
    let here = ["job-0000", "job-0001", "job-0002", "job-0003"].map(|uuid| ledger.has(uuid));
    assert_eq!((here, ledger.in_flight(Some(0))), ([true, false, true, true], 3));
}

#[test]
fn a_job_that_no_object_could_hold_keeps_nobody_else_waiting() {
    let any = Terms { offer: Offer { tags: vec!["x=*".to_owned()] }, ..terms("q") };
    let mut ledger = Ledger::new(9, vec![any]);
    let rules = vec![format!("x={}", "y".repeat(MAX_RULES))];
    let listing = [Candidate { rules, ..candidate("large", 9, 0) }, candidate("small", 0, 0)];
    let choice = ledger.choose(0, &listing, Instant::now());
    assert_eq!(uuids(&choice.take), ["small"]);
    assert_eq!(reasons(&choice), [("large".to_owned(), Skip::TooLarge)]);
}

#[test]
fn what_a_gap_in_the_watch_hides_is_gone() {
    let mut ledger = Ledger::new(5, vec![terms("q")]);
    ledger.seen("a", &build_job(Some("a"), Some("q"), Phase::Running));
    ledger.seen("b", &build_job(None, None, Phase::Running));
    ledger.relisting();
    ledger.seen("a", &build_job(Some("a"), Some("q"), Phase::Running));
    ledger.relisted();
    assert_eq!((ledger.in_flight(Some(0)), ledger.in_flight(None)), (1, 0));
}

#[test]
fn what_was_applied_by_hand_takes_places_too() {
    let mut ledger = Ledger::new(2, vec![terms("q")]);
    ledger.seen("a", &build_job(None, None, Phase::Running));
    ledger.seen("b", &build_job(Some("b"), Some("unknown"), Phase::Pending));
    assert_eq!(ledger.choose(0, &candidates("job", 3), Instant::now()).take, []);
}

#[test]
fn queues_share_what_there_is() {
    let mut ledger = Ledger::new(10, vec![terms("a"), terms("b")]);
    let now = Instant::now();
    let (of_a, of_b) = (candidates("a", 100), candidates("b", 100));
    // Nothing waits in the other one, at first.
    ledger.nothing_waits(1);
    assert_eq!(ledger.choose(0, &of_a, now).take.len(), 10);
    assert_eq!(ledger.choose(1, &of_b, now).take.len(), 0);
    // What gets free goes to the other one, until both have as many.
    for number in 0..6 {
        ledger.release(&format!("a-{number:04}"));
        assert_eq!(ledger.choose(0, &of_a[10..], now).take.len(), usize::from(number >= 5), "{number}");
        assert_eq!(ledger.choose(1, &of_b, now).take.len(), usize::from(number < 5), "{number}");
    }
}

#[test]
fn a_queue_that_was_not_listed_yet_has_its_share() {
    let mut ledger = Ledger::new(10, vec![terms("a"), terms("b"), Terms { limit: Some(2), ..terms("c") }]);
    let now = Instant::now();
    assert_eq!(ledger.choose(0, &candidates("a", 100), now).take.len(), 4);
    assert!(ledger.is_wanting());
    assert_eq!(ledger.choose(1, &candidates("b", 1), now).take.len(), 1);
    ledger.nothing_waits(2);
    assert_eq!(ledger.choose(0, &candidates("more", 100), now).take.len(), 5);
}

#[test]
fn a_single_place_goes_round() {
    let mut ledger = Ledger::new(1, vec![terms("a"), terms("b")]);
    let now = Instant::now();
    let (of_a, of_b) = (candidates("a", 9), candidates("b", 9));
    let mut served = Vec::new();
    for _ in 0..6 {
        for (queue, listing) in [(0, &of_a), (1, &of_b)] {
            for taken in ledger.choose(queue, listing, now).take {
                served.push(queue);
                ledger.release(&taken.uuid);
            }
        }
    }
    assert!(served.windows(2).all(|two| two[0] != two[1]), "{served:?}");
}

#[test]
fn a_queue_that_is_silent_leaves_its_share_to_others() {
    let mut ledger = Ledger::new(4, vec![terms("a"), terms("b")]);
    let now = Instant::now();
    ledger.seen("hand", &build_job(None, None, Phase::Running));
    ledger.choose(1, &candidates("b", 3), now);
    ledger.choose(1, &candidates("more", 9), now);
    assert!(ledger.is_wanting());
    for uuid in ["b-0000", "b-0001", "b-0002"] {
        ledger.release(uuid);
    }
    ledger.nothing_waits(1);
    assert_eq!(ledger.choose(0, &candidates("a", 9), now).take.len(), 3);
}

#[test]
fn no_more_is_claimed_than_one_object_holds() {
    let mut ledger = Ledger::new(5_000, vec![terms("q")]);
    let choice_of = |ledger: &mut Ledger, listing: &[Candidate]| {
        let choice = ledger.choose(0, listing, Instant::now());
        (choice.take.len(), choice.skip.last().map(|(_, why)| *why))
    };
    assert_eq!(choice_of(&mut ledger, &candidates("a", 1_500)), (MAX_CLAIMS, Some(Skip::Batch)));
    assert_eq!(choice_of(&mut ledger, &candidates("b", 5)), (0, Some(Skip::Batch)));

    let mut ledger =
        Ledger::new(5_000, vec![Terms { offer: Offer { tags: vec!["x=*".to_owned()] }, ..terms("q") }]);
    let long = format!("x={}", "y".repeat(MAX_RULES / 10));
    let listing: Vec<_> = candidates("a", 100)
        .into_iter()
        .map(|candidate| Candidate { rules: vec![long.clone()], ..candidate })
        .collect();
    assert_eq!(choice_of(&mut ledger, &listing), (9, Some(Skip::Batch)));
}

#[test]
fn what_was_chosen_before_is_claimed_whatever_the_limit() {
    let mut ledger = Ledger::new(1, vec![terms("q")]);
    ledger.seen("x", &build_job(Some("job-0000"), Some("q"), Phase::Running));
    let missing = ledger.resume(0, candidates("job", 3));
    assert_eq!(uuids(&missing), ["job-0001", "job-0002"]);
    assert_eq!(ledger.in_flight(Some(0)), 3);
}

#[derive(Clone, Debug)]
enum Step {
    List { queue: usize, first: usize, count: usize },
    Made { job: usize, shown: bool },
    Released { job: usize },
    Ended { job: usize },
    Gone { job: usize },
    ByHand { number: usize, ended: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let job = 0_usize..20;
    let step = prop_oneof![
        (0_usize..2, 0_usize..20, 1_usize..12).prop_map(|(queue, first, count)| Step::List {
            queue,
            first,
            count
        }),
        (job.clone(), any::<bool>()).prop_map(|(job, shown)| Step::Made { job, shown }),
        job.clone().prop_map(|job| Step::Released { job }),
        job.clone().prop_map(|job| Step::Ended { job }),
        job.prop_map(|job| Step::Gone { job }),
        (0_usize..3, any::<bool>()).prop_map(|(number, ended)| Step::ByHand { number, ended }),
    ];
    prop::collection::vec(step, 1..60)
}

fn name(job: usize) -> String {
    format!("job-{job:04}")
}

/// Even jobs wait in the first queue, odd ones in the second.
fn queue_of(job: usize) -> (usize, &'static str) {
    (job % 2, ["a", "b"][job % 2])
}

proptest! {
    /// Whatever happens, the counts are those of a recount, no limit is passed and nothing is claimed twice.
    #[test]
    fn the_counts_are_right(steps in steps(), limit in 1_usize..8, queue_limit in 1_usize..6, pipeline_limit in 1_usize..6) {
        let of_a = Terms { limit: Some(queue_limit), ..terms("a") };
        let of_b = Terms { pipeline_limit: Some(pipeline_limit), ..terms("b") };
        let mut ledger = Ledger::new(limit, vec![of_a, of_b]);
        let now = Instant::now();
        for step in steps {
            let before = (ledger.usage.all(), ledger.in_flight(Some(0)), ledger.in_flight(Some(1)));
            match step {
                Step::List { queue, first, count } => {
                    let listing: Vec<_> =
                        (first..first + count).filter(|job| job % 2 == queue).map(|job| candidate(&name(job), 0, 0)).collect();
                    let known: Vec<_> = listing.iter().filter(|job| ledger.has(&job.uuid)).map(|job| job.uuid.clone()).collect();
                    let choice = ledger.choose(queue, &listing, now);
                    prop_assert!(choice.take.iter().all(|job| !known.contains(&job.uuid)));
                    prop_assert_eq!(choice.take.len() + choice.skip.len(), listing.len());
                    prop_assert!(choice.take.is_empty() || ledger.usage.all() <= limit);
                    prop_assert!(choice.take.is_empty() || queue == 1 || ledger.in_flight(Some(0)) <= queue_limit);
                    prop_assert!(choice.take.is_empty() || queue == 0 || ledger.in_flight(Some(1)) <= pipeline_limit);
                    prop_assert_eq!(ledger.usage.all(), before.0 + choice.take.len());
                }
                Step::Made { job, shown } if ledger.claims.contains_key(&name(job)) => {
                    ledger.created(&name(job), now);
                    if shown {
                        ledger.seen(&name(job), &build_job(Some(&name(job)), Some(queue_of(job).1), Phase::Pending));
                    }
                    prop_assert_eq!((ledger.usage.all(), ledger.in_flight(Some(0)), ledger.in_flight(Some(1))), before);
                }
                Step::Made { .. } => {}
                Step::Released { job } => ledger.release(&name(job)),
                Step::Ended { job } => ledger.seen(&name(job), &build_job(Some(&name(job)), Some(queue_of(job).1), Phase::Failed)),
                Step::Gone { job } => ledger.gone(&name(job)),
                Step::ByHand { number, ended } => {
                    let phase = if ended { Phase::Succeeded } else { Phase::Running };
                    ledger.seen(&format!("hand-{number}"), &build_job(None, None, phase));
                }
            }
            let places = ledger.build_jobs.values().filter_map(|place| place.held.as_ref());
            let all: Vec<_> = places.chain(ledger.claims.values().map(|claim| &claim.holder)).cloned().collect();
            prop_assert_eq!(ledger.usage.all(), all.len());
            for queue in [None, Some(0), Some(1)] {
                prop_assert_eq!(ledger.in_flight(queue), all.iter().filter(|holder| holder.queue == queue).count());
            }
            for queue in [0, 1] {
                let count = all.iter().filter(|holder| holder.queue == Some(queue) && holder.pipeline.is_some()).count();
                prop_assert_eq!(ledger.usage.of_pipeline(queue, "rocket"), count);
            }
        }
    }
}

#[test]
fn what_somebody_deleted_is_told_once_to_its_queue() {
    let mut ledger = Ledger::new(9, vec![terms("a"), terms("b")]);
    ledger.forsake(&build_job(Some("job-0000"), Some("b"), Phase::Running));
    ledger.forsake(&build_job(Some("job-0001"), Some("unknown"), Phase::Running));
    assert_eq!([0, 1, 1].map(|queue| ledger.take_forsaken(queue)), [false, true, false]);
}
