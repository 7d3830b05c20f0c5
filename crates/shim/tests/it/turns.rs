use crate::pod::{End, Pod};

#[test]
fn a_container_waits_for_the_one_before() {
    let pod = Pod::new();
    let mut agent = pod.agent("a,b");
    let b = pod.job("b", &["--after", "a"], "cat $MARKS/ended/a >> $EVENTS; echo b >> $EVENTS");
    pod.until_started("b");
    let a = pod.job("a", &[], "echo a >> $EVENTS");
    assert_eq!(a.wait(), End::plain(0));
    assert_eq!(b.wait(), End::plain(0));
    agent.release();
    agent.wait();
    assert_eq!(pod.events(), ["agent", "a", "0b"]);
}

#[test]
fn a_failure_goes_down_the_chain_without_running_it() {
    let pod = Pod::new();
    let mut agent = pod.agent("a,b,c");
    let c = pod.job("c", &["--after", "b"], "echo c >> $EVENTS");
    let b = pod.job("b", &["--after", "a"], "echo b >> $EVENTS");
    let a = pod.job("a", &[], "exit 7");
    assert_eq!(a.wait(), End::plain(7));
    assert_eq!(b.wait(), End::abnormal(7, "not started: a ended with status 7"));
    assert_eq!(c.wait(), End::abnormal(7, "not started: b ended with status 7"));
    assert_eq!(pod.ended("b").as_deref(), Some("7"));
    assert_eq!(pod.ended("c").as_deref(), Some("7"));
    agent.release();
    agent.wait();
    assert_eq!(pod.events(), ["agent"]);
}

#[test]
fn a_container_gives_up_when_the_agent_ends_before_its_turn() {
    let pod = Pod::new();
    let mut agent = pod.agent("a,b");
    let mut a = pod.job("a", &[], "echo up >> $EVENTS; read _; exit 0");
    let b = pod.job("b", &["--after", "a"], "true");
    pod.until_event("up");
    agent.release();
    agent.wait();
    assert_eq!(b.wait(), End::abnormal(1, "not started: the agent ended first"));
    assert_eq!(pod.ended("b").as_deref(), Some("1"));
    // The one that runs is left alone: the agent's client in it knows best what to do.
    a.release();
    assert_eq!(a.wait(), End::plain(0));
}

#[test]
fn a_container_waits_for_the_socket_even_after_delivery() {
    let pod = Pod::new();
    let script = "read _; echo socket >> $EVENTS; : > $WORKSPACE/buildkite.sock; read _; exit 0";
    let mut agent = pod.agent_with(&["--jobs", "a"], &["--", "sh", "-c", script]);
    let a = pod.job("a", &[], "echo a >> $EVENTS");
    pod.until_ready();
    pod.until_started("a");
    agent.say("now");
    assert_eq!(a.wait(), End::plain(0));
    agent.release();
    agent.wait();
    assert_eq!(pod.events(), ["socket", "a"]);
}

#[test]
fn a_mark_that_cannot_be_read_counts_as_a_failure() {
    let pod = Pod::new();
    let b = pod.job("b", &["--after", "a"], "true");
    pod.until_started("b");
    std::fs::create_dir(pod.marks("ended/a")).unwrap();
    assert_eq!(b.wait(), End::abnormal(125, "not started: a ended with status 125"));
}

#[test]
fn the_job_has_ended_when_its_last_container_has() {
    let pod = Pod::new();
    let job_ended = || std::fs::read_to_string(pod.marks("job-ended")).ok();
    let mut agent = pod.agent("a,b");
    let mut b = pod.job("b", &["--after", "a", "--last"], "echo b >> $EVENTS; read _");
    assert_eq!(pod.job("a", &[], "true").wait(), End::plain(0));
    pod.until_event("b");
    assert_eq!(job_ended(), None);
    b.say("");
    assert_eq!(b.wait(), End::plain(0));
    assert_eq!(job_ended().as_deref(), Some("0"));
    agent.release();
    agent.wait();
    let drafts = std::fs::read_dir(pod.marks("")).unwrap().flatten();
    let left = drafts.filter(|entry| entry.file_name().to_string_lossy().starts_with(".job-ended")).count();
    assert_eq!(left, 0, "no draft is left");
}

#[test]
fn the_job_has_ended_when_a_container_fails() {
    let pod = Pod::new();
    let mut agent = pod.agent("a,b,c");
    let b = pod.job("b", &["--after", "a"], "true");
    let c = pod.job("c", &["--after", "b", "--last"], "true");
    assert_eq!(pod.job("a", &[], "exit 7").wait(), End::plain(7));
    let job_ended = || std::fs::read_to_string(pod.marks("job-ended")).unwrap();
    assert_eq!(job_ended(), "7");
    assert_eq!([b.wait().status, c.wait().status], [Some(7); 2]);
    assert_eq!(job_ended(), "7");
    agent.release();
    agent.wait();
}
