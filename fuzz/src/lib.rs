//! Connects the targets of `semafor-testkit` with libFuzzer.

use std::cell::RefCell;

use semafor_testkit::fuzz::{Mutations, Target};
use semafor_testkit::heap::Counting;

/// Lets targets check how much memory they need.
#[global_allocator]
static HEAP: Counting = Counting;

#[doc(hidden)]
pub use libfuzzer_sys;

/// Makes a program of a target.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(|input: &[u8]| $crate::run($name, input));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
            $crate::mutate($name, data, size, most, seed)
        });
    };
}

fn target(name: &str) -> &'static Target {
    Target::named(name).expect("a target of semafor-testkit")
}

#[doc(hidden)]
pub fn run(name: &str, input: &[u8]) {
    if let Err(complaint) = target(name).check(input) {
        panic!("{complaint}");
    }
}

/// Half of the changes are those of the tests, which know the words of the target; the others are libFuzzer's own.
#[doc(hidden)]
pub fn mutate(name: &str, data: &mut [u8], size: usize, most: usize, seed: u32) -> usize {
    thread_local! {
        static MUTATIONS: RefCell<Option<Mutations>> = const { RefCell::new(None) };
    }
    if seed.is_multiple_of(2) {
        return libfuzzer_sys::fuzzer_mutate(data, size, most);
    }
    let mut input = data[..size].to_vec();
    MUTATIONS.with_borrow_mut(|mutations| {
        let mutations = mutations.get_or_insert_with(|| Mutations::of(target(name), 0));
        mutations.reseed(seed.into());
        mutations.change(&mut input);
    });
    let size = input.len().min(most);
    data[..size].copy_from_slice(&input[..size]);
    size
}
