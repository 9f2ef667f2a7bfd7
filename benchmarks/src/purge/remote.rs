//! Where every operation takes 2 ms, as over a network.

use std::fs::{remove_dir, symlink_metadata};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use semafor_benchmarks::Report;
use semafor_testkit::trees::{Tree, fan, flat, mixed};

use super::latency_fs::LatencyFs;
use super::runner::Taken;
use super::tool::{ROOT, Tool};

const LATENCY: Duration = Duration::from_millis(2);
const DIRS: u64 = 2_000;

/// The name of a tree, and the function that creates it.
type Shape = (&'static str, fn(&Path) -> Tree);

const FLAT: Shape = ("2,000 in one directory, 2 ms", |root| flat(root, DIRS));
const SHAPES: [Shape; 3] = [
    ("fan of 2,000, 2 ms", |root| fan(root, DIRS, 10)),
    FLAT,
    ("2,000, some with files, 2 ms", |root| mixed(root, DIRS, 10)),
];

pub(super) fn measure(report: &mut Report, tools: &[Tool], is_private: bool) {
    let folder = tempfile::tempdir().expect("a directory of our own");
    let mount = |fs: &LatencyFs, latency| fs.mount(folder.path(), latency, is_private);
    if let Err(error) = mount(&LatencyFs::new(), LATENCY) {
        println!("left out: a file system that takes 2 ms: FUSE is not available here: {error}");
        return;
    }
    let setup = |make: fn(&Path) -> Tree| {
        let fs = LatencyFs::new();
        let mounted = mount(&fs, Duration::ZERO).expect("it could be mounted a moment ago");
        let tree = make(&folder.path().join(ROOT));
        // Mount again, so that the kernel forgets its cache.
        drop(mounted);
        let mounted = mount(&fs, LATENCY).expect("it could be mounted a moment ago");
        (fs, mounted, tree)
    };

    for (shape, make) in SHAPES {
        let taken: Vec<(Taken, f64)> = tools
            .iter()
            .map(|tool| {
                let (fs, mounted, tree) = setup(make);
                let taken = tool.run(folder.path());
                let trips = fs.trips() as f64 / tree.dirs as f64;
                drop(mounted);
                let _quick = mount(&fs, Duration::ZERO).expect("it could be mounted a moment ago");
                tool.assert_has_purged(folder.path(), tree);
                (taken, trips)
            })
            .collect();
        let (ours, our_trips) = taken[0];
        for (tool, (theirs, trips)) in tools.iter().zip(&taken).skip(1) {
            report.add(shape, "ms", ours.millis, tool.name, theirs.millis);
            report.add(&format!("{shape}: trips for each"), "trips", our_trips, tool.name, *trips);
        }
        if shape == FLAT.0 {
            let (_fs, _mounted, tree) = setup(make);
            let floor = one_after_the_other(&folder.path().join(ROOT), tree.dirs);
            report.add(shape, "ms", ours.millis, "one rmdir after the other, all looked up before", floor);
        }
    }
}

/// The floor in one directory: the kernel allows one removal at a time there, and here nothing else is timed.
fn one_after_the_other(root: &Path, dirs: u64) -> f64 {
    let path = |number: u64| root.join(format!("d{number}"));
    thread::scope(|scope| {
        for part in 0..64 {
            scope.spawn(move || {
                (part..dirs).step_by(64).for_each(|number| {
                    symlink_metadata(path(number)).expect("it is there");
                });
            });
        }
    });
    let start = Instant::now();
    (0..dirs).for_each(|number| remove_dir(path(number)).expect("it is empty"));
    start.elapsed().as_secs_f64() * 1e3
}
