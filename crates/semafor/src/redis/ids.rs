//! Ids of acquisitions: 32 hexadecimal digits, as the Python library has them, and without its `%` trap.
//!
//! 8 say which name it is for, 12 which process issued it, 12 count. The scripts read the process off the id, to know on
//! which channel to tell it something.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Ids {
    process: String,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        let mut random = RandomState::new().build_hasher();
        random.write_u32(std::process::id());
        Self { process: format!("{:012x}", random.finish() & 0xffff_ffff_ffff), next: AtomicU64::new(0) }
    }

    pub(super) fn process(&self) -> &str {
        &self.process
    }

    pub(super) fn issue(&self, name: &str) -> Arc<str> {
        let count = self.next.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff_ffff;
        format!("{:08x}{}{count:012x}", fnv(name), self.process).into()
    }

    /// True if this process issued it.
    pub(super) fn is_own(&self, id: &str) -> bool {
        id.get(8..20) == Some(&self.process)
    }
}

/// True if `id` looks like one for `name`; those of the Python library do not say.
pub(super) fn may_be_of(id: &str, name: &str) -> bool {
    id.get(..8).is_some_and(|digits| digits == format!("{:08x}", fnv(name)))
}

fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_know_their_name_and_process() {
        let (ours, theirs) = (Ids::new(), Ids::new());
        let (a, b) = (ours.issue("images"), ours.issue("images"));
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[8..20]), (32, ours.process()));
        assert!(ours.is_own(&a) && !theirs.is_own(&a));
        assert!(may_be_of(&a, "images") && !may_be_of(&a, "videos"));
        assert!(a.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
