//! Which types may move to other threads.

use semafor_coop::{
    Ctx, Deadlock, Error, Eventual, ExternalPromise, Permit, Promise, Runtime, Semaphore, Stall, Task, Trace,
};

macro_rules! is {
    ($kind:ty: $auto:ident) => {{
        #[allow(dead_code)]
        trait Otherwise {
            const IS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        impl<T: ?Sized + $auto> Probe<T> {
            const IS: bool = true;
        }
        Probe::<$kind>::IS
    }};
}

#[test]
fn errors_traces_and_external_promises_are_send_and_handles_are_not() {
    assert!(is!(Error: Send) && is!(Error: Sync) && is!(Deadlock: Send) && is!(Trace: Send));
    assert!(is!(Runtime: Send) && is!(Runtime: Sync) && is!(Stall: Send));
    assert!(is!(ExternalPromise<u8>: Send) && is!(ExternalPromise<u8>: Sync));
    assert!(!is!(Ctx: Send) && !is!(Semaphore: Send) && !is!(Permit: Send));
    assert!(!is!(Task<u8>: Send) && !is!(Promise<u8>: Send) && !is!(Eventual<u8>: Send));
}

#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 24, "{}", size_of::<Error>());
}
