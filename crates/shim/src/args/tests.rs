use super::{Agent, Error, Invocation, Job, parse};
use crate::layout::{Name, Spot};
use std::ffi::{CStr, CString};
use std::string::ToString;
use std::vec::Vec;

/// Splits at blanks and gives what `read` makes of the result.
fn with<T>(line: &str, read: impl FnOnce(Result<Invocation<'_>, Error<'_>>) -> T) -> T {
    let words: Vec<CString> = line.split_whitespace().map(|word| CString::new(word).unwrap()).collect();
    read(parse(words.iter().map(CString::as_c_str)))
}

fn with_agent<T>(line: &str, read: impl FnOnce(Agent<'_>) -> T) -> T {
    with(line, |parsed| match parsed {
        Ok(Invocation::Agent(agent)) => read(agent),
        other => panic!("{other:?}"),
    })
}

fn with_job<T>(line: &str, read: impl FnOnce(Job<'_>) -> T) -> T {
    with(line, |parsed| match parsed {
        Ok(Invocation::Job(job)) => read(job),
        other => panic!("{other:?}"),
    })
}

#[test]
fn agent_with_defaults() {
    with_agent("agent --jobs checkout,container-0 -- buildkite-agent start", |agent| {
        let jobs: Vec<_> = agent.jobs.iter().map(|name| name.to_string()).collect();
        assert_eq!(jobs, ["checkout", "container-0"]);
        assert_eq!(agent.delivery.binary, c"/usr/local/bin/buildkite-agent");
        assert!(agent.fenced);
        assert!(!agent.delivery.linked);
        assert_eq!(agent.command, Some(4));
        assert!(!agent.pod.standalone);
        assert_eq!(
            agent.pod.layout.at(Spot::Ready).path().as_str(),
            "/workspace/.buildkite-operator/0/ready"
        );
        assert_eq!(agent.pod.termination_log, c"/dev/termination-log");
    });
}

#[test]
fn agent_with_everything() {
    let line = "agent --run u-1 --workspace /w --agent-binary /a --termination-log /t --standalone --jobs x \
                --no-fence --link --make /w/a,/w/b/c";
    with_agent(line, |agent| {
        assert_eq!(agent.command, None);
        assert!(!agent.fenced);
        assert!(agent.delivery.linked);
        assert_eq!(agent.delivery.directories.iter().collect::<Vec<_>>(), ["/w/a", "/w/b/c"]);
        assert_eq!((agent.delivery.binary, agent.pod.termination_log), (c"/a", c"/t" as &CStr));
        assert!(agent.pod.standalone);
        assert_eq!(agent.pod.layout.at(Spot::Ready).path().as_str(), "/w/.buildkite-operator/u-1/ready");
    });
}

#[test]
fn job_keeps_flags_of_its_command() {
    with_job("job --name b --after a --standalone -- run --name other --", |job| {
        assert_eq!(Name::new("b"), Some(job.name));
        assert_eq!(job.after, Name::new("a"));
        assert!(job.pod.standalone);
        assert_eq!(job.command, 7);
    });
}

#[test]
fn job_with_everything() {
    let line = "job --name a --private /s/key=/h/.ssh/key,/s/b=/h/b --entrypoint enter --shared -- x";
    with_job(line, |job| {
        let copies: Vec<_> = job.private.iter().collect();
        assert_eq!(copies, [("/s/key", "/h/.ssh/key"), ("/s/b", "/h/b")]);
        assert_eq!((job.entrypoint, job.shared), (Some(c"enter"), true));
    });
    with_job("job --name a -- x", |job| {
        assert_eq!((job.private.iter().count(), job.entrypoint, job.shared), (0, None, false));
    });
}

#[test]
fn deliver_runs_nothing() {
    with("deliver --run 7 --workspace /w --agent-binary /a --make /w/x", |parsed| match parsed {
        Ok(Invocation::Deliver(deliver)) => {
            assert_eq!(deliver.binary, c"/a");
            assert_eq!(deliver.directories.iter().collect::<Vec<_>>(), ["/w/x"]);
            assert_eq!(deliver.pod.layout.at(Spot::Ready).path().as_str(), "/w/.buildkite-operator/7/ready");
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn help_and_version() {
    for line in ["--help", "-h"] {
        with(line, |parsed| assert_eq!(parsed, Ok(Invocation::Help)));
    }
    with("--version", |parsed| assert_eq!(parsed, Ok(Invocation::Version)));
}

#[test]
fn mistakes_name_the_flag() {
    let long = std::format!("job --workspace /{} --name a -- x", "w".repeat(1024));
    for (line, expected) in [
        ("", "agent, job or deliver is missing"),
        ("run", "the first argument must be agent, job, deliver, --help or --version, not `run`"),
        ("agent -- x", "--jobs is missing"),
        ("agent --jobs a", "a command is missing: put it after --"),
        ("agent --jobs a --", "a command is missing: put it after --"),
        ("agent --jobs a --standalone -- x", "agent --standalone runs no command: leave out --"),
        ("agent --jobs a --name b -- x", "unknown flag for this role: `--name`"),
        ("agent --jobs a --private /a=/b -- x", "unknown flag for this role: `--private`"),
        ("agent --jobs a --make w -- x", "--make takes absolute paths as its help says, not `w`"),
        ("job --name a --make /w -- x", "unknown flag for this role: `--make`"),
        ("job --name a --private /a -- x", "--private takes absolute paths as its help says, not `/a`"),
        ("job --name a --private /a=b -- x", "--private takes absolute paths as its help says, not `/a=b`"),
        ("deliver -- x", "deliver runs no command: leave out --"),
        ("deliver --standalone", "unknown flag for this role: `--standalone`"),
        ("agent --jobs=a -- x", "unknown flag for this role: `--jobs=a`"),
        ("agent --jobs a,agent -- x", "--jobs cannot be `agent`: that is the agent container's own mark"),
        ("job -- x", "--name is missing"),
        ("job --name", "--name needs a value"),
        ("job --name a", "a command is missing: put it after --"),
        ("job --name a --after a -- x", "--after names the container itself"),
        (
            "job --name a --after agent -- x",
            "--after cannot be `agent`: that is the agent container's own mark",
        ),
        ("job --name a --jobs b -- x", "unknown flag for this role: `--jobs`"),
        (
            "job --name a/b -- x",
            "--name takes names of at most 63 of [a-z0-9.-] that do not begin with a dot, not `a/b`",
        ),
        (
            "agent --jobs a,,b -- x",
            "--jobs takes names of at most 63 of [a-z0-9.-] that do not begin with a dot, not `a,,b`",
        ),
        (
            "job --name a --run .. -- x",
            "--run takes names of at most 63 of [a-z0-9.-] that do not begin with a dot, not `..`",
        ),
        (
            "job --name a --workspace w -- x",
            "--workspace takes an absolute path of at most 1024 bytes, not `w`",
        ),
    ] {
        assert_eq!(with(line, |parsed| parsed.unwrap_err().to_string()), expected, "{line}");
    }
    assert!(with(&long, |parsed| parsed.unwrap_err().to_string()).starts_with("--workspace takes"));
}
