//! Ids of acquisitions: 32 hexadecimal digits, as the Python library has them, and without its `%` trap.
//!
//! 8 say which name it is for, 12 which process issued it, 12 count. The scripts read the process off the id, to know on
//! which channel to tell it something.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use crate::remote::call::Key;

pub(super) struct Ids {
    process: String,
}

impl Ids {
    pub(super) fn new() -> Self {
        let mut random = RandomState::new().build_hasher();
        random.write_u32(std::process::id());
        Self { process: format!("{:012x}", random.finish() & 0xffff_ffff_ffff) }
    }

    pub(super) fn process(&self) -> &str {
        &self.process
    }

    /// The id of one of this process's acquisitions.
    pub(super) fn text(&self, name: &str, Key(key): Key) -> Arc<str> {
        format!("{:08x}{}{:012x}", fnv(name), self.process, key & 0xffff_ffff_ffff).into()
    }

    /// The acquisition of that id, if it is one of this process's.
    pub(super) fn key_of(&self, id: &str) -> Option<Key> {
        let digits = id.get(20..).filter(|_| self.is_own(id))?;
        u64::from_str_radix(digits, 16).ok().map(Key)
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
        let (a, b) = (ours.text("images", Key(1)), ours.text("images", Key(2)));
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[8..20]), (32, ours.process()));
        assert!(ours.is_own(&a) && !theirs.is_own(&a));
        assert_eq!((ours.key_of(&b), theirs.key_of(&b)), (Some(Key(2)), None));
        assert!(may_be_of(&a, "images") && !may_be_of(&a, "videos"));
        assert!(a.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
