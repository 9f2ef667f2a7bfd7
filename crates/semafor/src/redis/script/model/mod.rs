//! Tests of the scripts on a server, with a clock that the test holds.

mod clock;
mod closing;
mod core_game;
mod fencing;
mod heartbeats;
mod lost_keys;
mod play;
mod request;
mod scripts;
