//! A timer on a clock that goes on while the machine is suspended.

use crate::remote::clock::Instant;

/// Wakes a task at a time on this clock, also right after a suspend if the time has passed meanwhile.
///
/// Must be created in a runtime with I/O enabled, and used by one task only.
pub(super) struct Alarm(#[cfg(any(target_os = "linux", target_os = "android"))] Option<timer::Timer>);

impl Alarm {
    pub(super) fn new() -> Self {
        Self(
            #[cfg(any(target_os = "linux", target_os = "android"))]
            timer::Timer::new().ok(),
        )
    }

    /// Sleeps until that time, or a little longer. Cancel safe.
    pub(super) async fn sleep_until(&self, then: Instant) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(timer) = &self.0
            && timer.sleep_until(then).await.is_ok()
        {
            return;
        }
        tokio::time::sleep_until(then.into()).await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod timer {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            // SAFETY: `OwnedFd` owns its descriptor, which stays the same until it is dropped with this.
            let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
            Ok(Self(timer))
        }

        pub(super) async fn sleep_until(&self, then: super::Instant) -> io::Result<()> {
            let then = Timespec {
                tv_sec: then.since_origin().as_secs().try_into().unwrap_or(i64::MAX),
                // Zero would disarm the timer.
                tv_nsec: then.since_origin().subsec_nanos().max(1).into(),
            };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            // This replaces an earlier setting, also one that has expired.
            let setting = Itimerspec { it_interval: never, it_value: then };
            timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &setting)?;
            loop {
                let mut ready = self.0.readable().await?;
                match rustix::io::read(self.0.get_ref(), &mut [0; 8]) {
                    Ok(_) => return Ok(()),
                    Err(Errno::AGAIN) => ready.clear_ready(),
                    Err(error) => return Err(error.into()),
                }
            }
        }

        #[cfg(test)]
        pub(super) fn descriptor(&self) -> i32 {
            use std::os::fd::AsRawFd;
            self.0.get_ref().as_raw_fd()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::remote::clock::tests::ONE_AT_A_TIME;

    #[tokio::test]
    async fn alarm_wakes_and_can_be_set_again() {
        let _turn = ONE_AT_A_TIME.lock().await;
        let alarm = Alarm::new();
        let started = Instant::now();
        let soon = Duration::from_millis(20);
        for round in 1..=3 {
            let then = started + soon * round;
            alarm.sleep_until(then).await;
            assert!(Instant::now() >= then);
        }
        // An earlier setting has no effect, even if its time has passed.
        let unfinished =
            tokio::time::timeout(Duration::from_millis(1), alarm.sleep_until(Instant::now() + soon)).await;
        assert!(unfinished.is_err());
        std::thread::sleep(soon);
        let later = Instant::now() + soon;
        alarm.sleep_until(later).await;
        assert!(Instant::now() >= later);
        // A time in the past wakes at once.
        alarm.sleep_until(started).await;
    }

    /// A test can't suspend the machine, but it can see which clock is used.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn alarm_uses_the_clock_that_goes_on_while_the_machine_is_suspended() {
        const CLOCK_BOOTTIME: &str = "clockid: 7";
        let alarm = Alarm::new();
        let descriptor = alarm.0.as_ref().expect("a timer").descriptor();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).expect("it is open");
        assert!(info.lines().any(|line| line == CLOCK_BOOTTIME), "{info}");
    }
}
