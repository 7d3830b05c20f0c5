//! Metrics, and how Prometheus' text format writes them.

use std::{collections::BTreeMap, fmt};

/// What the values of a family mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Nobody has said.
    #[default]
    Untyped,
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Counts of observations in buckets.
    Histogram,
    /// Quantiles of observations.
    Summary,
}

impl Kind {
    /// The kind of this name, as `# TYPE` lines have it.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Untyped, Self::Gauge, Self::Counter, Self::Histogram, Self::Summary]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untyped => "untyped",
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }

    /// The endings of the names of samples that such a family has besides its own name.
    pub fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Untyped | Self::Gauge | Self::Counter => &[],
            Self::Histogram => &["_bucket", "_sum", "_count"],
            Self::Summary => &["_sum", "_count"],
        }
    }
}

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The family's name, with an ending for some kinds.
    pub name: String,
    /// What distinguishes it from others of its name.
    pub labels: Labels,
    /// The value.
    pub value: f64,
    /// When it was measured, in milliseconds since 1970, if the file says so.
    pub timestamp: Option<i64>,
}

/// All that is known of one metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// What its values mean.
    pub kind: Kind,
    /// What it is, for people.
    pub help: Option<String>,
    /// Its values, in the order of the file.
    pub samples: Vec<Sample>,
}

/// Families by name.
pub type Families = BTreeMap<String, Family>;

/// Families as a page that Prometheus reads.
pub struct Page<'a>(pub &'a Families);

impl fmt::Display for Page<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in self.0 {
            if let Some(help) = &family.help {
                writeln!(out, "# HELP {name} {}", Escaped(help, false))?;
            }
            writeln!(out, "# TYPE {name} {}", family.kind.as_str())?;
            family.samples.iter().try_for_each(|sample| writeln!(out, "{sample}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)?;
        for (at, (name, value)) in self.labels.iter().enumerate() {
            let before = if at == 0 { "{" } else { "," };
            write!(out, "{before}{name}=\"{}\"", Escaped(value, true))?;
        }
        let close = if self.labels.is_empty() { "" } else { "}" };
        write!(out, "{close} {}", Number(self.value))?;
        self.timestamp.map_or(Ok(()), |timestamp| write!(out, " {timestamp}"))
    }
}

/// A number as the format has it: Rust writes the shortest text that is read back as the same number.
pub struct Number(pub f64);

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number if number == f64::INFINITY => out.write_str("+Inf"),
            number if number == f64::NEG_INFINITY => out.write_str("-Inf"),
            number => write!(out, "{number}"),
        }
    }
}

/// Text in which backslashes and ends of lines, and within quotes quotes, are escaped.
struct Escaped<'a>(&'a str, bool);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        self.0.chars().try_for_each(|character| match character {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '"' if self.1 => out.write_str("\\\""),
            other => out.write_char(other),
        })
    }
}
