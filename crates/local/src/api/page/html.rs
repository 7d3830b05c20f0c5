//! The page's HTML. Whatever comes from outside goes through [`escape`].

use std::fmt::Write;

use crate::build::verdict::PlacedStep;
use crate::build::{Job, JobKind, JobState};
use crate::pipeline::step::Kind;
use crate::store::builds::BuildRow;
use crate::store::data::Annotation;
use crate::store::jobs::JobEvent;
use crate::store::pipelines::PipelineRow;

/// Everything one build's page shows.
pub(super) struct BuildPage {
    pub(super) pipeline: PipelineRow,
    pub(super) build: BuildRow,
    pub(super) steps: Vec<(PlacedStep, Vec<JobView>)>,
    pub(super) annotations: Vec<Annotation>,
}

/// A job with its timeline and log.
pub(super) struct JobView {
    pub(super) job: Job,
    pub(super) events: Vec<JobEvent>,
    pub(super) log: String,
}

const STYLE: &str = "
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
a { color: inherit; } h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
ul { list-style: none; padding: 0; } li { margin: .3rem 0; }
pre { overflow-x: auto; padding: .7rem; background: #8882; border-radius: .3rem; font-size: .85rem; }
.state { display: inline-block; min-width: 6rem; font-weight: 600; color: #888; }
.good { color: #2a8a4a; } .bad { color: #c33; } .busy { color: #b8860b; }
.note { color: #888; } .inner { margin-left: 1.5rem; }
details > summary { cursor: pointer; }";

/// Text made safe for elements and quoted attributes.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

fn document(title: &str, refresh: bool, body: &str) -> String {
    let refresh = if refresh { "<meta http-equiv=\"refresh\" content=\"3\">" } else { "" };
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">{refresh}\
         <title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>",
        escape(title)
    )
}

fn badge(state: &str) -> String {
    let class = match state {
        "passed" | "unblocked" => "good",
        "failed" | "failing" | "timed_out" | "expired" => "bad",
        "running" | "accepted" | "canceling" | "timing_out" | "blocked" => "busy",
        other if other.ends_with("failed") => "bad",
        _ => "",
    };
    format!("<span class=\"state {class}\">{}</span>", escape(state))
}

/// A page that says what went wrong.
pub(super) fn error(message: &str) -> String {
    document("Error", false, &format!("<h1>{}</h1><p><a href=\"/\">All pipelines</a></p>", escape(message)))
}

/// Every pipeline with its newest builds.
pub(super) fn index(organization: &str, pipelines: &[(PipelineRow, Vec<BuildRow>)]) -> String {
    let mut body = format!("<h1>{}</h1>", escape(organization));
    if pipelines.is_empty() {
        body.push_str("<p class=\"note\">No pipelines yet. Start one with <code>buildkite-local build PIPELINE.yml --repo URL</code>.</p>");
    }
    for (pipeline, builds) in pipelines {
        let repository = escape(&pipeline.repository);
        let _ =
            write!(body, "<h2>{} <span class=\"note\">{repository}</span></h2><ul>", escape(&pipeline.name));
        for build in builds {
            let _ = write!(
                body,
                "<li>{} <a href=\"/{}/{}/builds/{}\">#{} {}</a> <span class=\"note\">{} · {}</span></li>",
                badge(build.state.as_str()),
                escape(organization),
                escape(&pipeline.slug),
                build.number,
                build.number,
                escape(build.message.lines().next().unwrap_or_default()),
                escape(&build.branch),
                build.created_at,
            );
        }
        body.push_str("</ul>");
    }
    document("Pipelines", false, &body)
}

/// One build.
pub(super) fn build(page: &BuildPage) -> String {
    let BuildPage { pipeline, build, steps, annotations } = page;
    let title = format!("{} #{}", pipeline.name, build.number);
    let mut body = format!(
        "<p><a href=\"/\">All pipelines</a></p><h1>{} {}</h1><p>{}<br><span class=\"note\">{} · {} · {}</span></p>",
        badge(build.state.as_str()),
        escape(&title),
        escape(&build.message),
        escape(&build.branch),
        escape(&build.commit),
        build.created_at,
    );
    for annotation in annotations {
        let _ = write!(body, "<pre>{}</pre>", escape(&annotation.body));
    }
    for (placed, jobs) in steps {
        let inner = if placed.group.is_some() { " class=\"inner\"" } else { "" };
        let _ = write!(body, "<div{inner}>");
        if matches!(placed.step.kind, Kind::Group) {
            let _ = write!(body, "<h2>{}</h2>", escape(&name(placed)));
        }
        for view in jobs {
            job(&mut body, placed, view);
        }
        body.push_str("</div>");
    }
    document(&title, build.finished_at.is_none(), &body)
}

fn name(placed: &PlacedStep) -> String {
    let named = placed.step.label.clone().or_else(|| placed.step.key.clone());
    named.unwrap_or_else(|| match &placed.step.kind {
        Kind::Command(command) => command.script.lines().next().unwrap_or("(plugins)").to_owned(),
        Kind::Wait { .. } => "wait".to_owned(),
        Kind::Block(_) => "block".to_owned(),
        Kind::Input(_) => "input".to_owned(),
        Kind::Group => "group".to_owned(),
    })
}

fn job(body: &mut String, placed: &PlacedStep, view: &JobView) {
    let JobView { job, events, log } = view;
    let state = match job.state {
        JobState::Finished if job.is_good() && !job.soft_failed => "passed",
        JobState::Finished if job.soft_failed => "soft failed",
        JobState::Finished => "failed",
        other => other.as_str(),
    };
    let mut facts = Vec::new();
    if let Some((index, count)) = job.parallel {
        facts.push(format!("{}/{count}", index + 1));
    }
    facts.extend(job.exit_status.map(|status| format!("exit status {status}")));
    facts.extend(job.signal_reason.clone());
    facts.extend(job.retried_in.map(|_| "retried".to_owned()));
    let head = format!(
        "{} {} <span class=\"note\">{}</span>",
        badge(state),
        escape(&name(placed)),
        escape(&facts.join(" · "))
    );
    if job.kind != JobKind::Command {
        let _ = write!(body, "<p>{head}</p>");
        return;
    }
    let open = if job.state == JobState::Running { " open" } else { "" };
    let _ = write!(body, "<details{open}><summary>{head}</summary>");
    for event in events {
        let text = format!("{} {}: {}", event.at, event.kind, event.detail);
        let _ = write!(body, "<p class=\"note\">{}</p>", escape(&text));
    }
    let _ = write!(body, "<pre>{}</pre></details>", escape(log));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_from_outside_is_text() {
        let text = escape("<script>alert(\"x\")</script> & 'y'");
        assert_eq!(text, "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &#39;y&#39;");
        assert!(error("<b>").contains("&lt;b&gt;"));
    }
}
