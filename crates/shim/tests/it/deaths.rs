//! Containers that are killed with their shims.

use crate::pod::{End, Pod, until};
use std::fs;

#[test]
fn the_agents_container_leaves_the_marks_of_one_that_was_killed() {
    let pod = Pod::new();
    let a = pod.job("a", &[], "read _");
    let b = pod.job("b", &["--after", "a", "--last"], "echo b >> $EVENTS");
    let mut agent = pod.agent("a,b");
    pod.until_event("agent");
    // It is known to live only when the agent's container has looked; the mark is that of its death.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!((pod.ended("a"), pod.ended("b")), (None, None), "both live");
    a.signal("KILL");
    until("the mark of the one that was killed", || pod.ended("a").as_deref() == Some("137"));
    assert_eq!(b.wait(), End::abnormal(137, "not started: a ended with status 137"));
    assert_eq!(fs::read_to_string(pod.marks("job-ended")).unwrap(), "137");
    agent.release();
    assert_eq!(agent.wait(), End::plain(0));
    assert!(!pod.events().contains(&"b".to_owned()));
}

#[test]
fn a_job_without_buildkite_ends_when_its_container_was_killed() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let a = pod.job("a", &["--standalone", "--last"], "echo a >> $EVENTS; read _");
    pod.until_event("a");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    a.signal("KILL");
    assert_eq!(agent.wait(), End::plain(137));
    assert_eq!(fs::read_to_string(pod.marks("job-ended")).unwrap(), "137");
}
