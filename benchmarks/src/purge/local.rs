//! Where operations are cheap: in memory, and on the file system of the build.

use std::fs::File;
use std::path::Path;

use rustix::fs::syncfs;
use semafor_benchmarks::{Report, median};
use semafor_testkit::trees::{Tree, chain, fan, flat, mixed};

use super::runner::Taken;
use super::tool::{ROOT, Tool};

/// The name of a tree, and the function that creates it.
type Shape = (&'static str, fn(&Path) -> Tree);

const SHAPES: [Shape; 4] = [
    ("fan of 100,000", |root| fan(root, 100_000, 10)),
    ("50,000 in one directory", |root| flat(root, 50_000)),
    ("100,000, some with files", |root| mixed(root, 100_000, 10)),
    ("chain of 2,000", |root| chain(root, 2_000)),
];

/// Not in `/tmp`, which may be in memory as well.
pub(super) const PLACES: [(&str, &str); 2] = [("tmpfs", "/dev/shm"), ("disk", "target/bench")];

pub(super) fn measure(report: &mut Report, tools: &[Tool], rounds: usize, place: &str, folder: &str) {
    std::fs::create_dir_all(folder).expect("it can be made");
    for shape in &SHAPES {
        measure_shape(report, tools, rounds, shape, place, folder);
    }
}

fn measure_shape(
    report: &mut Report,
    tools: &[Tool],
    rounds: usize,
    (shape, make): &Shape,
    place: &str,
    folder: &str,
) {
    let mut taken: Vec<Vec<Taken>> = tools.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (tool, taken) in tools.iter().zip(&mut taken) {
            let folder = tempfile::tempdir_in(folder).expect("a directory of our own");
            let tree = make(&folder.path().join(ROOT));
            // Otherwise the new tree is written to disk while it is removed.
            syncfs(File::open(folder.path()).expect("it was made")).expect("it can be written");
            taken.push(tool.run(folder.path()));
            tool.assert_has_purged(folder.path(), tree);
        }
    }
    let median_of = |tool: usize, value: fn(&Taken) -> f64| median(taken[tool].iter().map(value).collect());
    let work = format!("{shape}, {place}");
    for (peer, tool) in tools.iter().enumerate().skip(1) {
        let [ours, theirs] = [0, peer].map(|tool| median_of(tool, |taken| taken.millis));
        report.add(&work, "ms", ours, tool.name, theirs);
    }
    for (peer, tool) in tools.iter().enumerate().skip(1) {
        let [ours, theirs] = [0, peer].map(|tool| median_of(tool, |taken| taken.kib));
        report.add(&format!("{work}: memory"), "KiB", ours, tool.name, theirs);
    }
}
