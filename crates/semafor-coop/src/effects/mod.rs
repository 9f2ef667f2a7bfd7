//! The built-in effects.

mod promise;
mod semaphore;
mod spawn;
mod time;
mod wait;

pub use promise::{CompletePromise, CreateExternalPromise, CreatePromise, FailPromise, Promise};
pub use semaphore::{
    AcquirePermit, AcquireSemaphore, CreateSemaphore, Demand, GuardedDemand, ReleaseSemaphore,
    TryAcquireSemaphore, WithSemaphore,
};
pub use spawn::{Cancel, Spawn};
pub(crate) use spawn::{Spawned, program_of};
pub use time::{Delay, Log, Now, Yield};
pub use wait::{Gather, Race, Wait, WaitAt};
