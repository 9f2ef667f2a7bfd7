//! Ids of acquisitions: 32 hexadecimal digits, as in the Python library, so without a `%`, which is a trap there.
//!
//! 8 digits identify the name, 12 the process that issued the id, and 12 count. The scripts read the process from the id,
//! to know the channel for its messages.

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
        Self::of_process(random.finish())
    }

    pub(super) fn of_process(number: u64) -> Self {
        Self { process: format!("{:012x}", number & 0xffff_ffff_ffff) }
    }

    pub(super) fn process(&self) -> &str {
        &self.process
    }

    /// The id of an acquisition of this process.
    pub(super) fn text(&self, name: &str, Key(key): Key) -> Arc<str> {
        format!("{:08x}{}{:012x}", fnv(name), self.process, key & 0xffff_ffff_ffff).into()
    }

    /// The acquisition with that id, if this process issued it.
    pub(super) fn key_of(&self, id: &str) -> Option<Key> {
        let digits = id.get(20..).filter(|_| self.is_own(id))?;
        u64::from_str_radix(digits, 16).ok().map(Key)
    }

    /// True if this process issued it.
    pub(super) fn is_own(&self, id: &str) -> bool {
        id.get(8..20) == Some(&self.process)
    }
}

/// True if `id` looks like an id for `name`; ids of the Python library do not show their name.
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
