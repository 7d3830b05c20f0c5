//! Whatever the order in which containers start, the same things happen.

use crate::pod::{Container, End, Pod};
use std::collections::HashMap;

/// A small generator (xorshift), so that a failure names the seed that repeats it.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A job container of a random pod.
#[derive(Debug)]
struct Plan {
    name: String,
    after: Option<usize>,
    status: i32,
}

fn plan(random: &mut Random) -> Vec<Plan> {
    (0..=random.below(4))
        .map(|index| Plan {
            name: format!("container-{index}"),
            after: (index > 0 && random.below(4) > 0).then(|| index - 1),
            status: [0, 0, 0, 3, 255][random.below(5)],
        })
        .collect()
}

/// What each container must exit with, and whether its command must have run.
fn expected(plans: &[Plan]) -> Vec<(i32, bool)> {
    let mut ends: Vec<(i32, bool)> = Vec::new();
    for plan in plans {
        let before = plan.after.map_or(0, |index| ends[index].0);
        ends.push(if before == 0 { (plan.status, true) } else { (before, false) });
    }
    ends
}

fn start(pod: &Pod, plans: &[Plan], standalone: bool, name: &str) -> Container {
    let all = plans.iter().map(|plan| plan.name.as_str()).collect::<Vec<_>>().join(",");
    let Some(plan) = plans.iter().find(|plan| plan.name == name) else {
        return if standalone {
            pod.agent_with(&["--jobs", &all, "--standalone"], &[])
        } else {
            pod.agent(&all)
        };
    };
    let mut flags = Vec::new();
    if let Some(before) = plan.after {
        flags.extend(["--after", plans[before].name.as_str()]);
    }
    if standalone {
        flags.push("--standalone");
    }
    pod.job(name, &flags, &format!("echo {name} >> $EVENTS; exit {}", plan.status))
}

fn check(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let plans = plan(&mut random);
    let standalone = random.below(2) == 0;
    let context = format!("seed {seed}, standalone {standalone}: {plans:?}");
    let mut order: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).chain(["agent"]).collect();
    random.shuffle(&mut order);

    let pod = Pod::new();
    let mut containers: HashMap<_, _> =
        order.iter().map(|name| (*name, start(&pod, &plans, standalone, name))).collect();
    let mut agent = containers.remove("agent").unwrap();
    let expected = expected(&plans);
    for (plan, (status, _)) in plans.iter().zip(&expected) {
        let end = containers.remove(plan.name.as_str()).unwrap().wait();
        assert_eq!(end.status, Some(*status), "{}: {end:?}; {context}", plan.name);
        assert_eq!(pod.ended(&plan.name), Some(status.to_string()), "{context}");
    }
    agent.release();
    let failure = expected.iter().map(|end| end.0).find(|status| *status != 0).unwrap_or(0);
    assert_eq!(agent.wait(), End::plain(if standalone { failure } else { 0 }), "{context}");
    check_events(&pod.events(), &plans, &expected, standalone, &context);
}

fn check_events(
    events: &[String],
    plans: &[Plan],
    expected: &[(i32, bool)],
    standalone: bool,
    context: &str,
) {
    let position = |name: &str| events.iter().position(|event| event == name);
    let commands = expected.iter().filter(|(_, ran)| *ran).count();
    assert_eq!(events.len(), commands + usize::from(!standalone), "{events:?}; {context}");
    assert_eq!(position("agent"), (!standalone).then_some(0), "{context}");
    for (plan, (_, ran)) in plans.iter().zip(expected) {
        assert_eq!(position(&plan.name).is_some(), *ran, "{context}");
        if let (true, Some(before)) = (ran, plan.after) {
            assert!(position(&plans[before].name) < position(&plan.name), "{events:?}; {context}");
        }
    }
}

#[test]
fn two_hundred_random_pods() {
    (0..200).for_each(check);
}
