//! Memory against the number of directories.

use std::path::Path;

use semafor_benchmarks::Report;
use semafor_testkit::trees::{Tree, fan, flat, spacious};

use super::tool::{ROOT, Tool};

/// The name of a tree, and the function that creates it with so many directories.
type Shape = (&'static str, fn(&Path, u64) -> Tree);

const SHAPES: [Shape; 2] =
    [("in a fan", |root, dirs| fan(root, dirs, 10)), ("in one directory", |root, dirs| flat(root, dirs))];

pub(super) fn measure(report: &mut Report) {
    for (shape, make) in SHAPES {
        let peaks = [10_000, 1_000_000].map(|dirs| {
            let [ours, theirs] = [Tool::ours(), Tool::find()].map(|tool| {
                let folder = spacious();
                let tree = make(&folder.path().join(ROOT), dirs);
                let taken = tool.run(folder.path());
                tool.assert_has_purged(folder.path(), tree);
                taken.kib
            });
            report.add(&format!("{dirs} {shape}: memory"), "KiB", ours, Tool::find().name, theirs);
            (ours, theirs)
        });
        let [few, many] = peaks;
        let grown = format!("10,000 to 1,000,000 {shape}: growth");
        report.add(&grown, "KiB", many.0 - few.0, Tool::find().name, many.1 - few.1);
    }
}
