//! A visitor: a browser, a tab, and the server that is visited.

use bk_browser::{Browser, Page};
use reqwest::Method;
use serde_json::json;

use crate::harness::Rig;

pub(crate) struct Visit {
    pub(crate) rig: Rig,
    pub(crate) page: Page,
    _browser: Browser,
}

impl Visit {
    /// A server with the pipeline `demo`, and a tab.
    pub(crate) async fn of(yaml: &str) -> Self {
        let rig = Rig::start().await;
        let pipeline =
            json!({"name": "demo", "repository": "https://git.local/demo.git", "configuration": yaml});
        rig.v2(Method::POST, "pipelines", Some(pipeline)).await.ok();
        let browser = Browser::start().unwrap();
        let page = browser.page().await.unwrap();
        Self { rig, page, _browser: browser }
    }

    /// The same with a build.
    pub(crate) async fn of_build(yaml: &str) -> Self {
        let visit = Self::of(yaml).await;
        visit.rig.v2(Method::POST, "pipelines/demo/builds", Some(json!({"message": "hello"}))).await.ok();
        visit
    }

    pub(crate) async fn go(&self, path: &str) {
        self.page.visit(&format!("{}{path}", self.rig.root)).await.unwrap();
    }

    pub(crate) async fn until(&self, expression: &str) {
        self.page.until(expression).await.unwrap();
    }

    pub(crate) async fn says(&self, text: &str) {
        self.page.says(text).await.unwrap();
    }

    pub(crate) async fn press(&self, text: &str) {
        self.page.press(text).await.unwrap();
    }

    pub(crate) async fn number(&self, expression: &str) -> i64 {
        self.page.value(expression).await.unwrap().as_i64().unwrap()
    }

    /// Nothing went wrong in the page, and it talked to nobody but the server.
    pub(crate) fn is_clean(&self) {
        assert_eq!(self.page.complaints(), Vec::<String>::new());
        let foreign: Vec<String> = self
            .page
            .requests()
            .into_iter()
            .filter(|url| !url.starts_with(&self.rig.root) && !url.starts_with("about:"))
            .collect();
        assert_eq!(foreign, Vec::<String>::new());
    }
}
