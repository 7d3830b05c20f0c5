//! One tab.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::{Value, json};

use crate::browser::Wire;

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked at.
const GLANCE: Duration = Duration::from_millis(25);

/// A tab, and what went on in it.
pub struct Page {
    wire: Arc<Wire>,
    session: String,
    seen: Arc<Mutex<Seen>>,
}

/// What the tab did besides what it was told.
#[derive(Debug, Default, Clone)]
struct Seen {
    /// Errors on the console, exceptions, and what the page's policy refused.
    complaints: Vec<String>,
    /// The addresses that were asked for.
    requests: Vec<String>,
}

impl Page {
    pub(crate) async fn open(wire: Arc<Wire>, session: String) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        tokio::spawn(watch(wire.events(), session.clone(), seen.clone()));
        let page = Self { wire, session, seen };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({})).await?;
        }
        page.size(1280, 800, false).await?;
        Ok(page)
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.wire.call(Some(&self.session), method, params).await
    }

    /// Makes the window so large; a phone also touches.
    pub async fn size(&self, width: u32, height: u32, phone: bool) -> Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await.map(drop)
    }

    /// Prefers `light` or `dark`.
    pub async fn scheme(&self, scheme: &str) -> Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// Goes to an address.
    pub async fn visit(&self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", json!({"url": url})).await?;
        match answer["errorText"].as_str() {
            Some(error) => bail!("cannot visit {url}: {error}"),
            None => Ok(()),
        }
    }

    /// The value of an expression, awaited if it is a promise.
    pub async fn value(&self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params).await?;
        if let Some(exception) = answer.get("exceptionDetails") {
            bail!("{expression}: {exception}");
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub async fn until(&self, expression: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // While a page is being left there is nothing to ask.
            let value = self.value(&format!("Boolean({expression})")).await;
            if matches!(value, Ok(Value::Bool(true))) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = self.value("document.body.innerText").await?;
                let complaints = self.complaints();
                bail!("it never came true: {expression}\n{value:?}\n{complaints:?}\nthe page says:\n{text}");
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Waits until the page says `text`.
    pub async fn says(&self, text: &str) -> Result<()> {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await
    }

    /// Waits for an element and clicks on it as a person would.
    pub async fn click(&self, selector: &str) -> Result<()> {
        self.click_on(&format!("document.querySelector({})", json!(selector))).await
    }

    /// Waits for a button or link with this text and clicks on it.
    pub async fn press(&self, text: &str) -> Result<()> {
        let all = "[...document.querySelectorAll('dialog[open] button, button, a, summary')]";
        let wanted = json!(text);
        self.click_on(&format!("{all}.find((one) => one.innerText.trim() === {wanted} && !one.disabled)"))
            .await
    }

    async fn click_on(&self, element: &str) -> Result<()> {
        self.until(&format!("({element})?.getBoundingClientRect().width > 0")).await?;
        let place = self
            .value(&format!(
                "(() => {{ const one = {element}; one.scrollIntoView({{block: 'nearest'}}); \
                 const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
            ))
            .await?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Writes into a field, in place of what was there.
    pub async fn fill(&self, selector: &str, text: &str) -> Result<()> {
        let field = format!("document.querySelector({})", json!(selector));
        self.until(&field).await?;
        self.value(&format!("{field}.focus(), {field}.select()")).await?;
        self.call("Input.insertText", json!({"text": text})).await.map(drop)
    }

    /// Presses a key, by its name.
    pub async fn key(&self, key: &str) -> Result<()> {
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "End" => 35,
            other => other.bytes().next().map_or(0, u32::from),
        };
        let text = match key {
            "Enter" => "\r",
            one if one.len() == 1 => one,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// A picture of the window, as PNG.
    pub async fn picture(&self) -> Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", json!({})).await?;
        let data = answer["data"].as_str().context("the browser gave no picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(data)?)
    }

    /// Errors on the console, exceptions, and what the page's policy refused.
    pub fn complaints(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).complaints.clone()
    }

    /// The addresses that were asked for.
    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }
}

async fn watch(
    mut events: tokio::sync::broadcast::Receiver<Arc<Value>>,
    session: String,
    seen: Arc<Mutex<Seen>>,
) {
    while let Ok(event) = events.recv().await {
        if event["sessionId"] != session.as_str() {
            continue;
        }
        let params = &event["params"];
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => seen.complaints.push(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
                seen.complaints.push(params["args"].to_string());
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                seen.complaints.push(params["entry"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                seen.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }
}
