use crate::pod::{End, Pod, shim};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn standalone(pod: &Pod) -> End {
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let job = pod.job("a", &["--standalone"], "echo ran >> $EVENTS");
    job.wait();
    agent.wait()
}

#[test]
fn everything_is_usable_by_other_users_and_the_command_keeps_its_umask() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let mut program = Command::new("sh");
    program.args(["-c", "umask 027; exec \"$0\" \"$@\""]).arg(shim());
    let job = pod.job_with(program, "a", &["--standalone"], &["sh", "-c", "umask >> $EVENTS"]);
    assert_eq!(job.wait(), End::plain(0));
    assert_eq!(agent.wait(), End::plain(0));
    assert_eq!(pod.events(), ["0027"]);
    for directory in ["build", "plugins", "sockets"] {
        assert_eq!(mode(&pod.workspace(directory)), 0o777, "{directory}");
    }
    for directory in ["", "started", "ended"] {
        assert_eq!(mode(&pod.marks(directory)), 0o777, "{directory}");
    }
    for mark in ["ready", "started/a", "ended/a", "ended/agent"] {
        assert_eq!(mode(&pod.marks(mark)), 0o666, "{mark}");
    }
    assert_eq!(mode(&pod.workspace("buildkite-agent")), 0o755);
    assert_eq!(fs::read_to_string(pod.workspace("buildkite-agent")).unwrap(), "the agent");
}

#[test]
fn the_next_attempt_is_not_fooled_by_what_the_last_one_left() {
    let pod = Pod::new();
    assert_eq!(standalone(&pod), End::plain(0));
    fs::write(pod.workspace("buildkite.sock"), "").unwrap();
    let inode = fs::metadata(pod.workspace("buildkite-agent")).unwrap().ino();

    let pod = pod.again("1");
    let a = pod.job("a", &[], "echo a >> $EVENTS");
    pod.until_started("a");
    let mut agent = pod.agent("a,b");
    pod.until_ready();
    assert!(!pod.workspace("buildkite.sock").exists(), "the old socket is gone before anyone may use it");
    let b = pod.job("b", &[], "true");
    assert_eq!(a.wait(), End::plain(0));
    b.wait();
    agent.release();
    agent.wait();
    assert_eq!(pod.events(), ["agent", "a"]);
    assert_eq!(fs::metadata(pod.workspace("buildkite-agent")).unwrap().ino(), inode, "not copied again");
}

#[test]
fn another_agent_of_the_same_size_is_delivered() {
    let pod = Pod::new();
    fs::write(pod.workspace("buildkite-agent"), "old agent").unwrap();
    assert_eq!(standalone(&pod), End::plain(0));
    assert_eq!(fs::read_to_string(pod.workspace("buildkite-agent")).unwrap(), "the agent");
}

#[test]
fn a_link_does_where_all_have_the_agent_and_does_not_outlive_that() {
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone", "--link"], &[]);
    pod.job("a", &["--standalone"], "true").wait();
    assert_eq!(agent.wait(), End::plain(0));
    let delivered = pod.workspace("buildkite-agent");
    assert_eq!(fs::read_link(&delivered).unwrap(), pod.outside("agent-binary"));

    let pod = pod.again("1");
    assert_eq!(standalone(&pod), End::plain(0));
    assert!(
        fs::symlink_metadata(&delivered).unwrap().is_file(),
        "the next pod's containers may have other images"
    );
    assert_eq!(fs::read_to_string(&delivered).unwrap(), "the agent");
}

#[test]
fn a_large_agent_arrives_whole() {
    let pod = Pod::new();
    let content: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(pod.outside("agent-binary"), &content).unwrap();
    assert_eq!(standalone(&pod), End::plain(0));
    assert!(fs::read(pod.workspace("buildkite-agent")).unwrap() == content);
}

#[test]
fn a_missing_agent_is_told_and_nobody_waits_for_it() {
    let pod = Pod::new();
    fs::remove_file(pod.outside("agent-binary")).unwrap();
    let job = pod.job("a", &[], "true");
    pod.until_started("a");
    let reason = format!(
        "cannot open the agent binary {}: no such file or directory (errno 2)",
        pod.outside("agent-binary").display()
    );
    assert_eq!(pod.agent("a").wait(), End::abnormal(125, &reason));
    assert_eq!(job.wait(), End::abnormal(1, "not started: the agent ended first"));
}
