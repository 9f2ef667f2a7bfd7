//! What mdBook warns of.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects warnings and errors that are logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// What was logged while `work` ran, and what it returned.
    pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
        let warnings = Self::default();
        let value = tracing::subscriber::with_default(warnings.clone(), work);
        let logged = std::mem::take(&mut *warnings.0.lock().unwrap_or_else(PoisonError::into_inner));
        (value, logged)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_collected_and_chatter_is_not() {
        let ((), logged) = Warnings::of(|| {
            tracing::info!("a page");
            tracing::warn!("an odd page");
            tracing::error!(page = 3, "a bad page");
        });
        assert_eq!(logged, ["an odd page", "a bad page page=3"]);
    }
}
