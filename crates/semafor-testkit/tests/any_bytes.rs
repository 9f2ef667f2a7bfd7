//! Whatever a server, a client or a user sends: no panic, and no unbounded memory.
//!
//! Each target runs its saved inputs and random changes of them. `SEMAFOR_FUZZ_SECONDS=600` runs more of them, with a new
//! seed, and `cargo xtask fuzz` searches with libFuzzer.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use semafor_testkit::fuzz::{Mutations, Target};
use semafor_testkit::heap::Counting;

#[global_allocator]
static HEAP: Counting = Counting;

/// How many changed inputs run, if there is time.
const MUTATIONS: usize = 3_000;
const SECONDS: u64 = 4;

/// Runs an input. It is in a file while it runs, so that it can be found if it never ends or the process is killed.
fn run(target: &Target, name: &str, input: &[u8]) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
    fs::write(&path, input).expect("a file can be written");
    if let Err(complaint) = target.check(input) {
        let text = String::from_utf8_lossy(input);
        panic!("{} of {}: {complaint}. The input is in {}:\n{text}", name, target.name, path.display());
    }
}

fn check(name: &str) {
    // A panic of any thread counts for the input that runs.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Target::named(name).expect("a target");
    for (name, input) in target.corpus() {
        run(target, &name, &input);
    }
    let seconds = std::env::var("SEMAFOR_FUZZ_SECONDS").ok().map(|text| text.parse().expect("a number"));
    let new_seed = || SystemTime::UNIX_EPOCH.elapsed().expect("a later time").as_nanos() as u64;
    let (seed, most) = seconds.map_or((1, MUTATIONS), |_| (new_seed(), usize::MAX));
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let mut count = 0;
    for input in Mutations::of(target, seed).take(most).take_while(|_| Instant::now() < end) {
        run(target, &format!("a change with the seed {seed}"), &input);
        count += 1;
    }
    println!("{count} changed inputs");
}

#[test]
fn durations_and_numbers_of_slots_of_the_command() {
    check("durations");
}

#[test]
fn replies_and_pushes_of_redis() {
    check("redis");
}

#[test]
fn requests_to_the_agent() {
    check("requests");
}

#[test]
fn responses_of_the_agent() {
    check("responses");
}

#[test]
fn traces_of_the_scheduler() {
    check("traces");
}

#[test]
fn urls() {
    check("urls");
}

/// A file in a folder that no target reads would be no test.
#[test]
fn each_folder_of_saved_inputs_has_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for folder in fs::read_dir(corpus).expect("the saved inputs").flatten() {
        let name = folder.file_name().into_string().expect("a name");
        assert!(Target::named(&name).is_some(), "{name} is the name of no target");
    }
}
