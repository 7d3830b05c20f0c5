//! `docs/verdicts.md` is made from the catalogue. `UPDATE=1 cargo test -p bk-api verdicts_document` writes it anew.

use std::{fmt::Write, fs, path::PathBuf};

use super::*;

const HEAD: &str = "<!-- Made from crates/api/src/verdict/catalogue.rs: UPDATE=1 cargo test -p bk-api verdicts_document -->
# Verdicts

Each job ends with a verdict: a stable `code`, whose `fault` it is, a `message` with names, `advice`, an `exitStatus`, and `evidence`: a few lines of what was seen on the pod.
It is in the BuildJob's `status.verdict`, in the operator's log, in an Event if anything was wrong, and in Buildkite: as the job's end while it is reserved, as a notification
once an agent has it. Codes keep their meaning; new ones may be added.

**Exit status.** While no agent has the job, the operator ends it in Buildkite, and this is the status that Buildkite gets, so that `retry.automatic` rules can tell ends apart: that of the container that failed
where there is one, and −1 where nothing of the job ran. Once an agent has the job, the agent reports the status: that of the command as a rule; −7 if it lost a container, as when that ran out of memory; −1 comes from Buildkite
itself when it hears no more from the agent. The BuildJob's status then has what the containers really ended with. Containers that are killed for their memory end with 137.

**Before an agent has the job** a sign may also pass, or call for another pod:

- *ends*: the job ends as soon as it is seen, because waiting cannot help.
- *waits*: it is waited for, and `status.waitingFor` says so. The job ends with this verdict if it has not passed when the time for it is up.
- *replaces*: the pod is replaced, up to three pods in all, which neither Buildkite nor the job's retries notice. The job ends with this verdict if it happened to the last pod.

Once an agent has had the job, nothing is run again: the job may have had effects.
";

fn title(chapter: Chapter) -> &'static str {
    match chapter {
        Chapter::Result => "The job's result",
        Chapter::Placement => "From the description to a node",
        Chapter::Images => "Images",
        Chapter::Containers => "Containers",
        Chapter::Loss => "The pod was taken away",
        Chapter::Agent => "The agent",
    }
}

fn exit(exit: Exit) -> String {
    match exit {
        Exit::Always(status) => status.to_string().replace('-', "−"),
        Exit::Container => "the container's, or −1".to_owned(),
        Exit::Buildkites => "Buildkite's own".to_owned(),
    }
}

fn render() -> String {
    let mut text = HEAD.to_owned();
    let mut chapter = None;
    for code in VerdictCode::ALL {
        let about = code.about();
        if chapter.replace(about.chapter) != Some(about.chapter) {
            let title = title(about.chapter);
            let columns = "| code | fault | before an agent has it | exit status | what happened | advice |";
            write!(text, "\n## {title}\n\n{columns}\n|---|---|---|---|---|---|\n")
                .expect("strings take text");
        }
        let About { fault, course, meaning, advice, .. } = about;
        let course = format!("{course:?}").to_ascii_lowercase();
        let row = format!(
            "| `{}` | {fault:?} | {course} | {} | {meaning} | {advice} |",
            code.as_str(),
            exit(about.exit)
        );
        writeln!(text, "{row}").expect("strings take text");
    }
    text
}

#[test]
fn the_verdicts_document_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/verdicts.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, render()).expect("the document can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == render(),
        "docs/verdicts.md is outdated: UPDATE=1 cargo test -p bk-api verdicts_document"
    );
}
