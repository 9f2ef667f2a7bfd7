/// Call this first in a child process that was made by `fork` and continues without `exec`.
///
/// The child has none of the threads that watch deadlines and send heartbeats, and shares the connections of its
/// parent. After this call, everything the child opens gets its own threads and connections. Semaphores, permits and
/// futures that it inherited belong to the parent: do not use or drop them (call [`std::mem::forget`]).
pub fn after_fork() {
    crate::memory::after_fork();
    #[cfg(feature = "local")]
    crate::local::after_fork();
    #[cfg(feature = "redis")]
    crate::redis::after_fork();
}
