//! Thousands of small worlds, each with one job, in which everything that can go wrong does.
//!
//! A seed determines a world: when containers start, who dies, how old the operator's cache is, when the
//! operator crashes between two of its actions. `SEED=n cargo test -p bk-plan one_world -- --nocapture`
//! shows what happens in one of them.
//!
//! - [`world`]: the clock and the events
//! - [`kubelet`]: what pods do
//! - [`init`]: what their init containers do
//! - [`buildkite`]: who has the job
//! - [`operator`]: the loop around `decide`
//! - [`invariants`]: what must hold

mod buildkite;
mod init;
pub(crate) mod invariants;
mod kubelet;
mod operator;
mod random;
mod world;

use rstest::rstest;
use world::{Instant, World};

/// No world may need longer than this.
const LAST_HOUR: Instant = 2 * 3_600_000;

fn run(seed: u64, traced: bool) -> World {
    let mut world = World::new(seed, traced);
    while world.violation.is_none() && world.now < LAST_HOUR && world.step() {
        invariants::of_world(&mut world);
    }
    if world.violation.is_none() {
        invariants::of_end(&mut world);
    }
    world
}

fn check(seed: u64) -> World {
    let world = run(seed, false);
    if let Some(violation) = &world.violation {
        panic!("seed {seed}: {violation}\n{}", run(seed, true).trace());
    }
    world
}

/// Four tests, so that they run side by side.
#[rstest]
#[case(0)]
#[case(1)]
#[case(2)]
#[case(3)]
fn every_world_comes_to_a_good_end(#[case] quarter: u64) {
    let seeds = quarter * 750..(quarter + 1) * 750;
    let (mut most_writes, mut crashes, mut pods) = (0, 0, 0);
    for seed in seeds {
        let world = check(seed);
        most_writes = most_writes.max(world.writes);
        crashes += world.crashes;
        pods += world.lives.len();
    }
    println!("750 worlds: {pods} pods, {crashes} crashes, at most {most_writes} writes for one job");
}

/// Worlds that once came to a bad end.
#[rstest]
#[case::a_second_pod_was_made_before_the_attempt_was_on_record(3213)]
#[case::a_second_pod_ran_while_the_cache_still_showed_the_first(1719)]
#[case::an_agent_hung_before_it_took_the_job(188)]
#[case::a_pod_that_was_given_up_took_the_job(3079)]
#[case::an_image_was_missing_while_another_pod_had_the_job(1572)]
#[case::two_words_for_one_failure_were_written_by_turns(435)]
#[case::a_deadline_that_had_passed_was_waited_for(1787)]
fn worlds_that_went_wrong_once(#[case] seed: u64) {
    check(seed);
}

#[test]
fn one_world() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default();
    let world = run(seed, true);
    println!("{}", world.trace());
    assert_eq!(world.violation, None);
}
