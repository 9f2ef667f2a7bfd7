//! Whole fleets in one thread: clients, a network and a server, under a clock that the simulation holds.

pub mod redis;
