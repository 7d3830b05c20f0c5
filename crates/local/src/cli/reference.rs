//! How people name builds and jobs, read in one place.

use anyhow::{anyhow, bail};
use uuid::Uuid;

use super::client::{Build, Client};

/// A name as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    /// `3`: of whichever pipeline has it.
    Number(i64),
    /// `demo/3`, or the address of a build.
    Build { pipeline: String, number: i64 },
    /// The id of a build or of a job.
    Id(Uuid),
    /// The address of a job.
    Job(Uuid),
}

impl std::str::FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.trim_start_matches('#').parse::<i64>().ok().filter(|number| *number > 0);
        if let Ok(id) = Uuid::parse_str(text) {
            return Ok(Self::Id(id));
        }
        if let Some(number) = number(text) {
            return Ok(Self::Number(number));
        }
        if text.contains("://") {
            return address(text).ok_or_else(|| "is not the address of a build or a job".to_owned());
        }
        match text.split_once('/') {
            Some((pipeline, rest)) if !pipeline.is_empty() && number(rest).is_some() => {
                Ok(Self::Build { pipeline: pipeline.to_owned(), number: number(rest).unwrap_or_default() })
            }
            _ => Err("must be PIPELINE/NUMBER, a number, an id or an address".to_owned()),
        }
    }
}

/// `…/demo/builds/3`, `…/demo/builds/3#JOB`, `…/jobs/JOB/…`; on the page and in the API.
fn address(url: &str) -> Option<Reference> {
    let (place, fragment) = url.split_once('#').unwrap_or((url, ""));
    let place = place.split('?').next().unwrap_or(place);
    let segments: Vec<&str> = place.split('/').filter(|segment| !segment.is_empty()).collect();
    let after = |name: &str| {
        let at = segments.iter().position(|segment| *segment == name)?;
        Some((segments.get(at.checked_sub(1)?).copied()?, segments.get(at + 1).copied()?))
    };
    let job = after("jobs").map_or(fragment, |(_, job)| job);
    if let Ok(job) = Uuid::parse_str(job) {
        return Some(Reference::Job(job));
    }
    let (pipeline, number) = after("builds")?;
    match Uuid::parse_str(number) {
        Ok(id) => Some(Reference::Id(id)),
        Err(_) => Some(Reference::Build { pipeline: pipeline.to_owned(), number: number.parse().ok()? }),
    }
}

/// What a name stands for.
pub(super) enum Target {
    Build(Box<Build>),
    Job(Uuid),
}

impl Reference {
    /// Asks the server what is meant.
    pub(super) async fn resolve(&self, client: &Client) -> anyhow::Result<Target> {
        match self {
            Self::Job(id) => Ok(Target::Job(*id)),
            Self::Build { pipeline, number } => {
                Ok(Target::Build(Box::new(client.build(pipeline, *number).await?)))
            }
            Self::Id(id) => match client.build_by_id(*id).await? {
                Some(build) => Ok(Target::Build(Box::new(build))),
                None => Ok(Target::Job(*id)),
            },
            Self::Number(number) => {
                let mut found = client.builds(&[("number", number.to_string())]).await?;
                match (found.pop(), found.is_empty()) {
                    (None, _) => bail!("no pipeline has a build {number}"),
                    (Some(build), true) => {
                        Ok(Target::Build(Box::new(client.build(build.slug(), *number).await?)))
                    }
                    (Some(last), false) => {
                        found.push(last);
                        let names: Vec<String> =
                            found.iter().rev().map(|build| format!("{}/{number}", build.slug())).collect();
                        Err(anyhow!("several pipelines have a build {number}: say {}", names.join(" or ")))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "01900000-0000-7000-8000-000000000001";

    fn build(pipeline: &str, number: i64) -> Reference {
        Reference::Build { pipeline: pipeline.to_owned(), number }
    }

    #[rstest]
    #[case("3", Reference::Number(3))]
    #[case("#3", Reference::Number(3))]
    #[case("demo/3", build("demo", 3))]
    #[case("demo/#3", build("demo", 3))]
    #[case(ID, Reference::Id(ID.parse().unwrap()))]
    #[case("http://h:1/local/demo/builds/3", build("demo", 3))]
    #[case("http://h/local/demo/builds/3?x=y#canvas", build("demo", 3))]
    #[case("http://h/v2/organizations/local/pipelines/demo/builds/3", build("demo", 3))]
    #[case(&format!("http://h/local/demo/builds/3#{ID}"), Reference::Job(ID.parse().unwrap()))]
    #[case(&format!("http://h/v2/organizations/l/pipelines/d/builds/3/jobs/{ID}/log"), Reference::Job(ID.parse().unwrap()))]
    fn names_are_read(#[case] text: &str, #[case] expected: Reference) {
        assert_eq!(text.parse(), Ok(expected));
    }

    #[rstest]
    #[case("")]
    #[case("demo")]
    #[case("demo/")]
    #[case("demo/x")]
    #[case("0")]
    #[case("-1")]
    #[case("http://h/local/demo")]
    #[case("http://h/builds/3")]
    fn nonsense_is_refused(#[case] text: &str) {
        let read = text.parse::<Reference>();
        assert!(read.is_err() || text.ends_with("builds/3"), "{read:?}");
    }
}
