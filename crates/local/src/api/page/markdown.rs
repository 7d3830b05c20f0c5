//! Annotations: what a job wrote in Markdown or HTML becomes HTML that can do no harm.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use pulldown_cmark::{Options, Parser, html};
use uuid::Uuid;

/// What may follow `class`: the marks that annotations use for their layout, and coloured terminal output.
static CLASSES: &[&str] = &[
    "bold",
    "italic",
    "underline",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "caps",
    "center",
    "right-align",
    "truncate",
    "red",
    "green",
    "yellow",
    "blue",
    "gray",
    "black",
    "term",
    "list-reset",
    "m0",
    "mt0",
    "mb0",
    "p0",
    "flex",
];

static EXTRA_TAGS: LazyLock<HashSet<&str>> = LazyLock::new(|| HashSet::from(["section"]));

/// Renders one annotation of a build. `artifact://` links lead to the build's artifacts.
pub(super) fn render(body: &str, build: Uuid) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut unsafe_html = String::with_capacity(body.len() * 3 / 2);
    html::push_html(&mut unsafe_html, Parser::new_ext(body, options));
    clean(&unsafe_html, build)
}

fn clean(html: &str, build: Uuid) -> String {
    // Ids of an annotation could take the place of the page's own.
    let everywhere = HashSet::from(["title", "lang"]);
    let details = HashMap::from([("details", HashSet::from(["open"]))]);
    let mut cleaner = ammonia::Builder::default();
    cleaner
        .add_tags(EXTRA_TAGS.iter())
        .generic_attributes(everywhere)
        .add_tag_attributes("details", details["details"].iter())
        .url_schemes(HashSet::from(["http", "https", "mailto", "artifact"]))
        .url_relative(ammonia::UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"))
        .attribute_filter(move |_, attribute, value| match (attribute, value.strip_prefix("artifact://")) {
            ("href" | "src", Some(path)) => Some(Cow::Owned(artifact(build, path))),
            _ => Some(Cow::Borrowed(value)),
        });
    for tag in
        ["span", "div", "p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "code", "td", "th", "dl", "dd", "dt"]
    {
        cleaner.add_allowed_classes(tag, CLASSES);
    }
    cleaner.clean(html).to_string()
}

/// Where the page finds the newest artifact of a build by its path.
fn artifact(build: Uuid, path: &str) -> String {
    let encoded: String = path
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("/-/builds/{build}/artifact?path={encoded}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn rendered(body: &str) -> String {
        render(body, Uuid::nil())
    }

    #[test]
    fn markdown_and_tables_and_the_html_that_annotations_use() {
        insta::assert_snapshot!(rendered(
            "### Tests\n\n| case | result |\n|---|---|\n| a | **passed** |\n\n- [x] done\n\n\
             <details><summary>More</summary>\n\n`code` <https://example.com>\n\n</details>\n\n\
             <span class=\"red evil\">bad</span> [report](artifact://out/a b.html)"
        ));
    }

    #[rstest]
    #[case::script("<script>alert(1)</script>")]
    #[case::handler("<img src=x onerror=alert(1)>")]
    #[case::link("[x](javascript:alert(1))")]
    #[case::hidden_scheme("<a href=\"java\nscript:alert(1)\">x</a>")]
    #[case::data("<a href=\"data:text/html,<script>alert(1)</script>\">x</a>")]
    #[case::style("<style>body{display:none}</style><p style=\"position:fixed\">x</p>")]
    #[case::frame("<iframe src=\"https://example.com\"></iframe><object data=x></object><embed src=x>")]
    #[case::form("<form action=https://example.com><input name=a><button>go</button></form>")]
    #[case::svg("<svg onload=alert(1)><script>alert(1)</script></svg>")]
    #[case::math("<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>")]
    #[case::meta("<meta http-equiv=refresh content=0><base href=https://example.com>")]
    #[case::clobber("<a id=app name=cookie>x</a>")]
    #[case::artifact("<a href=\"artifact://&quot; onclick=&quot;alert(1)\">x</a>")]
    fn nothing_that_runs_or_leads_away_is_left(#[case] body: &str) {
        let html = rendered(body).to_lowercase();
        for banned in [
            "<script",
            "onerror",
            "onload",
            "onclick",
            "javascript:",
            "data:",
            "<style",
            "style=",
            "<iframe",
            "<object",
            "<embed",
            "<form",
            "<input",
            "<button",
            "<svg",
            "<math",
            "<meta",
            "<base",
            " id=",
            " name=",
        ] {
            assert!(!html.contains(banned), "{banned} in {html}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_input_breaks_it(body in "\\PC{0,200}") {
            assert!(!rendered(&body).contains("<script"));
        }
    }
}
