/// For a child made by `fork` that goes on without `exec`: call it first of all there.
///
/// The child has none of the threads that watch deadlines and send heartbeats, and shares the connections of its parent.
/// After this it makes its own, for whatever it opens from then on. What it has inherited, semaphores, permits and futures,
/// is its parent's: neither use nor drop it ([`std::mem::forget`] does).
pub fn after_fork() {
    crate::memory::after_fork();
    #[cfg(feature = "local")]
    crate::local::after_fork();
    #[cfg(feature = "redis")]
    crate::redis::after_fork();
}
