use crate::pod::{End, Pod};

const LOOP: &str = "echo up >> $EVENTS; while :; do sleep 0.01; done";

#[test]
fn a_waiting_container_ends_at_once() {
    for (signal, status) in [("TERM", 143), ("INT", 130), ("QUIT", 131), ("HUP", 129)] {
        let pod = Pod::new();
        let job = pod.job("a", &[], "true");
        pod.until_started("a");
        job.signal(signal);
        assert_eq!(job.wait(), End::abnormal(status, "not started: stopped by signal"), "{signal}");
        assert_eq!(pod.ended("a"), Some(status.to_string()));
    }
}

#[test]
fn a_waiting_agent_ends_at_once() {
    let pod = Pod::new();
    let agent = pod.agent("a");
    pod.until_ready();
    agent.signal("TERM");
    assert_eq!(agent.wait(), End::abnormal(143, "not started: stopped by signal"));
    assert_eq!(pod.ended("agent").as_deref(), Some("143"));
}

#[test]
fn a_signal_that_does_not_ask_for_an_end_leaves_the_wait_alone() {
    let pod = Pod::new();
    let job = pod.job("a", &[], "echo a >> $EVENTS");
    pod.until_started("a");
    for signal in ["WINCH", "USR1", "USR2"] {
        job.signal(signal);
    }
    let mut agent = pod.agent("a");
    assert_eq!(job.wait(), End::plain(0));
    agent.release();
    agent.wait();
}

#[test]
fn signals_reach_the_command() {
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"] {
        let pod = Pod::new();
        let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
        // A shell that waits: one that is just starting a program by vfork may lose a signal.
        let script = format!(
            "sleep 60 & trap 'kill $!; echo got {signal} >> $EVENTS; exit 9' {signal}; echo up >> $EVENTS; wait"
        );
        let job = pod.job("a", &["--standalone"], &script);
        pod.until_event("up");
        job.signal(signal);
        assert_eq!(job.wait(), End::plain(9), "{signal}");
        assert_eq!(agent.wait(), End::plain(9));
        assert_eq!(pod.events(), ["up", &format!("got {signal}")]);
    }
}

#[test]
fn a_command_that_a_signal_ends_is_told_so() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let job = pod.job("a", &["--standalone"], LOOP);
    pod.until_event("up");
    job.signal("TERM");
    assert_eq!(job.wait(), End::abnormal(143, "sh was ended by signal 15"));
    assert_eq!(agent.wait(), End::plain(143));

    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let job = pod.job("a", &["--standalone"], "kill -9 $$");
    assert_eq!(job.wait(), End::abnormal(137, "sh was ended by signal 9"));
    assert_eq!(agent.wait(), End::plain(137));
}

#[test]
fn an_ignored_sigchld_from_the_parent_does_not_hide_the_end() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let mut program = std::process::Command::new("env");
    program.arg("--ignore-signal=CHLD").arg(crate::pod::shim());
    let job = pod.job_with(program, "a", &["--standalone"], &["sh", "-c", "exit 5"]);
    assert_eq!(job.wait(), End::plain(5));
    assert_eq!(agent.wait(), End::plain(5));
}
