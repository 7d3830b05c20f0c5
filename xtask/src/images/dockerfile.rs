//! Reads from a Dockerfile what its last stage says about the image.
//!
//! The archives written here and the images that a release builds take user, entry point, environment and labels
//! from the same lines, so they cannot drift apart. Only the instructions that our own Dockerfiles use are understood.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::archive::ImageConfig;

/// What a Debian base image sets, and what `FROM scratch` leaves to the runtime's own default.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The configuration that the last stage's instructions give.
pub(crate) fn config(text: &str) -> Result<ImageConfig> {
    let mut config = ImageConfig { env: vec![DEFAULT_PATH.to_owned()], ..ImageConfig::default() };
    let mut arguments = BTreeMap::new();
    for (instruction, rest) in last_stage(text) {
        match instruction.as_str() {
            "ARG" => arguments.extend(pairs(&rest)?),
            "ENV" => {
                config.env.extend(pairs(&rest)?.into_iter().map(|(name, value)| format!("{name}={value}")));
            }
            "LABEL" => config.labels.extend(pairs(&rest)?),
            "USER" => config.user = rest,
            "WORKDIR" => config.working_dir = rest,
            "ENTRYPOINT" => config.entrypoint = list(&rest)?,
            "CMD" => config.cmd = list(&rest)?,
            "FROM" | "RUN" | "COPY" => {}
            other => bail!("the instruction {other} is not understood"),
        }
    }
    for value in config.labels.values_mut() {
        for (name, default) in &arguments {
            *value = value.replace(&format!("${{{name}}}"), default);
        }
    }
    Ok(config)
}

/// The instructions of the last stage, each with its arguments on one line.
fn last_stage(text: &str) -> Vec<(String, String)> {
    let mut stage = Vec::new();
    let joined = text.replace("\\\n", " ");
    for line in joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (instruction, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if instruction == "FROM" {
            stage.clear();
        }
        stage.push((instruction.to_owned(), rest.trim().to_owned()));
    }
    stage
}

/// `name=value` pairs; a value may stand in double quotes.
fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').with_context(|| format!("no = in `{rest}`"))?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                quoted.split_once('"').with_context(|| format!("no closing quote in `{after}`"))?
            }
            None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
        };
        found.push((name.to_owned(), value.to_owned()));
        rest = after.trim();
    }
    Ok(found)
}

fn list(text: &str) -> Result<Vec<String>> {
    serde_json::from_str(text)
        .with_context(|| format!("`{text}` is not a JSON list; the shell form is not used"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
# a comment
FROM build:1 AS build
USER 9
RUN make \
    && make install

FROM base:2
COPY --from=build /out/ /
ARG VERSION=dev
LABEL title="two words" \
      version="v${VERSION}"
ENV HOME=/home/x LANG=C.UTF-8
USER 1000:1000
WORKDIR /src
ENTRYPOINT ["/tool", "--"]
CMD ["serve"]
"#;

    #[test]
    fn takes_the_last_stage() {
        let expected = ImageConfig {
            user: "1000:1000".into(),
            env: vec![DEFAULT_PATH.into(), "HOME=/home/x".into(), "LANG=C.UTF-8".into()],
            entrypoint: vec!["/tool".into(), "--".into()],
            cmd: vec!["serve".into()],
            working_dir: "/src".into(),
            labels: [("title".into(), "two words".into()), ("version".into(), "vdev".into())].into(),
        };
        assert_eq!(config(SAMPLE).unwrap(), expected);
    }

    #[test]
    fn refuses_what_it_would_get_wrong() {
        for (text, message) in [
            ("FROM a\nENTRYPOINT tool", "shell form"),
            ("FROM a\nVOLUME /data", "VOLUME is not understood"),
            ("FROM a\nENV HOME /x", "no = in"),
            ("FROM a\nLABEL title=\"open", "no closing quote"),
        ] {
            let error = config(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
