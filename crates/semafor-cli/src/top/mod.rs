//! `semafor top`: names, bars, holders, waiters and wait times, live in the terminal.
//!
//! - `event_loop` waits for keys, signals and answers of the home.
//! - `app` is the state of the screen, as plain data.
//! - `query` asks the home, `snapshot` is the answer.
//! - `view` draws.
//! - `terminal` takes over the terminal, and always restores it.

mod address;
mod app;
mod event_loop;
mod query;
mod snapshot;
mod terminal;
mod view;

pub(crate) use event_loop::top;
