//! What must hold in every world, whatever goes wrong in it.

use bk_api::{BuildJob, BuildJobStatus, Phase, Verdict, VerdictCode, verdict::Chapter};
use jiff::SignedDuration;

use super::{
    buildkite::{Outcome, State},
    init::INIT_FAILURE,
    world::{Instant, PodId, World},
};

/// The most writes to the API server for a job that keeps its first pod and an operator that stays up: the pod, what it
/// waits for, `Running`, a warning, a verdict, the end, and the deletion of both.
pub(crate) const CALM_WRITES: u32 = 8;
/// The most writes to the API server for any job. It has three pods at most, whose attempt, pod, wait, start and end are
/// written, and a write whose answer is lost is made again.
pub(crate) const WRITES: u32 = 20;
/// The most rounds for any job: some, and so many for each second until its end. Kubelets and watches that are made anew
/// wake the operator as well, and a pod that goes is looked at every second. More would be a hot loop.
const ROUNDS: Instant = 60;
const ROUNDS_PER_SECOND: Instant = 1;

/// How much longer than its grace period a pod may be there and still count.
pub(crate) const OVERDUE: SignedDuration = SignedDuration::from_secs(59);
/// How long a pod counts that the cluster takes from a node which does not answer.
pub(crate) const SILENT: SignedDuration = SignedDuration::from_secs(14);

/// A pod is about to be created.
pub(crate) fn before_create(world: &mut World) {
    if world.init_failed && !world.disturbed {
        world.violate("another pod is made although an init container has failed");
    }
}

/// A pod is about to be deleted by the operator.
pub(crate) fn before_delete(world: &mut World, pod: PodId) {
    let ended = world.job.as_ref().is_none_or(|job| job.is_terminal());
    let held = world.buildkite.as_ref().is_some_and(|buildkite| buildkite.is_held_by(pod));
    if held && !world.disturbed {
        world.violate(format!("the pod of a running job is deleted (ended={ended})"));
    }
}

/// How long the caches may show a node as silent that is back, and how long a decision takes to be carried out.
const LAG: Instant = 25_000;

/// A job that an agent has is about to be ended for that agent.
pub(crate) fn before_end_for_agent(world: &mut World, pod: PodId, verdict: &Verdict) {
    let recorded = world.job.as_ref().and_then(|job| job.status_or_default().verdict);
    if recorded.as_ref() != Some(verdict) {
        world.violate("Buildkite hears a verdict that is not on record");
    }
    let stored = world.pods.values().find(|stored| stored.id == pod);
    let is_there = stored.is_some_and(|stored| stored.pod.metadata.deletion_timestamp.is_none());
    let life = &world.lives[pod];
    let lives = !life.dead && !life.agent_dead;
    let is_heard_of = life.cut_until == 0 || life.cut_until + LAG < world.now;
    let has_memory = life.ended.is_none_or(|(_, exit)| exit != 137);
    if is_there && lives && is_heard_of && has_memory {
        world.violate(format!("the job of an agent in good health is ended: {}", verdict.message));
    }
}

/// Buildkite is told that the agent was lost.
pub(crate) fn of_notice(world: &mut World, verdict: &Verdict) {
    let is_loss = matches!(verdict.code.about().chapter, Chapter::Loss | Chapter::Agent);
    if is_loss && !world.disturbed {
        world.violate("a loss is reported that never happened");
    }
}

/// A status was written.
pub(crate) fn of_write(world: &mut World, before: &BuildJob) {
    let new = world.job.as_ref().map(|job| job.status_or_default()).unwrap_or_default();
    of_status(world, &before.status_or_default(), &new);
}

/// A status has become another, on record or not.
pub(crate) fn of_status(world: &mut World, old: &BuildJobStatus, new: &BuildJobStatus) {
    if old.phase.is_terminal() {
        world.violate(format!("the end changed from {:?} to {:?}", old.phase, new.phase));
    }
    if new.phase.is_terminal() && new.verdict.is_none() {
        world.violate("an end without a verdict");
    }
    if new.phase == Phase::Succeeded && world.exit != Some(0) {
        world.violate(format!("passed with exit status {:?}", world.exit));
    }
    if new.verdict != old.verdict {
        of_patience(world, new.verdict.as_ref());
    }
    if !new.phase.is_terminal() {
        return;
    }
    if let Some(buildkite) = &world.buildkite {
        let never_acquired = !buildkite.was_acquired;
        if never_acquired
            && buildkite.state == State::Ended(Outcome::Canceled)
            && new.phase != Phase::Canceled
        {
            world.violate(format!("a job that was cancelled before it ran is {:?}", new.phase));
        }
    }
    let code = new.verdict.as_ref().map(|verdict| verdict.code);
    let stopped = matches!(new.exit_status, Some(137 | 143));
    // The kubelet's reason may come too late to be waited for if a watch is broken or a clock is wrong.
    let in_time = world.operator.clock_step == 0 && !world.operator.has_gaps();
    if code == Some(VerdictCode::CommandFailed) && stopped && world.exit != new.exit_status && in_time {
        world.violate(format!("the user is blamed for {:?}", new.exit_status));
    }
    // Buildkite refuses to end a job that an agent has. Nobody is there to refuse for a standalone job whose pod has
    // started, unseen, after it was time to give it up.
    let unguarded = world.buildkite.is_none() && world.operator.has_gaps();
    if let Some(exit) = world.sessions.ended_with {
        of_end_for_agent(world, new, exit);
    }
    if !world.disturbed && !unguarded {
        agreement(world, new);
        if world.init_failed && new.phase == Phase::Failed && old.verdict.is_none() {
            of_failed_init(world, new);
        }
    }
}

/// Nothing is given up before its time. Times are rounded down, and clocks differ by less than a second.
fn of_patience(world: &mut World, verdict: Option<&Verdict>) {
    const TOLERANCE: Instant = 2_000;
    let (Some(verdict), Some(life)) = (verdict, world.lives.last()) else {
        return;
    };
    let has_had = |since: Option<Instant>, time: SignedDuration| {
        since.is_some_and(|since| {
            world.now - since + TOLERANCE >= i64::try_from(time.as_millis()).expect("short")
        })
    };
    let passing = ["connection refused", "back-off"].iter().any(|reason| verdict.message.contains(reason));
    let patient = match verdict.code {
        VerdictCode::Unschedulable => has_had(Some(life.created), world.rules.timeouts.schedule),
        // A pod on a node that cannot be reached is not known to be there.
        VerdictCode::ImagePullTimeout | VerdictCode::StartTimeout => {
            has_had(life.placed, world.rules.timeouts.pull)
                || has_had(Some(life.created), world.rules.timeouts.schedule)
        }
        VerdictCode::RegistryUnreachable if passing => has_had(life.placed, world.rules.image_pull_grace),
        _ => true,
    };
    if !patient && world.operator.clock_step == 0 {
        world.violate(format!("given up too early: {}", verdict.message));
    }
}

/// It is said what the init container ended with.
fn of_failed_init(world: &mut World, status: &BuildJobStatus) {
    let code = status.verdict.as_ref().map(|verdict| verdict.code);
    let expected = (Some(VerdictCode::InitFailed), Some(INIT_FAILURE));
    let found = (code, status.exit_status);
    if found != expected {
        world.violate(format!("an init container failed, and {found:?} came of it"));
    }
}

/// As long as nothing took the pod or the agent away, our record says what Buildkite's says.
fn agreement(world: &mut World, status: &BuildJobStatus) {
    let phase = status.phase;
    let expected = match world.buildkite.as_ref().map(|buildkite| &buildkite.state) {
        None if world.exit.is_none() => (Phase::Failed, status.exit_status),
        None => by_exit(world.exit.unwrap_or(-1)),
        Some(State::Ended(Outcome::Exit(exit))) => by_exit(*exit),
        Some(State::Ended(Outcome::Canceled)) => (Phase::Canceled, None),
        Some(State::Ended(Outcome::TimedOut)) => (Phase::TimedOut, None),
        Some(state) => return world.violate(format!("{phase:?} while Buildkite's job is {state:?}")),
    };
    let found = (phase, status.exit_status);
    if found != expected {
        let code = status.verdict.as_ref().map(|verdict| verdict.code);
        world.violate(format!("{found:?} ({code:?}) where Buildkite says {expected:?}"));
    }
}

/// What the operator has told Buildkite for an agent is on our record as well. If the job was about to be stopped, Buildkite has it as
/// cancelled or timed out; the operator may not have heard of that before the end.
fn of_end_for_agent(world: &mut World, status: &BuildJobStatus, exit: i32) {
    let found = (status.phase, status.exit_status);
    let expected = match world.buildkite.as_ref().map(|buildkite| &buildkite.state) {
        Some(State::Ended(Outcome::Canceled)) if status.phase == Phase::Canceled => (Phase::Canceled, None),
        Some(State::Ended(Outcome::TimedOut)) if status.phase == Phase::TimedOut => (Phase::TimedOut, None),
        _ => (Phase::Failed, Some(exit)),
    };
    if found != expected {
        let code = status.verdict.as_ref().map(|verdict| verdict.code);
        world.violate(format!("{found:?} ({code:?}) where Buildkite was told {expected:?}"));
    }
}

fn by_exit(exit: i32) -> (Phase, Option<i32>) {
    (if exit == 0 { Phase::Succeeded } else { Phase::Failed }, Some(exit))
}

/// After each event.
pub(crate) fn of_world(world: &mut World) {
    if world.starts > 1 {
        world.violate(format!("the command was started {} times", world.starts));
    }
    let pods = world.pods.values().filter(|stored| !world.is_given_up(stored)).count();
    if pods > 1 {
        world.violate(format!("{pods} pods at once"));
    }
}

/// When the world has come to rest, or to its last hour.
pub(crate) fn of_end(world: &mut World) {
    if !world.is_clean() {
        let phase = world.job.as_ref().map(|job| job.status_or_default().phase);
        let pods = world.pods.len();
        world.violate(format!("not at an end: the job is {phase:?}, {pods} pods are left"));
    }
    if let Some(buildkite) = &world.buildkite {
        // A reservation lapses: without its BuildJob, and if nobody was there to say so, the job returns to the queue.
        let settled = match buildkite.state {
            State::Ended(_) => true,
            State::Waiting => world.job_deleted.is_some() && !world.told_of_departure,
            State::Acquired { .. } => false,
        };
        if !settled {
            world.violate(format!("Buildkite's job is left {:?}", buildkite.state));
        }
    }
    let calm = !world.disturbed
        && world.lives.len() <= 1
        && !world.operator.ever_crashes()
        && world.trouble.is_none();
    let most = if calm { CALM_WRITES } else { WRITES };
    if world.writes > most {
        world.violate(format!("{} writes", world.writes));
    }
    if Instant::from(world.rounds) > ROUNDS + ROUNDS_PER_SECOND * world.now / 1_000 {
        world.violate(format!("{} rounds", world.rounds));
    }
}
