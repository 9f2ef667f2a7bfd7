//! The scripts on the server: their text, their data and their replies.

pub(super) mod lua;
#[cfg(all(test, feature = "_test-redis"))]
mod model;
pub(super) mod reply;
pub(super) mod schema;
