//! Draws the state of the app.

mod columns;
mod detail;
mod footer;
mod frame;
mod help;
mod names;
mod paint;
#[cfg(test)]
mod tests;

pub(super) use frame::draw;
pub(super) use paint::Paint;
