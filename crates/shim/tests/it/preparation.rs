//! What the shim prepares for its command: files, directories, a home, a way into the image.

use crate::pod::{End, Pod, copy_shim, make_script, shim};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs a standalone pod of one job container.
fn run(pod: &Pod, flags: &[&str], script: &str) -> End {
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let end = pod.job("a", &[&["--standalone"], flags].concat(), script).wait();
    agent.wait();
    end
}

#[test]
fn private_copies_are_readable_by_this_user_alone_and_end_with_a_line() {
    let mut pod = Pod::new();
    let root = pod.outside("");
    let path = |name: &str| root.join(name).display().to_string();
    fs::write(path("key"), "secret").unwrap();
    fs::write(path("hosts"), "host key\n").unwrap();
    fs::set_permissions(path("key"), fs::Permissions::from_mode(0o444)).unwrap();
    let copies = format!(
        "{}={},{}={},{}={}",
        path("key"),
        path("home/.ssh/key"),
        path("hosts"),
        path("home/.ssh/known_hosts"),
        path("absent"),
        path("home/absent"),
    );
    for attempt in ["1", "2"] {
        pod = pod.again(attempt);
        assert_eq!(run(&pod, &["--private", &copies], "true"), End::plain(0));
        assert_eq!(fs::read_to_string(path("home/.ssh/key")).unwrap(), "secret\n");
        assert_eq!(fs::read_to_string(path("home/.ssh/known_hosts")).unwrap(), "host key\n");
        assert_eq!(mode(&pod.outside("home/.ssh/key")), 0o600);
        assert_eq!(mode(&pod.outside("home/.ssh")), 0o700);
        assert!(!pod.outside("home/absent").exists(), "what does not exist is not copied");
    }
}

#[test]
fn a_copy_that_cannot_be_made_is_told() {
    let pod = Pod::new();
    let (from, to) = (pod.outside("key"), pod.outside("agent-binary/key"));
    fs::write(&from, "secret").unwrap();
    let (from, to) = (from.display(), to.display());
    let reason = format!("cannot copy {from} to {to}: not a directory (errno 20)");
    assert_eq!(run(&pod, &["--private", &format!("{from}={to}")], "true"), End::abnormal(125, &reason));
}

#[test]
fn what_a_shared_command_makes_can_be_written_by_others() {
    let pod = Pod::new();
    assert_eq!(run(&pod, &["--shared"], "umask >> $EVENTS"), End::plain(0));
    assert_eq!(pod.events(), ["0000"]);
}

#[test]
fn an_entrypoint_of_the_image_gets_the_arguments() {
    let mut pod = Pod::new();
    let entrypoint = pod.outside("enter");
    make_script(&entrypoint, "#!/bin/sh\necho entered \"$@\" >> $EVENTS\n");
    let path = format!("{}:/usr/bin:/bin", entrypoint.parent().unwrap().display());
    for (attempt, name, expected) in
        [("1", "enter", "entered one two"), ("2", "no-such-program", "direct one two")]
    {
        pod = pod.again(attempt);
        let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
        let mut program = Command::new(shim());
        program.env("PATH", &path);
        let script = pod.outside("direct");
        make_script(&script, "#!/bin/sh\necho direct \"$@\" >> $EVENTS\n");
        let flags = ["--standalone", "--entrypoint", name];
        let job = pod.job_with(program, "a", &flags, &[script.to_str().unwrap(), "one", "two"]);
        assert_eq!(job.wait(), End::plain(0));
        agent.wait();
        assert_eq!(pod.events().last().map(String::as_str), Some(expected));
    }
}

#[test]
fn directories_are_made_for_everyone_before_the_job_starts() {
    let pod = Pod::new();
    let directory = pod.workspace("plugins/agent/one/.git");
    let agent = pod.agent_with(&["--jobs", "a", "--standalone", "--make", directory.to_str().unwrap()], &[]);
    let script = format!("test -d {} && echo there >> $EVENTS", directory.display());
    assert_eq!(pod.job("a", &["--standalone"], &script).wait(), End::plain(0));
    agent.wait();
    assert_eq!(pod.events(), ["there"]);
    assert_eq!(mode(&pod.workspace("plugins/agent/one")), 0o777);
}

#[test]
fn without_a_fence_the_agent_waits_for_nobody() {
    let pod = Pod::new();
    let mut agent =
        pod.agent_with(&["--jobs", "a", "--no-fence"], &["--", "sh", "-c", "echo agent >> $EVENTS; read _"]);
    pod.until_event("agent");
    assert!(!pod.marks("started/a").exists());
    agent.release();
    agent.wait();
}

#[test]
fn an_init_container_can_deliver_ahead_of_the_agent() {
    let pod = Pod::new();
    fs::write(pod.workspace("buildkite.sock"), "").unwrap();
    let workspace = pod.workspace("");
    let deliver = Command::new(shim())
        .args(["deliver", "--run", pod.run, "--workspace", workspace.to_str().unwrap().trim_end_matches('/')])
        .arg("--agent-binary")
        .arg(pod.outside("agent-binary"))
        .status()
        .unwrap();
    assert!(deliver.success());
    assert_eq!(fs::read_to_string(pod.workspace("buildkite-agent")).unwrap(), "the agent");
    assert!(pod.marks("ready").exists() && !pod.workspace("buildkite.sock").exists());
    assert_eq!(run(&pod, &[], "echo ran >> $EVENTS"), End::plain(0));
    assert_eq!(pod.events(), ["ran"]);
}

/// Somebody that no image knows.
const STRANGER: u32 = 54321;

#[test]
fn who_has_no_home_gets_one_that_can_be_written() {
    let mut pod = Pod::new();
    let root = pod.workspace("..");
    let shim_copy = pod.outside("shim");
    copy_shim(&shim_copy);
    for (path, mode) in [(root.clone(), 0o777), (pod.workspace(""), 0o777), (shim_copy.clone(), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for (attempt, home) in [("1", "/"), ("2", "/mine")] {
        pod = pod.again(attempt);
        let expected = if home == "/" { pod.marks("home").display().to_string() } else { home.to_owned() };
        let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
        let mut program = Command::new(&shim_copy);
        program.env("HOME", home);
        if is_root() {
            program.uid(STRANGER);
        }
        let script = "echo $HOME; test $HOME = /mine || : > $HOME/file";
        let job = pod.job_with(
            program,
            "a",
            &["--standalone"],
            &["sh", "-c", &format!("({script}) > $WORKSPACE/home.txt")],
        );
        let end = job.wait();
        assert_eq!(end, End::plain(0));
        agent.wait();
        assert_eq!(fs::read_to_string(pod.workspace("home.txt")).unwrap().trim(), expected);
        fs::remove_file(pod.workspace("home.txt")).unwrap();
    }
}

#[test]
fn root_keeps_its_home() {
    if !is_root() {
        return;
    }
    let pod = Pod::new();
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let mut program = Command::new(shim());
    program.env("HOME", "/");
    let job = pod.job_with(program, "a", &["--standalone"], &["sh", "-c", "echo $HOME >> $EVENTS"]);
    assert_eq!(job.wait(), End::plain(0));
    agent.wait();
    assert_eq!(pod.events(), ["/"]);
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}
