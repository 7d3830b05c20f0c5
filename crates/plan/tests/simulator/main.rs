//! A hundred thousand small histories, each of one job, in which everything that can go wrong does.
//!
//! A seed determines a history: when containers start, who dies, how old the operator's caches are, which answers of
//! the API server are lost, when the operator crashes between two of its actions. A history that breaks a rule is
//! printed with its seed, and `SEED=n cargo test -p bk-plan --test simulator one_history -- --nocapture` shows it again.
//!
//! - [`world`]: the clock and the events
//! - [`api`]: the API server: what it stores, shows and refuses
//! - [`kubelet`]: what pods do
//! - [`init`]: what their init containers do
//! - [`node`]: whether their node is heard of, and stays
//! - [`batch`]: what the Job controller does
//! - [`faults`]: what people, nodes and clusters do to pods
//! - [`buildkite`]: who has the job
//! - [`session`]: for which agents the operator can speak
//! - [`operator`]: the loop around `decide`
//! - [`decisions`]: what must hold for every decision
//! - [`invariants`]: what must hold in every history
//! - [`spawner`]: many jobs and few places: histories of the JobSpawner

mod api;
mod batch;
mod buildkite;
mod decisions;
mod faults;
#[path = "../it/fixtures.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod fixtures;
mod init;
mod invariants;
mod kubelet;
mod node;
mod operator;
mod random;
mod session;
mod spawner;
mod world;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant as Clock,
};

use world::{Instant, World};

/// How many histories are run, unless `HISTORIES` says otherwise. All of the tests run a hundred thousand, in a build
/// that is optimised for that: see `cargo xtask test`.
const HISTORIES: u64 = 5_000;

/// No history may need longer than this.
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

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// What many histories came to.
#[derive(Default)]
struct Sum {
    pods: usize,
    crashes: u32,
    ends: u32,
    refusals: u32,
    evictions: u32,
    most_writes: u32,
    most_rounds: u32,
}

impl Sum {
    fn add(&mut self, world: &World) {
        self.pods += world.lives.len();
        self.crashes += world.crashes;
        self.ends += world.sessions.ends;
        self.refusals += world.sessions.refusals;
        self.evictions += world.evictions;
        self.most_writes = self.most_writes.max(world.writes);
        self.most_rounds = self.most_rounds.max(world.rounds);
    }
}

/// Runs the histories on all cores.
fn on_all_cores<T: Send>(histories: u64, work: impl Fn(&AtomicU64, u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(|| work(&next, histories))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a history broke a rule, see above")).collect()
    })
}

#[test]
fn every_history_comes_to_a_good_end() {
    let begin = Clock::now();
    let histories = variable("HISTORIES").unwrap_or(HISTORIES);
    let sums = on_all_cores(histories, |next, histories| {
        let mut sum = Sum::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= histories {
                return sum;
            }
            let world = run(seed, false);
            if let Some(violation) = &world.violation {
                panic!("seed {seed}: {violation}\n{}", run(seed, true).trace());
            }
            sum.add(&world);
        }
    });
    let pods: usize = sums.iter().map(|sum| sum.pods).sum();
    let crashes: u32 = sums.iter().map(|sum| sum.crashes).sum();
    let ends: u32 = sums.iter().map(|sum| sum.ends).sum();
    let refusals: u32 = sums.iter().map(|sum| sum.refusals).sum();
    let evictions: u32 = sums.iter().map(|sum| sum.evictions).sum();
    let writes = sums.iter().map(|sum| sum.most_writes).max().unwrap_or_default();
    let rounds = sums.iter().map(|sum| sum.most_rounds).max().unwrap_or_default();
    println!(
        "{histories} histories in {:.0?}: {pods} pods, {crashes} crashes, {ends} jobs ended for their agents and {refusals} too \
         late, {evictions} evictions, at most {writes} writes and {rounds} rounds for one job",
        begin.elapsed()
    );
    // A world without pods or crashes would show nothing, and neither would one in which no agent is lost.
    assert!(pods as u64 > histories / 2 && u64::from(crashes) > histories / 10);
    assert!(u64::from(ends) > histories / 100 && u64::from(evictions) > histories / 1_000);
}

#[test]
fn one_history() {
    let seed = variable("SEED").unwrap_or_default();
    let world = run(seed, true);
    println!("{}", world.trace());
    assert_eq!(world.violation, None);
}

#[test]
fn the_spawner_never_takes_more_than_there_is_room_for() {
    let histories = variable("HISTORIES").unwrap_or(HISTORIES);
    on_all_cores(histories, |next, histories| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= histories {
                return;
            }
            if let Some(violation) = spawner::run(seed, false).violation {
                panic!("seed {seed}: {violation}\n{}", spawner::run(seed, true).trace());
            }
        }
    });
}

#[test]
fn one_history_of_the_spawner() {
    let seed = variable("SEED").unwrap_or_default();
    let queue = spawner::run(seed, true);
    println!("{}", queue.trace());
    assert_eq!(queue.violation, None);
}
