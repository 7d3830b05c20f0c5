//! What is kept between builds.

use crate::stage::{Case, Mode};

pub(crate) const CACHE: Case = Case {
    commands: &["cache save", "cache restore"],
    steps: r#"
steps:
  - command: |
      mkdir -p .buildkite stuff
      echo cached > stuff/a
      printf 'caches:\n  - name: stuff\n    cache_key: [stuff, {agent: os}]\n    target_paths: [stuff]\n' > .buildkite/cache.yml
      export BUILDKITE_AGENT_CACHE_STORE_URL="file://$$HOME/store"
      run sh -c 'buildkite-agent cache restore > /dev/null'
      run sh -c 'buildkite-agent cache save > /dev/null'
      rm -r stuff
      run sh -c 'buildkite-agent cache restore > /dev/null'
      run cat stuff/a
"#,
    results: &["0|", "0|", "0|", "0|cached"],
};

#[tokio::test]
async fn what_was_cached_comes_back() {
    CACHE.play(Mode::Acquire).await;
}
