use crate::pod::{Container, End, Pod, copy_shim, make_script, shim};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn standalone(pod: &Pod, program: Command, command: &[&str]) -> (Container, Container) {
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    (agent, pod.job_with(program, "a", &["--standalone"], command))
}

/// Some tests need namespaces or mounts.
fn is_root() -> bool {
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !root {
        println!("skipped: needs root");
    }
    root
}

#[test]
fn a_command_that_cannot_be_executed_is_named() {
    let pod = Pod::new();
    let forbidden = pod.outside("forbidden");
    fs::write(&forbidden, "").unwrap();
    fs::set_permissions(&forbidden, fs::Permissions::from_mode(0o644)).unwrap();
    let garbage = pod.outside("garbage");
    make_script(&garbage, "no program");
    let missing = ": no such file or directory (errno 2), or its interpreter is missing";
    for (file, status, problem) in [
        ("/no/such/file", 127, missing),
        ("no-such-program", 127, missing),
        (forbidden.to_str().unwrap(), 126, ": permission denied (errno 13)"),
        (garbage.to_str().unwrap(), 126, ": not an executable for this machine (errno 8)"),
    ] {
        let pod = Pod::new();
        let (agent, job) = standalone(&pod, Command::new(shim()), &[file]);
        assert_eq!(job.wait(), End::abnormal(status, &format!("cannot execute {file}{problem}")));
        assert_eq!(pod.ended("a"), Some(status.to_string()));
        assert_eq!(agent.wait().status, Some(status));
    }
}

#[test]
fn a_commands_own_127_is_not_taken_for_a_missing_program() {
    let pod = Pod::new();
    let (agent, job) = standalone(&pod, Command::new(shim()), &["sh", "-c", "exit 127"]);
    assert_eq!(job.wait(), End::plain(127));
    agent.wait();
}

#[test]
fn arguments_environment_and_files_are_the_containers_own() {
    let pod = Pod::new();
    let script = "printf '%s|' \"$@\" \"$PROBE\" >> $EVENTS; grep SigBlk /proc/self/status >> $EVENTS; \
                  ls -l /proc/$$/fd | grep -E 'anon_inode|/ended/' >> $EVENTS; exit 0";
    let mut program = Command::new(shim());
    program.env("PROBE", "käse \u{1f9c0}");
    let (agent, job) = standalone(&pod, program, &["sh", "-c", script, "sh", "", "a b", "--", "--name"]);
    assert_eq!(job.wait(), End::plain(0));
    agent.wait();
    assert_eq!(pod.events(), ["|a b|--|--name|käse \u{1f9c0}|SigBlk:\t0000000000000000"]);
}

#[test]
fn orphans_are_reaped_while_the_command_lives() {
    if !is_root() {
        return;
    }
    let pod = Pod::new();
    let orphan =
        r#"while [ "$(cut -d' ' -f4 /proc/$$/stat)" != 1 ]; do sleep 0.01; done; echo orphan >> $EVENTS"#;
    let script = format!(
        r#"[ $PPID = 1 ] || exit 8
        for i in 1 2 3 4 5 6 7 8; do (sh -c '{}' &); done
        tries=0
        until [ "$(grep -c orphan $EVENTS)" = 8 ] && ! grep -q '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do
            tries=$((tries + 1)); [ $tries -lt 1000 ] || exit 9; sleep 0.01
        done"#,
        orphan.replace('\'', r"'\''")
    );
    fs::write(pod.outside("events"), "").unwrap();
    let mut program = Command::new("unshare");
    program.args(["--pid", "--fork", "--mount-proc"]).arg(shim());
    let (agent, job) = standalone(&pod, program, &["sh", "-c", &script]);
    assert_eq!(job.wait().status, Some(0));
    assert_eq!(agent.wait(), End::plain(0));
    assert_eq!(pod.events(), ["orphan"; 8]);
}

#[test]
fn as_pid_1_the_shim_still_passes_signals_on() {
    if !is_root() {
        return;
    }
    let pod = Pod::new();
    let mut program = Command::new("unshare");
    program.args(["--pid", "--fork"]).arg(shim());
    // The kernel drops signals for a PID 1 that does not ask for them.
    let script = "trap 'exit 9' TERM; kill -TERM 1; while :; do sleep 0.01; done";
    let (agent, job) = standalone(&pod, program, &["sh", "-c", script]);
    assert_eq!(job.wait().status, Some(9));
    assert_eq!(agent.wait(), End::plain(9));
}

#[test]
fn a_node_without_free_inotify_instances_only_slows_the_shim_down() {
    if !is_root() {
        return;
    }
    let pod = Pod::new();
    let mut program = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
    program.args(["--user", "--map-root-user", "sh", "-c", script]).arg(shim());
    let job = pod.job_with(program, "a", &["--standalone"], &["true"]);
    pod.until_started("a");
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    assert_eq!(job.wait(), End::plain(0));
    assert_eq!(agent.wait(), End::plain(0));
}

#[test]
fn a_command_that_fills_the_disk_does_not_swallow_the_end_mark() {
    if !is_root() {
        return;
    }
    let pod = Pod::new();
    let workspace = pod.workspace("");
    let workspace = workspace.to_str().unwrap();
    // The mount is private to the two containers and goes with them.
    let script = format!(
        "mount -t tmpfs -o size=256k tmpfs {workspace} && cd {workspace} &&
         {{ \"$0\" agent --standalone --jobs a --workspace {workspace} --agent-binary {binary} & }} &&
         \"$0\" job --standalone --name a --workspace {workspace} -- \
            sh -c 'cat /dev/zero > zeros 2>/dev/null; : > more; ! echo full > more 2>/dev/null || exit 9; exit 6'
         wait $!",
        binary = pod.outside("agent-binary").display(),
    );
    let output = Command::new("timeout")
        .args(["30", "unshare", "--mount", "sh", "-c", &script])
        .arg(shim())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn runs_in_an_image_with_nothing_in_it_as_any_user_on_a_read_only_root() {
    // Other builds are linked to the C library, so only the binary that ships can show this.
    if std::env::var_os("BUILDKITE_SHIM").is_none() || !is_root() {
        println!("skipped: needs BUILDKITE_SHIM");
        return;
    }
    let pod = Pod::new();
    let root = pod.outside("root");
    fs::create_dir_all(root.join("workspace")).unwrap();
    copy_shim(&root.join("shim"));
    let script = r#"
        mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs -o mode=777 tmpfs "$0/workspace" &&
        { chroot --userspec=1234:1234 "$0" /shim agent --standalone --jobs a --agent-binary /shim & } &&
        chroot --userspec=4321:4321 "$0" /shim job --standalone --name a -- /workspace/buildkite-agent --version
        wait $!"#;
    let output = Command::new("timeout")
        .args(["30", "unshare", "--mount", "sh", "-c", script])
        .arg(&root)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.as_ref()), (Some(0), ""));
    assert!(output.stdout.starts_with(b"buildkite-shim "));
}
