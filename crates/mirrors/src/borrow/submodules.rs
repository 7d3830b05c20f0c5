//! Submodules: each whose repository has a mirror gets a git directory that borrows, where `git submodule update` looks for one before
//! it clones.

use std::path::Path;

use super::Wishes;
use crate::{address::Address, git::Git};

/// How deep submodules of submodules are looked at, and how many of them.
const DEPTH: usize = 4;
const MOST: usize = 128;

/// A line of `.gitmodules`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Submodule {
    name: String,
    path: String,
    url: String,
}

impl Wishes {
    /// Prepares the submodules of a commit, or of the default branch. Returns how many borrow.
    pub(super) async fn borrow_submodules(
        &self,
        of: &Address,
        git_directory: &Path,
        commit: Option<&str>,
    ) -> usize {
        let mut found = 0;
        let start = (of.clone(), git_directory.to_owned(), commit.unwrap_or("HEAD").to_owned(), 0);
        let mut open = vec![start];
        while let Some((address, git_directory, commit, depth)) = open.pop() {
            if depth >= DEPTH {
                continue;
            }
            for submodule in self.submodules(&git_directory, &commit).await {
                if found >= MOST {
                    return found;
                }
                let Ok(its) = address.relative(&submodule.url) else { continue };
                let Ok(loan) = self.find(&its).await else { continue };
                let directory = git_directory.join("modules").join(&submodule.name);
                if loan.take(&its.without_secrets(), &directory).is_err() {
                    continue;
                }
                found += 1;
                if let Some(commit) = self.commit_at(&git_directory, &commit, &submodule.path).await {
                    open.push((its, directory, commit, depth + 1));
                }
            }
        }
        found
    }

    async fn submodules(&self, git_directory: &Path, commit: &str) -> Vec<Submodule> {
        let blob = format!("{commit}:.gitmodules");
        let git = Git::new(git_directory, "config", self.limit);
        let list = git.args(["--blob", &blob, "--null", "--get-regexp", r"^submodule\..*\.(path|url)$"]);
        // Most repositories have none.
        list.text().await.map(|text| parse(&text)).unwrap_or_default()
    }

    async fn commit_at(&self, git_directory: &Path, commit: &str, path: &str) -> Option<String> {
        let git = Git::new(git_directory, "rev-parse", self.limit);
        let text = git.args(["--verify", "--quiet", &format!("{commit}:{path}")]).text().await.ok()?;
        Some(text.trim().to_owned())
    }
}

/// Reads `git config --null --get-regexp`. Names that lead out of their directory are left out, as git does.
fn parse(text: &str) -> Vec<Submodule> {
    let mut found: Vec<Submodule> = Vec::new();
    for entry in text.split('\0') {
        let Some((key, value)) = entry.split_once('\n') else { continue };
        let Some((name, field)) = key.strip_prefix("submodule.").and_then(|key| key.rsplit_once('.')) else {
            continue;
        };
        if !is_safe(name) {
            continue;
        }
        let index = found.iter().position(|submodule| submodule.name == name).unwrap_or_else(|| {
            found.push(Submodule { name: name.to_owned(), ..Submodule::default() });
            found.len() - 1
        });
        match field {
            "path" => value.clone_into(&mut found[index].path),
            _ => value.clone_into(&mut found[index].url),
        }
    }
    found.retain(|submodule| !submodule.url.is_empty() && !submodule.path.is_empty());
    found
}

fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(['/', '-'])
        && !name.contains('\\')
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_addresses() {
        let text = "submodule.lib.path\nvendor/lib\0submodule.lib.url\n../lib.git\0submodule.a.b.url\nhttps://host/b\0submodule.a.b.path\nb\0";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            Submodule { name: "lib".into(), path: "vendor/lib".into(), url: "../lib.git".into() }
        );
        assert_eq!(found[1].name, "a.b");
    }

    #[test]
    fn what_leads_elsewhere_is_left_out() {
        for name in ["../../hooks", "a/../../b", "/etc", "", ".", "a//b"] {
            let text = format!("submodule.{name}.path\nx\0submodule.{name}.url\nhttps://host/x\0");
            assert_eq!(parse(&text), [], "{name}");
        }
    }
}
