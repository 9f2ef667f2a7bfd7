//! Finding one of a million names, beside a plain map of semaphores.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use semafor::Registry;
use semafor_benchmarks::{Report, nanos_per};

const NAMES: usize = 1_000_000;
const LOOKUPS: usize = 100_000;

pub(super) fn measure(report: &mut Report, rounds: usize) {
    let names: Vec<_> = (0..NAMES).map(|n| format!("user:{n}")).collect();
    // A stride through the names, so that neither side finds its entry in the cache.
    let wanted = || (0..LOOKUPS).map(|n| &names[n * 7_919 % NAMES]);

    let registry = Registry::new();
    let open = |name: &String| registry.named(name).slots(3).build().expect("valid options");
    let _handles: Vec<_> = names.iter().map(open).collect();
    let home_grown: HashMap<_, _> =
        names.iter().map(|name| (name.clone(), Arc::new(tokio::sync::Semaphore::new(3)))).collect();
    let home_grown = Mutex::new(home_grown);

    report.compare(
        "open one of 1,000,000 names",
        "ns",
        rounds,
        vec![
            (
                "ours",
                Box::new(|| nanos_per(LOOKUPS, || wanted().for_each(|name| drop(black_box(open(name)))))),
            ),
            (
                "Mutex<HashMap<Arc<tokio>>>",
                Box::new(|| {
                    let look_up = |name: &String| {
                        drop(black_box(home_grown.lock().ok().and_then(|map| map.get(name).cloned())));
                    };
                    nanos_per(LOOKUPS, || wanted().for_each(look_up))
                }),
            ),
        ],
    );
}
