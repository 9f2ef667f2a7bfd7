//! The table of promises names tests that exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

fn text_of_tests() -> io::Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let files =
        files.iter().map(fs::DirEntry::path).filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files.map(fs::read_to_string).collect()
}

#[test]
fn every_test_named_in_the_table_exists() {
    let tests = text_of_tests().unwrap();
    let table = include_str!("../PROMISES.md").lines().filter(|line| line.starts_with('|'));
    let quoted = table.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_test = |word: &&str| word.matches('_').count() >= 2;
    let named: BTreeSet<_> = quoted.filter(is_test).collect();
    assert!(named.len() > 50, "{}", named.len());
    for name in named {
        assert!(tests.contains(&format!("fn {name}(")), "no test {name}");
    }
}
