//! The shell and what it loads, kept in the program.
//!
//! Assets live below a version that changes with their content, so browsers keep them for good; the shell
//! names the version and is asked for each time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::header::{X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use axum::response::{IntoResponse, Response};

use super::super::error::ApiError;
use super::super::extract::Path;

const SHELL: &str = include_str!("assets/index.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! assets {
    ($($name:literal: $kind:expr,)+) => {
        /// Name, media type and content of each.
        const ASSETS: &[(&str, &str, &str)] =
            &[$(($name, $kind, include_str!(concat!("assets/", $name))),)+];
    };
}

assets! {
    "actions.js": SCRIPT,
    "agents.js": SCRIPT,
    "ansi.js": SCRIPT,
    "app.js": SCRIPT,
    "build.js": SCRIPT,
    "dom.js": SCRIPT,
    "fold.js": SCRIPT,
    "format.js": SCRIPT,
    "icon.svg": PICTURE,
    "job.js": SCRIPT,
    "line.js": SCRIPT,
    "log.js": SCRIPT,
    "pipelines.js": SCRIPT,
    "server.js": SCRIPT,
    "states.js": SCRIPT,
    "style.css": STYLE,
}

/// Nothing from elsewhere, nothing inline, nobody around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    ASSETS.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
});

/// The page before its script has run.
pub(super) fn shell(organization: &str) -> Response {
    let html = SHELL.replace("{version}", &VERSION).replace("{organization}", &escape(organization));
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "same-origin"),
    ];
    (headers, html).into_response()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// One asset. A version that is not this program's names nothing: mixing two would break the page.
pub(super) async fn serve(Path((version, name)): Path<(String, String)>) -> Response {
    let found = ASSETS.iter().find(|(known, ..)| *known == name).filter(|_| version == *VERSION);
    let Some((_, kind, content)) = found else {
        return ApiError::not_found("there is nothing at this path").into_response();
    };
    let headers = [
        (CONTENT_TYPE, *kind),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, *content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_scripts_import_is_served() {
        for (name, _, content) in ASSETS {
            for line in
                content.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from "))
            {
                let wanted = line.split("'./").nth(1).and_then(|rest| rest.split('\'').next());
                let wanted = wanted.unwrap_or_else(|| panic!("{name}: {line}"));
                assert!(ASSETS.iter().any(|(known, ..)| *known == wanted), "{name} imports {wanted}");
            }
        }
    }

    #[test]
    fn the_shell_runs_nothing_inline_and_names_no_other_host() {
        assert!(!SHELL.contains("style="), "inline style");
        for script in SHELL.split("<script").skip(1) {
            assert!(script.contains("src=\"/-/assets/{version}/"), "{script}");
        }
        for (name, _, content) in ASSETS {
            let links = content.matches("http://").count() + content.matches("https://").count();
            let own = content.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(links, own, "{name} names another host");
        }
    }
}
