//! Ending in good order.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled on the first SIGTERM or SIGINT.
///
/// A second signal ends the process at once, for people who press Ctrl-C again.
///
/// # Errors
/// When the process may not install signal handlers.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        for again in [false, true] {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if again {
                tracing::warn!(signal = name, "stopping at once");
                #[allow(clippy::exit, reason = "the user insists")]
                std::process::exit(130);
            }
            tracing::info!(signal = name, "stopping");
            cancelled.cancel();
        }
    });
    Ok(token)
}
