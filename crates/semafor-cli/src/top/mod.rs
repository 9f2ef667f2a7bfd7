//! `semafor top`: names, bars, holders, waiters and wait times, live in the terminal.
//!
//! - `live` brings it together: keys, signals, and looks at the home.
//! - `app` is what is shown and how keys change it, as plain data.
//! - `watch` asks the home, `seen` is its answer.
//! - `view` draws.
//! - `terminal` takes the terminal over, and gives it back however this ends.

mod address;
mod app;
mod event_loop;
mod query;
mod snapshot;
mod terminal;
mod view;

pub(crate) use event_loop::top;
