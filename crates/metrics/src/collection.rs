//! Many files as one page, with the labels of the job.

use std::collections::HashMap;

use crate::{
    family::{Families, Kind, Labels, Sample},
    text::{self, TextError},
};

/// Why a file's metrics are left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not in the text format.
    #[error("{0}")]
    Text(#[from] TextError),
    /// Another file has the metric with another meaning.
    #[error("{name} is a {} here and a {} in {other}", kind.as_str(), other_kind.as_str())]
    Kind {
        /// The metric.
        name: String,
        /// What this file says.
        kind: Kind,
        /// What the other says.
        other_kind: Kind,
        /// The other file.
        other: String,
    },
    /// Another file has the same value.
    #[error("{series} is in {other} too")]
    Twice {
        /// Name and labels.
        series: String,
        /// The other file.
        other: String,
    },
}

/// One page made of many files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collection {
    /// The metrics, with the job's labels.
    pub families: Families,
    /// Files that are left out, and why.
    pub refused: Vec<(String, Refused)>,
}

/// Merges files, each given by its name and its text, and adds labels to every value. A label that a value has already is
/// kept as `exported_…`, as Prometheus does it.
pub fn merge<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>, labels: &Labels) -> Collection {
    let mut merger = Merger::default();
    for (name, text) in files {
        if let Err(reason) = merger.add(name, text, labels) {
            merger.collection.refused.push((name.to_owned(), reason));
        }
    }
    merger.collection
}

#[derive(Default)]
struct Merger {
    collection: Collection,
    /// The file that each family comes from first.
    families: HashMap<String, String>,
    /// The file that each value comes from.
    series: HashMap<String, String>,
}

impl Merger {
    /// Adds all of a file or nothing.
    fn add(&mut self, file: &str, text: &str, labels: &Labels) -> Result<(), Refused> {
        let mut families = text::read(text)?;
        for sample in families.values_mut().flat_map(|family| &mut family.samples) {
            add_labels(&mut sample.labels, labels);
        }
        self.check(&families)?;
        for (name, family) in families {
            self.families.entry(name.clone()).or_insert_with(|| file.to_owned());
            let series = family.samples.iter().map(|sample| (series(sample), file.to_owned()));
            self.series.extend(series);
            let known = self.collection.families.entry(name).or_default();
            known.kind = family.kind;
            known.help = known.help.take().or(family.help);
            known.samples.extend(family.samples);
        }
        Ok(())
    }

    fn check(&self, families: &Families) -> Result<(), Refused> {
        for (name, family) in families {
            let known = self.collection.families.get(name).zip(self.families.get(name));
            if let Some((known, other)) = known.filter(|(known, _)| known.kind != family.kind) {
                let (name, other) = (name.clone(), other.clone());
                return Err(Refused::Kind { name, kind: family.kind, other_kind: known.kind, other });
            }
        }
        let mut samples = families.values().flat_map(|family| &family.samples).map(series);
        match samples.find_map(|series| self.series.get(&series).map(|other| (series, other.clone()))) {
            Some((series, other)) => Err(Refused::Twice { series, other }),
            None => Ok(()),
        }
    }
}

/// What makes a value the same as another: its name and its labels.
fn series(sample: &Sample) -> String {
    let text = Sample { value: 0.0, timestamp: None, ..sample.clone() }.to_string();
    text.rsplit_once(' ').map_or(text.clone(), |(series, _)| series.to_owned())
}

fn add_labels(own: &mut Labels, labels: &Labels) {
    for (name, value) in labels {
        if let Some(before) = own.insert(name.clone(), value.clone()) {
            let mut exported = format!("exported_{name}");
            while own.contains_key(&exported) {
                exported.insert_str(0, "exported_");
            }
            own.insert(exported, before);
        }
    }
}

#[cfg(test)]
mod tests;
