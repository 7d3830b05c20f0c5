use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// `r` running, `w` waiting for dependencies, `o` ready and ordered, `e` ready and eager; a digit is a priority.
fn members(queue: &str, limit: u32) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for c in queue.chars() {
        if let (Some(priority), Some(last)) = (c.to_digit(10), members.last_mut()) {
            last.priority = i64::from(priority);
            continue;
        }
        let (state, method) = match c {
            'r' => (JobState::Running, ConcurrencyMethod::Ordered),
            'w' => (JobState::Waiting, ConcurrencyMethod::Ordered),
            'o' => (JobState::Limited, ConcurrencyMethod::Ordered),
            'e' => (JobState::Limited, ConcurrencyMethod::Eager),
            other => panic!("{other}"),
        };
        members.push(Member {
            job: Uuid::from_u128(members.len() as u128),
            build: Uuid::nil(),
            state,
            priority: 0,
            concurrency: Concurrency { group: "g".into(), limit, method },
        });
    }
    members
}

#[rstest]
#[case::room("oo", 2, &[0, 1])]
#[case::full("ro", 1, &[])]
#[case::oldest_first("ooo", 1, &[0])]
#[case::behind_a_running_one("oro", 2, &[0])]
#[case::a_waiting_one_keeps_its_place("wo", 1, &[])]
#[case::a_waiting_one_keeps_one_place_only("woo", 2, &[1])]
#[case::eager_overtakes_waiting("we", 1, &[1])]
#[case::eager_by_priority("e1e5e3", 2, &[1, 2])]
#[case::eager_by_age("eee", 1, &[0])]
#[case::mixed("eo", 1, &[0])]
fn next(#[case] queue: &str, #[case] limit: u32, #[case] expected: &[u128]) {
    let admitted: Vec<u128> = admit(&members(queue, limit)).iter().map(Uuid::as_u128).collect();
    assert_eq!(admitted, expected);
}

#[rstest]
#[case::busy("ro", 1, 1, "1 of 1 taken")]
#[case::a_later_one_is_busy("or", 1, 0, "1 of 1 taken")]
#[case::in_line("roo", 1, 2, "1 of 1 taken, 1 older to go first")]
#[case::behind_one_that_cannot_go(
    "wo",
    1,
    1,
    "0 of 1 taken, 1 older to go first, 1 of which still waiting for dependencies"
)]
#[case::eager_asks_for_a_place_only("wre", 1, 2, "1 of 1 taken")]
fn who_waits_is_told_why(#[case] queue: &str, #[case] limit: u32, #[case] at: usize, #[case] expected: &str) {
    let members = members(queue, limit);
    assert_eq!(reason(&members, &members[at]), format!("Waits for concurrency group g: {expected}"));
}

proptest! {
    /// However jobs come and go, no more than the limit hold a place, an ordered job starts only when fewer than
    /// the limit are left before it, and nobody is left behind.
    #[test]
    fn limits_and_fairness(
        queue in "[weo]{1,12}",
        limit in 1u32..4,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 60),
    ) {
        let mut open = members(&queue, limit);
        for pick in picks {
            for job in admit(&open) {
                let ahead = open.iter().position(|member| member.job == job).unwrap();
                let member = &mut open[ahead];
                prop_assert!(member.state.is_limited());
                prop_assert!(member.concurrency.method == ConcurrencyMethod::Eager || ahead < limit as usize);
                member.state = JobState::Scheduled;
            }
            let held: Vec<usize> =
                (0..open.len()).filter(|at| open[*at].state.holds_place()).collect();
            prop_assert!(held.len() <= limit as usize);
            let waiting: Vec<usize> =
                (0..open.len()).filter(|at| open[*at].state == JobState::Waiting).collect();
            if let Some(at) = waiting.first() {
                open[*at].state = JobState::Limiting;
            } else if !held.is_empty() {
                open.remove(held[pick.index(held.len())]);
            }
        }
        prop_assert!(open.is_empty(), "{queue}: {open:?}");
    }
}
