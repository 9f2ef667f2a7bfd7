//! Reads the replies of the scripts.

use std::time::Duration;

use redis::Value;
use semafor_core::{Loss, NotHeld};

use super::schema::ending;
use crate::error::{HomeError, HomeErrorKind};

/// A list in a reply, read from its start.
pub(in crate::redis) struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    pub(in crate::redis) fn of(value: Value) -> Result<Self, HomeError> {
        value.into_sequence().map(|words| Self(words.into_iter())).map_err(|value| unexpected(&value))
    }

    pub(in crate::redis) fn next(&mut self) -> Result<Value, HomeError> {
        self.0.next().ok_or_else(|| unexpected(&Value::Nil))
    }

    pub(in crate::redis) fn text(&mut self) -> Result<String, HomeError> {
        text(self.next()?)
    }

    pub(in crate::redis) fn number<N: TryFrom<i64>>(&mut self) -> Result<N, HomeError> {
        number(&self.next()?)
    }

    /// Seconds since the epoch, or a duration in seconds; `None` for an empty text.
    pub(in crate::redis) fn seconds(&mut self) -> Result<Option<f64>, HomeError> {
        let text = self.text()?;
        if text.is_empty() { Ok(None) } else { read_seconds(&text).map(Some) }
    }

    /// Seconds that must not be missing.
    pub(in crate::redis) fn some_seconds(&mut self) -> Result<f64, HomeError> {
        read_seconds(&self.text()?)
    }

    pub(in crate::redis) fn list(&mut self) -> Result<Self, HomeError> {
        Self::of(self.next()?)
    }

    /// Pairs of keys and values: maps in RESP3, lists in RESP2.
    pub(in crate::redis) fn pairs(value: Value) -> Result<Vec<(String, String)>, HomeError> {
        let flat: Vec<Value> = match value {
            Value::Map(pairs) => pairs.into_iter().flat_map(|(key, value)| [key, value]).collect(),
            value => value.into_sequence().map_err(|value| unexpected(&value))?,
        };
        let mut pairs = Vec::with_capacity(flat.len() / 2);
        let mut flat = flat.into_iter();
        while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
            pairs.push((text(key)?, text(value)?));
        }
        Ok(pairs)
    }

    pub(in crate::redis) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    pub(in crate::redis) fn rest(self) -> impl Iterator<Item = Value> {
        self.0
    }
}

pub(in crate::redis) fn text(value: Value) -> Result<String, HomeError> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Ok(text),
        Value::Int(number) => Ok(number.to_string()),
        Value::Double(number) => Ok(number.to_string()),
        value => Err(unexpected(&value)),
    }
}

pub(in crate::redis) fn number<N: TryFrom<i64>>(value: &Value) -> Result<N, HomeError> {
    let number = match value {
        Value::Int(number) => Some(*number),
        value => text(value.clone())?.parse().ok(),
    };
    number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| unexpected(value))
}

/// A duration as an argument of a script. Whole seconds have no decimal point.
pub(in crate::redis) fn seconds(span: Duration) -> String {
    if span.subsec_nanos() == 0 { span.as_secs().to_string() } else { span.as_secs_f64().to_string() }
}

fn read_seconds(text: &str) -> Result<f64, HomeError> {
    text.parse().map_err(|_| unexpected(&Value::SimpleString(text.into())))
}

pub(in crate::redis) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

pub(in crate::redis) fn unexpected(value: &Value) -> HomeError {
    let message = format!(
        "Redis gave an unexpected reply: {value:?}. Does another version of semafor use this namespace?"
    );
    HomeError::new(HomeErrorKind::Other, message)
}

/// How an id ended.
pub(in crate::redis) fn read_ending(code: i64) -> NotHeld {
    match code {
        ending::RELEASED | ending::UNWANTED | ending::REPEATED => NotHeld::Released,
        ending::EXPIRED => NotHeld::Lost(Loss::Expired),
        ending::EVICTED => NotHeld::Lost(Loss::Evicted),
        ending::VANISHED => NotHeld::Lost(Loss::Vanished),
        _ => NotHeld::Unknown,
    }
}
