//! Which of several operators works: what to do about the Lease that they share.
//!
//! Times are those of the process that asks, and only their differences count: no clock is compared with another's. A
//! holder that was not seen to renew for as long as its Lease lasts is taken for gone. The holder itself gives up earlier, counted
//! from when it *sent* its last renewal, so that at no time two of them think that they hold it.

use std::time::{Duration, Instant};

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long a Lease lasts after it was seen to be renewed.
    pub lease: Duration,
    /// How long after a renewal the next is due.
    pub renew: Duration,
    /// How long after its last renewal the holder stops.
    pub give_up: Duration,
}

/// A Lease as the API server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Changes with every write.
    pub version: String,
    /// Who holds it, if anybody.
    pub holder: Option<String>,
    /// How long it lasts after it was seen to be renewed.
    pub lasts: Duration,
    /// How often the holder has changed.
    pub transitions: i32,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Ask the API server for the Lease.
    Look,
    /// Write it with oneself as the holder: on this version, or as a new one.
    Claim(Option<Record>),
    /// Write it again, on this version.
    Renew(Record),
    /// Nothing before then.
    Wait(Instant),
    /// It is lost, or may be.
    StepDown,
}

/// Where one of the operators stands.
#[derive(Debug)]
pub struct Election {
    me: String,
    terms: Terms,
    view: View,
    /// When the last renewal that was accepted was sent.
    renewed: Option<Instant>,
}

#[derive(Debug)]
enum View {
    Unknown,
    Absent,
    /// A version, and when it was first seen.
    Present(Record, Instant),
}

impl Election {
    /// One that nothing is known about yet.
    pub fn new(me: String, terms: Terms) -> Self {
        Self { me, terms, view: View::Unknown, renewed: None }
    }

    /// What the API server shows.
    pub fn see(&mut self, shown: Option<Record>, now: Instant) {
        match (shown, &self.view) {
            (None, _) => self.view = View::Absent,
            // The same renewal, seen again.
            (Some(record), View::Present(known, _)) if known.version == record.version => {}
            (Some(record), _) => self.view = View::Present(record, now),
        }
    }

    /// Our write was refused: somebody was quicker.
    pub fn overtaken(&mut self) {
        self.view = View::Unknown;
    }

    /// Our write, sent then, was accepted.
    pub fn wrote(&mut self, record: Record, sent: Instant) {
        self.renewed = Some(sent);
        self.view = View::Present(record, sent);
    }

    /// Until when the Lease is held for sure.
    pub fn holds_until(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + self.terms.give_up)
    }

    /// Who holds it, as far as is known.
    pub fn holder(&self) -> Option<&str> {
        match &self.view {
            View::Present(record, _) => record.holder.as_deref(),
            View::Unknown | View::Absent => None,
        }
    }

    /// What to do now.
    pub fn next(&self, now: Instant) -> Move {
        match self.renewed {
            Some(sent) => self.as_holder(sent, now),
            None => self.as_candidate(now),
        }
    }

    fn as_holder(&self, sent: Instant, now: Instant) -> Move {
        if now >= sent + self.terms.give_up {
            return Move::StepDown;
        }
        match &self.view {
            View::Unknown => Move::Look,
            View::Present(record, _) if record.holder.as_ref() == Some(&self.me) => {
                let due = sent + self.terms.renew;
                if now >= due { Move::Renew(record.clone()) } else { Move::Wait(due) }
            }
            View::Absent | View::Present(..) => Move::StepDown,
        }
    }

    fn as_candidate(&self, now: Instant) -> Move {
        match &self.view {
            View::Unknown => Move::Look,
            View::Absent => Move::Claim(None),
            View::Present(record, since) => {
                let free = *since + record.lasts;
                if record.holder.is_none() || now >= free {
                    Move::Claim(Some(record.clone()))
                } else {
                    Move::Wait(free)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// What the API server shows, if it was asked.
    type Shown = &'static [Option<(u32, &'static str)>];
    const TERMS: Terms = Terms {
        lease: Duration::from_secs(6),
        renew: Duration::from_secs(2),
        give_up: Duration::from_secs(5),
    };

    fn record(version: u32, holder: &str) -> Record {
        let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        Record { version: version.to_string(), holder, lasts: TERMS.lease, transitions: 1 }
    }

    #[rstest]
    #[case::nothing_known(&[], 0, Move::Look)]
    #[case::nobody_ever(&[None], 0, Move::Claim(None))]
    #[case::released(&[Some((1, ""))], 0, Move::Claim(Some(record(1, ""))))]
    #[case::alive(&[Some((1, "other"))], 5, Move::Wait(Instant::now()))]
    #[case::gone(&[Some((1, "other"))], 6, Move::Claim(Some(record(1, "other"))))]
    #[case::a_namesake(&[Some((1, "me"))], 5, Move::Wait(Instant::now()))]
    fn candidates_wait_for_as_long_as_the_lease_lasts(
        #[case] shown: Shown,
        #[case] seconds: u32,
        #[case] expected: Move,
    ) {
        let begin = Instant::now();
        let mut election = Election::new("me".to_owned(), TERMS);
        for shown in shown {
            election.see(shown.map(|(version, holder)| record(version, holder)), begin);
        }
        let expected = if let Move::Wait(_) = expected { Move::Wait(begin + TERMS.lease) } else { expected };
        assert_eq!(election.next(begin + seconds * SECOND), expected);
    }

    #[test]
    fn only_a_renewal_keeps_a_lease_alive() {
        let begin = Instant::now();
        let mut election = Election::new("me".to_owned(), TERMS);
        election.see(Some(record(1, "other")), begin);
        election.see(Some(record(1, "other")), begin + 3 * SECOND);
        assert_eq!(election.next(begin + 6 * SECOND), Move::Claim(Some(record(1, "other"))));
        election.see(Some(record(2, "other")), begin + 6 * SECOND);
        assert_eq!(election.next(begin + 6 * SECOND), Move::Wait(begin + 12 * SECOND));
    }

    #[rstest]
    #[case::fresh(1, &[], Move::Wait(Instant::now()))]
    #[case::due(2, &[], Move::Renew(record(1, "me")))]
    #[case::late(4, &[], Move::Renew(record(1, "me")))]
    #[case::too_late(5, &[], Move::StepDown)]
    #[case::taken_over(1, &[Some((2, "other"))], Move::StepDown)]
    #[case::touched_by_somebody(2, &[Some((2, "me"))], Move::Renew(record(2, "me")))]
    #[case::deleted(1, &[None], Move::StepDown)]
    fn a_holder_renews_in_time_or_stops(#[case] seconds: u32, #[case] shown: Shown, #[case] expected: Move) {
        let begin = Instant::now();
        let mut election = Election::new("me".to_owned(), TERMS);
        election.wrote(record(1, "me"), begin);
        for shown in shown {
            election.see(shown.map(|(version, holder)| record(version, holder)), begin);
        }
        let expected = if let Move::Wait(_) = expected { Move::Wait(begin + TERMS.renew) } else { expected };
        assert_eq!(election.next(begin + seconds * SECOND), expected);
    }

    #[test]
    fn a_write_that_was_refused_is_looked_into() {
        let begin = Instant::now();
        let mut election = Election::new("me".to_owned(), TERMS);
        election.wrote(record(1, "me"), begin);
        election.overtaken();
        assert_eq!(election.next(begin), Move::Look);
        assert_eq!(election.next(begin + 5 * SECOND), Move::StepDown, "looking does not prolong it");
    }

    #[test]
    fn the_holder_stops_before_anybody_else_may_begin() {
        assert!(TERMS.give_up < TERMS.lease && TERMS.renew < TERMS.give_up);
        let begin = Instant::now();
        let mut holder = Election::new("a".to_owned(), TERMS);
        holder.wrote(record(1, "a"), begin);
        let mut other = Election::new("b".to_owned(), TERMS);
        // It can be seen only after it was sent.
        other.see(Some(record(1, "a")), begin);
        for tenths in 0..100 {
            let now = begin + tenths * SECOND / 10;
            let holds = holder.next(now) != Move::StepDown;
            let begins = matches!(other.next(now), Move::Claim(_));
            assert!(!(holds && begins), "after {:?}", now - begin);
        }
    }
}
