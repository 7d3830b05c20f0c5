//! Many jobs, few places, and a JobSpawner that is killed between any two of its steps.
//!
//! The choice is `intake::select`'s; around it is what the spawner's shell does: what is chosen is written down first,
//! then reserved, then made a BuildJob. Its cache of BuildJobs lags. Other jobs come and go meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use bk_plan::intake::{self, Candidate, Offer};

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
    intent: Vec<String>,
    crash_chance: i64,
    /// What the process remembers: what it has made that the cache may not show, and what it has not finished.
    created: BTreeMap<String, Instant>,
    unfinished: Vec<String>,
    /// What the cache shows: the BuildJobs of a little while ago, and whether they had ended.
    cache: BTreeMap<String, bool>,
    cached_at: Instant,
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
            created: BTreeMap::new(),
            unfinished: Vec::new(),
            cache: BTreeMap::new(),
            cached_at: 0,
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

    fn look(&mut self) {
        let present =
            self.jobs.iter().filter_map(|(uuid, job)| Some((uuid.clone(), job.made?.0 <= self.now)));
        self.cache = present.collect();
        self.cached_at = self.now;
    }

    /// A new process has listed everything, and reads what the last one has chosen.
    fn restart(&mut self) {
        self.pass_time();
        self.look();
        self.created.clear();
        self.unfinished = self.intent.clone();
    }

    fn round(&mut self) -> Result<(), Killed> {
        self.carry_out()?;
        let under_way = self.cache.values().filter(|ended| !**ended).count();
        let free = PLACES.saturating_sub(under_way + self.created.len() + self.unfinished.len());
        let here = self.here();
        let waiting: Vec<Candidate> = self
            .jobs
            .values()
            .filter(|job| job.standing == Standing::Waiting)
            .map(|job| job.candidate.clone())
            .collect();
        let offer = Offer { queue: "default".to_owned(), tags: Vec::new() };
        let choice: Vec<String> = intake::select(&waiting, &offer, &here, free)
            .into_iter()
            .map(|chosen| chosen.uuid.clone())
            .collect();
        if choice.is_empty() {
            return Ok(());
        }
        self.note(&format!("chooses {choice:?}"));
        self.unfinished.extend(choice);
        self.survive()?;
        self.intent.clone_from(&self.unfinished);
        self.carry_out()
    }

    /// Reserves what was chosen and is not here, then makes BuildJobs of what became ours.
    fn carry_out(&mut self) -> Result<(), Killed> {
        let chosen = std::mem::take(&mut self.unfinished);
        let here = self.here();
        let missing: Vec<String> = chosen.into_iter().filter(|uuid| !here.contains(uuid)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.survive()?;
        let until = self.now + RESERVATION;
        let mut ours = Vec::new();
        for uuid in missing {
            let job = self.jobs.get_mut(&uuid).expect("only listed jobs are chosen");
            if job.standing != Standing::Ended {
                job.standing = Standing::Reserved { until };
                ours.push(uuid);
            }
        }
        for uuid in ours {
            self.survive()?;
            if self.random.chance(5) {
                self.unfinished.push(uuid);
                continue;
            }
            let (ends, goes) = (self.now + self.random.span(120_000), self.random.span(60_000));
            let now = self.now;
            let job = self.jobs.get_mut(&uuid).expect("it was reserved");
            if job.made.is_none() && job.standing != Standing::Ended {
                job.made = Some((ends, ends + goes));
                job.times_made += 1;
            }
            self.created.insert(uuid, now);
        }
        Ok(())
    }

    fn here(&mut self) -> BTreeSet<String> {
        let (cache, cached_at) = (&self.cache, self.cached_at);
        self.created.retain(|uuid, since| !cache.contains_key(uuid) && *since >= cached_at);
        let known = self.cache.keys().chain(self.created.keys()).chain(&self.unfinished);
        known.cloned().collect()
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
