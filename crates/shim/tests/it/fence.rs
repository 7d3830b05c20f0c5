use crate::pod::{End, Pod};

#[test]
fn the_agent_runs_only_when_all_containers_have_started() {
    let pod = Pod::new();
    let script = "ls $MARKS/started | tr '\\n' ' ' >> $EVENTS";
    let agent = pod.agent_with(&["--jobs", "a,b"], &["--", "sh", "-c", script]);
    pod.until_ready();
    let a = pod.job("a", &[], "true");
    pod.until_started("a");
    let b = pod.job("b", &[], "true");
    assert_eq!(agent.wait(), End::plain(0));
    assert_eq!(pod.events(), ["a b "]);
    assert_eq!(pod.ended("agent").as_deref(), Some("0"));
    drop((a, b));
}

#[test]
fn containers_may_start_before_the_agent() {
    let pod = Pod::new();
    let jobs = ["a", "b"].map(|name| pod.job(name, &[], "echo job >> $EVENTS"));
    pod.until_started("a");
    pod.until_started("b");
    let mut agent = pod.agent("a,b");
    for job in jobs {
        assert_eq!(job.wait(), End::plain(0));
    }
    agent.release();
    assert_eq!(agent.wait(), End::plain(0));
    assert_eq!(pod.events(), ["agent", "job", "job"]);
}

#[test]
fn the_agent_does_not_run_when_a_container_has_ended_already() {
    let pod = Pod::new();
    let agent = pod.agent("a,b");
    let a = pod.job("a", &[], "true");
    pod.until_started("a");
    a.signal("TERM");
    assert_eq!(a.wait().status, Some(143));
    assert_eq!(agent.wait(), End::abnormal(143, "not started: a ended with status 143"));
    assert!(pod.events().is_empty());
}

#[test]
fn the_agents_own_status_is_passed_on() {
    let pod = Pod::new();
    let job = pod.job("a", &[], "true");
    let agent = pod.agent_with(&["--jobs", "a"], &["--", "sh", "-c", "exit 27"]);
    assert_eq!(agent.wait(), End::plain(27));
    assert_eq!(pod.ended("agent").as_deref(), Some("27"));
    assert_eq!(job.wait(), End::abnormal(1, "not started: the agent ended first"));
}

#[test]
fn standalone_waits_for_all_and_gives_the_first_failure_in_order() {
    for (a, b, expected) in [(0, 0, 0), (0, 4, 4), (3, 4, 3)] {
        let pod = Pod::new();
        let agent = pod.agent_with(&["--jobs", "a,b", "--standalone"], &[]);
        let b = pod.job("b", &["--standalone"], &format!("exit {b}"));
        assert_eq!(b.wait().status, pod.ended("b").and_then(|status| status.parse().ok()));
        let a = pod.job("a", &["--standalone"], &format!("exit {a}"));
        assert_eq!(agent.wait(), End::plain(expected));
        a.wait();
    }
}

#[test]
fn a_standalone_container_may_run_before_the_fence_is_complete() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a,b", "--standalone"], &[]);
    assert_eq!(pod.job("a", &["--standalone"], "true").wait(), End::plain(0));
    agent.signal("TERM");
    assert_eq!(agent.wait(), End::abnormal(143, "not started: stopped by signal"));
}

#[test]
fn a_standalone_agent_can_be_stopped_after_the_fence() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let mut a = pod.job("a", &["--standalone"], "echo up >> $EVENTS; read _; exit 0");
    pod.until_event("up");
    agent.signal("TERM");
    let end = agent.wait();
    assert_eq!(end.status, Some(143));
    assert!(end.reason.ends_with("stopped by signal"), "{end:?}");
    a.release();
    assert_eq!(a.wait(), End::plain(0));
}
