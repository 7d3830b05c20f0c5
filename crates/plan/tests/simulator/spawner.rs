//! Many jobs, few places, and a JobSpawner that is killed between any two of its steps.
//!
//! The choice is the ledger's; around it is what the spawner's shell does: what is chosen is written down first,
//! then reserved, then made a BuildJob. Its cache of BuildJobs lags. Other jobs come and go meanwhile.

use std::{collections::BTreeMap, time::Duration};

use bk_api::{BuildJob, BuildJobSpec, BuildJobStatus, Phase, build_job::BuildkiteJob};
use bk_plan::intake::{Candidate, Ledger, Terms};

use super::{
    random::Random,
    world::{Instant, timestamp},
};

/// How many BuildJobs may be under way at once.
const PLACES: usize = 3;
/// How long a reservation holds.
const RESERVATION: Instant = 60_000;
const END: Instant = 900_000;

/// Where a job stands in Buildkite.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Standing {
    Waiting,
    Reserved { until: Instant },
    Ended,
}

struct Job {
    standing: Standing,
    candidate: Candidate,
    /// When its BuildJob ends, and when it goes.
    made: Option<(Instant, Instant)>,
    times_made: u32,
}

/// A queue, the BuildJobs made of it, and the spawner's process.
pub(crate) struct Queue {
    now: Instant,
    random: Random,
    jobs: BTreeMap<String, Job>,
    intent: Vec<Candidate>,
    crash_chance: i64,
    /// What the process knows, of the BuildJobs of a little while ago and of its own doings.
    ledger: Ledger,
    epoch: std::time::Instant,
    pub(crate) violation: Option<String>,
    trace: Option<Vec<String>>,
}

/// The process was killed.
struct Killed;

/// Runs the history of a seed.
pub(crate) fn run(seed: u64, traced: bool) -> Queue {
    let mut queue = Queue::new(seed, traced);
    while queue.now < END && queue.violation.is_none() && !queue.is_done() {
        queue.now += queue.random.between(50, 2_000);
        queue.pass_time();
        if queue.round().is_err() {
            queue.note("killed");
            queue.now += queue.random.span(30_000);
            queue.restart();
        }
        queue.check();
    }
    queue.check_end();
    queue
}

impl Queue {
    fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let count = random.between(1, 12);
        let jobs = (0..count).map(|number| {
            let uuid = format!("job-{number:02}");
            let candidate = Candidate {
                uuid: uuid.clone(),
                pipeline: None,
                priority: random.between(0, 3),
                scheduled_at: timestamp(random.between(0, 10_000)),
                rules: Vec::new(),
            };
            (uuid, Job { standing: Standing::Waiting, candidate, made: None, times_made: 0 })
        });
        let jobs = jobs.collect();
        let crash_chance = [0, 2, 10][usize::try_from(random.between(0, 3)).expect("small")];
        Self {
            now: 0,
            random,
            jobs,
            intent: Vec::new(),
            crash_chance,
            ledger: ledger(),
            epoch: std::time::Instant::now(),
            violation: None,
            trace: traced.then(Vec::new),
        }
    }

    /// Reservations lapse, BuildJobs end and go, the cache catches up.
    fn pass_time(&mut self) {
        let now = self.now;
        for job in self.jobs.values_mut() {
            if let Standing::Reserved { until } = job.standing
                && until <= now
                && job.made.is_none()
            {
                job.standing = Standing::Waiting;
            }
            if job.made.is_some_and(|(ends, _)| ends <= now) {
                job.standing = Standing::Ended;
            }
            if job.made.is_some_and(|(_, goes)| goes <= now) {
                job.made = None;
            }
        }
        if self.random.chance(70) {
            self.look();
        }
    }

    /// The watch tells what is there: step by step, or by beginning anew.
    fn look(&mut self) {
        let anew = self.random.chance(20);
        if anew {
            self.ledger.relisting();
        }
        for (uuid, job) in &self.jobs {
            match job.made {
                Some((ends, _)) => self.ledger.seen(uuid, &build_job(uuid, ends <= self.now)),
                None if !anew => self.ledger.gone(uuid),
                None => {}
            }
        }
        self.ledger.relisted();
    }

    /// A new process has listed everything, and reads what the last one has chosen.
    fn restart(&mut self) {
        self.pass_time();
        self.ledger = ledger();
        self.look();
        self.ledger.resume(0, self.intent.clone());
    }

    fn round(&mut self) -> Result<(), Killed> {
        let waiting: Vec<Candidate> = self
            .jobs
            .values()
            .filter(|job| job.standing == Standing::Waiting)
            .map(|job| job.candidate.clone())
            .collect();
        let now = self.epoch + Duration::from_millis(self.now.unsigned_abs());
        let choice = self.ledger.choose(0, &waiting, now).take;
        if !choice.is_empty() {
            self.note(&format!("chooses {:?}", choice.iter().map(|job| &job.uuid).collect::<Vec<_>>()));
            self.survive()?;
            self.intent = self.ledger.unfinished(0);
        }
        self.carry_out(now)
    }

    /// Reserves what was chosen and is not here, then makes BuildJobs of what became ours.
    fn carry_out(&mut self, now: std::time::Instant) -> Result<(), Killed> {
        let mut missing: Vec<String> =
            self.ledger.unfinished(0).into_iter().map(|candidate| candidate.uuid).collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort();
        self.survive()?;
        let until = self.now + RESERVATION;
        let mut ours = Vec::new();
        for uuid in missing {
            let job = self.jobs.get_mut(&uuid).expect("only listed jobs are chosen");
            if job.standing == Standing::Ended {
                self.ledger.release(&uuid);
            } else {
                job.standing = Standing::Reserved { until };
                ours.push(uuid);
            }
        }
        for uuid in ours {
            self.survive()?;
            if self.random.chance(5) {
                continue;
            }
            let (ends, goes) = (self.now + self.random.span(120_000), self.random.span(60_000));
            let job = self.jobs.get_mut(&uuid).expect("it was reserved");
            if job.made.is_none() && job.standing != Standing::Ended {
                job.made = Some((ends, ends + goes));
                job.times_made += 1;
            }
            self.ledger.created(&uuid, now);
        }
        Ok(())
    }

    /// Every step may be the last.
    fn survive(&mut self) -> Result<(), Killed> {
        if self.random.chance(self.crash_chance) { Err(Killed) } else { Ok(()) }
    }

    fn is_done(&self) -> bool {
        self.jobs.values().all(|job| job.standing == Standing::Ended)
    }

    fn check(&mut self) {
        let under_way =
            self.jobs.values().filter(|job| job.made.is_some_and(|(ends, _)| ends > self.now)).count();
        if under_way > PLACES {
            self.violate(format!("{under_way} BuildJobs are under way"));
        }
        if let Some((uuid, job)) = self.jobs.iter().find(|(_, job)| job.times_made > 1) {
            let text = format!("{uuid} has had {} BuildJobs", job.times_made);
            self.violate(text);
        }
    }

    fn check_end(&mut self) {
        let left = self.jobs.iter().find(|(_, job)| job.standing != Standing::Ended);
        if let Some((uuid, job)) = left {
            let text = format!("{uuid} is left {:?}", job.standing);
            self.violate(text);
        }
    }

    fn violate(&mut self, text: String) {
        self.note(&format!("VIOLATION {text}"));
        self.violation.get_or_insert(text);
    }

    fn note(&mut self, line: &str) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>9}  {line}"));
        }
    }

    pub(crate) fn trace(&self) -> String {
        self.trace.as_ref().map(|lines| lines.join("\n")).unwrap_or_default()
    }
}

fn ledger() -> Ledger {
    Ledger::new(PLACES, vec![Terms { queue: "default".to_owned(), ..Terms::default() }])
}

/// The BuildJob of a job, as the watch shows it.
fn build_job(uuid: &str, ended: bool) -> BuildJob {
    let mut job = BuildJob::new(uuid, BuildJobSpec::default());
    let queue = Some("default".to_owned());
    job.spec.buildkite = Some(BuildkiteJob { job_uuid: uuid.to_owned(), queue, ..BuildkiteJob::default() });
    let phase = if ended { Phase::Succeeded } else { Phase::Running };
    job.status = Some(BuildJobStatus { phase, ..BuildJobStatus::default() });
    job
}
